"""The leader's duties on the real core: sessions, silence, probes, elections."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    CleanReplicas,
    ElectMaster,
    ElectUnclean,
    MarkAlive,
    MarkSilent,
    RecordMilestones,
    ReportWrites,
)
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import Condition, Elected
from rollcall_ha.controller.contract.session import BrokerState, ProbeAnswer
from rollcall_ha.controller.contract.timing import PRESETS
from rollcall_ha.controller.contract.values import SilenceCause, StopReason
from rollcall_ha.controller.core.actions import ProposeCommand
from rollcall_ha.controller.core.registration import SHOWN_EPOCH_MAX, SHOWN_NUMBER_MAX
from rollcall_ha.controller.runtime.session_state import ProbeOutcome
from tests.support.runtime_world import Replica, World, led_set, set_key

KEY = set_key()


def test_first_election_follows_the_last_replica_that_becomes_ready() -> None:
    """R8: automatic once all expected replicas are registered and ready, not a pause later."""
    world = World()
    world.take()
    replicas = [world.register(KEY, number) for number in (1, 2, 3)]
    for replica in replicas[:2]:
        replica.is_ready = False
    for replica in replicas:
        world.beat(replica)

    assert world.the_view(KEY).sync_state_set == (1, 2, 3)
    assert [event.verdict.winner for event in world.elections()] == [3]


def test_a_masters_silence_and_its_succession_share_an_entry() -> None:
    """Every failover waited for two commits, one after the other."""
    world, (master, *others) = led_set()
    world.applies = False
    world.pass_ms(PRESETS[world.timing_name].heartbeat_timeout_ms + 500, *others)

    commands = [type(proposal.command) for proposal in world.waiting]
    assert commands.count(MarkSilent) == 1
    assert commands.index(ElectMaster) == commands.index(MarkSilent) + 1

    world.applies = True
    waiting, world.waiting = world.waiting, []
    world.commit_together(waiting)
    silence, elected = world.silences()[-1], world.elections()[-1]
    assert silence.broker_id == master.broker_id
    assert elected.master in [replica.broker_id for replica in others]
    records = {record.ref: record.event for record in world.records}
    assert elected.triggered_by is not None
    assert records[elected.triggered_by] == silence
    assert world.the_view(KEY).condition is Condition.ENTERING


def test_the_death_of_a_master_whose_writes_are_stopped_is_a_failover_at_once() -> None:
    """It reigned in a condition that the duty did not know: its set would have waited for another change."""
    world, (master, *others) = led_set()
    stop = ReportWrites(
        set_key=KEY,
        broker_id=master.broker_id,
        incarnation=master.incarnation,
        master_epoch=world.the_view(KEY).master_epoch,
        seq=1,
        reason=StopReason.NOT_ACKNOWLEDGED,
        detail="",
        age_us=0,
    )
    world.apply(stop)
    assert world.the_view(KEY).condition is Condition.WRITES_STOPPED
    world.applies = False
    world.pass_ms(PRESETS[world.timing_name].heartbeat_timeout_ms + 500, *others)

    assert [type(proposal.command) for proposal in world.waiting][-2:] == [MarkSilent, ElectMaster]


def test_an_election_whose_silence_was_refused_changes_nothing() -> None:
    """R14: the master registered again in between; its evidence names the session before."""
    world, (master, *others) = led_set()
    world.applies = False
    world.pass_ms(PRESETS[world.timing_name].heartbeat_timeout_ms + 500, *others)
    world.applies = True
    waiting, world.waiting = world.waiting, []
    epoch = world.the_view(KEY).master_epoch
    world.register(KEY, 1, incarnation=str(master.incarnation))
    for proposal in waiting:
        world.settle(proposal)
    world.pass_ms(1_000, *others)

    assert world.the_view(KEY).master_epoch == epoch


def test_who_knows_a_later_epoch_than_the_leader_must_register_again() -> None:
    """R7: its heartbeats were counted as if nothing were wrong; the controllers had been rolled back under it."""
    world, replicas = led_set()
    replicas[0].known_epoch = MasterEpoch(world.the_view(KEY).master_epoch + 1)

    refusal = world.beat(replicas[0])

    assert refusal is not None
    assert refusal.code is RefusalCode.WAITING_FOR_REPORTS
    assert world.beat(replicas[1]) is None


@pytest.mark.parametrize(("epoch", "end"), [(SHOWN_EPOCH_MAX + 1, 0), (2**70, 0), (1, SHOWN_NUMBER_MAX + 1)])
def test_a_heartbeat_with_a_number_that_no_wire_can_carry_is_refused(epoch: int, end: int) -> None:
    """By a heartbeat, too, 2**70 became the floor of the epoch in a first election."""
    world = World()
    world.take()
    replicas = [world.register(KEY, number) for number in (1, 2, 3)]
    forged = replicas[0]
    forged.last_epoch, forged.end = MasterEpoch(epoch), LogOffset(end)

    refusal = world.beat(forged)
    assert refusal is not None
    assert refusal.code is RefusalCode.INVALID_ARGUMENT

    forged.last_epoch, forged.end = MasterEpoch(-1), LogOffset(0)
    for replica in replicas:
        world.beat(replica)
    assert [event.master_epoch for event in world.elections()] == [1]


def test_a_replica_that_was_cleaned_is_told_and_nothing_is_proposed_about_it_any_more() -> None:
    """While its set went on serving its session stayed: 571 refused silences were put on record within a minute."""
    world, (master, slave, cleaned) = led_set()
    world.apply(CleanReplicas(set_key=KEY, broker_ids=(cleaned.broker_id,), is_unclean=True, reason="moved"))

    refusal = world.beat(cleaned)

    assert refusal is not None
    assert refusal.code is RefusalCode.NEED_TO_BE_REGISTERED
    proposed = len(world.proposals)
    world.pass_ms(10_000, master, slave)

    assert {type(proposal.command) for proposal in world.proposals[proposed:]} <= {RecordMilestones}


def test_a_link_report_of_nobody_leaves_no_trace() -> None:
    """A peer on the port could fill the leader's memory with reports under made-up ids."""
    world, (master, slave, _) = led_set()
    for broker_id in range(1_000, 2_000):
        world.report_link(replace(slave, broker_id=BrokerId(broker_id)), master)

    session = world.duties.sessions.get(KEY, master.broker_id)
    assert session is not None
    assert session.links == {}


