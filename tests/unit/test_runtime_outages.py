"""Where an outage began, by what the leader and the members saw of it: points, or bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    CleanReplicas,
    ElectMaster,
    ElectUnclean,
    RecordMilestones,
    RegisterReplica,
    SayGoodbye,
)
from rollcall_ha.controller.contract.events import MasterElected, MilestoneReached
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, RegisterCode
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import (
    CleanMark,
    DetectionStamps,
    Milestone,
    Phase,
    Positions,
    ReplicaDescription,
    SetConfiguration,
    SilenceCause,
)
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import HistoryRow
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.outages import CLOCK_DIFFERENCE_MS
from rollcall_ha.controller.runtime.broker_requests import gone_since_heard
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.sessions import AGE_US_MAX
from tests.support.runtime_world import Replica, World, set_key

KEY = set_key()
TIMING = PRESETS[Preset.NORMAL]
INTERVAL_MS, TIMEOUT_MS = TIMING.heartbeat_interval_ms, TIMING.heartbeat_timeout_ms


def serving() -> tuple[World, Replica, Replica, Replica]:
    """A set that has served for a while, and its master first."""
    world = World()
    world.take()
    master, *slaves = world.serving_set()
    for replica in (master, *slaves):
        replica.known_epoch = world.the_view(KEY).master_epoch
    world.pass_ms(5_000, master, *slaves)
    world.run_loop(100)
    return world, master, *slaves  # type: ignore[return-value]  # three replicas


def bounds_ms(world: World) -> tuple[int, int | None]:
    """The age of the first sign and of the last sign of life, at the proposal of the newest election."""
    stamps = detection(world)
    alive_us = stamps.alive_age_us
    return stamps.first_sign_age_us // 1_000, None if alive_us is None else alive_us // 1_000


def detection(world: World) -> DetectionStamps:
    stamps = elected(world).detection
    assert stamps is not None
    return stamps


def elected(world: World) -> MasterElected:
    return world.elections()[-1]


def test_a_death_that_was_seen_to_close_its_connections_is_a_point() -> None:
    world, master, slave, _ = serving()
    world.run_loop(200)
    world.close(master)
    world.run_loop(20)
    world.report_link(slave, master, closed_ms=19, heard_ms=25)
    world.refuse_probe()

    assert detection(world).cause is SilenceCause.DEAD_AT_ONCE
    assert bounds_ms(world) == (20, 20)


def test_a_hang_lies_between_the_last_sign_of_life_and_the_next_one_that_was_due() -> None:
    """Three seconds of silence: broker 1 may have stopped right after its heartbeat, or just before the next."""
    world, _, *slaves = serving()
    world.pass_ms(TIMEOUT_MS + 500, *slaves)

    first_ms, alive_ms = bounds_ms(world)

    assert alive_ms is not None
    assert alive_ms >= TIMEOUT_MS
    assert first_ms == alive_ms - INTERVAL_MS


def test_a_heartbeat_that_came_late_was_the_last_word_of_a_master_that_had_ceased_before() -> None:
    """
    80 % of all packets of a whole set were lost: TCP brought a heartbeat and the end of its session 27 s late, and 74 s
    without an acknowledgement were an outage of 47 s at most.
    """
    world, master, *slaves = serving()
    began_ms = world.now_ms
    world.pass_ms(2 * TIMEOUT_MS)  # nobody is heard: it may be the leader's own network
    world.beat(master, answered_ms=INTERVAL_MS)
    world.run_loop(20)
    world.close(master)
    world.pass_ms(TIMEOUT_MS)
    world.pass_ms(2 * TIMEOUT_MS, *slaves)

    first_ms, alive_ms = bounds_ms(world)

    elected_ms = world.now_ms - began_ms
    assert alive_ms is not None
    assert alive_ms == first_ms + INTERVAL_MS
    assert 3 * TIMEOUT_MS < alive_ms < elected_ms, "it was sent within the first interval, and is no proof of more"


@pytest.mark.parametrize(("answered_ms", "late_ms"), [(600, 0), (300, 300), (2**60, 0), (-5, 600)])
def test_the_last_word_of_a_master_is_as_old_as_its_last_answer_and_its_own_clock_say(
    answered_ms: int, late_ms: int
) -> None:
    """A session that lost packets: 4.0 s without an acknowledgement were 3.5 s at most."""
    world, master, *slaves = serving()  # 100 ms behind the last answer
    world.run_loop(INTERVAL_MS)
    world.beat(master, answered_ms=answered_ms)
    world.pass_ms(TIMEOUT_MS + 500, *slaves)
    prompt_world, prompt, *others = serving()
    prompt_world.run_loop(INTERVAL_MS)
    prompt_world.beat(prompt)
    prompt_world.pass_ms(TIMEOUT_MS + 500, *others)

    assert bounds_ms(world)[1] == (bounds_ms(prompt_world)[1] or 0) + late_ms


def test_bytes_of_a_master_whose_writes_had_stopped_were_the_bound_of_its_outage() -> None:
    """
    Its session lost in a bad network, its slaves heard it up to the end, and it acknowledged nothing: 1.9 s of a sender's
    time were 0.2 s at most.

    Bytes on an HA link show that it lived, so nothing more is sure; its own word alone bounds the outage from above.
    """
    world, master, slave, other = serving()
    world.beat(master, waiting_ms=900)
    for _ in range(20):
        world.pass_ms(100, other)
        world.beat(slave, master_heard_ms=0)
    world.pass_ms(TIMEOUT_MS - 1_500, slave, other)

    first_ms, alive_ms = bounds_ms(world)

    assert alive_ms is not None
    assert alive_ms >= TIMEOUT_MS + 900, "a stop of that length was not told, but in its last word"
    assert first_ms < TIMEOUT_MS - 1_500


@pytest.mark.parametrize(("waiting_ms", "more_ms"), [(None, 0), (440, 440), (2**60, TIMING.stall_ms)])
def test_a_master_that_heard_nobody_before_its_last_heartbeat_was_down_since_that_heartbeat(
    waiting_ms: int | None, more_ms: int
) -> None:
    """
    Nobody's bytes reached it any more, 0.44 s later its last heartbeat reached the controllers: of 3.5 s that a sender
    waited, 3.1 s were on record at the most.

    An older stop is told by itself. One as old as a forged heartbeat says would date the whole fleet's last sign of life.
    """
    world, master, *slaves = serving()
    world.beat(master, waiting_ms=waiting_ms)
    beat_ns = world.now_ns
    world.pass_ms(TIMEOUT_MS + 500, *slaves)

    _, alive_ms = bounds_ms(world)

    proposed_ms = (world.now_ns - beat_ns) // 1_000_000
    assert alive_ms is not None
    assert TIMEOUT_MS + more_ms <= alive_ms <= proposed_ms + more_ms


def test_a_master_that_served_unheard_was_down_since_it_was_found_silent() -> None:
    """
    No controller reached any broker for 5.5 s, and the first one that was back was elected: 5.3 s were the least of an
    outage that took 2.3 s. Its own slave says that it heard the master up to then.
    """
    world, _, slave, _ = serving()
    world.pass_ms(TIMEOUT_MS + 2_500)
    silent_ms = 0
    while "master-elected" not in world.kinds()[-2:] and silent_ms < 2 * TIMEOUT_MS:
        world.beat(slave, master_heard_ms=silent_ms)
        world.run_loop(50)
        world.tick()
        silent_ms += 50

    first_ms, alive_ms = bounds_ms(world)

    assert detection(world).cause is SilenceCause.TIMEOUT
    assert first_ms <= silent_ms - INTERVAL_MS
    assert alive_ms is not None
    assert alive_ms >= TIMEOUT_MS + 2_500, "its own word is as old as before"


def test_a_process_that_hung_before_it_was_killed_is_not_exact() -> None:
    """Stopped for two seconds, then killed: the outage began when it stopped."""
    world, master, slave, other = serving()
    for _ in range(20):
        world.run_loop(100)
        world.beat(slave)
        world.beat(other)
    world.close(master)
    world.report_link(slave, master, closed_ms=0, heard_ms=2_100)
    world.refuse_probe()

    first_ms, alive_ms = bounds_ms(world)

    assert alive_ms == 2_100
    assert first_ms == 2_100 - INTERVAL_MS


def test_an_end_that_was_read_after_the_loop_stood_still_is_known_to_the_gap_only() -> None:
    """The leader was paused for 400 ms, and reads what has waited in its sockets."""
    world, master, slave, _ = serving()
    world.now_ms += 400
    world.duties.breathe(world.now_ns)  # some loops run their timers first
    world.close(master)
    world.report_link(slave, master)
    world.refuse_probe()

    first_ms, alive_ms = bounds_ms(world)

    assert first_ms == 0
    assert alive_ms == pytest.approx(400, abs=40)


def test_a_pause_of_the_leader_of_a_minute_never_makes_a_failover_of_no_time() -> None:
    """Everything was stopped for a minute, and the master died: DETECT 0.0 ms, and nothing missing."""
    world, _, slave, other = serving()
    world.now_ms += 60_000
    world.duties.breathe(world.now_ns)
    world.tick()
    world.beat(slave)
    world.beat(other)
    world.pass_ms(TIMEOUT_MS + 500, slave, other)

    first_ms, alive_ms = bounds_ms(world)

    assert alive_ms is not None
    assert alive_ms >= 60_000
    assert first_ms >= 60_000


def change_leader(world: World, *replicas: Replica) -> list[Replica]:
    """Another controller leads: it has heard nobody; these replicas find it."""
    world.take()
    again = [world.register(KEY, int(one.broker_id), incarnation=str(one.incarnation)) for one in replicas]
    for replica in again:
        replica.known_epoch = world.the_view(KEY).master_epoch
    return again


def test_a_leader_that_never_heard_the_master_takes_its_end_from_those_that_did() -> None:
    """Leader and master die together: recorded were 22 ms of 1.6 s, "timed independently"."""
    world, master, *slaves = serving()
    world.now_ms += 700
    slave, other = change_leader(world, *slaves)
    world.report_link(slave, master, closed_ms=690, heard_ms=695)
    world.refuse_probe()
    world.beat(slave)
    world.beat(other)

    assert detection(world).cause is SilenceCause.DEAD_AT_ONCE
    assert bounds_ms(world) == (690, 690)


def test_a_leader_that_was_told_of_no_sign_of_life_has_the_newest_entry_that_shows_one() -> None:
    """It was not there, and no member says when it heard the master: it entered 5 s before."""
    world, _, *slaves = serving()
    world.now_ms += 60_000
    slave, other = change_leader(world, *slaves)
    world.pass_ms(TIMEOUT_MS + 500, slave, other)

    assert detection(world).cause is SilenceCause.TIMEOUT
    first_ms, alive_ms = bounds_ms(world)
    assert first_ms < TIMEOUT_MS
    assert alive_ms is not None
    assert 60_000 + 5_000 + TIMEOUT_MS < alive_ms < 60_000 + 5_000 + TIMEOUT_MS + 500 + CLOCK_DIFFERENCE_MS


def test_a_master_that_is_back_before_it_was_found_gone_leaves_the_time_of_its_end() -> None:
    """Killed, and started again by its supervisor within 80 ms: the outage began with the kill."""
    world, master, slave, other = serving()
    world.beat(master)
    world.run_loop(100)
    world.close(master)
    world.run_loop(80)
    world.register(KEY, int(master.broker_id), incarnation="next")
    world.beat(slave)
    world.beat(other)

    assert detection(world).cause is SilenceCause.REPLACED
    assert bounds_ms(world) == (80, 80)


def test_a_set_that_begins_anew_under_its_old_name_had_no_outage_before_its_first_election() -> None:
    """Its last master had come back wiped, a month before: a month of outage was on record for the new set."""
    world, master, *slaves = serving()
    world.close(master)
    for slave in slaves:
        world.close(slave)
    world.pass_ms(5_000)
    world.register(KEY, int(master.broker_id), incarnation="next")
    world.apply(CleanReplicas(set_key=KEY, is_unclean=True, reason="gone"))
    world.duties.sessions.track(KEY, world.now_ns)

    assert world.duties.sessions.stamps_of_lost(KEY, None) is None


def test_a_goodbye_is_the_sign_of_an_end() -> None:
    """Its set had no stamps at all, and the outage began with the proposal."""
    world, master, slave, _ = serving()
    world.applies = False
    world.apply(
        SayGoodbye(
            set_key=KEY,
            broker_id=master.broker_id,
            incarnation=master.incarnation,
            session_ordinal=master.ordinal,
            clean_mark=CleanMark(nonce="n", end_offset=LogOffset(0)),
        )
    )
    world.run_loop(300)
    world.beat(slave)
    (proposal,) = [one for one in world.waiting if one.evidence is not None]
    assert proposal.evidence is not None
    stamps = proposal.evidence.detection

    assert stamps is not None
    assert stamps.cause is SilenceCause.GOODBYE
    assert stamps.uncertainty_us is not None


def test_an_operators_election_is_not_timed_from_a_failed_attempt_before_it() -> None:
    """DECIDE 40.0 s: the duty had proposed, in vain, 40 s before the operator did."""
    world, *all_three = serving()
    world.pass_ms(2 * TIMEOUT_MS)
    world.pass_ms(40_000)
    back = world.register(KEY, int(all_three[1].broker_id), incarnation="lost-its-log", boot="another")
    world.beat(back)
    view = world.the_view(KEY)
    evidence = world.duties.sessions.evidence(view, now_ns=world.now_ns, triggered_by=None, stamps=None, draw=0)
    world.duties.handle_requested(KEY, world.now_ns)
    world.requested_by = "admin:root"
    world.apply(ElectUnclean(set_key=KEY, accepted_loss_bytes=0, to=BrokerId(back.broker_id)), evidence)
    world.requested_by = "controller:c1"
    world.tick()

    events = [record.event for record in world.records if isinstance(record.event, MilestoneReached)]
    committed = [event.milestone for event in events if event.milestone.phase is Phase.COMMITTED]
    assert elected(world).master == back.broker_id
    assert committed[-1].elapsed_us == 0


def order(world: World, target: Replica) -> None:
    """An operator moves the living master; a majority has it 30 ms later."""
    view = world.the_view(KEY)
    evidence = world.duties.sessions.evidence(view, now_ns=world.now_ns, triggered_by=None, stamps=None, draw=0)
    world.duties.handle_requested(KEY, world.now_ns)
    world.run_loop(30)
    world.requested_by = "admin:root"
    world.apply(ElectMaster(set_key=KEY, to=BrokerId(target.broker_id)), evidence)
    world.requested_by = "controller:c1"


def test_the_old_master_of_a_requested_election_served_while_its_outage_was_on_record() -> None:
    """Felt for 33 ms, and 37 ms on record before the first acknowledgement's 29: a majority took long to commit."""
    world, master, slave, _ = serving()
    view = world.the_view(KEY)
    order(world, slave)
    world.tick()

    (stamped,) = [
        record.event.milestone
        for record in world.records
        if isinstance(record.event, MilestoneReached)
        and record.event.milestone.master_epoch == elected(world).master_epoch
        and record.event.milestone.phase is Phase.COMMITTED
    ]
    assert (view.master, elected(world).verdict.kind) == (master.broker_id, ElectionKind.REQUESTED)
    assert (stamped.elapsed_us, stamped.observed_us) == (0, 0)


