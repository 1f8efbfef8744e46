"""When a master calls its writes stopped, since when, and how it tells the controllers: the two machines, by the clock."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.broker.core.write_reports import (
    RETRY_PAUSE_MS_MAX,
    STOPS_PENDING_MAX,
    Told,
    WriteReports,
)
from rollcall_ha.broker.core.write_watch import MemberFacts, Stop, WriteFacts, WriteWatch
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SetKey,
)
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import StopReason

TICK_US = 50_000
MS = 1_000
T0 = 1_000_000
BOTH = (BrokerId(2), BrokerId(3))


class Reign:
    """A master of three, looked at every 50 ms, with a log of 1,000 bytes that both slaves have."""

    def __init__(self) -> None:
        self.watch = WriteWatch(stall_ms=500, heartbeat_interval_ms=250)
        self.now_us = T0
        self.facts = WriteFacts(
            master_epoch=MasterEpoch(1), confirm=LogOffset(1_000), log_end=LogOffset(1_000), min_in_sync=2
        )
        self.seen: list[Stop] = []
        self.hear(*BOTH)

    def hear(self, *members: BrokerId, acked: int = 1_000) -> None:
        """They ack now."""
        others = tuple(one for one in self.facts.members if one.broker_id not in members)
        heard = (MemberFacts(broker_id=one, heard_us=self.now_us, acked=LogOffset(acked)) for one in members)
        self.set(members=tuple(sorted((*others, *heard), key=lambda one: one.broker_id)))

    def unlink(self, *members: BrokerId) -> None:
        self.set(
            members=tuple(replace(one, acked=None) if one.broker_id in members else one for one in self.facts.members)
        )

    def set(self, **changes: object) -> None:
        """Something happens now; while writes are stopped that causes a look."""
        self.facts = replace(self.facts, **changes)
        if self.watch.stop is not None:
            self.look()

    def look(self) -> None:
        stop = self.watch.look(self.facts, self.now_us)
        if stop is not None and stop not in self.seen:
            self.seen.append(stop)

    def run(self, duration_ms: int, *beating: BrokerId) -> None:
        """Look every 50 ms, hear heartbeats every 250."""
        end_us = self.now_us + duration_ms * MS
        while self.now_us < end_us:
            self.now_us += TICK_US
            if (self.now_us - T0) % (250 * MS) == 0:
                self.hear(*beating)
            self.look()

    def after(self, duration_ms: int) -> Reign:
        self.now_us += duration_ms * MS
        return self

    def release(self) -> None:
        self.set(released_us=self.now_us, waiting_since_us=None)

    @property
    def one(self) -> Stop:
        (stop,) = self.seen
        return stop


def test_a_stop_is_as_long_as_a_sender_felt_it_not_as_somebody_looked() -> None:
    """Two slaves were cut off for 15 s; a record that begins and ends at a tick is 100 ms off at each stop."""
    reign = Reign()
    reign.look()
    reign.after(7).release()
    reign.after(2).set(waiting_since_us=reign.now_us, log_end=LogOffset(1_300))
    reign.run(450)
    assert reign.seen == []
    reign.run(100)
    assert (reign.one.reason, reign.one.began_us, reign.one.ended_us) == (
        StopReason.NOT_ACKNOWLEDGED,
        T0 + 7 * MS,
        None,
    )
    assert reign.one.detail == "broker 2 has 1,000 of 1,300 bytes"
    reign.run(14_000)
    reign.after(13).hear(*BOTH)
    assert reign.watch.stop is reign.one, "heard, and what waits is not released yet"
    reign.after(4).release()
    assert reign.one.ended_us == reign.now_us
    assert reign.watch.stopped_us == reign.now_us - T0 - 7 * MS


def test_the_ordinary_removal_of_a_dead_slave_is_no_stop() -> None:
    """300 ms in the fast preset: each death of a slave would be a stop, and each restart of one."""
    reign = Reign()
    reign.run(200)
    reign.unlink(BrokerId(3))
    reign.set(waiting_since_us=reign.now_us)
    reign.run(300)
    reign.hear(BrokerId(2))
    reign.set(members=reign.facts.members[:1])
    reign.release()
    reign.run(5_000, BrokerId(2))
    assert reign.seen == []


def test_a_reign_that_begins_with_too_few_in_sync_begins_with_a_stop_however_short() -> None:
    """Elected alone, the master refused every send for 753 ms: the record ended the outage at SERVING, as exact."""
    reign = Reign()
    reign.set(members=(), in_sync=(BrokerId(1),), is_min_in_sync=False)
    reign.look()
    reign.run(350)
    assert (reign.one.reason, reign.one.began_us, reign.one.ended_us) == (StopReason.TOO_FEW_IN_SYNC, T0, None)
    reign.after(3).set(is_min_in_sync=True, in_sync=(BrokerId(1), BrokerId(2)))
    assert reign.one.ended_us == reign.now_us


def test_a_set_that_is_founded_with_its_first_replica_is_no_stop() -> None:
    """The others join within a moment, and no sender has been served yet."""
    reign = Reign()
    reign.set(members=(), is_min_in_sync=False, confirm=LogOffset(0), log_end=LogOffset(0))
    reign.look()
    reign.run(350)
    assert reign.seen == []


@pytest.mark.parametrize("preset", Preset)
def test_a_removal_takes_less_than_what_counts_as_a_stop(preset: Preset) -> None:
    assert PRESETS[preset].survivors_wait_ms < PRESETS[preset].stall_ms


def test_an_idle_set_whose_slaves_went_quiet_could_not_acknowledge_a_write() -> None:
    """Nobody sent, so nothing waited, and the set counted as available while no send could have been acknowledged."""
    reign = Reign()
    reign.run(60_000, *BOTH)
    assert reign.seen == []
    last_us = reign.now_us
    reign.run(700, BrokerId(2))
    assert reign.seen == []
    reign.run(150, BrokerId(2))
    assert (reign.one.began_us, reign.one.detail) == (last_us, "nothing is heard of broker 3")
    reign.run(2_000, BrokerId(2))
    reign.after(3).hear(BrokerId(3))
    assert reign.one.ended_us == reign.now_us


def test_a_stop_goes_on_until_the_last_member_is_heard() -> None:
    reign = Reign()
    reign.run(1_000)
    reign.hear(BrokerId(2))
    reign.run(1_000, BrokerId(2))
    assert reign.one.ended_us is None
    reign.hear(BrokerId(3), acked=500)
    assert reign.one.ended_us is None, "it is back, and lacks what is confirmed"
    reign.hear(BrokerId(3))
    assert reign.one.ended_us == reign.now_us


def test_a_set_that_shrinks_below_min_in_sync_stops_where_its_members_went_silent() -> None:
    """Links closed at 0, members removed at 300 ms, reported at 500: the gate's closing is not where it began."""
    reign = Reign()
    reign.look()
    reign.after(9).release()
    began_us = reign.now_us
    reign.unlink(*BOTH)
    reign.run(300)
    reign.set(is_min_in_sync=False, in_sync=(BrokerId(1),), members=())
    reign.run(300)
    assert (reign.one.reason, reign.one.began_us) == (StopReason.TOO_FEW_IN_SYNC, began_us)
    assert reign.one.detail == "1 in sync of 2 needed: broker 1"
    reign.run(3_000)
    reign.set(is_min_in_sync=True)
    assert reign.one.ended_us == reign.now_us


