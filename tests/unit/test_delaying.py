"""Delayed messages: what waits, when it is delivered and by whom, and what groups give back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.broker.consuming import send_back
from rollcall_ha.broker.consuming.groups_core import NO_FACTS, Member
from rollcall_ha.broker.delaying import deliveries
from rollcall_ha.broker.delaying.records import over_at_ms
from rollcall_ha.broker.folds.consume_queue import UNIT, ConsumeQueue
from rollcall_ha.broker.handlers.put import PutLimits
from rollcall_ha.broker.log.checkpoint import FOLDS_FILE_NAME, FoldsMark, read_small, write_small
from rollcall_ha.broker.log.record import Draft
from rollcall_ha.broker.protocol.delays import SCHEDULE_TOPIC, DelayError, delivered_place, level_of
from rollcall_ha.broker.protocol.properties import last_value, without
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.remoting.frame import Frame
from tests.support.delaying_set import DelayingSet, Stored, check_laws
from tests.support.fold_tools import confirm_all, mark
from tests.support.folded import FoldedLink, play
from tests.support.ha_replica import until
from tests.support.log_tools import append_all, draft, settle, tell_queues
from tests.support.sim_loop import SimLoop

Story = Callable[[DelayingSet], Coroutine[Any, Any, None]]
SEQUENCE = "ROLLCALL_SEQ\x01" + "0" * 31 + "1:0:0\x02"


def tell(root: Path, story: Story, *, is_lawful: bool = True) -> None:
    """``story`` of a set whose first master leads; ``is_lawful``: nobody else wrote into its log."""

    async def told(loop: SimLoop) -> None:
        world = DelayingSet(root, loop)
        await story(world)
        if is_lawful:
            check_laws(world.records(), is_over=False)
        world.close()

    play(told)


async def pass_s(world: DelayingSet, seconds: float) -> None:
    """Time in which everything is confirmed."""
    for _ in range(round(seconds * 20)):
        world.settle()
        await asyncio.sleep(0.05)
    world.settle()


def value(world: DelayingSet, name: str) -> float:
    return {each: number for each, _, number in world.broker.room.values}[name]


# --- levels and properties ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "level"),
    [(b"", 0), (b"DELAY\x010\x02", 0), (b"DELAY\x01-1\x02", 0), (b"DELAY\x013\x02", 3), (b"DELAY\x0199\x02", 18),
     (b"MYDELAY\x013\x02", 0), (b"DELAY\x011\x02DELAY\x012\x02", 2), (b"DELAY\x01\x02", 0)],
)  # fmt: skip
def test_levels_are_read_as_rocketmq_reads_them(properties: bytes, level: int) -> None:
    assert level_of(properties) == level


def test_a_level_that_is_no_number_was_no_delay() -> None:
    with pytest.raises(DelayError, match="three"):
        level_of(b"DELAY\x01three\x02")


@pytest.mark.parametrize("word", [b"", b"0:1", b"19:1", b"1:-1", b"1:x", b"1", b"1:2:3", b"1:" + b"9" * 19])
def test_nonsense_names_no_place(word: bytes) -> None:
    assert delivered_place(b"ROLLCALL_DELIVERED\x01" + word + b"\x02") is None


def test_properties_are_taken_out_by_their_whole_name() -> None:
    assert without(b"A\x011\x02AB\x012\x02A\x013", {b"A"}) == b"AB\x012\x02"
    assert without(b"A\x011", {b"B"}) == b"A\x011\x02"


def test_a_clock_that_went_back_kept_messages_for_a_day() -> None:
    """And clocks of two replicas that differ by seconds deliver nothing early."""
    assert over_at_ms(1_000, 1, now_ms=500) == 1_000
    assert over_at_ms(10_000, 1, now_ms=500) == 10_000
    assert over_at_ms(86_400_000, 1, now_ms=500) == 500


# --- sends --------------------------------------------------------------------------------------------------------


def test_a_delayed_message_was_given_to_consumers_at_once(tmp_path: Path) -> None:
    async def story(world: DelayingSet) -> None:
        number = world.send(2, queue_id=3, properties="TAGS\x01a\x02TIMER_DELAY_SEC\x0199\x02", j=4)
        await pass_s(world, 0.1)
        assert world.code(number) == 0
        (waiting,) = world.records()
        assert (waiting.topic, waiting.queue_id) == (SCHEDULE_TOPIC, 1)
        queue = world.broker.folds.queue(SCHEDULE_TOPIC, 1)
        assert queue is not None
        assert UNIT.unpack(queue.units(0, 1))[2] == waiting.stored_at_ms + 5_000
        await pass_s(world, 4.7)
        assert world.bodies() == []
        assert value(world, "delayed_waiting") == 1
        await pass_s(world, 0.4)
        (delivered,) = world.records(b"T")
        assert (delivered.queue_id, delivered.reconsume_times, int(delivered.body)) == (3, 4, number)
        assert delivered.stored_at_ms - waiting.stored_at_ms < 5_100
        names = [part.partition(b"\x01")[0] for part in delivered.properties.split(b"\x02")]
        assert sorted(names) == sorted(
            [b"", b"CLUSTER", b"REAL_QID", b"REAL_TOPIC", b"ROLLCALL_DELIVERED", b"TAGS", b"WAIT"]
        )
        queue = world.broker.folds.queue(b"T", 3)
        assert queue is not None
        assert UNIT.unpack(queue.units(0, 1))[2] == ord("a")
        assert [value(world, name) for name in ("delayed_waiting", "delayed_delivered_total")] == [0, 1]

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("more", "code"),
    [({"topic": "SCHEDULE_TOPIC_XXXX", "level": 0}, 16), ({"topic": "ROLLCALL_SYS_X"}, 13), ({"topic": "a\x02b"}, 13),
     ({"topic": "a" * 256}, 13), ({"queue_id": 1 << 31}, 29), ({"level": "x"}, 13), ({"properties": "K\x01" + "v" * 32_690}, 13)],
)  # fmt: skip
def test_what_could_never_be_delivered_was_taken(tmp_path: Path, more: dict[str, Any], code: int) -> None:
    async def story(world: DelayingSet) -> None:
        number = world.send(**more)
        assert world.code(number) == code
        assert world.records() == []

    tell(tmp_path, story)


def test_delays_to_new_queues_went_past_the_limit_of_queues(tmp_path: Path) -> None:
    """Checked when they were sent, and made when they were delivered."""

    async def story(world: DelayingSet) -> None:
        world.broker.put._limits = PutLimits(queues_max=4)
        # The first one makes a queue of the schedule topic, too.
        numbers = [world.send(1, queue_id=each) for each in (0, 1, 2, 2, 3, 0)]
        direct = world.send(0, queue_id=3)
        world.settle()
        assert [world.code(number) for number in (*numbers, direct)] == [0, 0, 0, 0, 13, 0, 13]
        await pass_s(world, 1.5)
        assert len(world.broker.log.queues) == 4
        last = world.send(0, queue_id=2)
        world.settle()
        assert world.code(last) == 0

    tell(tmp_path, story)


def test_a_copied_place_was_taken_for_a_delivery(tmp_path: Path) -> None:
    """Consumers pass on what they were given, with all its properties: the message that waits there was lost."""

    async def story(world: DelayingSet) -> None:
        world.send(1)
        world.send(0, properties="ROLLCALL_DELIVERED\x011:0\x02")
        world.fail_over()
        await pass_s(world, 1.5)
        assert world.bodies() == [2, 1]

    tell(tmp_path, story)


# --- reigns -------------------------------------------------------------------------------------------------------


def test_levels_are_delivered_in_their_order_in_bounded_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "RUN_RECORDS_MAX", 4)
    runs: list[int] = []

    async def story(world: DelayingSet) -> None:
        numbers = [world.send(1 + n % 2) for n in range(30)]
        put_run = world.broker.put.put_run

        def counted(sink: Any, drafts: list[Draft], opaque: int) -> str:
            runs.append(len(drafts))
            return put_run(sink, drafts, opaque)

        monkeypatch.setattr(world.broker.put, "put_run", counted)
        await pass_s(world, 5.5)
        assert world.bodies() == numbers[::2] + numbers[1::2]
        assert max(runs) == 4

    tell(tmp_path, story)


def test_a_new_master_delivered_what_its_predecessor_had_just_delivered(tmp_path: Path) -> None:
    """The deliveries are in its log, and nobody has confirmed them yet."""

    async def story(world: DelayingSet) -> None:
        numbers = [world.send(1) for _ in range(5)]
        world.settle()
        await asyncio.sleep(1.5)
        assert world.bodies() == numbers
        world.fail_over()
        await asyncio.sleep(1)
        assert world.bodies() == numbers
        await pass_s(world, 1)
        assert world.bodies() == numbers

    tell(tmp_path, story)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_cut_delivery_was_never_made_again(tmp_path: Path, is_restarted: bool) -> None:
    async def story(world: DelayingSet) -> None:
        numbers = [world.send(1) for _ in range(5)]
        world.settle()
        end = world.records()[-1].end
        await pass_s(world, 1.5)
        kept = world.records(b"T")[1].end
        # An unclean election: confirmed deliveries are gone.
        assert end < kept < world.broker.folds.dispatched_offset
        world.fail_over(kept, is_restarted=is_restarted)
        await pass_s(world, 0.5)
        assert world.bodies() == numbers
        check_laws(world.records(), is_over=True)

    tell(tmp_path, story)


def test_an_answer_that_never_came_delivered_it_again(tmp_path: Path) -> None:
    """It is in the log, and waits for its set: a second copy would follow it there."""

    async def story(world: DelayingSet) -> None:
        number = world.send(1)
        world.settle()
        world.broker.put.ack_timeout_ms = 1
        await asyncio.sleep(1.5)
        world.broker.put.expire()
        await asyncio.sleep(1)
        assert world.bodies() == [number]
        assert value(world, "delayed_delivered_total") == 0

    tell(tmp_path, story)


def test_a_refused_run_is_tried_again_before_what_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: DelayingSet) -> None:
        numbers = [world.send(1) for _ in range(3)]
        world.settle()
        refused: list[float] = []

        def refuse(*_: object) -> str:
            refused.append(world.loop.time())
            return "the log has no room yet"

        with monkeypatch.context() as patch:
            patch.setattr(world.broker.put, "put_run", refuse)
            await asyncio.sleep(2)
            assert 5 <= len(refused) <= 15, "a bounded pace"
            assert value(world, "delayed_overdue_seconds") > 0.5
        await pass_s(world, 0.5)
        assert world.bodies() == numbers

    tell(tmp_path, story)


def test_a_master_that_goes_on_after_a_handover_that_failed_delivers_on(tmp_path: Path) -> None:
    """Same reign, and nobody publishes a role: what was appended before is not known to the fold yet."""

    async def story(world: DelayingSet) -> None:
        first, second = world.send(1), world.send(2)
        world.settle()
        await asyncio.sleep(1.5)
        state = world.broker.gate.state
        world.broker.gate.close("hands over", state.master_epoch, "")
        await asyncio.sleep(2)
        world.broker.gate.state = state
        await asyncio.sleep(3)
        assert world.bodies() == [first, second]

    tell(tmp_path, story)


def test_what_waits_for_nowhere_kept_all_behind_it(tmp_path: Path) -> None:
    """A record of another writer, without the properties of ours."""

    async def story(world: DelayingSet) -> None:
        append_all(world.broker.log, draft(topic=SCHEDULE_TOPIC, properties=b"DELAY\x011\x02"))
        number = world.send(1)
        await pass_s(world, 2)
        assert world.bodies() == [number]
        assert value(world, "delayed_undeliverable_total") == 1
        world.fail_over()
        await pass_s(world, 1)
        assert world.bodies() == [number]

    tell(tmp_path, story, is_lawful=False)


@pytest.mark.parametrize("units", [b"", b"short", bytes(20), None], ids=["none", "short", "zeros", "the disk"])
def test_one_level_that_cannot_be_read_stopped_all_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: bytes | None
) -> None:
    """And nobody saw it: the gauge left it out."""

    async def story(world: DelayingSet) -> None:
        first, _ = world.send(1), world.send(2)
        world.settle()
        damages: list[str] = []
        room = world.broker.room.deliveries
        monkeypatch.setattr(room, "_at", msgspec.structs.replace(room._at, on_damaged=damages.append))
        read = ConsumeQueue.units

        def broken(queue: ConsumeQueue, start: int, count_max: int) -> bytes:
            if queue._key != (SCHEDULE_TOPIC, 1):
                return read(queue, start, count_max)
            if units is None:
                raise OSError(5, "Input/output error")
            return units

        with monkeypatch.context() as patch:
            patch.setattr(ConsumeQueue, "units", broken)
            await pass_s(world, 2)
            assert world.bodies() == [first]
            assert value(world, "delayed_overdue_seconds") >= 0.001
            assert bool(damages) == (units is not None)
        await pass_s(world, 5)
        assert len(world.bodies()) == 2

    tell(tmp_path, story)


def test_what_is_left_out_cost_nothing_of_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 of them stopped the loop for seconds, with a line each."""
    monkeypatch.setattr(deliveries, "RUN_RECORDS_MAX", 4)
    lines: list[int] = []
    monkeypatch.setattr(deliveries._log, "warning", lambda _event, *, count, first: lines.append(count), raising=False)

    async def story(world: DelayingSet) -> None:
        append_all(world.broker.log, *(draft(topic=SCHEDULE_TOPIC, properties=b"DELAY\x011\x02") for _ in range(9)))
        number = world.send(1)
        await pass_s(world, 2)
        assert world.bodies() == [number]
        assert lines == [4, 4, 1]
        assert value(world, "delayed_undeliverable_total") == 9

    tell(tmp_path, story, is_lawful=False)