def test_nothing_is_proposed_while_everybody_beats() -> None:
    """A quiet set costs no entries."""
    world, replicas = led_set()
    index = world.index
    world.pass_ms(10_000, *replicas)

    assert world.index == index + world_milestones(world)


def world_milestones(world: World) -> int:
    """Batches of milestones that were proposed."""
    return sum(isinstance(proposal.command, RecordMilestones) for proposal in world.proposals)


def test_silent_master_is_replaced_after_the_timeout_with_stamps() -> None:
    """S32: within timeout + one scan; the election names the event that triggered it and carries the stamps."""
    world, (master, *slaves) = led_set()
    world.pass_ms(5_000, master, *slaves)
    silent_from_ms = world.now_ms
    world.pass_ms(3_100, *slaves)

    (silence,) = world.silences()
    assert (silence.broker_id, silence.cause) == (master.broker_id, SilenceCause.TIMEOUT)
    elected = world.elections()[-1]
    assert elected.master != master.broker_id
    assert elected.triggered_by is not None
    assert elected.detection is not None
    assert elected.detection.last_heartbeat_age_us is not None
    assert 3_000_000 <= elected.detection.last_heartbeat_age_us <= (world.now_ms - silent_from_ms) * 1000


@pytest.mark.slow
def test_s32_a_master_that_vanishes_without_a_word_is_found_in_time_every_time() -> None:
    """S32: no close, no refusal; whenever it was last heard, after the timeout and within one scan of it."""
    for offset_ms in range(100):
        world, (master, *slaves) = led_set()
        world.pass_ms(100 + offset_ms, master, *slaves, step_ms=100 + offset_ms)
        world.pass_ms(2_990, *slaves, step_ms=500)
        assert world.silences() == [], offset_ms
        world.pass_ms(110, *slaves)
        assert [event.broker_id for event in world.silences()] == [master.broker_id], offset_ms
        assert world.the_view(KEY).master in {slave.broker_id for slave in slaves}


