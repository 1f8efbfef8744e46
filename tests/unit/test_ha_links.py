"""Both link machines: the documented transitions, the handshake's refusals, and what each rule keeps from happening."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from msgspec.structs import replace

import rollcall_ha.ha.master_link
import rollcall_ha.ha.slave_link
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch
from rollcall_ha.ha import actions
from rollcall_ha.ha.actions import (
    CloseLink,
    ConfirmHeard,
    HigherEpochSeen,
    IsolationWanted,
    LinkReady,
    LogGrew,
    RecordEpoch,
    SendTransfer,
    SlaveOpened,
    TruncateLog,
)
from rollcall_ha.ha.codec_native import NativeDecoder, encode
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Ack, HandshakeReply, NativeFrame, Transfer
from rollcall_ha.ha.links import ReplicaIdentity
from rollcall_ha.ha.master_link import MasterLinkState
from rollcall_ha.ha.slave_link import SlaveLinkState
from rollcall_ha.ha.truncation import Cut, FullResync, Keep
from tests.support.ha_logs import MemoryLog, entry, history
from tests.support.ha_pair import SETTINGS, Pair, identity, reign, target


def reigned(*lengths: int, first: int = 1, segment: int = 1 << 30) -> MemoryLog:
    """A log with one reign per length, bytes that differ everywhere."""
    log = MemoryLog(segment=segment)
    for number, length in enumerate(lengths):
        log.begin_epoch(first + number)
        log.append(bytes((len(log.data) + i) * 7 % 251 for i in range(length)))
    return log


def frames(data: bytes) -> list[NativeFrame]:
    """Up to the first body."""
    decoder, view, found = NativeDecoder(), memoryview(data), []
    while view:
        frame, taken = decoder.feed(view)
        view = view[taken:]
        if frame:
            found.append(frame)
        if decoder.body_left:
            break
    return found


# --- documentation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "states", "union"),
    [
        (rollcall_ha.ha.master_link, MasterLinkState, actions.MasterAction),
        (rollcall_ha.ha.slave_link, SlaveLinkState, actions.SlaveAction),
    ],
)
def test_the_tables_name_every_state_and_every_action_and_nothing_else(
    module: object, states: type, union: object
) -> None:
    rows = [line.strip("| ").split(" | ") for line in (module.__doc__ or "").splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in row] for row in rows if not row[0].startswith(("---", "state"))]
    known_states = {state.name for state in states}  # type: ignore[attr-defined]
    named_states = set(re.findall(r"\b[A-Z]{4,}\b", " ".join(row[0] + " " + row[-1] for row in table)))
    named_actions = set(
        re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", " ".join(row[2] for row in table if len(row) == 4))
    )
    assert named_states == known_states
    assert named_actions == {action.__name__ for action in get_args(union)}


# --- a link's life ---------------------------------------------------------------------------------------------------


def test_an_empty_slave_gets_everything_with_its_epochs() -> None:
    pair = Pair(reigned(100, 30, 70), MemoryLog(), epoch=3).open().run()
    assert pair.is_up
    assert pair.slave_log.data == pair.master_log.data
    assert pair.slave_log.history == pair.master_log.history
    assert pair.acks[-1].offset == 200


def test_w14_the_first_ack_comes_right_after_the_cut() -> None:
    """The reference waits for its 5 s timer, and the master for that ack."""
    log = reigned(100)
    pair = Pair(log, reigned(100), epoch=1).open()
    pair.run()
    assert [ack.offset for ack in pair.acks] == [100]
    assert any(isinstance(action, LinkReady) for action in pair.slave_said)


def test_s23_nothing_is_acked_before_the_cut_is_durable() -> None:
    pair = Pair(reigned(50, 50), reigned(80), epoch=2)
    pair.hold = True
    pair.open().run()
    (wanted,) = pair.held
    assert isinstance(wanted, TruncateLog)
    assert wanted.plan == Cut(point=LogOffset(50), history=history((1, 0)), cut_bytes=30)
    assert pair.acks == []
    pair.hold = False
    pair.answer()
    pair.run()
    assert pair.acks[0].offset == 50
    assert pair.slave_log.data == pair.master_log.data


def test_r9_no_byte_of_an_epoch_is_taken_before_its_entry_is_recorded() -> None:
    """v3 ends up under epoch 1."""
    pair = Pair(reigned(50, 50), reigned(20), epoch=2)
    pair.open().steps(2)
    pair.hold = True
    pair.run()
    (wanted,) = pair.held
    assert wanted == RecordEpoch(entry=entry(2, 50))
    assert pair.slave_log.max_offset == 50
    assert pair.acks[-1].offset == 50, "what came before it is acked meanwhile"
    pair.answer()
    pair.hold = False
    pair.run()
    assert pair.slave_log.data == pair.master_log.data


def test_transfers_cross_neither_an_epoch_nor_a_segment() -> None:
    pair = Pair(reigned(100, 100, segment=64), MemoryLog(segment=64), epoch=2).open().run()
    sent = [action for action in pair.master_said if isinstance(action, SendTransfer)]
    assert [(action.region.position, action.end_offset) for action in sent] == [
        (0, 64),
        (64, 100),
        (100, 128),
        (128, 192),
        (192, 200),
    ]
    headers = [frame for action in sent for frame in frames(action.header)]
    assert [header.entry for header in headers if isinstance(header, Transfer)] == [
        entry(1, 0),
        entry(1, 0),
        entry(2, 100),
        entry(2, 100),
        entry(2, 100),
    ]


def test_s24_an_epoch_without_bytes_leaves_no_trace_on_either_side() -> None:
    """A to B to A in quick order: byte-equal files."""
    master = reigned(100)
    for epoch in (2, 3, 4):
        master.begin_epoch(epoch)
    slave = reigned(100)
    slave.begin_epoch(3)
    master.append(b"new")
    pair = Pair(master, slave, epoch=4).open().run()
    assert pair.slave_log.history == master.history == history((1, 0), (4, 100))
    assert pair.slave_log.data == master.data


def test_s29_a_full_copy_is_announced_with_its_reason_and_the_old_log_set_aside() -> None:
    slave = MemoryLog(b"other bytes", history((7, 0)))
    pair = Pair(reigned(100, first=8), slave, epoch=8).open().run()
    (wanted,) = [action for action in pair.slave_said if isinstance(action, TruncateLog)]
    assert isinstance(wanted.plan, FullResync)
    assert slave.set_aside == [b"other bytes"]
    assert slave.data == pair.master_log.data


def test_a_full_copy_begins_where_the_master_s_log_does() -> None:
    """Older segments are deleted; the epoch keeps its start (R20)."""
    master = MemoryLog(b"x" * 50, history((3, 900)), base=1000)
    pair = Pair(master, reigned(10), epoch=3).open().run()
    assert (pair.slave_log.min_offset, pair.slave_log.data) == (1000, master.data)
    assert pair.slave_log.history == history((3, 900))


def test_r26_a_cut_below_the_own_confirm_isolates_and_cuts_nothing() -> None:
    slave = reigned(80)
    pair = Pair(reigned(50, 50), slave, epoch=2, durable_confirm=60).open().run()
    (wanted,) = [action for action in pair.slave_said if isinstance(action, IsolationWanted)]
    assert (wanted.plan.point, wanted.plan.confirm_offset) == (50, 60)
    assert slave.max_offset == 80
    assert {close.code for close in pair.closes} == {ErrorCode.CUT_REFUSED}
    explained = Pair(reigned(50, 50), reigned(80), epoch=2, durable_confirm=60, unclean=2).open().run()
    assert explained.is_up


def test_data_and_confirm_reach_the_slave_without_another_word() -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1).open().run()
    pair.master_log.append(b"abc")
    pair.confirm = LogOffset(13)
    pair.run()
    assert LogGrew(start=LogOffset(10), end=LogOffset(13)) in pair.slave_said
    assert ConfirmHeard(offset=LogOffset(13), master_end=LogOffset(13)) in pair.slave_said


def test_an_idle_master_tells_a_moved_confirm_after_a_moment() -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1).open().run()
    pair.confirm = LogOffset(10)
    pair.now_ms = SETTINGS.confirm_delay_ms
    pair.do_master(pair.master.tick(pair.confirm, pair.now_ms))
    pair.run()
    assert ConfirmHeard(offset=LogOffset(10), master_end=LogOffset(10)) in pair.slave_said


def test_heartbeats_keep_an_idle_link_and_silence_ends_it() -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1).open().run()
    for _ in range(20):
        pair.now_ms += SETTINGS.heartbeat_interval_ms
        pair.do_master(pair.master.tick(pair.confirm, pair.now_ms))
        pair.do_slave(pair.slave.tick(pair.now_ms))
        pair.run()
    assert pair.is_up
    pair.now_ms += SETTINGS.idle_timeout_ms
    (_, close) = pair.master.tick(pair.confirm, pair.now_ms)
    assert isinstance(close, CloseLink)
    assert close.code is ErrorCode.IDLE
    assert [type(action).__name__ for action in pair.slave.tick(pair.now_ms)] == ["Send", "CloseLink"]


def test_r3_with_synced_flush_acks_say_what_is_synced() -> None:
    pair = Pair(reigned(100), MemoryLog(), epoch=1, flush="sync").open().run()
    assert pair.acks[-1].offset == 0
    pair.do_slave(pair.slave.log_synced(LogOffset(60), 0))
    pair.run()
    assert pair.acks[-1].offset == 60


@pytest.mark.parametrize("is_durable", [True, False])
def test_r9_an_ack_says_whether_the_promise_is_durable(is_durable: bool) -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1, promise=is_durable).open().run()
    assert [(ack.offset, ack.is_promise_durable) for ack in pair.acks] == [(10, is_durable)]


def test_a_full_disk_ends_the_link_with_a_word() -> None:
    slave = MemoryLog()
    slave.room_bytes = 64
    pair = Pair(reigned(200), slave, epoch=1).open().run()
    assert {close.code for close in pair.closes} == {ErrorCode.LOG_FAILED}
    assert "No space left" in pair.closes[0].detail


# --- who may talk to whom --------------------------------------------------------------------------------------------


def test_r21_a_slave_with_a_lower_epoch_is_refused_and_hears_the_higher_one() -> None:
    """It asks the controllers at once; the link ends."""
    pair = Pair(reigned(10), reigned(10), epoch=9, follow=target(7)).open().run()
    assert HigherEpochSeen(master_epoch=MasterEpoch(9), broker_id=1, incarnation="inc-1") in pair.slave_said  # type: ignore[arg-type]
    assert pair.closes[0].code is ErrorCode.EPOCH_STALE
    assert "expected 9, got 7" in pair.closes[0].detail
    assert pair.acks == []


def test_r21_a_master_in_a_lower_epoch_hears_of_the_higher_one_and_serves_nothing() -> None:
    """C follows the stale master of 2 after it acked in 3."""
    pair = Pair(reigned(10), MemoryLog(), epoch=7, follow=target(9)).open().run()
    assert HigherEpochSeen(master_epoch=MasterEpoch(9), broker_id=2, incarnation="inc-2") in pair.master_said  # type: ignore[arg-type]
    assert not any(isinstance(action, SlaveOpened) for action in pair.master_said)
    assert pair.slave_log.max_offset == 0
    pair.do_master(pair.master.reign_opened(reign(9), LogOffset(0), 10))
    pair.run()
    assert pair.is_up, "once it has entered that epoch, it answers"


@pytest.mark.parametrize("stranger", [identity(9), identity(2, incarnation="inc-of-nobody")])
def test_a_stranger_is_never_answered_and_nothing_of_it_counts(stranger: ReplicaIdentity) -> None:
    """Two strangers that named themselves 2 and 3 acked everything, stored nothing, and 264 messages were lost."""
    pair = Pair(reigned(10), MemoryLog(), epoch=3, slave=stranger).open().run()
    assert (pair.acks, pair.slave_log.max_offset) == ([], 0)
    pair.do_master(pair.master.tick(LogOffset(0), SETTINGS.handshake_timeout_ms))
    pair.run()
    assert pair.closes[0].code is ErrorCode.WRONG_PEER


def test_a_stranger_s_higher_epoch_is_not_even_asked_after() -> None:
    for stranger in (identity(9), identity(2, incarnation="inc-of-nobody")):
        pair = Pair(reigned(10), MemoryLog(), epoch=3, slave=stranger, follow=target(9)).open().run()
        pair.do_slave(pair.slave.fail(ErrorCode.EPOCH_UNKNOWN, "3", "9"))
        pair.run()
        assert not any(isinstance(action, HigherEpochSeen) for action in pair.master_said)


def test_a_replica_that_registered_a_moment_ago_waits_for_the_master_s_view() -> None:
    """Refused, it would come back after a pause: an election's survivors have 300 ms (R6)."""
    restarted = identity(2, incarnation="inc-2.2")
    pair = Pair(reigned(10), MemoryLog(), epoch=3, slave=restarted).open().run()
    assert pair.closes == []
    newer = replace(pair.reign, incarnations={**pair.reign.incarnations, restarted.broker_id: restarted.incarnation})
    pair.do_master(pair.master.replicas_changed(newer, LogOffset(0), 100))
    assert pair.run().is_up