def row_of_order(world: World, target: Replica) -> HistoryRow:
    """The target promises 9 ms after it was told, and serves 12 ms after; the leader hears of it 20 ms behind the commit."""
    order(world, target)
    world.run_loop(20)
    epoch = elected(world).master_epoch
    promised, served = (
        Milestone(master_epoch=epoch, phase=phase, elapsed_us=us, broker_id=target.broker_id)
        for phase, us in ((Phase.PROMISED, 9_000), (Phase.SERVING, 12_000))
    )
    report = RecordMilestones(set_key=KEY, milestones=(promised, served))
    world.apply(world.duties.milestones.observe(report, world.now_ns, steady_ms=world.now_ms))
    return history_of(world.records)[0]


@pytest.mark.parametrize(("hung_ms", "most_ms"), [(0, 20), (500, 20), (2_000, 20 + 2_000 + 130)])
def test_the_outage_of_an_order_has_bounds_as_long_as_its_old_master_may_have_served(
    hung_ms: int, most_ms: int
) -> None:
    """
    Between the commit and the winner's promise nobody outside of the old master knows whether it acknowledges.

    Nor does anybody know it of one that hangs when it is moved: 20 ms were the most on record of 2 s.
    """
    world, _, slave, other = serving()
    world.pass_ms(hung_ms, slave, other)
    row = row_of_order(world, slave)
    assert (row.kind, row.total_us, row.total_us_max) == (ElectionKind.REQUESTED, 3_000, most_ms * 1_000)
    assert Phase.FAULT in row.missing


