"""Policies that leave a living master whose writes are stopped: when, for which heir, how often, and never else."""

from __future__ import annotations

from copy import copy

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    ApplySettings,
    BeginMaintenance,
    LeaveMaster,
    PauseElections,
    ReportWrites,
    ResumeElections,
)
from rollcall_ha.controller.contract.events import CommandRefused, MasterElected
from rollcall_ha.controller.contract.replies import AlterDecided, Condition, Done, Refused
from rollcall_ha.controller.contract.settings import faults_of, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import Joining, MaintenanceScope, StopReason
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.explain import explain
from rollcall_ha.controller.core.history import history_of
from tests.support.runtime_world import Replica, World, set_key

KEY = set_key()
FILE = PRESETS[Preset.NORMAL]
ON = {"handover_disk_full_after_ms": 2_000, "handover_writes_stopped_after_ms": 5_000}


def serving(size: int = 3, **policies: int) -> tuple[World, list[Replica]]:
    """A set with every replica in sync, whose last election was long ago; the master comes first."""
    world = World()
    world.take()
    replicas = world.serving_set(size=size)
    master, view = replicas[0], world.the_view(KEY)
    missing = [one for one in replicas if one.broker_id not in view.sync_state_set]
    if missing:
        reply = world.apply(
            AlterSyncStateSet(
                set_key=KEY,
                broker_id=master.broker_id,
                incarnation=master.incarnation,
                master_epoch=view.master_epoch,
                seq=1,
                sync_state_set_epoch=view.sync_state_set_epoch,
                new_set=tuple(sorted(one.broker_id for one in replicas)),
                joining=tuple(Joining(broker_id=one.broker_id, incarnation=one.incarnation) for one in missing),
            )
        )
        assert isinstance(reply, AlterDecided), reply
    assert len(world.the_view(KEY).sync_state_set) == size
    if policies:
        switch(world, **policies)
    world.pass_ms(61_000, *replicas)
    return world, replicas


def switch(world: World, **policies: int) -> None:
    present = world.state.settings[-1] if world.state.settings else None
    order = ApplySettings(
        settings=replace(settings_of(FILE) if present is None else present.settings, **policies),
        expected_version=0 if present is None else present.version,
        file=FILE,
        reason="policy",
    )
    assert world.apply(order) == Done()


def stop(
    world: World,
    master: Replica,
    reason: StopReason = StopReason.DISK_FULL,
    *,
    seq: int = 1,
    age_ms: int = 1_000,
    stopped_ms: int | None = None,
) -> None:
    """The master tells that no write can be acknowledged; ``stopped_ms``: that one can again."""
    report = ReportWrites(
        set_key=KEY,
        broker_id=master.broker_id,
        incarnation=master.incarnation,
        master_epoch=world.the_view(KEY).master_epoch,
        seq=seq,
        reason=reason,
        detail="[Errno 28] No space left on device",
        age_us=age_ms * 1_000,
        stopped_us=None if stopped_ms is None else stopped_ms * 1_000,
    )
    assert world.apply(report) == Done()


def elections(world: World) -> list[MasterElected]:
    """Behind the first one."""
    return world.elections()[1:]


def refusals(world: World) -> list[CommandRefused]:
    events = (record.event for record in world.records)
    return [event for event in events if isinstance(event, CommandRefused) and event.command == "LeaveMaster"]


def test_a_master_whose_disk_is_full_is_left_within_the_time_that_is_set_and_the_record_says_why() -> None:
    world, replicas = serving(**ON)
    master = replicas[0]
    stop(world, master, age_ms=1_000)
    world.pass_ms(900, *replicas)
    assert elections(world) == []
    world.pass_ms(300, *replicas)

    (event,) = elections(world)
    view = world.the_view(KEY)
    assert view.master != master.broker_id
    assert view.master_epoch == 2
    assert set(view.sync_state_set) == {one.broker_id for one in replicas}
    assert event.verdict.kind is ElectionKind.HANDOVER
    assert event.reason.startswith(
        f"handed over by policy: broker {master.broker_id} has acknowledged nothing for 2.0 s"
    )
    assert "its log cannot grow: [Errno 28] No space left on device" in event.reason
    assert f"broker {replicas[1].broker_id}, heard 0.0 s ago" in event.reason
    row = history_of(world.records)[0]
    assert (row.cause, row.requested_by) == (event.reason, "controller:c1")
    told = next(record for record in world.records if record.ref == event.triggered_by)
    assert told.event.reason is StopReason.DISK_FULL  # type: ignore[union-attr]
    # The outage begins with the stop, and not with the election.
    assert event.detection is not None
    assert event.detection.first_sign_age_us == 2_000_000
    explained = explain(world.records, master_epoch=view.master_epoch, freshness=None)  # type: ignore[arg-type]
    assert explained is not None
    assert [line for line in explained.invariants if not line.startswith("holds")] == []