def test_a_send_into_a_set_whose_heartbeats_are_late_is_no_stop_by_itself() -> None:
    """On a busy machine a heartbeat was 600 ms late when a send came, and was acknowledged 5 ms later."""
    reign = Reign()
    reign.run(600)
    reign.set(waiting_since_us=reign.now_us)
    reign.run(50)
    reign.hear(*BOTH)
    reign.release()
    reign.run(400, *BOTH)
    assert reign.seen == []


def test_a_full_disk_is_a_stop_only_while_sends_are_refused_for_it() -> None:
    """The last segment has room: sends are taken and released although the next segment cannot be made."""
    reign = Reign()
    reign.set(disk_trouble="no space left on device")
    for _ in range(40):
        reign.release()
        reign.run(50, *BOTH)
    assert reign.seen == []
    last_us = reign.facts.released_us
    reign.run(600, *BOTH)
    assert (reign.one.reason, reign.one.began_us) == (StopReason.DISK_FULL, last_us)
    reign.set(disk_trouble="")
    reign.run(300, *BOTH)
    assert reign.one.ended_us is not None


def test_a_master_that_is_fenced_without_a_successor_is_a_stop_until_its_reign_is_over() -> None:
    """It had fenced itself on a peer's word; the controllers called it master for 40 s, and the set served."""
    reign = Reign()
    reign.run(500, *BOTH)
    began_us = reign.now_us
    reign.facts = WriteFacts(
        master_epoch=MasterEpoch(1), is_fenced=True, fenced_reason="broker 9 showed masterEpoch 80"
    )
    reign.run(600)
    assert (reign.one.reason, reign.one.detail) == (StopReason.FENCED, "broker 9 showed masterEpoch 80")
    assert reign.one.began_us == began_us
    reign.watch.leave()
    assert (reign.watch.stop, reign.one.ended_us) == (None, None), (
        "the next election ends it, on the controllers' record"
    )


