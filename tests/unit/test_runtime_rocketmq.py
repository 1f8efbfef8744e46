"""The leader's duties towards RocketMQ brokers: their own timeouts, probes without links, no ``entered``."""

from __future__ import annotations

import pytest

from rollcall_ha.controller.contract.commands import AlterSyncStateSet, ElectMaster
from rollcall_ha.controller.contract.ids import BrokerId, ReplicaKind
from rollcall_ha.controller.contract.replies import AlterDecided, Condition, Elected
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import Joining, SilenceCause
from rollcall_ha.controller.core.actions import SendProbe
from rollcall_ha.controller.runtime.session_state import ProbeOutcome
from tests.support.runtime_world import Replica, World, set_key

KEY = set_key()
OWN_TIMEOUT_MS = 10_000


def java_world(timing: Preset = Preset.NORMAL) -> tuple[World, list[Replica]]:
    """Two RocketMQ brokers in sync; the first is master and was seen to be one."""
    world = World(timing_name=timing)
    world.take()
    replicas = [world.register(KEY, number, expected=1, kind=ReplicaKind.ROCKETMQ) for number in (1, 2)]
    for replica in replicas:
        world.beat(replica)
    first = ElectMaster(set_key=KEY, to=BrokerId(1))
    view = world.the_view(KEY)
    evidence = world.duties.sessions.evidence(view, now_ns=world.now_ns, triggered_by=None, stamps=None, draw=0)
    assert isinstance(world.apply(first, evidence), Elected)
    view = world.the_view(KEY)
    alter = AlterSyncStateSet(
        set_key=KEY, broker_id=BrokerId(1), incarnation=replicas[0].incarnation, master_epoch=view.master_epoch,
        seq=1, sync_state_set_epoch=view.sync_state_set_epoch, new_set=(BrokerId(1), BrokerId(2)),
        joining=(Joining(broker_id=BrokerId(2), incarnation=replicas[1].incarnation),),
    )  # fmt: skip
    assert isinstance(world.apply(alter), AlterDecided)
    world.enter(replicas[0])
    return world, replicas


def answer(world: World, probe: SendProbe, outcome: ProbeOutcome) -> None:
    world.do(world.duties.handle_probe(probe, outcome, None, world.now_ns))


@pytest.mark.parametrize("timing", Preset)
def test_broker_is_silent_after_its_own_timeout_not_after_the_fleets(timing: Preset) -> None:
    """It beats once per second: with a fleet's timeout of 1 s it was dead between two heartbeats."""
    world, (master, slave) = java_world(timing)

    world.pass_ms(OWN_TIMEOUT_MS - 500, slave, step_ms=250)
    assert world.silences() == []

    world.pass_ms(1_000, slave, step_ms=250)
    assert [(event.broker_id, event.cause) for event in world.silences()] == [(master.broker_id, SilenceCause.TIMEOUT)]
    assert world.elections()[-1].master == slave.broker_id
    assert world.elections()[-1].sync_state_set == (slave.broker_id,)


def test_timeout_that_a_heartbeat_names_counts_from_then_on() -> None:
    """heartbeatTimeoutMills; nonsense in it is brought into bounds."""
    world, (master, slave) = java_world()
    master.timeout_ms = 4_000
    slave.timeout_ms = -5
    world.beat(master)
    world.beat(slave)

    world.pass_ms(1_200, master)
    assert [event.broker_id for event in world.silences()] == [slave.broker_id]
    world.pass_ms(3_500)
    assert [event.broker_id for event in world.silences()] == [slave.broker_id]
    world.pass_ms(800)
    assert [event.broker_id for event in world.silences()] == [slave.broker_id, master.broker_id]


def test_new_leader_gives_a_broker_its_own_full_timeout() -> None:
    """After a restart of a controller the first 904 may take seconds: a master was deposed that was healthy."""
    world, (_, slave) = java_world()
    world.take()

    world.pass_ms(OWN_TIMEOUT_MS - 500, slave)
    assert world.silences() == []
    world.pass_ms(1_000, slave)
    assert len(world.silences()) == 1


def test_stall_of_the_leader_is_not_held_against_brokers() -> None:
    """A gap between two ticks starts the grace, of each broker's own length."""
    world, (_, slave) = java_world()
    world.pass_ms(OWN_TIMEOUT_MS - 1_000, slave)
    world.now_ms += PRESETS[world.timing_name].stall_ms + 2_000
    world.beat(slave)
    world.tick()

    world.pass_ms(OWN_TIMEOUT_MS - 500, slave)
    assert world.silences() == []
    world.pass_ms(1_000, slave)
    assert len(world.silences()) == 1


def test_master_is_dead_at_once_after_two_refused_probes() -> None:
    """R13: RocketMQ slaves report no links; refused once may be a listener that begins anew."""
    world, (master, slave) = java_world()
    world.close(master)
    probe = world.probes[-1]
    assert probe.kind is ReplicaKind.ROCKETMQ

    answer(world, probe, ProbeOutcome.REFUSED)
    assert world.silences() == []
    again = world.probes[-1]
    # Each millisecond of it stands before the election of a killed master: it was 30.
    assert 0 < again.after_ms <= 10
    answer(world, again, ProbeOutcome.REFUSED)

    assert [event.cause for event in world.silences()] == [SilenceCause.DEAD_AT_ONCE]
    assert world.elections()[-1].master == slave.broker_id


def test_listener_that_answers_keeps_its_master() -> None:
    """RocketMQ closes its connection to a controller after every answer that took 3 s."""
    world, (master, slave) = java_world()
    world.close(master)
    answer(world, world.probes[-1], ProbeOutcome.REFUSED)
    answer(world, world.probes[-1], ProbeOutcome.ANSWERED)

    world.pass_ms(5_000, slave)

    assert world.silences() == []
    assert len(world.probes) == 2


def test_dying_broker_is_probed_until_its_listener_is_gone() -> None:
    """A JVM closes its connections first: the first probe is accepted and then reset."""
    world, (master, _) = java_world()
    world.close(master)
    for outcome in (ProbeOutcome.NO_ANSWER, ProbeOutcome.NO_ANSWER, ProbeOutcome.REFUSED, ProbeOutcome.REFUSED):
        answer(world, world.probes[-1], outcome)
    assert [probe.after_ms for probe in world.probes] == [0, 30, 30, 10], "not given up while the kernel takes it down"

    assert [event.cause for event in world.silences()] == [SilenceCause.DEAD_AT_ONCE]


def test_first_election_is_the_brokers_to_ask_for() -> None:
    """It sends 1002 as soon as it has registered, and every 5 s again."""
    world = World()
    world.take()
    replica = world.register(KEY, 1, expected=1, kind=ReplicaKind.ROCKETMQ)

    world.pass_ms(3_000, replica)

    assert world.elections() == []


def test_winner_that_never_reports_entered_is_not_replaced() -> None:
    """RocketMQ has no such report: its masters were elected again at every deadline, each time in a new epoch."""
    world, (master, slave) = java_world()
    world.close(master)
    for _ in range(2):
        answer(world, world.probes[-1], ProbeOutcome.REFUSED)
    assert world.the_view(KEY).condition is Condition.ENTERING

    world.pass_ms(3 * PRESETS[world.timing_name].entered_deadline_ms, slave)

    assert len(world.elections()) == 2
