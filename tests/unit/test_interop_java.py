"""What the comparison with real RocketMQ stands on: normal forms, differences, the clients' books, the order of faults."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from rollcall_ha.deploy.local.ledger import LEDGER_FILE_NAME, Line
from rollcall_ha.deploy.local.processes import DeadlineError, LauncherError
from tests.interop_go.build import GoUnavailableError, build
from tests.interop_java import admin, admin_brokers, asking, clients, compare, mqadmin
from tests.interop_java.artifacts import VERSION, RocketMq
from tests.interop_java.books import CONSUMED_FILE_NAME, Books
from tests.interop_java.brokers import Brokers
from tests.interop_java.clients import Clients
from tests.interop_java.fleet import JavaFleet
from tests.interop_java.sides import RollcallSide
from tests.interop_java.story import CONSUMER, EVERYTHING, KILL, LEADER, PRODUCER, STOP, Plan, Story


def asked(output: str, label: str = "set") -> mqadmin.Asked:
    return mqadmin.Asked(label=label, command="getSyncStateSet", output=output, seconds=0.1)


def test_two_runs_on_one_side_have_the_same_normal_form() -> None:
    """Addresses, client ids, times and stack traces are noise; epochs and ids are not."""
    first = "#MasterAddr\t127.0.0.1:29701\nat 2026-11-21 06:00:01,123  10.0.0.2@21667#137408\n\tat a.b.C.d(C.java:12)\n"
    second = "#MasterAddr  127.0.0.1:11111\n\nat 2026-11-21 07:10:59,001 10.0.0.3@4#99\n\tat x.Y.z(Y.java:1)\n\tat x.Y.y(Y.java:2)"

    forms = {
        mqadmin.normalised(first, {"127.0.0.1:29701": "<b1>"}),
        mqadmin.normalised(second, {"127.0.0.1:11111": "<b1>"}),
    }

    assert forms == {"#MasterAddr <b1>\nat <time> <client>\n<trace>"}
    assert mqadmin.normalised("#MasterEpoch 2", {}) != mqadmin.normalised("#MasterEpoch 3", {})


def test_the_order_of_lines_is_no_difference() -> None:
    """RocketMQ prints from hash maps."""
    (one,) = compare.compare([asked("a\nb")], [asked("b\na")], ())

    assert one.verdict == "same"


def test_a_line_on_one_side_alone_is_named_with_its_side() -> None:
    (one,) = compare.compare([asked("epoch 1\nx")], [asked("epoch 1\ny\ny")], ())

    assert one.verdict == "DIFFERS"
    assert one.unexplained == ("only rocketmq: x", "only rollcall: y", "only rollcall: y")


def test_an_entry_explains_whole_lines_of_its_own_commands_only() -> None:
    entry = compare.Allowed(labels=("set",), anchor="why", rocketmq=r"#Nums \d", rollcall=r"#Nums \d")

    (one,) = compare.compare([asked("#Nums 1")], [asked("#Nums 3")], (entry,))
    (longer,) = compare.compare([asked("#Nums 1")], [asked("#Nums 33")], (entry,))
    (other,) = compare.compare([asked("#Nums 1", "route")], [asked("#Nums 3", "route")], (entry,))

    assert one.verdict == "explained: why"
    assert longer.unexplained == ("only rollcall: #Nums 33",)
    assert len(other.unexplained) == 2


def test_sides_that_were_asked_different_things_are_not_compared() -> None:
    with pytest.raises(ValueError, match="not asked the same"):
        compare.compare([asked("a", "set")], [asked("a", "route")], ())


def test_every_allowed_difference_is_explained_in_the_document() -> None:
    """Raises if a heading of DIVERGENCE.md that an entry of allowed.toml points to is gone."""
    steps = {
        compare.ALLOWED_FILE: (*admin.FRESH, *admin.ELECTION, *admin.ELECTED, *admin.DEAD),
        admin_brokers.ALLOWED_FILE: admin_brokers.STEPS,
    }

    for file, known in steps.items():
        assert {label for entry in compare.allowed(file) for label in entry.labels} <= {step.label for step in known}


def test_what_a_line_has_besides_is_explained_where_the_rest_is_there() -> None:
    """RocketMQ's brokers add properties to each message: a row for whole lines would explain any message for any other."""
    entry = compare.Allowed(labels=("set",), anchor="why", without=", TRACE_ON=true")

    (one,) = compare.compare([asked("KEYS=a, TRACE_ON=true")], [asked("KEYS=a")], (entry,))
    (twice,) = compare.compare([asked("KEYS=a, TRACE_ON=true")], [asked("KEYS=a\nKEYS=a")], (entry,))
    (other,) = compare.compare([asked("KEYS=a, TRACE_ON=true")], [asked("KEYS=b")], (entry,))

    assert one.verdict == "explained: why"
    assert twice.unexplained == ("only rollcall: KEYS=a",)
    assert len(other.unexplained) == 2


def test_each_question_to_brokers_has_a_name_of_its_own() -> None:
    """Two with one name share their explanations; one that is asked and left out is told wrongly."""
    labels = [step.label for step in admin_brokers.STEPS]

    assert len(labels) == len(set(labels))
    assert not {step.words.split()[0] for step in admin_brokers.STEPS} & admin_brokers.LEFT_OUT.keys()


