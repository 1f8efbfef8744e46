"""Pulls and questions, from frame to frame: who is admitted, who waits, what a slave says, what must not be told yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from rollcall_ha.broker.consuming import pulls, waiting
from rollcall_ha.broker.consuming.filters import Filter, make_filter
from rollcall_ha.broker.consuming.pulls import Pulls
from rollcall_ha.broker.ports import Appender, Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.pull import FLAG_COMMIT, FLAG_SUBSCRIPTION, FLAG_SUSPEND, Refused
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.node.remoting.codes import FLAG_ONE_WAY
from rollcall_ha.node.remoting.frame import Frame, HeaderForm, encode_frame
from tests.support.folded import T0, FoldedLink, FoldedLog, FoldedStanding, play
from tests.support.sim_loop import SimLoop

HOLD = FLAG_SUSPEND | FLAG_SUBSCRIPTION
NOW = FLAG_SUBSCRIPTION
Fields = dict[str, str | int]
FIELDS: Fields = {
    "consumerGroup": "g", "topic": "T", "queueId": 0, "maxMsgNums": 32, "suspendTimeoutMillis": 15_000,
}  # fmt: skip


class Broker:
    """The room of pulls with everything around it made up."""

    def __init__(self, log: FoldedLog | None = None) -> None:
        self.log = log or FoldedLog()
        self.link = FoldedLink()
        self.standing = FoldedStanding()
        self.rows: dict[str, TopicRow | None] = {}
        self.refused: dict[str, Refused] = {}
        self.filters: dict[tuple[str, str], Filter | Refused] = {}
        self.commits: list[tuple[str, str, int, int]] = []
        self.damages: list[str] = []
        self.resets: list[int] = []
        self.doubt: Refused | None = None
        at = Around(
            folds=self.log,
            appender=cast("Appender", None),
            standing=self.standing,
            near_bytes=1_000,
            now_ms=int,
            on_damaged=self.damages.append,
            version=lambda _: {},
        )
        self.pulls = Pulls(at, subscriptions=self, topics=self, offsets=self, log_ends=lambda: self.log)
        self.responders = self.pulls.responders()

    def find(self, topic: str) -> TopicRow | None:
        count = max([3, *self.log.queue_ids(topic.encode())]) + 1
        return self.rows.get(topic, TopicRow(read_queue_nums=count, write_queue_nums=count))

    def absence(self, topic: str) -> Refused:
        return Refused(ClientResult.TOPIC_NOT_EXIST, topic)

    def unsure(self) -> Refused | None:
        return self.doubt

    def refusal_of(self, group: str) -> Refused | None:
        return self.refused.get(group)

    def slow_reader(self, group: str) -> int:
        return len(group)

    def filter_of(self, group: str, topic: str, sub_version: int) -> Filter | Refused:
        refused = Refused(ClientResult.SUBSCRIPTION_NOT_EXIST, f"group {group} is not here ({sub_version})")
        return self.filters.get((group, topic), refused)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if not self.resets:
            self.commits.append((group, topic, queue_id, offset))

    def awaits_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self.resets)

    def take_reset(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        return self.resets.pop() if self.resets else None

    def ask(self, code: int, fields: Fields, *, form: HeaderForm = HeaderForm.JSON, flag: int = 0) -> Frame | None:
        """The answer, if it came at once."""
        before = len(self.link.frames)
        texts = {name: str(value) for name, value in fields.items()}
        frame = Frame(code=code, opaque=before, flag=flag, ext_fields=texts, form=form)
        self.responders[code](self.link.connection, frame)
        return self.link.frames[-1] if len(self.link.frames) > before else None

    def pull(self, offset: int, flags: int = NOW, **more: str | int) -> Frame | None:
        return self.ask(ClientCode.PULL_MESSAGE, FIELDS | {"queueOffset": offset, "sysFlag": flags} | more)

    def pulled(self, offset: int, flags: int = NOW, **more: str | int) -> Frame:
        found = self.pull(offset, flags, **more)
        assert found is not None
        return found

    def asked(self, code: int, **fields: str | int) -> Frame:
        found = self.ask(code, fields)
        assert found is not None
        return found


def place(frame: Frame) -> tuple[int, int, int, int]:
    """Code, next offset, lowest, end."""
    fields = frame.ext_fields or {}
    assert len(fields) == 6
    return frame.code, int(fields["nextBeginOffset"]), int(fields["minOffset"]), int(fields["maxOffset"])


def size_of(frame: Frame) -> int:
    return len(encode_frame(frame))


def bodies(frame: Frame) -> list[bytes]:
    found, view, at = [], memoryview(frame.body), 0
    while at < len(view):
        record = RecordView(view, at)
        found.append(bytes(record.body))
        at += record.size_bytes
    return found


def a_log(*bodies_: bytes, first: int = 0, start: int = 0) -> FoldedLog:
    log = FoldedLog(start)
    log.grow(*bodies_, first=first)
    return log


# --- pulls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(HeaderForm))
@pytest.mark.parametrize("code", [ClientCode.PULL_MESSAGE, ClientCode.LITE_PULL_MESSAGE])
def test_a_pull_is_answered_with_records_in_its_own_form(code: int, form: HeaderForm) -> None:
    broker = Broker(a_log(b"one", b"two"))
    found = broker.ask(code, FIELDS | {"queueOffset": 1, "sysFlag": NOW}, form=form)

    assert found is not None
    assert (place(found), bodies(found), found.form) == ((0, 2, 0, 2), [b"two"], form)
    assert broker.link.answers == {0: 1}
    assert broker.pulls.messages == 1


def test_nonsense_gets_an_answer_with_all_fields() -> None:
    found = Broker().pulled(0, queueId="x")

    assert place(found) == (ClientResult.SYSTEM_ERROR, 0, 0, 0)
    assert "queueId" in (found.remark or "")


def test_a_pull_that_nobody_waits_for_is_not_answered() -> None:
    assert Broker(a_log(b"one")).ask(ClientCode.PULL_MESSAGE, {"topic": "T"}, flag=FLAG_ONE_WAY) is None


@pytest.mark.parametrize(("queue_id", "code"), [(3, 19), (10, 29), (-1, 29), (9, 0)])
def test_a_queue_that_the_topic_does_not_have_is_refused(queue_id: int, code: int) -> None:
    """One with messages is read, be there more of them than the topic has now."""
    log = FoldedLog()
    log.grow(b"x", key=(b"T", 9))
    broker = Broker(log)
    found = broker.pulled(0, queueId=queue_id)

    assert found.code == code
    # An order that made it may be among what a new master does not know yet.
    broker.doubt = Refused(ClientResult.SYSTEM_BUSY, "not all is known")
    assert broker.pulled(0, queueId=queue_id).code == (2 if code == 29 else code)
    if code == 29:
        assert (found.remark, place(found)[1]) == (f"queueId {queue_id}: topic T has 10 queues to read, from 0", 0)


def test_a_topic_that_may_not_be_read_and_a_group_that_may_not_consume_get_nothing() -> None:
    """Also a pull that waits already, when the topic is closed."""

    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        assert broker.pull(1, HOLD) is None
        broker.rows["T"] = TopicRow(perm=2)
        closed = broker.pulled(0, NOW)
        assert (closed.code, closed.remark) == (16, "topic T has permission 2, without 4 (read)")
        broker.log.grow(b"two")
        assert broker.link.last.code == 16
        broker.rows["T"] = None
        assert broker.pulled(0, NOW).code == 17
        broker.refused["g"] = Refused(ClientResult.NO_PERMISSION, "not this group")
        assert broker.pulled(0, NOW).remark == "not this group"

    play(story)


def test_a_pull_without_a_subscription_has_that_of_its_group() -> None:
    log = FoldedLog()
    log.grow(b"a", properties=b"TAGS\x01a\x02")
    log.grow(b"b", properties=b"TAGS\x01b\x02")
    broker = Broker(log)

    refused = broker.pulled(1, 0, subscription="a", subVersion=5)
    assert (place(refused), refused.remark) == ((24, 1, 0, 0), "group g is not here (5)")
    found = make_filter("TAG", "b")
    broker.filters["g", "T"] = found
    assert bodies(broker.pulled(0, 0, subscription="a")) == [b"b"]
    assert bodies(broker.pulled(0, FLAG_SUBSCRIPTION, subscription="a", expressionType="TAG")) == [b"a"]
    wrong = broker.pulled(0, FLAG_SUBSCRIPTION, subscription="a ==", expressionType="SQL92")
    assert (wrong.code, "SQL92 expression" in (wrong.remark or "")) == (23, True)


def test_a_pull_commits_once_and_only_if_it_is_admitted() -> None:
    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        broker.pulled(0, NOW | FLAG_COMMIT, commitOffset=5)
        broker.pulled(0, NOW, commitOffset=6)
        broker.pulled(0, NOW | FLAG_COMMIT, commitOffset=-1)
        broker.pulled(0, FLAG_COMMIT, commitOffset=7)
        assert broker.commits == [("g", "T", 0, 5)]
        assert broker.pull(1, HOLD | FLAG_COMMIT, commitOffset=8) is None
        broker.log.grow(b"two")
        await asyncio.sleep(0.01)
        assert (bodies(broker.link.last), broker.commits) == ([b"two"], [("g", "T", 0, 5), ("g", "T", 0, 8)])

    play(story)


def test_a_reset_is_told_once_and_not_undone_by_the_commit_of_the_pull_that_hears_it() -> None:
    """At once to a pull that waits, too, when it is woken for it."""

    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one", b"two"))
        broker.resets.append(1)
        assert place(broker.pulled(2, HOLD | FLAG_COMMIT, commitOffset=2))[:2] == (ClientResult.PULL_OFFSET_MOVED, 1)
        assert broker.commits == []
        assert broker.pull(2, HOLD) is None
        broker.resets.append(0)
        broker.pulls.waiting.wake([T0])
        await asyncio.sleep(0.001)
        assert place(broker.link.last)[:2] == (ClientResult.PULL_OFFSET_MOVED, 0)

    play(story)


def test_an_unknown_queue_is_empty() -> None:
    broker = Broker()

    assert place(broker.pulled(0)) == (ClientResult.PULL_NOT_FOUND, 0, 0, 0)
    assert place(broker.pulled(3)) == (ClientResult.PULL_OFFSET_MOVED, 0, 0, 0)


def test_a_log_that_begins_in_the_middle_says_nothing_of_queues_that_it_has_not_seen() -> None:
    """0 would be told of a queue that has thousands, and its consumers would begin there again."""
    broker = Broker(FoldedLog(start=1 << 30))
    found = broker.pulled(3)

    assert place(found) == (ClientResult.SYSTEM_ERROR, 3, 0, 0)
    assert "begins at 1073741824" in (found.remark or "")
    assert place(broker.pulled(0)) == (ClientResult.PULL_NOT_FOUND, 0, 0, 0), "this moves nobody"


def test_folds_that_are_behind_move_no_consumer() -> None:
    """After a start or a failover the end of a queue may be too low: a group was sent back by thousands."""
    log = a_log(b"one", b"two")
    for _ in range(2):
        log.append(b"more")
    log.catch_up_max = 1
    broker = Broker(log)

    busy = broker.pulled(5)
    assert place(busy) == (ClientResult.SYSTEM_BUSY, 5, 0, 0)
    assert "confirmed bytes are not in the queues yet" in (busy.remark or "")
    assert place(broker.pulled(5)) == (ClientResult.PULL_OFFSET_MOVED, 4, 0, 4)


def test_a_pull_that_does_not_wait_finds_what_was_confirmed_a_moment_ago() -> None:
    broker = Broker(a_log(b"one"))
    broker.log.append(b"two")

    assert bodies(broker.pulled(1)) == [b"two"]

    broker.log.catch_up_max = 0
    broker.log.append(b"three")
    assert place(broker.pulled(2))[0] == ClientResult.SYSTEM_BUSY, "not that there is nothing"


def reader(frame: Frame) -> str:
    """The replica that is named for the next pull."""
    return (frame.ext_fields or {})["suggestWhichBrokerId"]


def a_slave(*, first: int = 0, gives: bool = True) -> Broker:
    broker = Broker(a_log(b"one", first=first))
    broker.standing.serves_reads = broker.standing.is_master = False
    broker.standing.gives_as_slave = gives
    return broker


def test_a_slave_gives_only_if_it_may_and_moves_nobody() -> None:
    broker = a_slave(first=10)

    assert bodies(broker.pulled(10)) == [b"one"]
    for offset in (3, 99):
        found = broker.pulled(offset)
        assert place(found) == (ClientResult.PULL_RETRY_IMMEDIATELY, offset, 10, 11)
        assert reader(found) == "0"
    broker.standing.gives_as_slave = False
    refused = broker.pulled(10)
    assert (place(refused), reader(refused)) == ((ClientResult.PULL_RETRY_IMMEDIATELY, 10, 0, 0), "0")
    assert (
        refused.remark
        == "this replica of broker-a is not its master, nor one that may be read from; pull from the master"
    )
    broker.standing.knows_master = False
    assert place(broker.pulled(10)) == (ClientResult.SYSTEM_BUSY, 10, 0, 0), "a tool would ask on and on"


def test_a_reader_whose_slave_gives_no_more_would_have_asked_it_for_ever() -> None:
    """
    Clients in Java and Go heed the named replica behind 0, 19, 20 and 21 only: sent away by 2, they came back; by 20 at
    once, those whose route has no master would come back ten thousand times a second.
    """

    async def story(_: SimLoop) -> None:
        broker = a_slave(gives=False)
        assert broker.pull(0, HOLD) is None
        await asyncio.sleep(0.9)
        broker.log.grow(b"two")
        await asyncio.sleep(0.09)
        assert broker.link.frames == []
        await asyncio.sleep(0.03)
        assert (place(broker.link.last)[:2], reader(broker.link.last)) == ((ClientResult.PULL_NOT_FOUND, 0), "0")

    play(story)


def test_a_pull_that_waits_to_be_sent_back_is_answered_when_its_replica_gives_after_all() -> None:
    async def story(_: SimLoop) -> None:
        broker = a_slave(gives=False)
        assert broker.pull(0, HOLD) is None
        broker.standing.gives_as_slave = True
        broker.pulls.waiting.wake_all()
        await asyncio.sleep(0.001)
        assert bodies(broker.link.last) == [b"one"]

    play(story)


def test_a_reader_that_is_ahead_of_its_slave_has_its_message_when_the_slave_has_it() -> None:
    """What the master has confirmed, a slave hears of a moment later."""

    async def story(_: SimLoop) -> None:
        broker = a_slave()
        assert broker.pull(2, HOLD) is None
        broker.log.grow(b"two")
        await asyncio.sleep(0.001)
        assert broker.link.frames == []
        broker.log.grow(b"three")
        await asyncio.sleep(0.001)
        assert bodies(broker.link.last) == [b"three"]

    play(story)


def test_a_group_whose_reset_waits_is_sent_to_the_master() -> None:
    """A slave tells none: its reader would go on where it was, and its commits count for nothing, for ever."""
    broker = a_slave()
    broker.resets.append(7)
    found = broker.pulled(0, NOW | FLAG_COMMIT, commitOffset=3)

    assert (place(found)[:2], reader(found)) == ((ClientResult.PULL_RETRY_IMMEDIATELY, 0), "0")
    assert "was reset" in (found.remark or "")
    assert (broker.resets, broker.commits) == ([7], []), "it still waits"


def test_only_a_reader_far_behind_is_sent_to_a_slave() -> None:
    """By the first message of its answer; ``near_bytes`` is 1,000 here."""
    broker = Broker(a_log(*[b"x" * 300] * 8))
    broker.standing.far_reader = 2

    assert (reader(broker.pulled(0)), broker.standing.wished) == ("2", 1)
    assert reader(broker.pulled(0, subscription="none")) == "2", "what does not pass is read from there, too"
    assert reader(broker.pulled(6)) == reader(broker.pulled(8)) == reader(broker.pulled(99)) == "0"


def test_a_client_with_a_backlog_is_told_to_read_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its pulls were answered until 64 MiB were unsent; then its link was closed, and it pulled the same again, for ever.
    """
    monkeypatch.setattr(pulls, "UNREAD_BYTES_MAX", 5_000)
    broker = Broker(a_log(*[b"x" * 1_000] * 9))
    broker.link.is_reading = False
    found = [broker.pulled(offset, maxMsgNums=1) for offset in range(9)]

    assert [frame.code for frame in found] == [0] * 4 + [ClientResult.FLOW_CONTROL] * 5
    assert place(found[-1]) == (215, 8, 0, 0)
    assert f"{broker.link.unread_bytes - sum(map(size_of, found[-1:]))} bytes" in (found[-1].remark or "")
    assert "5000 may be" in (found[-1].remark or "")
    broker.link.unread_bytes = 5_000
    assert len(bodies(broker.pulled(8))) == 1