def test_an_order_ends_the_wait_for_acknowledgements_that_its_old_master_had_told_of() -> None:
    """Its slave hung, too young to be a stop of writes: what it had not acknowledged is part of the outage."""
    world, master, slave, _ = serving()
    world.beat(master, waiting_ms=900)
    assert row_of_order(world, slave).total_us_max == (20 + 900 + 30) * 1_000


def test_an_age_that_no_clock_can_have_shown_is_bounded() -> None:
    """2**70 microseconds, by a link report, would be on record as the length of an outage."""
    world, master, *slaves = serving()
    slave, other = change_leader(world, *slaves)
    world.report_link(slave, master, closed_ms=2**70, heard_ms=2**70)
    world.refuse_probe()
    world.beat(slave)
    world.beat(other)

    first_ms, alive_ms = bounds_ms(world)
    assert first_ms <= AGE_US_MAX // 1_000
    assert alive_ms is None or alive_ms <= AGE_US_MAX // 1_000


@pytest.mark.parametrize(
    ("silent_ms", "held_ms", "gone_ms"),
    # A copy, whose process ran beside the original's for 9 s; the next process of a directory, after the end of the first.
    [(200, 9_000, 200), (3_000, 1_000, 1_000)],
)
def test_a_copy_of_a_directory_was_taken_for_the_end_of_the_process_that_served_on(
    silent_ms: int, held_ms: int, gone_ms: int
) -> None:
    """The lock on a copy says nothing of the original: "exactly 9,544 ms" were on record of 706 felt."""
    world, master, *_ = serving()
    assert world.beat(master) is None
    world.run_loop(silent_ms)
    service = cast("ControllerService", SimpleNamespace(duties=world.duties, now_ns=lambda: world.now_ns))
    told = replace(register_command(master), held_us=held_ms * 1_000)

    assert gone_since_heard(service, replace(told, incarnation=Incarnation("next"))).held_us == gone_ms * 1_000
    assert gone_since_heard(service, told) == told, "a further session of one process"


def register_command(replica: Replica) -> RegisterReplica:
    return RegisterReplica(
        set_key=replica.key,
        broker_id=replica.broker_id,
        register_code=RegisterCode("code"),
        incarnation=replica.incarnation,
        boot_id="boot",
        store_id="store",
        description=ReplicaDescription(address="127.0.0.1:1", ha_address="127.0.0.1:2"),
        configuration=SetConfiguration(),
        positions=Positions(last_epoch=MasterEpoch(1), max_offset=LogOffset(0), confirm_offset=LogOffset(0)),
    )