def test_close_of_an_old_connection_means_nothing() -> None:
    """S33: the broker came back on a new connection before the close of the old one arrived."""
    world, (master, *slaves) = led_set()
    old = master.connection
    master.connection = 99
    world.beat(master)
    world.do(world.duties.handle_closed(old, world.now_ns))
    world.report_link(slaves[0], master)
    world.pass_ms(10_000, master, *slaves)

    assert (world.probes, world.silences()) == ([], [])


def test_dead_at_once_needs_all_three_facts() -> None:
    """R13: session closed, probe refused, link closed as seen by an electable member; in whatever order."""
    for order in ("close probe link", "link close probe", "close link probe"):
        world, (master, *slaves) = led_set()
        world.pass_ms(4_000, master, *slaves)
        for fact in order.split():
            assert world.silences() == [], order
            if fact == "close":
                world.close(master)
            elif fact == "link":
                world.report_link(slaves[0], master)
            else:
                world.refuse_probe()
        assert [event.cause for event in world.silences()] == [SilenceCause.DEAD_AT_ONCE], order
        assert world.the_view(KEY).master != master.broker_id
        detection = world.elections()[-1].detection
        assert detection is not None
        assert None not in (detection.session_closed_age_us, detection.link_closed_age_us)


def test_refused_probe_with_an_open_link_waits_for_the_timeout() -> None:
    """R13: refused alone is also a firewall or a moved address."""
    world, (master, *slaves) = led_set()
    world.pass_ms(4_000, master, *slaves)
    world.close(master)
    world.refuse_probe()
    world.pass_ms(2_000, *slaves)
    assert world.silences() == []
    world.pass_ms(1_200, *slaves)

    assert [event.cause for event in world.silences()] == [SilenceCause.TIMEOUT]


def test_link_closed_by_a_member_outside_the_set_does_not_count() -> None:
    """R13: the witness must be electable, or a slave that is cut off could topple a master."""
    world, (master, *slaves) = led_set()
    slaves[0].is_ready = False
    world.pass_ms(4_000, master, *slaves)
    world.close(master)
    world.refuse_probe()
    world.report_link(slaves[0], master)

    assert world.silences() == []


def test_heartbeat_clears_the_facts_of_a_broken_connection() -> None:
    """A master that lost its connection and came back starts with a clean sheet."""
    world, (master, *slaves) = led_set()
    world.close(master)
    world.refuse_probe()
    master.connection = 77
    world.beat(master)
    world.report_link(slaves[0], master)

    assert world.silences() == []


def test_probe_that_finds_another_incarnation_replaces_at_once() -> None:
    """R13: the process of the old incarnation is gone, whatever the timeout says."""
    world, (master, *_) = led_set()
    world.close(master)
    answer = ProbeAnswer(
        set_key=KEY, broker_id=master.broker_id, incarnation=type(master.incarnation)("next"), state=BrokerState.BOOT
    )
    world.do(world.duties.handle_probe(world.probes[-1], ProbeOutcome.ANSWERED, answer, world.now_ns))

    assert [event.cause for event in world.silences()] == [SilenceCause.REPLACED]


def test_probe_answered_by_a_stranger_proves_nothing() -> None:
    """Another broker that listens on the same address says nothing about ours."""
    world, (master, *_) = led_set()
    world.close(master)
    stranger = ProbeAnswer(
        set_key=set_key("other"), broker_id=master.broker_id, incarnation=master.incarnation, state=BrokerState.SLAVE
    )
    world.do(world.duties.handle_probe(world.probes[-1], ProbeOutcome.ANSWERED, stranger, world.now_ns))

    assert world.silences() == []


def test_new_leader_gives_everybody_one_full_timeout() -> None:
    """S39: empty soft state is no reason to elect; silence counts from the take-over."""
    world, (master, *slaves) = led_set()
    world.pass_ms(2_900, *slaves)
    world.duties.stand_down()
    world.take()
    world.pass_ms(2_900, *slaves)
    assert world.silences() == []
    world.pass_ms(200, *slaves)

    assert [event.broker_id for event in world.silences()] == [master.broker_id]


def test_facts_count_at_once_in_the_grace_of_a_new_leader() -> None:
    """R13: the grace covers silence only. Master and leader died together: a member's report is enough to ask."""
    world, (master, *slaves) = led_set()
    world.duties.stand_down()
    world.take()
    for slave in slaves:
        world.beat(slave)
    world.report_link(slaves[0], master)
    world.refuse_probe()

    assert [event.cause for event in world.silences()] == [SilenceCause.DEAD_AT_ONCE]
    assert world.the_view(KEY).master in {slave.broker_id for slave in slaves}