def test_a_damaged_queue_is_told_to_its_owner_and_not_delivered() -> None:
    broker = Broker(a_log(b"one", b"two", b"three"))
    broker.log.queues[T0].put(1, 0, 95, 0)

    assert bodies(broker.pulled(0)) == [b"one"]
    refused = broker.pulled(1)
    assert (place(refused), refused.body) == ((ClientResult.SYSTEM_ERROR, 1, 0, 3), b"")
    assert refused.remark == f"the queue is damaged: {broker.damages[1]}"
    assert broker.pulls.damaged == len(broker.damages) == 2


def test_a_disk_that_does_not_read_is_told() -> None:
    broker = Broker(a_log(b"one"))
    broker.log.queues[T0].broken = OSError(5, "Input/output error")

    assert place(broker.pulled(0)) == (ClientResult.SYSTEM_ERROR, 0, 0, 0)
    assert "cannot be read: [Errno 5]" in (broker.link.last.remark or "")
    assert "cannot be read" in (broker.asked(ClientCode.GET_EARLIEST_MSG_STORETIME, topic="T", queueId=0).remark or "")


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_pull_waits_for_its_message() -> None:
    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        assert broker.pull(1, HOLD) is None
        broker.log.grow(b"elsewhere", key=(b"T", 1))
        await asyncio.sleep(1)
        assert broker.link.frames == []
        broker.log.grow(b"two", b"three")
        await asyncio.sleep(0.001)
        assert len(broker.link.frames) == 1
        assert (place(broker.link.last), bodies(broker.link.last)) == ((0, 3, 0, 3), [b"two", b"three"])
        await asyncio.sleep(20)
        assert len(broker.link.frames) == 1

    play(story)