def test_a_link_ends_when_another_incarnation_of_its_slave_has_registered() -> None:
    """Its acks may still stand in the socket; the tail that they speak of may be lost (R3)."""
    pair = Pair(reigned(10), MemoryLog(), epoch=3).open().run()
    assert pair.master.replicas_changed(pair.reign, LogOffset(0), 10) == []
    newer = replace(pair.reign, incarnations={**pair.reign.incarnations, BrokerId(2): Incarnation("inc-2.2")})
    pair.do_master(pair.master.replicas_changed(newer, LogOffset(0), 10))
    assert pair.closes[0].code is ErrorCode.WRONG_PEER
    assert "expected incarnation inc-2.2, got inc-2" in pair.closes[0].detail


def test_a_slave_that_comes_before_the_reign_waits_for_it_but_not_for_ever() -> None:
    """Survivors shake hands within 500 ms of an election (R6): no pause for a retry fits into that."""
    early = Pair(reigned(10), MemoryLog(), epoch=3, has_reign=False).open().run()
    assert early.closes == []
    early.do_master(early.master.reign_opened(early.reign, LogOffset(0), 100))
    assert early.run().is_up
    late = Pair(reigned(10), MemoryLog(), epoch=3, has_reign=False).open().run()
    late.do_master(late.master.tick(LogOffset(0), SETTINGS.handshake_timeout_ms))
    late.run()
    assert late.closes[0].code is ErrorCode.NOT_MASTER