def test_too_much_on_its_way_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "ON_WAY_RECORDS_MAX", 4)
    monkeypatch.setattr(deliveries, "RUN_RECORDS_MAX", 2)

    async def story(world: DelayingSet) -> None:
        numbers = [world.send(1) for _ in range(9)]
        world.settle()
        await asyncio.sleep(2)
        assert world.bodies() == numbers[:4]
        await pass_s(world, 1)
        assert world.bodies() == numbers

    tell(tmp_path, story)


# --- 36 and the topics of groups ----------------------------------------------------------------------------------


def give_back(world: DelayingSet, record: Stored, **fields: int) -> FoldedLink:
    """A client of the group ``g`` refuses a message; its link."""
    link, room = FoldedLink(), world.broker.room
    room.groups.table.hear(link.connection, "g", Member("me", "JAVA", 479, 0), NO_FACTS)
    texts = {"offset": str(record.place), "group": "g", "delayLevel": "0", "originMsgId": "x", "originTopic": "T"}
    texts |= {name: str(number) for name, number in fields.items()}
    room.responders[36](link.connection, Frame(code=36, opaque=1, ext_fields=texts))
    return link


def test_a_refused_message_was_not_given_again_and_had_no_limit(tmp_path: Path) -> None:
    """It comes again with its delay and its number of refusals, and ends among the dead letters."""

    async def story(world: DelayingSet) -> None:
        number = world.send(0, properties="TAGS\x01a\x02" + SEQUENCE)
        world.settle()
        record = world.records()[0]
        link = give_back(world, record)
        await asyncio.sleep(0.1)
        assert link.frames == [], "answered before it is confirmed"
        await pass_s(world, 9.5)
        assert link.last.code == 0
        assert world.records(b"%RETRY%g") == []
        await pass_s(world, 1)
        (again,) = world.records(b"%RETRY%g")
        assert (again.queue_id, again.reconsume_times, int(again.body)) == (0, 1, number)
        assert last_value(again.properties, b"RETRY_TOPIC\x01") == b"T"
        assert last_value(again.properties, b"TAGS\x01") == b"a"
        assert last_value(again.properties, b"ORIGIN_MESSAGE_ID\x01").endswith(b"%016X" % record.place)
        assert b"ROLLCALL_SEQ" not in again.properties
        link = give_back(world, again, delayLevel=1, maxReconsumeTimes=2)
        await pass_s(world, 1.5)
        second = world.records(b"%RETRY%g")[1]
        assert second.reconsume_times == 2
        assert last_value(second.properties, b"ORIGIN_MESSAGE_ID\x01").endswith(b"%016X" % record.place)
        link = give_back(world, second, maxReconsumeTimes=2)
        await pass_s(world, 0.1)
        assert link.last.code == 0
        (dead,) = world.records(b"%DLQ%g")
        assert (dead.queue_id, dead.reconsume_times, int(dead.body)) == (0, 3, number)
        assert [value(world, f"{name}_total") for name in ("messages_given_back", "dead_letters")] == [3, 1]

    tell(tmp_path, story)