def test_a_pull_waits_at_a_queue_that_has_no_message_yet() -> None:
    async def story(_: SimLoop) -> None:
        broker = Broker()
        assert broker.pull(0, HOLD) is None
        broker.log.grow(b"first")
        await asyncio.sleep(0.001)
        assert bodies(broker.link.last) == [b"first"]

    play(story)


def test_a_pull_that_waits_for_nothing_hears_so_in_time() -> None:
    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        assert broker.pull(1, HOLD, suspendTimeoutMillis=100) is None
        await asyncio.sleep(0.2)
        assert place(broker.link.last) == (ClientResult.PULL_NOT_FOUND, 1, 0, 1)
        assert broker.link.answers == {19: 1}
        assert broker.pulled(1, HOLD, suspendTimeoutMillis=0).code == ClientResult.PULL_NOT_FOUND

    play(story)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_pull_that_may_wait_is_held_where_the_end_may_be_too_low(is_known: bool) -> None:
    """Java made a pause of a second or more when it was told that the broker is busy, with each queue, at each start."""

    async def story(_loop: SimLoop) -> None:
        log = a_log(b"one") if is_known else FoldedLog()
        log.catch_up_max = 0
        for body in (b"two", b"three", b"four"):
            log.append(body)
        broker = Broker(log)
        assert broker.pull(2, HOLD) is None
        assert broker.pulled(2).code == ClientResult.SYSTEM_BUSY, "who may not wait is told at once"
        log.catch_up_max = 1
        for _ in range(3):
            log.catch_up()
            await asyncio.sleep(0.001)
        assert len(broker.link.frames) == 2
        assert bodies(broker.link.last)[0] == (b"three" if is_known else b"four")

    play(story)