@pytest.mark.parametrize("reason", list(StopReason))
def test_nothing_is_left_by_default(reason: StopReason) -> None:
    world, replicas = serving()
    switch(world, heartbeat_timeout_ms=3_500)
    stop(world, replicas[0], reason)
    world.pass_ms(120_000, *replicas, step_ms=500)
    assert elections(world) == []
    assert refusals(world) == []
    assert world.the_view(KEY).condition is Condition.WRITES_STOPPED


@pytest.mark.parametrize("reason", [one for one in StopReason if one is not StopReason.DISK_FULL])
def test_each_reason_has_the_policy_that_is_set_for_it(reason: StopReason) -> None:
    """A full disk is sure at once; a slave that hangs is removed first, and its master serves on."""
    world, replicas = serving(handover_disk_full_after_ms=2_000)
    stop(world, replicas[0], reason)
    world.pass_ms(10_000, *replicas)
    assert elections(world) == []
    switch(world, handover_writes_stopped_after_ms=15_000)
    world.pass_ms(3_000, *replicas)
    assert elections(world) == []
    world.pass_ms(1_500, *replicas)
    assert len(elections(world)) == 1


def test_the_word_of_a_slave_that_has_no_link_is_in_the_evidence() -> None:
    world, replicas = serving(**ON)
    world.report_link(replicas[1], replicas[0])
    stop(world, replicas[0], StopReason.TOO_FEW_IN_SYNC)
    world.pass_ms(4_500, *replicas)
    (event,) = elections(world)
    assert f"broker {replicas[1].broker_id}, heard 0.0 s ago, without a link to it" in event.reason
    assert f"broker {replicas[2].broker_id}, heard 0.0 s ago" in event.reason


def test_a_master_that_serves_again_stays() -> None:
    world, replicas = serving(**ON)
    stop(world, replicas[0])
    world.pass_ms(500, *replicas)
    stop(world, replicas[0], age_ms=1_500, stopped_ms=1_400)
    world.pass_ms(10_000, *replicas)
    assert elections(world) == []
    # Another stop begins anew.
    stop(world, replicas[0], seq=2)
    world.pass_ms(900, *replicas)
    assert elections(world) == []


def _slow_disk(world: World, replicas: list[Replica], reason: StopReason, *, between_ms: int = 100) -> None:
    """Seven syncs of 2 s each: the master tells of each after 1 s, and lets a batch through at its end."""
    for seq in range(1, 8):
        if elections(world):
            return
        stop(world, replicas[0], reason, seq=seq, age_ms=1_000)
        world.pass_ms(1_000, *replicas)
        if elections(world):
            return
        stop(world, replicas[0], reason, seq=seq, age_ms=2_000, stopped_ms=2_000)
        world.pass_ms(1_000 + between_ms, *replicas)


def test_a_disk_that_let_a_batch_through_every_two_seconds_was_never_left() -> None:
    """No stop got older than a sync; the record says how many there were."""
    world, replicas = serving(**ON)
    _slow_disk(world, replicas, StopReason.OWN_DISK)
    (event,) = elections(world)
    assert "next to nothing, in 3 stops, for 5." in event.reason
    assert "its own disk keeps it waiting" in event.reason


@pytest.mark.parametrize(("reason", "between_ms"), [(StopReason.NOT_ACKNOWLEDGED, 100), (StopReason.OWN_DISK, 1_500)])
def test_stops_by_a_slaves_disk_or_with_time_between_them_are_not_added_up(reason: StopReason, between_ms: int) -> None:
    world, replicas = serving(**ON)
    _slow_disk(world, replicas, reason, between_ms=between_ms)
    assert elections(world) == []