def test_what_a_failover_may_take_back_was_answered_as_given_back(tmp_path: Path) -> None:
    async def story(world: DelayingSet) -> None:
        world.send(0)
        world.settle()
        link, other = give_back(world, world.records()[0]), give_back(world, world.records()[0])
        await asyncio.sleep(0.01)
        assert len(world.records(SCHEDULE_TOPIC)) == 2
        world.broker.follow()
        await asyncio.sleep(0.01)
        assert [each.last.code for each in (link, other)] == [1, 1]
        assert give_back(world, world.records()[0]).last.code == 2

    tell(tmp_path, story)


def test_a_disk_that_takes_no_sends_was_filled_by_what_groups_refused(tmp_path: Path) -> None:
    async def story(world: DelayingSet) -> None:
        world.send(0)
        await pass_s(world, 0.1)
        world.broker.put.full_disk = "the disk is 95 % full"
        refused = give_back(world, world.records()[0])
        await asyncio.sleep(0.01)
        assert (refused.last.code, refused.last.remark) == (1, "not confirmed: the disk is 95 % full")
        world.broker.put.full_disk = ""
        link = give_back(world, world.records()[0])
        await pass_s(world, 0.1)
        assert link.last.code == 0

    tell(tmp_path, story)


def test_nonsense_was_given_back(tmp_path: Path) -> None:
    async def story(world: DelayingSet) -> None:
        world.send(0)
        world.settle()
        record = world.records()[0]
        links = give_back(world, record._replace(place=record.place + 1)), give_back(world, record, offset=-1)
        await asyncio.sleep(0.01)
        assert [link.last.code for link in links] == [1, 1]
        assert len(world.records()) == 1

    tell(tmp_path, story)