def test_a_pull_that_is_held_where_the_end_may_be_too_low_moves_nobody() -> None:
    """19 at its own offset in time; where the queue ends once all is in."""

    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one", b"two"))
        broker.log.missing_bytes = 100
        assert broker.pull(9, HOLD, suspendTimeoutMillis=100) is None
        await asyncio.sleep(0.2)
        assert place(broker.link.last) == (ClientResult.PULL_NOT_FOUND, 9, 0, 2)
        assert broker.pull(9, HOLD) is None
        broker.log.grow(b"three")
        await asyncio.sleep(0.001)
        assert len(broker.link.frames) == 1
        broker.log.missing_bytes = 0
        broker.pulls.waiting.wake_all()
        await asyncio.sleep(0.001)
        assert place(broker.link.last) == (ClientResult.PULL_OFFSET_MOVED, 3, 0, 3)

    play(story)


def test_a_pull_below_the_queue_is_not_held_for_records_to_come() -> None:
    broker = Broker(a_log(b"one", first=10))
    broker.log.missing_bytes = 100

    assert place(broker.pulled(3, HOLD))[:2] == (ClientResult.SYSTEM_BUSY, 3)


def test_messages_that_do_not_pass_are_scanned_once() -> None:
    """The pull goes on waiting from behind them, and so does its consumer when it hears that there is nothing."""

    async def story(_: SimLoop) -> None:
        log = FoldedLog()
        broker = Broker(log)
        wants_b: Fields = {"subscription": "b = 1", "expressionType": "SQL92"}
        assert broker.pull(0, HOLD, **wants_b) is None
        for round_ in range(3):
            log.grow(*[b"other"] * 5)
            await asyncio.sleep(0.001)
            assert len(log.reads) == 5 * (round_ + 1)
        assert broker.link.frames == []
        log.grow(b"wanted", properties=b"b\x011\x02")
        await asyncio.sleep(0.001)
        assert (place(broker.link.last), bodies(broker.link.last)) == ((0, 16, 0, 16), [b"wanted"])
        assert broker.pull(16, HOLD, **wants_b) is None
        log.grow(b"other")
        await asyncio.sleep(16)
        assert place(broker.link.last) == (ClientResult.PULL_NOT_FOUND, 17, 0, 17)

    play(story)