@pytest.mark.parametrize(
    ("slave", "follow", "code"),
    [
        (identity(2, cluster="c2"), target(3), ErrorCode.WRONG_SET),
        (identity(2, fleet="restored"), target(3), ErrorCode.WRONG_SET),
        (identity(2), target(3, master=3), ErrorCode.WRONG_PEER),
        (identity(2), target(3, incarnation="inc-older"), ErrorCode.WRONG_PEER),
        (identity(1), target(3), ErrorCode.WRONG_PEER),
    ],
)
def test_s64_strangers_are_refused_with_both_values(slave: object, follow: object, code: ErrorCode) -> None:
    """Another cluster, another fleet, another master, an ended incarnation, the own id."""
    pair = Pair(reigned(10), MemoryLog(), epoch=3, slave=slave, follow=follow).open().run()  # type: ignore[arg-type]
    assert {close.code for close in pair.closes} == {code}
    assert "expected" in pair.closes[0].detail
    assert pair.slave_log.max_offset == 0


def test_r12_the_end_of_a_reign_ends_its_links() -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1).open().run()
    pair.do_master(pair.master.reign_ended("masterEpoch 2 begins"))
    pair.run()
    assert {close.code for close in pair.closes} == {ErrorCode.REIGN_ENDED}
    pair.master_log.append(b"more")
    assert pair.master.plan_transfer(LogOffset(0), 0) == []