def test_own_stall_is_credited_to_the_brokers() -> None:
    """S42: after 12 s without a tick nobody is found silent; the heartbeats were waiting in the socket."""
    world, replicas = led_set()
    world.pass_ms(1_000, *replicas)
    world.now_ms += 12_000
    world.tick()
    assert world.silences() == []
    world.pass_ms(2_900)
    assert world.silences() == []
    world.pass_ms(300)

    assert len(world.silences()) == 3


def test_follower_that_falls_silent_does_not_change_the_master() -> None:
    """S35: its silence is on record, and nothing else happens."""
    world, (master, slave, dead) = led_set()
    elections = len(world.elections())
    world.pass_ms(4_000, master, slave)

    assert [event.broker_id for event in world.silences()] == [dead.broker_id]
    assert (len(world.elections()), world.the_view(KEY).master) == (elections, master.broker_id)


def test_silent_replica_that_beats_again_is_alive_again() -> None:
    """On the same session: one proposal, not one per heartbeat."""
    world, (master, slave, lost) = led_set()
    world.pass_ms(4_000, master, slave)
    world.beat(lost)
    world.beat(lost)

    assert sum(isinstance(proposal.command, MarkAlive) for proposal in world.proposals) == 1
    assert all(member.is_alive for member in world.the_view(KEY).members)


def test_lost_silence_proposal_is_repeated() -> None:
    """S36: an outcome that nobody knows does not end the duty."""
    world, (master, *slaves) = led_set()
    world.pass_ms(4_000, master, *slaves)
    world.applies = False
    world.pass_ms(3_200, *slaves)
    first = tuple(world.waiting)
    assert [type(proposal.command) for proposal in first] == [MarkSilent, ElectMaster]
    world.waiting.clear()
    world.applies = True
    for proposal in first:
        world.lose(proposal)
    world.pass_ms(200, *slaves)

    assert world.the_view(KEY).master != master.broker_id


def test_lost_election_is_repeated_and_never_doubled() -> None:
    """S36: one election per set is under way, and a lost one is proposed again after a pause."""
    world, (master, *slaves) = led_set()
    world.pass_ms(4_000, master, *slaves)
    world.applies = False
    world.pass_ms(3_100, *slaves)
    silence = world.waiting.pop(0)
    world.settle(silence)
    world.pass_ms(2_000, *slaves)
    elections = [proposal for proposal in world.waiting if isinstance(proposal.command, ElectMaster)]
    assert len(elections) == 1
    world.waiting.clear()
    world.lose(elections[0])
    world.pass_ms(200, *slaves)

    assert [type(proposal.command) for proposal in world.waiting] == [ElectMaster]


def test_nobody_eligible_is_on_record_once_and_retried_on_return() -> None:
    """S08: a state with reasons, no flood of failed elections, and the old member is elected when it returns."""
    world, (master, *slaves) = led_set()
    world.pass_ms(30_000)
    assert world.the_view(KEY).condition is Condition.NO_ELIGIBLE_REPLICA
    failed = [kind for kind in world.kinds() if kind == "election-failed"]
    assert len(failed) <= 1
    world.beat(slaves[0])

    assert world.the_view(KEY).master == slaves[0].broker_id
    assert len(world.silences()) == 3
    assert world.the_view(KEY).sync_state_set == (slaves[0].broker_id,)
    assert master.broker_id != slaves[0].broker_id


def _elected_by_hand() -> tuple[World, Replica, int]:
    """
    Nobody could be elected, and an operator elected the one that lives, uncleanly: the newest state shows it, and the
    duties have not been told. The replica, and from which record on they have not.
    """
    world, (first, *others) = led_set()
    world.pass_ms(3_500, *others)
    world.enter(next(one for one in others if one.broker_id == world.the_view(KEY).master))
    world.pass_ms(5_000, first)
    view = world.the_view(KEY)
    assert view.condition is Condition.NO_ELIGIBLE_REPLICA
    assert world.duties.elections.pending_count == 1
    evidence = world.duties.sessions.evidence(view, now_ns=world.now_ns, triggered_by=None, stamps=None, draw=0)
    told = len(world.records)
    reply = world.apply(ElectUnclean(set_key=KEY, accepted_loss_bytes=0), evidence, is_told=False)
    assert isinstance(reply, Elected), reply
    return world, first, told