def test_a_subscription_that_changes_meanwhile_is_the_one_that_counts() -> None:
    """What the old one has passed by is looked at again."""

    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        broker.filters["g", "T"] = make_filter("TAG", "b")
        assert broker.pull(1, FLAG_SUSPEND) is None
        broker.log.grow(b"a", properties=b"TAGS\x01a\x02")
        await asyncio.sleep(0.001)
        broker.filters["g", "T"] = make_filter("TAG", "a")
        broker.log.grow(b"c", properties=b"TAGS\x01c\x02")
        await asyncio.sleep(0.001)
        assert bodies(broker.link.last) == [b"a"]
        assert broker.pull(3, FLAG_SUSPEND) is None
        del broker.filters["g", "T"]
        broker.log.grow(b"d")
        await asyncio.sleep(0.001)
        assert place(broker.link.last) == (ClientResult.SUBSCRIPTION_NOT_EXIST, 3, 0, 0)

    play(story)


def test_a_replica_that_may_not_be_read_from_any_more_tells_those_that_wait() -> None:
    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        assert broker.pull(1, HOLD) is None
        broker.standing.serves_reads = broker.standing.is_master = False
        broker.pulls.waiting.wake_all()
        await asyncio.sleep(0.001)
        assert place(broker.link.last) == (ClientResult.PULL_RETRY_IMMEDIATELY, 1, 0, 0)

    play(story)