# --- nonsense --------------------------------------------------------------------------------------------------------


def test_r12_data_of_a_closed_link_is_dropped() -> None:
    """v1 of A's link is acked to C as v2."""
    pair = Pair(reigned(100), MemoryLog(), epoch=1)
    pair.open().steps(2)
    pair.do_master(pair.master.plan_transfer(LogOffset(0), 0))
    late = bytes(pair.to_slave)
    assert late
    before = pair.slave_log.max_offset
    pair.slave.connection_lost()
    assert pair.slave.bytes_received(late, 0) == []
    assert pair.slave.log_synced(LogOffset(10), 0) == pair.slave.tick(10**6) == []
    assert pair.slave_log.max_offset == before


def test_r12_an_ack_of_another_reign_link_or_incarnation_is_dropped_and_counted() -> None:
    """D14: both ends agree on one masterEpoch and link; frames of another one count for nothing."""
    pair = Pair(reigned(100), MemoryLog(), epoch=5, generation=3).open().run()
    count = len(pair.acks)
    good = pair.acks[-1]
    for epoch, generation, incarnation in ((4, 3, "inc-2"), (5, 2, "inc-2"), (5, 3, "inc-old")):
        ack = Ack(
            master_epoch=MasterEpoch(epoch),
            link_generation=generation,
            incarnation=incarnation,  # type: ignore[arg-type]
            offset=good.offset,
            log_end=good.offset,
            is_promise_durable=True,
        )
        assert pair.master.bytes_received(encode(ack), LogOffset(0), 0) == []
    assert len(pair.acks) == count