def test_one_link_that_gave_all_back_stopped_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy, a CRC and a run for each of its requests, in one turn."""
    monkeypatch.setattr(send_back, "TURN_BYTES", 2 * send_back.LOOK_BYTES)
    monkeypatch.setattr(send_back, "ASKING_MAX", 5)

    async def story(world: DelayingSet) -> None:
        world.send(0)
        world.settle()
        record = world.records()[0]
        links = [give_back(world, record) for _ in range(6)]
        assert [[answer.code for answer in link.frames] for link in links] == [[]] * 5 + [[2]]
        await asyncio.sleep(0)
        assert 0 < len(world.records(SCHEDULE_TOPIC)) <= 2
        await pass_s(world, 0.1)
        assert [link.last.code for link in links[:5]] == [0] * 5
        assert len(world.records(SCHEDULE_TOPIC)) == 5

    tell(tmp_path, story)


def test_what_is_refused_anyway_was_copied_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: DelayingSet) -> None:
        world.send(0)
        world.settle()
        record = world.records()[0]
        monkeypatch.setattr(send_back, "copy_record", lambda *_: pytest.fail("copied"))
        monkeypatch.setattr(world.broker.put, "_refusal", lambda *_: ("overloaded", "100000 messages wait"))
        links = [give_back(world, record) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert {(link.last.code, link.last.remark) for link in links} == {(1, "not confirmed: 100000 messages wait")}

    tell(tmp_path, story)


def test_any_name_of_a_group_made_queues_for_ever(tmp_path: Path) -> None:
    async def story(world: DelayingSet) -> None:
        world.send(0)
        world.settle()
        await pass_s(world, 1.1)
        record = world.records()[0]
        link = FoldedLink()
        fields = {"offset": str(record.place), "group": "nobody", "delayLevel": "-1"}
        world.broker.room.responders[36](link.connection, Frame(code=36, opaque=1, ext_fields=fields))
        await pass_s(world, 0.1)
        assert link.last.code == 26
        assert world.records(b"%DLQ%nobody") == []

    tell(tmp_path, story)


def test_the_number_of_times_that_an_order_gave_a_group_was_not_heard(tmp_path: Path) -> None:
    """Clients that say no number of their own, by a 36 and by a copy."""

    async def story(world: DelayingSet) -> None:
        order, body = FoldedLink(), b'{"groupName":"g","retryMaxTimes":1}'
        await pass_s(world, 1.1)
        world.broker.room.responders[200](order.connection, Frame(code=200, opaque=1, body=body))
        await pass_s(world, 1.1)
        assert order.last.code == 0
        number = world.send(0)
        world.send(3, topic="%RETRY%g", j=2)
        give_back(world, world.records(b"T")[0], delayLevel=1)
        await pass_s(world, 1.5)
        give_back(world, world.records(b"%RETRY%g")[0])
        await pass_s(world, 0.1)
        assert world.bodies(b"%DLQ%g") == [number + 1, number]

    tell(tmp_path, story)


def test_a_copy_that_a_client_sends_to_its_group_was_taken_for_a_repeat(tmp_path: Path) -> None:
    """Clients that cannot send a message back send a copy, with the producer's number in it; and not for ever."""

    async def story(world: DelayingSet) -> None:
        world.send(0, properties=SEQUENCE)
        world.send(3, topic="%RETRY%g", properties=SEQUENCE, j=1, l=16)
        world.send(3, topic="%RETRY%g", properties=SEQUENCE, j=17)
        world.send(3, topic="%RETRY%g", properties=SEQUENCE, j=2, l=1)
        await pass_s(world, 0.1)
        assert [world.code(number) for number in (1, 2, 3, 4)] == [0, 0, 0, 0]
        assert world.bodies(b"%DLQ%g") == [3, 4]
        await pass_s(world, 10.2)
        assert world.bodies(b"%RETRY%g") == [2]
        assert world.broker.put.counters.dead_letters == 2

    tell(tmp_path, story)