def test_a_link_that_closes_is_not_answered() -> None:
    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        assert broker.pull(1, HOLD) is None
        broker.pulls.waiting.forget(broker.link.connection)
        broker.log.grow(b"two")
        await asyncio.sleep(20)
        assert (broker.link.frames, len(broker.pulls.waiting)) == ([], 0)

    play(story)


def test_who_cannot_wait_is_told_to_make_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told that there is nothing, it would ask again at once, for ever."""
    monkeypatch.setattr(waiting, "LINK_PULLS_MAX", 1)

    async def story(_: SimLoop) -> None:
        broker = Broker(a_log(b"one"))
        assert broker.pull(1, HOLD) is None
        busy = broker.pulled(1, HOLD)
        assert place(busy) == (ClientResult.SYSTEM_BUSY, 1, 0, 1)
        assert "1 of this link" in (busy.remark or "")

    play(story)


# --- questions -------------------------------------------------------------------------------------------------------


def answers(broker: Broker, *, topic: str = "T", queue_id: int = 0) -> Sequence[str | None]:
    """To 31, 30, 30 of the log itself, 32 and 29."""
    found = []
    for code, committed in (
        (ClientCode.GET_MIN_OFFSET, ""),
        (ClientCode.GET_MAX_OFFSET, "true"),
        (ClientCode.GET_MAX_OFFSET, "false"),
        (ClientCode.GET_EARLIEST_MSG_STORETIME, ""),
        (ClientCode.SEARCH_OFFSET_BY_TIMESTAMP, ""),
    ):
        answer = broker.asked(code, topic=topic, queueId=queue_id, committed=committed, timestamp=150)
        fields = answer.ext_fields or {}
        found.append(fields.get("offset", fields.get("timestamp")) if answer.code == 0 else str(answer.code))
    return found


def test_ends_and_times_of_a_queue_are_told() -> None:
    log = FoldedLog()
    for at_ms in (100, 200):
        log.grow(b"x", at_ms=at_ms, first=10)

    assert answers(Broker(log)) == ["10", "12", "12", "100", "11"]


def test_a_producer_that_was_acknowledged_finds_its_message() -> None:
    """What is confirmed and not taken in yet counts."""
    log = a_log(b"one")
    log.append(b"two")

    assert answers(Broker(log))[1] == "2"


def test_an_end_that_is_too_low_is_not_told() -> None:
    """Code 2, to all but the question for the log's own end, which needs no folds."""
    log = a_log(b"one")
    log.catch_up_max = 0
    for _ in range(4):
        log.append(b"more")

    assert answers(Broker(log)) == ["2", "2", "5", "2", "2"]