def test_a_process_that_stood_still_does_not_blame_its_slaves() -> None:
    """SIGSTOP for 3 s, below the heartbeat timeout: nothing was acknowledged, and the acks lay in its sockets."""
    reign = Reign()
    reign.run(300, *BOTH)
    reign.release()
    began_us = reign.now_us
    reign.after(3_000).look()
    assert reign.one.began_us == began_us
    assert reign.one.detail == "this broker's process stood still for 3.0 s"
    reign.after(2).hear(*BOTH)
    assert reign.one.ended_us == reign.now_us


def test_a_standstill_whose_acks_were_read_before_the_look_was_half_a_millisecond_on_record() -> None:
    """Everything stood still for 4 s; the acks that lay in the sockets released what waited, and the stop began with that."""
    reign = Reign()
    reign.run(300, *BOTH)
    reign.release()
    reign.look()
    began_us = reign.now_us
    released_us = reign.after(4_000).now_us
    reign.hear(*BOTH)
    reign.set(released_us=released_us)
    reign.after(1).look()
    assert (reign.one.began_us, reign.one.ended_us) == (began_us, released_us)
    assert reign.watch.stop is None


def test_what_was_before_a_reign_served_is_no_stop_of_it() -> None:
    reign = Reign()
    reign.run(2_000)
    assert len(reign.seen) == 1
    reign.set(master_epoch=MasterEpoch(2), members=(), released_us=5)
    reign.run(400)
    assert len(reign.seen) == 1
    assert reign.watch.stop is None


# --- telling the controllers -----------------------------------------------------------------------------------------

KEY = SetKey(cluster=ClusterName("c"), name=BrokerName("broker-a"))
ME = BrokerId(1)


def stop_of(seq: int, began_us: int, ended_us: int | None = None) -> Stop:
    return Stop(
        master_epoch=MasterEpoch(1),
        seq=seq,
        reason=StopReason.DISK_FULL,
        detail="full",
        began_us=began_us,
        ended_us=ended_us,
    )


def told(reports: WriteReports, outcome: Told, now_us: int) -> tuple[int, int, int | None] | None:
    """(seq, age, whole stop) of the report that is sent now, and answered by ``outcome``."""
    command = reports.next(ME, now_us)
    if command is None:
        return None
    assert reports.next(ME, now_us) is None, "one at a time"
    reports.told(outcome, now_us)
    return command.seq, command.age_us, command.stopped_us


def test_a_stop_is_told_when_it_begins_and_when_it_ends_once_each() -> None:
    reports = WriteReports(KEY, Incarnation("i1"))
    stop = stop_of(1, 1_000)
    reports.note(stop)
    assert told(reports, Told.TAKEN, 1_500) == (1, 500, None)
    assert told(reports, Told.TAKEN, 1_600) is None
    stop.ended_us = 3_000
    reports.note(stop)
    assert told(reports, Told.TAKEN, 3_500) == (1, 2_500, 2_000)
    assert told(reports, Told.TAKEN, 3_600) is None


