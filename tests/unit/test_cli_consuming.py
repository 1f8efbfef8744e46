"""``rollcall topics`` and ``rollcall groups``: what they print, which orders they give, how they end."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from rollcall_ha.cli import context
from rollcall_ha.cli.main import app
from rollcall_ha.controller.contract.consuming import (
    BrokerOrder,
    BrokersAnswer,
    ChangeGroup,
    ChangeTopic,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    GroupAnswer,
    GroupLine,
    GroupMember,
    GroupPage,
    GroupQueue,
    GroupSettings,
    Joined,
    Outcome,
    Permission,
    ResetGroup,
    SetOutcome,
    SetRead,
    TopicAnswer,
    TopicLine,
    TopicPage,
    TopicQueue,
)
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from tests.support.cli import CliRunner

A, B = (SetKey(ClusterName("c"), BrokerName(name)) for name in "ab")
READ: tuple[SetRead, ...] = (SetRead(set_key=A), SetRead(set_key=B))


def group_line(name: str, key: SetKey, lag: int, stuck: int = 0) -> GroupLine:
    return GroupLine(group=name, set_key=key, members=1, topics=2, lag=lag, stuck_queues=stuck)


def topic_line(name: str, key: SetKey, queues: int, *, is_own: bool = False) -> TopicLine:
    return TopicLine(
        topic=name, set_key=key, read_queues=queues, write_queues=queues, permission=Permission.READ, is_own=is_own
    )


def queue(number: int, offset: int | None, holder: str, still_ms: int | None, *, is_stuck: bool = False) -> GroupQueue:
    return GroupQueue(
        set_key=A,
        topic="T",
        queue_id=number,
        min_offset=0,
        max_offset=1_200,
        offset=offset,
        lag=None if offset is None else 1_200 - offset,
        holder=holder,
        still_ms=still_ms,
        is_stuck=is_stuck,
    )


class Asked:
    """Answers as the client would: the part of ``Client`` that these commands use."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.read = READ
        self.orders: list[BrokerOrder] = []
        self.previews: list[BrokerOrder] = []
        self.outcomes = outcomes or (Outcome.DONE,)

    def __enter__(self) -> Asked:
        return self

    def close(self) -> None:
        pass

    def consuming(self, kind: type[Joined], what: str, *, name: str = "", topic: str = "") -> Joined:
        of, _, called = what.partition("/")
        if not called:
            assert (kind is TopicPage) is (of == "topics")
            return self._topics(name) if kind is TopicPage else self._groups(name)
        return self._topic(called) if of == "topics" else self._group(called)

    def _topics(self, part: str = "") -> TopicPage:
        lines = [
            topic_line(name, key, count) for name, key, count in (("T", A, 8), ("T", B, 4), ("U", A, 1)) if part in name
        ]
        own = topic_line("own", A, 1, is_own=True)
        return TopicPage(read=self.read, topics=(*lines, own))

    def _topic(self, name: str) -> TopicAnswer:
        kept = TopicQueue(set_key=A, queue_id=0, min_offset=10, max_offset=30)
        lines = tuple(one for one in self._topics().topics if one.topic == name)
        return TopicAnswer(read=self.read, topics=lines, queues=(kept,), groups=(group_line("g", A, 7),))

    def _groups(self, part: str) -> GroupPage:
        every = (group_line("calm", A, 0), group_line("late", A, 1_000), group_line("late", B, 5, 2))
        return GroupPage(read=self.read, groups=tuple(one for one in every if part in one.group))

    def _group(self, name: str) -> GroupAnswer:
        member = GroupMember(client_id="c1", set_key=A, address="10.0.0.1:1", queues=1, lag=1_100, stuck_queues=1)
        queues = (queue(0, 100, "c1", 61_000, is_stuck=True), queue(1, 1_200, "c1", None), queue(2, None, "", None))
        lines = (group_line(name, A, 1_100, 1),)
        kept = GroupSettings(set_key=A, retries_max=5, may_consume=True, may_broadcast=False, is_ordered=False)
        return GroupAnswer(read=self.read, groups=lines, members=(member,), queues=queues, settings=(kept,))

    def order(self, asked: BrokerOrder) -> BrokersAnswer:
        self.orders.append(asked)
        return self._answer(asked)

    def preview(self, asked: BrokerOrder) -> BrokersAnswer:
        self.previews.append(asked)
        return self._answer(asked)

    def _answer(self, asked: BrokerOrder) -> BrokersAnswer:
        """One set in each answer."""
        at = 0 if asked.from_set is None else int(asked.from_set)
        one = SetOutcome(set_key=A, outcome=self.outcomes[at], reason="why")
        return BrokersAnswer(outcomes=(one,), next_set=str(at + 1) if at + 1 < len(self.outcomes) else None)