# --- the fold -----------------------------------------------------------------------------------------------------


def test_folds_of_an_older_program_say_nothing_about_deliveries(tmp_path: Path) -> None:
    """Believed, its mark would have everything delivered again; without any delayed message it is believed."""

    async def story(world: DelayingSet) -> None:
        world.send(1)
        await pass_s(world, 1.5)
        world.broker.folds.rest(is_resting=True)
        world.broker.folds.close()
        world.broker.folds.rest(is_resting=False)
        path = tmp_path / FOLDS_FILE_NAME
        mark = read_small(path, FoldsMark)
        assert mark is not None
        write_small(path, FoldsMark(offset=mark.offset, queues=mark.queues))
        world.fail_over(is_restarted=True)
        assert not path.exists()
        await pass_s(world, 1)
        assert world.bodies() == [1]

    tell(tmp_path, story)


# --- a log that loses its front ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_built_anew", [False, True])
def test_a_log_that_lost_its_deliveries_made_them_again(tmp_path: Path, is_built_anew: bool) -> None:
    """By the numbers alone: built of what is left, they begin at 0 again."""

    async def story(world: DelayingSet) -> None:
        first = world.send(1)
        await pass_s(world, 1.5)
        assert world.bodies() == [first]
        waits = world.send(3)
        world.settle()
        log, folds = world.broker.log, world.broker.folds
        place = world.records(SCHEDULE_TOPIC)[-1].place
        assert folds.delayed_from() == place, "what waits holds the log"
        await pass_s(world, 11)
        assert folds.delayed_from() == log.confirm_offset
        while len(log._files.segments) < 3:
            append_all(log, draft(b"x" * 30_000))
            world.settle()
        second = world.send(1)
        tell_queues(log)
        settle(log)
        world.settle()
        log.front.delete(LogOffset(log._files.segments[1].base))
        mark(folds)
        if is_built_anew:
            (tmp_path / FOLDS_FILE_NAME).unlink()
        world.fail_over(is_restarted=True)
        folds = world.broker.folds
        confirm_all(world.broker.log)
        await until(lambda: not folds.catch_up())
        assert folds.delivered.following[0] == (0 if is_built_anew else 1)
        await pass_s(world, 1.5)
        assert [int(each.body) for each in world.records(b"T")] == [second]
        third = world.send(3)
        await pass_s(world, 11)
        assert [int(each.body) for each in world.records(b"T")] == [second, third]
        assert world.records(SCHEDULE_TOPIC)[-1].queue_offset == 1, "the queue goes on behind what is gone"
        assert waits not in world.bodies()
        assert value(world, "delayed_waiting") == 0

    tell(tmp_path, story, is_lawful=False)