def test_d5_an_ack_beyond_what_was_sent_closes_the_link_uncounted() -> None:
    pair = Pair(reigned(100), MemoryLog(), epoch=5).open().run()
    ack = Ack(
        master_epoch=MasterEpoch(5),
        link_generation=1,
        incarnation=identity(2).incarnation,
        offset=LogOffset(101),
        log_end=LogOffset(101),
        is_promise_durable=True,
    )
    (_, close) = pair.master.bytes_received(encode(ack), LogOffset(0), 0)
    assert isinstance(close, CloseLink)
    assert close.code is ErrorCode.PROTOCOL


def test_w16_a_first_ack_where_the_master_has_no_epoch_is_refused() -> None:
    master = MemoryLog(b"x" * 100, history((2, 50)))
    pair = Pair(master, MemoryLog(), epoch=2).open().run()
    assert pair.closes[0].code is ErrorCode.OFFSET_UNSERVED


@pytest.mark.parametrize(
    "changes",
    [
        {"master_epoch": 4},
        {"master_epoch": 6},
        {"link_generation": 2},
        {"offset": 9},
        {"offset": 11},
        {"entry": entry(1, 5)},
        {"entry": entry(2, 9)},
        {"entry": entry(6, 10)},
    ],
)
def test_d3_bytes_that_do_not_fit_the_own_log_close_the_link(changes: dict[str, object]) -> None:
    """Another reign or link, a gap, an overlap, an epoch with another start, one above the reign's."""
    pair = Pair(reigned(10), reigned(10), epoch=5).open().run()
    fields: dict[str, object] = {
        "master_epoch": 5,
        "link_generation": 1,
        "entry": entry(1, 0),
        "offset": 10,
        "body_length": 3,
        "confirm_offset": 0,
    } | changes
    said = pair.slave.bytes_received(encode(Transfer(**fields)) + b"abc", 0)  # type: ignore[arg-type]
    assert [type(action).__name__ for action in said] == ["Send", "CloseLink"]
    assert pair.slave_log.max_offset == 10


def test_a_damaged_header_closes_the_link_and_no_byte_behind_it_is_taken() -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1).open().run()
    pair.master_log.append(b"abc")
    pair.do_master(pair.master.plan_transfer(LogOffset(0), 0))
    pair.to_slave[20] ^= 1
    pair.run()
    assert pair.closes[0].code is ErrorCode.PROTOCOL
    assert "CRC" in pair.closes[0].detail
    assert pair.slave_log.max_offset == 10


def test_keep_is_asked_for_like_every_other_plan() -> None:
    """With flush = sync the log has to be synced before the first ack."""
    pair = Pair(reigned(10), reigned(10), epoch=1).open().run()
    (wanted,) = [action for action in pair.slave_said if isinstance(action, TruncateLog)]
    assert wanted.plan == Keep(point=LogOffset(10))


def test_acks_end_at_whole_records_and_a_link_goes_on_inside_one() -> None:
    """A confirm offset inside a record would be above the start of the next epoch once the torn record is cut (R26)."""
    master, slave = reigned(100), MemoryLog()
    slave.record_bytes = 30
    first = Pair(master, slave, epoch=1)
    first.chunk = lambda available: min(available, 7)
    first.open()
    while slave.max_offset < 31:
        assert first.step()
    first.steps(5)
    assert slave.max_offset % 30 != 0
    assert first.acks
    assert all(ack.offset % 30 == 0 for ack in first.acks)
    second = Pair(master, slave, epoch=1, generation=2).open().run()
    assert second.closes == []
    assert slave.data == master.data
    assert second.acks[-1].offset == 90