def run(monkeypatch: pytest.MonkeyPatch, asked: Asked, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(context, "make_client", lambda: asked)
    found = CliRunner().invoke(app, arguments)
    return found.exit_code, found.stdout, found.stderr


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_topics_are_listed_with_their_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(monkeypatch, Asked(), "topics", "list")
    titles = "TOPIC SET QUEUES PERMISSION"
    assert (code, lines(out)) == (0, ["2 topics", titles, "T c/a 8 read", "T c/b 4 read", "U c/a 1 read"])
    assert "own" in run(monkeypatch, Asked(), "topics", "list", "--all")[1]
    assert run(monkeypatch, Asked(), "topics", "list", "-o", "name", "--filter", "U")[1] == "U\n"


def test_a_topic_is_shown_with_its_queues_and_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(monkeypatch, Asked(), "topics", "show", "U")
    assert code == 0
    assert lines(out) == [
        "U: 1 queues in 1 sets, 20 messages",
        "TOPIC SET QUEUES PERMISSION",
        "U c/a 1 read",
        "SET QUEUE MIN MAX",
        "c/a 0 10 30",
        "GROUP SET MEMBERS TOPICS LAG STUCK",
        "g c/a 1 2 7 0",
    ]


def test_groups_are_listed_with_the_stuck_first(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(monkeypatch, Asked(), "groups", "list")
    assert code == 0
    assert lines(out) == [
        "STUCK 2 groups; stuck: late",
        "GROUP SET MEMBERS TOPICS LAG STUCK",
        "late c/b 1 2 5 2",
        "late c/a 1 2 1,000 0",
        "calm c/a 1 2 0 0",
    ]


def test_a_group_is_shown_with_who_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(monkeypatch, Asked(), "groups", "show", "late")
    assert code == 0
    assert lines(out) == [
        "STUCK late: 1,100 messages behind, 1 members; stuck: c1",
        "MEMBER SET ADDRESS QUEUES LAG STUCK",
        "c1 c/a 10.0.0.1:1 1 1,100 1",
        "TOPIC SET QUEUE MIN MAX OFFSET LAG STILL STUCK HOLDER",
        "T c/a 0 0 1,200 100 1,100 1 min yes c1",
        "T c/a 1 0 1,200 1,200 0 - no c1",
        "T c/a 2 0 1,200 - - - no -",
        "SET RETRIES CONSUMES BROADCASTS ORDERED",
        "c/a 5 yes no no",
    ]
    document = json.loads(run(monkeypatch, Asked(), "groups", "show", "late", "-o", "json")[1])
    assert (document["groups"][0]["lag"], document["queues"][0]["isStuck"]) == (1_100, True)


def test_a_set_that_does_not_answer_is_named_and_all_of_them_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    asked.read = (READ[0], SetRead(set_key=B, trouble="refused"))
    for command in (("topics", "list"), ("topics", "show", "T"), ("groups", "list"), ("groups", "show", "g")):
        code, _, err = run(monkeypatch, asked, *command)
        assert (code, err) == (0, "rollcall: c/b: refused\n")
    asked.read = (SetRead(set_key=A, left_off=3),)
    assert run(monkeypatch, asked, "groups", "list")[2] == "rollcall: c/a: 3 rows are left off; name a topic\n"
    asked.read = (SetRead(set_key=B, trouble="refused"),)
    assert run(monkeypatch, asked, "groups", "list")[0] == 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("topics create T --queues 4", CreateTopic(topic="T", queues=4)),
        ("topics change T --permission read", ChangeTopic(topic="T", permission=Permission.READ)),
        ("topics delete T --yes --set c/a --reason r", DeleteTopic(topic="T", sets=(A,), reason="r")),
        (
            "groups change g --retries 3 --no-consume --ordered",
            ChangeGroup(group="g", retries_max=3, may_consume=False, is_ordered=True),
        ),
        ("groups create g --retries 3", CreateGroup(group="g", retries_max=3)),
        ("groups change g --broadcast --set c/a", ChangeGroup(group="g", may_broadcast=True, sets=(A,))),
        ("groups delete g --yes --keep-offsets", DeleteGroup(group="g", keeps_offsets=True)),
        ("groups reset g T --to first --yes", ResetGroup(group="g", topic="T", to_ms=0)),
        ("groups reset g T --to last --yes", ResetGroup(group="g", topic="T", to_ms=-1)),
        ("groups reset g T --to 1970-01-01T00:00:05Z --yes", ResetGroup(group="g", topic="T", to_ms=5_000)),
    ],
)
def test_an_order_is_given_as_it_is_said(
    monkeypatch: pytest.MonkeyPatch, arguments: str, expected: BrokerOrder
) -> None:
    asked = Asked()
    code, out, _ = run(monkeypatch, asked, *arguments.split())
    assert (code, asked.orders, asked.previews) == (0, [expected], [])
    assert out.startswith("OK  ")
    dry = Asked(Outcome.WOULD)
    code, out, _ = run(monkeypatch, dry, *arguments.split(), "--dry-run")
    assert (code, dry.orders, len(dry.previews)) == (0, [], 1)
    assert lines(out)[0] == "Would do it"


@pytest.mark.parametrize("arguments", ["topics delete T", "groups delete g", "groups reset g T --to last"])
def test_a_script_is_never_asked(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    asked = Asked()
    assert run(monkeypatch, asked, *arguments.split())[0] == 2
    assert asked.orders == []


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((Outcome.DONE, Outcome.UNCHANGED, Outcome.ABSENT), 0),
        ((Outcome.ABSENT, Outcome.ABSENT), 1),
        ((Outcome.DONE, Outcome.REFUSED), 1),
        ((Outcome.REFUSED, Outcome.NOT_REACHED), 4),
        ((Outcome.NOT_REACHED, Outcome.UNKNOWN, Outcome.DONE), 5),
    ],
)
def test_the_worst_outcome_of_all_sets_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, outcomes: Sequence[Outcome], code: int
) -> None:
    asked = Asked(*outcomes)
    found, out, _ = run(monkeypatch, asked, "topics", "change", "T", "--queues", "2")
    assert (found, len(asked.orders)) == (code, len(outcomes))
    assert out.startswith("OK  " if code == 0 else "NOT DONE  in every set")


def test_a_time_that_is_none_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run(monkeypatch, Asked(), "groups", "reset", "g", "T", "--to", "noon", "--yes")
    assert (code, "--to 'noon' is not first, last" in err) == (2, True)