def test_an_order_that_comes_behind_the_end_of_the_stop_elects_nobody() -> None:
    """The disk was cleared while the proposal was under way: the master serves, and stays."""
    world, replicas = serving(**ON)
    world.applies = False
    stop(world, replicas[0])
    world.pass_ms(1_500, *replicas)
    (action,) = (one for one in world.waiting if isinstance(one.command, LeaveMaster))
    stop(world, replicas[0], age_ms=2_500, stopped_ms=2_400)
    reply = world.apply(action.command, action.evidence)
    assert isinstance(reply, Refused)
    assert (reply.code, reply.requested, reply.current) == (RefusalCode.EXPECTATION_FAILED, "1/1", None)
    assert elections(world) == []


def test_an_order_for_a_stop_that_another_one_followed_elects_nobody() -> None:
    """The later one is young: its master may serve again before the policy has its time."""
    world, replicas = serving(**ON)
    world.applies = False
    stop(world, replicas[0])
    world.pass_ms(1_500, *replicas)
    (action,) = (one for one in world.waiting if isinstance(one.command, LeaveMaster))
    stop(world, replicas[0], age_ms=2_500, stopped_ms=2_400)
    stop(world, replicas[0], seq=2, age_ms=1_000)
    reply = world.apply(action.command, action.evidence)
    assert isinstance(reply, Refused)
    assert (reply.code, reply.requested, reply.current) == (RefusalCode.EXPECTATION_FAILED, "1/1", "1/2")
    assert elections(world) == []


def test_an_order_whose_outcome_is_lost_is_given_again() -> None:
    world, replicas = serving(**ON)
    world.applies = False
    stop(world, replicas[0])
    world.pass_ms(3_000, *replicas)
    (action,) = (one for one in world.waiting if isinstance(one.command, LeaveMaster))
    world.applies = True
    world.lose(action)
    world.pass_ms(1_500, *replicas)
    assert len(elections(world)) == 1


@pytest.mark.parametrize("gone", [1, 2])
def test_without_heirs_that_could_serve_the_master_stays_and_that_is_on_record_once(gone: int) -> None:
    """min_in_sync is 2 of 3: one heir alone would acknowledge nothing either, and be left in its turn."""
    world, replicas = serving(**ON)
    alive = replicas[: 3 - gone]
    world.pass_ms(5_000, *alive)
    stop(world, replicas[0])
    world.pass_ms(30_000, *alive)
    assert elections(world) == []
    (refused,) = refusals(world)
    assert refused.code is RefusalCode.NO_ELIGIBLE_REPLICA
    assert "min_in_sync is 2" in refused.reason
    # Heard again, they are a reason to look again.
    world.pass_ms(2_500, *replicas)
    assert len(elections(world)) == 1


def test_of_two_heirs_one_that_has_left_the_set_does_not_count() -> None:
    """It lacks what was acknowledged since, and whether it can follow the other one is not known."""
    world, replicas = serving(**ON)
    view = world.the_view(KEY)
    smaller = AlterSyncStateSet(
        set_key=KEY,
        broker_id=replicas[0].broker_id,
        incarnation=replicas[0].incarnation,
        master_epoch=view.master_epoch,
        seq=9,
        sync_state_set_epoch=view.sync_state_set_epoch,
        new_set=tuple(sorted(one.broker_id for one in replicas[:2])),
        joining=(),
    )
    assert isinstance(world.apply(smaller), AlterDecided)
    stop(world, replicas[0])
    world.pass_ms(10_000, *replicas)
    assert elections(world) == []


def test_a_pair_is_left_for_its_slave_only_where_one_replica_may_serve() -> None:
    world, replicas = serving(size=2, **ON)
    assert world.the_view(KEY).configuration.effective_min_in_sync == 1
    stop(world, replicas[0])
    world.pass_ms(2_500, *replicas)
    assert world.the_view(KEY).master == replicas[1].broker_id


def test_a_fault_that_travels_with_the_mastership_moves_it_once_in_a_pause() -> None:
    world, replicas = serving(**ON, handover_pause_ms=30_000)
    stop(world, replicas[0])
    world.pass_ms(2_000, *replicas)
    assert len(elections(world)) == 1
    heir = next(one for one in replicas if one.broker_id == world.the_view(KEY).master)
    world.enter(heir)
    stop(world, heir)
    world.pass_ms(27_000, *replicas)
    assert len(elections(world)) == 1
    world.pass_ms(4_000, *replicas)
    assert len(elections(world)) == 2