def test_commands_are_those_that_mqadmin_lists() -> None:
    said = "The most commonly used mqadmin commands are:\n   updateTopic          Update or create topic.\n   topicRoute  Examine.\n\nSee 'mqadmin help'"

    assert admin_brokers.listed(said) == {"updateTopic", "topicRoute"}
    with pytest.raises(LauncherError, match="lists no command"):
        admin_brokers.listed("usage")


def test_the_short_form_asks_enough_commands() -> None:
    """At least fourteen different ones, all of which the long form asks too."""
    steps = [step for step in admin.FRESH if step.label in admin.SHORT]

    assert len(steps) == len(admin.SHORT)
    assert len({step.words.split()[0] for step in steps}) >= 14


def test_all_faults_of_a_plan_strike() -> None:
    """As many of each as the plan says, not one kind after the other."""
    faults = Plan(kills=20, stops=5, leaders=5, restarts=1).faults()

    assert [faults.count(kind) for kind in (KILL, STOP, LEADER, EVERYTHING)] == [20, 5, 5, 1]
    assert STOP in faults[:10]
    assert LEADER in faults[:10]


def test_a_consumer_that_ended_ends_the_run(tmp_path: Path) -> None:
    """
    Its start failed on a busy machine once, nobody looked, and after six minutes of faults every message counted as lost.
    """
    rocketmq = RocketMq(version=VERSION, jars=tmp_path, classes=None)
    with JavaFleet(tmp_path, rocketmq) as java:
        java.processes.start(PRODUCER, ["sleep", "60"])
        java.processes.start(CONSUMER, ["sh", "-c", "echo send request failed; exit 1"])
        story = Story(RollcallSide(tmp_path), java, Plan(kills=1, stops=0, leaders=0, restarts=0), lambda said: None)

        with pytest.raises(LauncherError, match=f"{CONSUMER} has ended; the end of its log:\nsend request failed"):
            story.wait_acks(1)


@pytest.mark.slow
def test_a_side_that_signs_is_founded(tmp_path: Path) -> None:
    """Its layout was changed as if it were a dataclass: the part ended with a TypeError before anything was started."""
    section = RollcallSide(tmp_path, is_signed=True).found().file.rocketmq

    assert section is not None
    assert section.tls == "enforcing"


@pytest.mark.parametrize("is_ours", [True, False])
def test_only_what_rocketmq_has_lost_is_no_longer_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """A run before its brokers would end at the first message that never comes, and nothing behind it would be counted."""
    monkeypatch.setattr(clients, "HEALTHY_ACKS", 0)
    monkeypatch.setattr(clients, "MISSED_S", 0.0)
    brokers = cast("Brokers", SimpleNamespace(is_ours=is_ours, names="", resumed_deadline_s=0.5))
    said: list[object] = []
    with JavaFleet(tmp_path, RocketMq(version=VERSION, jars=tmp_path, classes=None)) as java:
        for name in ("java-producer", "java-consumer", "python-producer", "python-consumer"):
            java.processes.start(name, ["sleep", "60"])
        run = Clients(brokers, java, None, Plan(kills=1, stops=0, leaders=0, restarts=0), said.append)
        folder = tmp_path / "books" / "java"
        folder.mkdir(parents=True)
        (folder / LEDGER_FILE_NAME).write_bytes(line("java-shard0-run-000000000001", 1))

        if is_ours:
            with pytest.raises(DeadlineError, match="late: java-in-order, python-in-order"):
                run.until_at_work()
        else:
            run.until_at_work()
            run.until_at_work()

    assert said == ([] if is_ours else ["missed, and no longer waited for: java-in-order 1, python-in-order 1"])
    assert sum(map(len, run.shared.owed().values())) == 2


def test_a_machine_without_go_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part counts its Go pair as skipped then."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(GoUnavailableError, match="no go here"):
        build(tmp_path)


def line(key: str, at_ns: int) -> bytes:
    acked = Line(
        key=key,
        set="broker-a",
        topic="t",
        queue_id=0,
        queue_offset=1,
        physical_offset=2,
        body_sha256=f"sum of {key}",
        acked_at_ns=at_ns,
    )
    return msgspec.json.encode(acked) + b"\n"


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    """The clients append while we read."""
    ledger, whole = tmp_path / LEDGER_FILE_NAME, line("b", 5)
    books = Books(tmp_path)
    assert books.acked_since(0) == 0

    ledger.write_bytes(line("a", 7) + whole[:10])
    assert books.stamps == [7]
    with ledger.open("ab") as file:
        file.write(whole[10:])

    assert books.stamps == [5, 7]
    assert books.acked_since(6) == 1


def test_what_was_acknowledged_and_not_consumed_is_missing(tmp_path: Path) -> None:
    (tmp_path / LEDGER_FILE_NAME).write_bytes(line("a", 1) + line("b", 2))
    (tmp_path / CONSUMED_FILE_NAME).write_bytes(b"a\tsum of a\t3\na\tother\t4\nc\tsum of c\t5\n")
    books = Books(tmp_path)

    assert books.missing() == {"b"}
    assert dict(books.consumed["a"]) == {"sum of a": 1, "other": 1}


def test_bodies_with_bare_numeric_keys_are_read() -> None:
    """Java writes maps of numbers without quotes; addresses in strings look alike and stay."""
    assert asking.loads(b'{"brokerAddrs":{0:"10.0.0.1:911",2:"h:1"},"n":[1,2]}') == {
        "brokerAddrs": {"0": "10.0.0.1:911", "2": "h:1"},
        "n": [1, 2],
    }