def test_bytes_that_are_no_records_close_the_link() -> None:
    slave = MemoryLog()
    slave.is_sceptical = True
    pair = Pair(reigned(100), slave, epoch=1).open().run()
    assert {close.code for close in pair.closes} == {ErrorCode.PROTOCOL}
    assert "magic is 0" in pair.closes[0].detail


def reply_from(pair: Pair, **changes: object) -> bytes:
    """A master's answer to this slave, with something wrong in it."""
    mine = identity(1)
    fields: dict[str, object] = {
        "set_key": mine.set_key,
        "fleet_incarnation": mine.fleet_incarnation,
        "master_epoch": pair.reign.master_epoch,
        "broker_id": 1,
        "incarnation": "inc-1",
        "link_generation": 1,
        "min_offset": 0,
        "max_offset": 10,
        "confirm_offset": 0,
        "history": history((1, 0)),
    } | changes
    return encode(HandshakeReply(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "code", "higher"),
    [
        ({"fleet_incarnation": "restored"}, ErrorCode.WRONG_SET, []),
        ({"set_key": identity(1, cluster="c2").set_key}, ErrorCode.WRONG_SET, []),
        ({"broker_id": 3}, ErrorCode.WRONG_PEER, []),
        ({"incarnation": "inc-newer"}, ErrorCode.WRONG_PEER, []),
        ({"master_epoch": 4}, ErrorCode.EPOCH_STALE, []),
        ({"master_epoch": 6}, ErrorCode.EPOCH_UNKNOWN, [6]),
    ],
)
def test_a_slave_follows_the_master_and_the_reign_that_it_was_told(
    changes: dict[str, object], code: ErrorCode, higher: list[int]
) -> None:
    """W11: neither side notices a stale address in the reference. A higher epoch is reported (R21)."""
    pair = Pair(reigned(10), reigned(10), epoch=5).open()
    said = pair.slave.bytes_received(reply_from(pair, **changes), 0)
    assert [action.code for action in said if isinstance(action, CloseLink)] == [code]
    assert [action.master_epoch for action in said if isinstance(action, HigherEpochSeen)] == higher
    assert not any(isinstance(action, TruncateLog) for action in said)


def test_a_cut_that_failed_and_an_entry_that_was_not_recorded_end_the_link() -> None:
    """Nothing is acked that is not as planned."""
    failed = Pair(reigned(10), reigned(10), epoch=1)
    failed.hold = True
    failed.open().run()
    failed.do_slave(failed.slave.truncation_failed("the disk is read-only"))
    assert failed.closes[-1].code is ErrorCode.CUT_REFUSED
    assert "read-only" in failed.closes[-1].detail
    lying = Pair(reigned(10), MemoryLog(), epoch=1)
    lying.open().steps(1)
    lying.hold = True
    lying.run()
    lying.do_slave(lying.slave.epoch_recorded(0))
    assert lying.closes[-1].code is ErrorCode.LOG_FAILED
    assert lying.slave_log.max_offset == 0


def test_a_slave_that_cuts_for_long_is_waited_for_and_one_that_never_answers_is_not() -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1)
    pair.hold = True
    pair.open().run()
    assert pair.master.tick(LogOffset(0), SETTINGS.idle_timeout_ms * 5) == []
    assert len(pair.master.tick(LogOffset(0), SETTINGS.cutting_timeout_ms)) == 2
    silent = Pair(reigned(10), reigned(10), epoch=1)
    silent.do_slave(silent.slave.connected(0))
    assert silent.slave.tick(SETTINGS.handshake_timeout_ms) == []
    assert len(silent.slave.tick(2 * SETTINGS.handshake_timeout_ms)) == 2
    assert len(silent.master.tick(LogOffset(0), SETTINGS.handshake_timeout_ms)) == 2


def test_a_frame_from_the_wrong_side_or_at_the_wrong_time_closes_the_link() -> None:
    pair = Pair(reigned(10), reigned(10), epoch=1).open().run()
    echoed = reply_from(pair)
    assert [type(a).__name__ for a in pair.master.bytes_received(echoed, LogOffset(0), 0)] == ["Send", "CloseLink"]
    assert [type(a).__name__ for a in pair.slave.bytes_received(echoed, 0)] == ["Send", "CloseLink"]
    assert pair.master.end(ErrorCode.STOPPING, "again") == pair.slave.fail(ErrorCode.STOPPING, "", "") == []