def test_an_unknown_queue_has_no_message() -> None:
    assert answers(Broker()) == ["0", "0", "0", "-1", "0"]


def test_a_replica_that_has_not_seen_a_queue_answers_no_question_about_it() -> None:
    log = FoldedLog(start=1 << 30)
    log.grow(b"x", key=(b"T", 1), first=500)

    assert answers(Broker(log)) == ["1"] * 5
    assert answers(Broker(log), queue_id=1) == ["500", "501", "501", "1", "501"]


@pytest.mark.parametrize(
    ("kind", "offset"), [("lower", "1"), ("", "1"), ("nonsense", "1"), ("UPPER", "3"), ("upper", "3")]
)
def test_a_boundary_may_be_written_in_any_case(kind: str, offset: str) -> None:
    log = FoldedLog()
    for at_ms in (100, 200, 200, 200, 300):
        log.grow(b"x", at_ms=at_ms)
    answer = Broker(log).asked(
        ClientCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId=0, timestamp=200, boundaryType=kind
    )

    assert (answer.code, answer.ext_fields) == (0, {"offset": offset})


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "topic"),
        ({"topic": "T"}, "queueId"),
        ({"topic": "T", "queueId": "x"}, "queueId"),
        ({"topic": "T", "queueId": "0"}, "timestamp is needed, in ms"),
        ({"topic": "T", "queueId": "0", "timestamp": "now"}, "timestamp"),
    ],
)
@pytest.mark.parametrize("form", list(HeaderForm))
def test_a_question_that_lacks_something_is_told_what(fields: Fields, what: str, form: HeaderForm) -> None:
    answer = Broker(a_log(b"one")).ask(ClientCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, form=form)

    assert answer is not None
    assert answer.code == ClientResult.SYSTEM_ERROR
    assert what in (answer.remark or "")


def test_a_question_about_a_damaged_queue_is_told_to_its_owner() -> None:
    broker = Broker(a_log(b"one", b"two", b"three"))
    broker.log.queues[T0].put(1, 0, 95, 0)
    answer = broker.asked(ClientCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="T", queueId=0, timestamp=1)

    assert (answer.code, answer.remark) == (ClientResult.SYSTEM_ERROR, f"the queue is damaged: {broker.damages[0]}")