def test_a_waiting_election_replaced_the_master_that_an_operator_had_just_elected() -> None:
    """The tick saw the operator's winner in the newest state before its change was told, and held a second election."""
    world, winner, told = _elected_by_hand()
    epoch, since = world.the_view(KEY).master_epoch, len(world.proposals)
    world.pass_ms(1_500, winner)
    assert not [one for one in world.proposals[since:] if isinstance(one.command, ElectMaster)]
    world.do(world.duties.handle_applied(world.records[told:], world.now_ns))

    assert world.duties.elections.pending_count == 0
    assert (world.the_view(KEY).master, world.the_view(KEY).master_epoch) == (winner.broker_id, epoch)


def test_the_loss_of_an_operators_winner_was_taken_for_the_loss_before_it() -> None:
    """Both changes are told at once: the election that waits is for the new epoch, and says who was lost in it."""
    world, winner, told = _elected_by_hand()
    lost = MarkSilent(
        set_key=KEY,
        broker_id=winner.broker_id,
        incarnation=winner.incarnation,
        session_ordinal=winner.ordinal,
        cause=SilenceCause.TIMEOUT,
    )
    world.apply(lost, is_told=False)
    world.do(world.duties.handle_applied(world.records[told:], world.now_ns))

    pending = world.duties.elections.pending_of(KEY)
    assert pending is not None
    assert pending.reason == f"broker {winner.broker_id} is gone"


def test_winner_that_does_not_enter_is_replaced() -> None:
    """R6: elect again after the deadline, and somebody else wins."""
    world, (master, *slaves) = led_set()
    world.pass_ms(3_500, *slaves)
    stuck = world.the_view(KEY).master
    epoch = world.the_view(KEY).master_epoch
    assert stuck != master.broker_id
    world.pass_ms(3_200, *slaves)

    assert world.the_view(KEY).master_epoch == epoch + 1
    assert world.the_view(KEY).master not in (stuck, master.broker_id)


def test_master_none_is_elected_by_a_new_leader_unasked() -> None:
    """S37: the leader died between the silence and the election."""
    world, (master, *slaves) = led_set()
    world.pass_ms(4_000, master, *slaves)
    world.applies = False
    world.pass_ms(3_100, *slaves)
    silence, _ = world.waiting
    world.duties.stand_down()
    world.apply(silence.command)
    world.applies = True
    world.take()
    for slave in slaves:
        world.beat(slave)

    assert world.the_view(KEY).master in {slave.broker_id for slave in slaves}


def test_old_session_is_fenced() -> None:
    """A heartbeat of a replaced session or incarnation is refused with both values."""
    world, (master, *_) = led_set()
    again = world.register(KEY, int(master.broker_id), incarnation=master.incarnation)
    refusal = world.beat(master)
    assert refusal is not None
    assert (refusal.code, refusal.current) == (RefusalCode.FENCED_SESSION, str(again.ordinal))
    master.incarnation = type(master.incarnation)("older")
    refusal = world.beat(master)

    assert refusal is not None
    assert refusal.code is RefusalCode.FENCED_INCARNATION


def test_many_sets_that_lose_their_masters_at_once_all_get_one() -> None:
    """S43: bounded in flight, in order, and no set starves."""
    world = World(elections_in_flight_max=7)
    world.take()
    sets = [world.serving_set(f"set-{number:04d}", size=2) for number in range(20)]
    world.applies = False
    for master, slave in sets:
        world.close(master)
        world.report_link(slave, master)
    for probe in world.probes:
        world.do(world.duties.handle_probe(probe, ProbeOutcome.REFUSED, None, world.now_ns))
    in_flight_max = 0
    while world.waiting:
        batch, world.waiting = world.waiting, []
        in_flight_max = max(in_flight_max, sum(isinstance(action.command, ElectMaster) for action in batch))
        assert {type(action) for action in batch} == {ProposeCommand}
        for action in batch:
            world.settle(action)

    assert in_flight_max == 7
    assert all(world.the_view(slave.key).master == slave.broker_id for _, slave in sets)
    assert sum(isinstance(proposal.command, MarkSilent) for proposal in world.proposals) == len(sets)