def test_stops_while_no_controller_answers_are_told_later_as_they_were() -> None:
    """The master was cut from everybody; told by the time of its reconnection, the stop took no time at all."""
    reports = WriteReports(KEY, Incarnation("i1"))
    first, second = stop_of(1, 1_000, 5_000), stop_of(2, 9_000)
    reports.note(first)
    assert told(reports, Told.UNKNOWN, 6_000) == (1, 5_000, 4_000)
    reports.note(second)
    assert told(reports, Told.UNKNOWN, 7_000) is None, "a pause"
    assert reports.untold == 2
    reports.session_opened()
    assert told(reports, Told.TAKEN, 60_000) == (1, 59_000, 4_000)
    assert told(reports, Told.TAKEN, 60_000) == (2, 51_000, None)
    assert reports.untold == 0, "its end has not come"


def test_an_end_that_comes_while_the_beginning_is_under_way_is_told_too() -> None:
    reports = WriteReports(KEY, Incarnation("i1"))
    stop = stop_of(1, 1_000)
    reports.note(stop)
    assert reports.next(ME, 1_500) is not None
    stop.ended_us = 1_600
    reports.note(stop)
    reports.told(Told.TAKEN, 1_700)
    assert told(reports, Told.TAKEN, 1_700) == (1, 700, 600)


def test_an_unanswered_report_is_repeated_after_pauses_that_grow() -> None:
    reports = WriteReports(KEY, Incarnation("i1"))
    reports.note(stop_of(1, 0))
    asked = [told(reports, Told.UNKNOWN, second * 1_000_000) for second in range(600)]
    assert 600_000 // RETRY_PAUSE_MS_MAX <= sum(one is not None for one in asked) < 600_000 // RETRY_PAUSE_MS_MAX + 8


def test_a_refused_report_and_those_of_a_reign_that_is_over_are_forgotten() -> None:
    reports = WriteReports(KEY, Incarnation("i1"))
    reports.note(stop_of(1, 0))
    assert told(reports, Told.REFUSED, 1) is not None
    assert told(reports, Told.TAKEN, 2) is None
    reports.note(stop_of(2, 0))
    reports.forget()
    assert told(reports, Told.TAKEN, 3) is None


def test_stops_that_wait_for_a_controller_are_limited() -> None:
    reports = WriteReports(KEY, Incarnation("i1"))
    for seq in range(1, STOPS_PENDING_MAX + 4):
        reports.note(stop_of(seq, 0, 1))
    assert reports.dropped == 3
    assert told(reports, Told.TAKEN, 5) == (4, 5, 1)


def test_a_send_that_waits_for_the_next_segment_waits_as_one_that_waits_for_an_ack() -> None:
    """It is not appended, so nothing waited: 1.7 s of a slow disk were on no record."""
    reign = Reign()
    reign.look()
    reign.after(7).release()
    began_us = reign.now_us
    reign.after(2).set(room_wanted_since_us=reign.now_us)
    reign.run(450, *BOTH)
    assert reign.seen == []
    reign.run(1_250, *BOTH)
    assert reign.one.reason is StopReason.OWN_DISK
    assert reign.one.detail == "this broker's disk has not made the next segment of its log"
    assert began_us <= reign.one.began_us <= began_us + 2 * MS
    assert reign.one.ended_us is None
    reign.set(room_wanted_since_us=None, waiting_since_us=reign.now_us)
    assert reign.one.ended_us is None, "it has room now, and no ack"
    reign.after(3).release()
    assert reign.one.ended_us == reign.now_us


def test_a_large_send_that_waits_for_room_is_no_stop_while_small_ones_are_acknowledged() -> None:
    reign = Reign()
    reign.look()
    reign.set(room_wanted_since_us=reign.now_us)
    for _ in range(20):
        reign.run(250, *BOTH)
        reign.release()
    assert reign.seen == []
    reign.run(600, *BOTH)
    assert reign.one.ended_us is None


@pytest.mark.parametrize(
    ("acked", "reason"),
    [((1_300, 1_300), StopReason.OWN_DISK), ((1_300, 1_000), StopReason.NOT_ACKNOWLEDGED)],
)
def test_the_own_disk_is_named_only_if_every_other_member_is_further(
    acked: tuple[int, int], reason: StopReason
) -> None:
    """Two slow disks: to leave the one for the other gains nothing."""
    reign = Reign()
    reign.look()
    reign.set(waiting_since_us=reign.now_us, log_end=LogOffset(1_300), synced=LogOffset(1_000))
    for member, end in zip(BOTH, acked, strict=True):
        reign.hear(member, acked=end)
    reign.run(600)
    assert reign.one.reason is reason