def test_the_next_leader_knows_of_the_last_election_and_of_the_age_of_the_stop() -> None:
    world, replicas = serving(**ON, handover_pause_ms=30_000)
    stop(world, replicas[0])
    world.pass_ms(2_000, *replicas)
    heir = next(one for one in replicas if one.broker_id == world.the_view(KEY).master)
    world.enter(heir)
    stop(world, heir, age_ms=1_500)
    elected_ms = world.state.sets[KEY].last_elected_at_ms
    assert elected_ms is not None
    world.pass_ms(20_000, *replicas)
    world.take()
    world.pass_ms(elected_ms + 29_900 - world.now_ms, *replicas)
    assert len(elections(world)) == 1
    world.pass_ms(1_000, *replicas)
    assert len(elections(world)) == 2


def test_a_wall_clock_that_was_set_back_damps_for_one_pause_at_most() -> None:
    """By the difference alone a set would not be left for an hour."""
    world, replicas = serving(**ON)
    world.wall_step_ms = -3_600_000
    stop(world, replicas[0])
    world.pass_ms(59_000, *replicas, step_ms=500)
    assert elections(world) == []
    world.pass_ms(2_000, *replicas)
    assert len(elections(world)) == 1


@pytest.mark.parametrize("is_resumed", [True, False])
def test_in_a_pause_nobody_is_elected_and_the_election_that_was_due_is_on_record_once(is_resumed: bool) -> None:
    world, replicas = serving(**ON)
    world.apply(PauseElections(set_key=KEY, expires_at_ms=world.now_ms + 600_000))
    stop(world, replicas[0])
    world.pass_ms(30_000, *replicas)
    assert elections(world) == []
    assert world.kinds().count("election-withheld") == 1
    if is_resumed:
        world.apply(ResumeElections(set_key=KEY))
    world.pass_ms(200, *replicas)
    assert len(elections(world)) == is_resumed


def test_an_heir_in_maintenance_is_passed_over_and_counts_for_min_in_sync() -> None:
    """It is not to become master; but it acknowledges as a slave as before."""
    world, replicas = serving(**ON)
    worked_on = replicas[1].broker_id
    order = BeginMaintenance(
        scope=MaintenanceScope(set_key=KEY, broker_id=worked_on), expires_at_ms=world.now_ms + 600_000, spends_last=True
    )
    assert world.apply(order) == Done()
    stop(world, replicas[0])
    world.pass_ms(2_000, *replicas)
    (event,) = elections(world)
    assert event.master == replicas[2].broker_id
    assert worked_on in event.sync_state_set


def test_a_leader_that_stood_still_leaves_nobody_on_old_knowledge() -> None:
    """The master's word that it serves again waits in the socket, as the heartbeats do."""
    world, replicas = serving(**ON)
    stop(world, replicas[0])
    world.now_ms += 10_000
    world.tick()
    assert elections(world) == []


def test_a_policy_that_acts_before_its_facts_are_there_is_refused_with_both_values() -> None:
    founded = settings_of(FILE)
    assert (
        faults_of(replace(founded, handover_disk_full_after_ms=1_000, handover_writes_stopped_after_ms=3_000), FILE)
        == ()
    )
    (fault,) = faults_of(replace(founded, handover_disk_full_after_ms=999), FILE)
    assert fault.startswith(
        "handover_disk_full_after_ms is 999 ms, must be 0 (off) or at least stall_ms, which is 1000 ms"
    )
    (fault,) = faults_of(replace(founded, handover_writes_stopped_after_ms=2_999), FILE)
    assert "at least catch_up_timeout_ms, which is 3000 ms" in fault


def test_a_set_that_was_cleaned_a_moment_ago_held_up_the_look_at_the_others() -> None:
    """Its entry is applied, and not yet handed on: the other set was looked at with a later tick."""
    world, replicas = serving(**ON)
    stop(world, replicas[0])
    duty = world.duties.handovers
    gone = set_key("gone")
    present = duty._stopped.pop(KEY)
    duty._stopped[gone], duty._stopped[KEY] = copy(present), present

    assert set(duty.tick(world.now_ns + 3_000 * 1_000_000)) == {KEY}
