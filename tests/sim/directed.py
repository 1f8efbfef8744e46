"""
Directed cases: one real machine, the few inputs that make one rule matter.

For mutants that the fleet as a whole hides: a second guard stands behind the first, so no seed can lose anything by one
of them alone. Each case raises ``Violation`` if the promise of its rule is broken, and is quiet otherwise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollcall_ha.broker.core.acks import WaitingSends
from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.core.goals import GoalKind
from rollcall_ha.broker.core.producers import ProducerStamp, ProducerTable, SequenceVerdict
from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.core.role_io import (
    RecordEpochEntry,
    Recovered,
    RecoveryStarted,
    SessionEstablished,
    StepDone,
    StopSlaveLink,
    ViewArrived,
)
from rollcall_ha.broker.core.session import Beat
from rollcall_ha.broker.log.values import IndexBehindError
from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, Barrier, ElectMaster, NoteConfirms
from rollcall_ha.controller.contract.events import CommandRefused, MasterElected, ReplicaSilent
from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, Incarnation, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import AlterDecided, Elected, Refused, Registered
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import KnownConfirm, SilenceCause
from rollcall_ha.controller.core.apply import apply_operations
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.controller.replication.codec import encode_operations
from rollcall_ha.controller.replication.machine import FleetMachine
from rollcall_ha.controller.replication.raft.journal import DurableJournal
from rollcall_ha.controller.replication.raft.messages import Answer
from rollcall_ha.controller.runtime.session_state import ProbeOutcome
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry
from rollcall_ha.ha.slave_link import SlaveLinkState
from rollcall_ha.ha.sync_state import ConfirmMoved, SyncOutput
from rollcall_ha.ha.truncation import Isolate, LogExtent, plan_truncation
from tests.sim.directed_disks import DISK_CASES
from tests.sim.directed_fleets import FLEET_CASES
from tests.sim.directed_members import MEMBER_CASES
from tests.sim.directed_policies import POLICY_CASES
from tests.sim.directed_quorum import QUORUM_CASES
from tests.sim.directed_recoveries import RECOVERY_CASES
from tests.sim.directed_reigns import REIGN_CASES
from tests.sim.violation import must
from tests.support.core_builders import Fleet, positions, stored
from tests.support.ha_logs import MemoryLog, history
from tests.support.ha_pair import Pair, identity
from tests.support.log_tools import append_all, crash, draft, log_bytes, open_log
from tests.support.raft_seams import raise_stopped
from tests.support.raft_virtual import OurNode, VirtualGroup
from tests.support.runtime_world import World
from tests.support.sim_disk import SimDisk
from tests.support.sim_kernel import Kernel
from tests.unit.test_broker_session import NOW_MS, TIMING, beating
from tests.unit.test_ha_sync_state import CATCH_UP_MS, Master, joined, proposals

A, B, C = 1, 2, 3


def _confirmed(outputs: list[SyncOutput]) -> bool:
    return any(isinstance(output, ConfirmMoved) for output in outputs)


# --- R1, R2 ----------------------------------------------------------------------------------------------------------


def alter_retry_is_the_same() -> None:
    """{A,B} is proposed and not answered; meanwhile C is caught up as well: the retry is still {A,B}."""
    master = joined((A,))
    master.link(B)
    first = proposals(master.ack(B, 0))
    must(len(first) == 1 and first[0].new_set == (A, B), "R1: B is proposed")
    master.link(C)
    master.ack(C, 0)
    for retry in proposals(master.wait(1_000)):
        must(retry == first[0], f"R1: seq {retry.seq} was {first[0].new_set}, its retry says {retry.new_set}")


def alter_overtaken() -> None:
    """{A} proposes {A,B} as 1; 900 is decided in A's name: A's own is decided all the same, above it."""
    master = joined((A,))
    master.link(B)
    must(proposals(master.ack(B, 0)), "R1: B is proposed")
    master.overtaken(900, members=(A,), version=10)
    own = proposals([*master.wait(1_000), *master.ack(B, 0)])
    must(
        any(alter.seq > 900 for alter in own),
        "R1: A repeats a seq that can never be decided, for the rest of its reign",
    )


def alter_far_ahead() -> None:
    """A stranger's alter in A's name has the highest seq that the wire carries: A's next one must still fit above."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(A, seq=2**62))
    last = fleet.set.last_alter
    must(last is None or last.verdict.seq < 2**61, "R1: no alter of this epoch can be decided any more")


def alter_answer_lost() -> None:
    """{A} proposes {A,B}; it commits, the answer is lost: the retry hears the stored verdict, whatever was drawn as its id."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(A))
    alter = fleet.alter(A, B, seq=2)
    first = fleet.do(alter)
    retry = fleet.do(alter)
    must(isinstance(first, AlterDecided) and first.verdict.is_accepted, "R1: {A,B} commits")
    must(
        isinstance(retry, AlterDecided) and isinstance(first, AlterDecided) and retry.verdict == first.verdict,
        "R1: the retry of a committed alter hears something else: A would drop B and ack alone",
    )


def alter_on_a_moved_set() -> None:
    """A of {A,B,C} proposes {A}; C falls by a restart first: the alter was made for another version."""
    fleet = Fleet().serving()
    alter = fleet.alter(A)
    fleet.do(fleet.registration(C, incarnation="i3.2", boot="boot-2"))
    must(fleet.set.sync_state_set == (A, B), "R3: C has fallen")
    reply = fleet.do(alter)
    must(
        isinstance(reply, AlterDecided) and not reply.verdict.is_accepted,
        f"R1: {alter.new_set} was applied to a moved set",
    )


def alter_of_an_ended_incarnation() -> None:
    """B acked as its first life and restarted without proof before the alter that adds it is applied."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(A))
    alter = fleet.alter(A, B, seq=2)
    fleet.do(fleet.registration(B, incarnation="i2.2", boot="boot-2", holds=positions(0)))
    reply = fleet.do(alter)
    must(isinstance(reply, AlterDecided) and not reply.verdict.is_accepted, "R1: B joined by an ack of its first life")


def late_registration() -> None:
    """B's second life asks to register, dies; its third one is registered, then the order of the second is applied."""
    fleet = Fleet().serving()
    late = fleet.registration(B, incarnation="i2.2")
    fleet.do(fleet.registration(B, incarnation="i2.3"))
    fleet.do(late)
    must(fleet.replica(B).incarnation == "i2.3", "R1: a late duplicate of an earlier life has ended the living one")


def alter_without_an_answer() -> None:
    """{A} proposes {A,B}, nothing comes back for seconds: B is still required; the alter may have committed."""
    master = joined((A,))
    master.link(B)
    must(proposals(master.ack(B, 0)), "R2: B is proposed")
    master.wait(1_000)
    must(not _confirmed([*master.write(100), *master.wait(100)]), "R2: a timeout ended the union; A acks alone")


def refused_mastership() -> None:
    """{A} proposes {A,B}; it commits, B is elected, A's retry is refused as older: A must not ack v1 alone."""
    master = joined((A,))
    master.link(B)
    master.ack(B, 0)
    master.state.mastership_refused("masterEpoch 5 is stale, current is 6")
    must(not _confirmed(master.write(100)), "R2: A releases alone after its mastership was refused")


def state_of_another_epoch() -> None:
    """A of {A,B}, still in epoch 5, hears that in epoch 7 the set is {A}: it must not ack v1 alone."""
    master = joined((A, B))
    master.write(100)
    outputs = master.hear((A,), 30, epoch=7)
    must(not _confirmed(outputs), "R2: A adopted the set of epoch 7 in epoch 5 and releases alone")


def state_of_another_fleet() -> None:
    """A of {A,B} proposes {A,B,C}; restored controllers show {A,B} at a higher version: C is still required."""
    master = joined((A, B))
    master.link(C)
    master.write(100)
    master.ack(B, 100)
    must(proposals(master.ack(C, 100)), "C is proposed")
    master.unlink(C)
    outputs = master.hear((A, B), 90, fleet=FleetIncarnation("restored"))
    must(
        not _confirmed([*outputs, *master.write(200), *master.ack(B, 200)]),
        "R7: A dropped its proposal by a view of restored controllers and releases without C",
    )


def refused_proposal() -> None:
    """B's join is refused: B is not required any more (L5)."""
    master = joined((A,))
    master.link(B)
    must(proposals(master.ack(B, 0)), "B is proposed")
    master.verdict(1, accepted=False, members=(A,), version=10)
    must(_confirmed(master.write(100)), "W8: writes wait for a member whose join was refused")


def join_test() -> None:
    """B joins only with everything that was confirmed, from the start of the epoch on, and is required from that moment."""
    master = joined((A,))
    master.link(B)
    outputs = master.ack(B, 0)
    outputs += master.write(100)
    outputs += master.wait(300)
    outputs += master.ack(B, 0)
    for proposal in proposals(outputs):
        must(
            master.confirm <= 0,
            f"R2: {proposal.new_set} is proposed with B at 0, A confirmed {master.confirm} meanwhile",
        )


def join_below_the_start() -> None:
    """The epoch starts at 100, B has 50."""
    master = Master((A,), end=100)
    master.link(B)
    must(not proposals([*master.ack(B, 50), *master.wait(200)]), "R2: B joins below the start of the epoch")


def join_below_confirm() -> None:
    """A acked v1 alone, B has nothing."""
    master = joined((A,))
    master.write(100)
    master.link(B)
    must(not proposals([*master.ack(B, 0), *master.wait(200)]), "R2: B joins without v1")


def learner_is_no_candidate() -> None:
    """B follows as a learner and has everything: it is not proposed."""
    master = joined((A,))
    master.write(100)
    master.link(B, learner=True)
    must(not proposals(master.ack(B, 100)), "R23: a learner is proposed as a member")


def union_when_adding() -> None:
    """{A} proposes {A,B}; v1 waits for B, whatever the controllers have answered."""
    master = joined((A,))
    master.link(B)
    must(proposals(master.ack(B, 0)), "B is proposed")
    must(not _confirmed(master.write(100)), "R2: A releases v1 alone while {A,B} may be committed")


def union_when_removing() -> None:
    """{A,B} proposes {A}; v1 waits for B until the verdict."""
    master = joined((A, B))
    master.write(100)
    outputs = master.wait(CATCH_UP_MS + 1_000)
    must(proposals(outputs), "B is to leave")
    outputs += master.write(200)
    must(not _confirmed(outputs), "R2: A releases v1 alone while {A,B} may still be the committed set")


def min_in_sync_of_a_proposal() -> None:
    """min_in_sync is 2, the set is {A}, {A,B} is proposed and B has acked: v1 waits for the verdict."""
    master = joined((A,), min_in_sync=2)
    master.link(B)
    must(proposals(master.ack(B, 0)), "B is proposed")
    outputs = [*master.write(100), *master.ack(B, 100)]
    must(not _confirmed(outputs), "R22: a proposed member counted for min_in_sync")


def min_in_sync_raised_in_a_reign() -> None:
    """{A} serves with one copy; from now on two are asked for: v1 waits."""
    master = joined((A,), min_in_sync=1)
    master.state.require(2)
    must(not _confirmed(master.write(100)), "R22: v1 was released with the copies that were asked for before")


def set_below_its_minimum() -> None:
    """min_in_sync is 2, A is cut off from B and C: were it alone in its set, neither could be elected when it dies."""
    master = joined((A, B, C), min_in_sync=2)
    master.unlink(B)
    master.unlink(C)
    must(not proposals(master.wait(CATCH_UP_MS + 1_000)), "R22: a set too small to acknowledge was proposed")
    must(not master.state.may_release, "R22: a master without enough members in sync takes sends")


def member_without_a_report() -> None:
    """B is in the set and has not said what it has since its link was made: v1 waits."""
    master = Master((A, B))
    master.link(B)
    must(not _confirmed(master.write(100)), "W9: a member without a report was skipped")


def older_copy() -> None:
    """B's directory is put back as it was in its first life, on the same boot; its second life has acked v1."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(B, incarnation="i2.2"))
    fleet.do(fleet.registration(B, incarnation="i2.3", lives=("i2.1",)))
    must(B not in fleet.set.sync_state_set, "R3: an older copy of a directory is a member")


def copy_of_a_running_broker() -> None:
    """B was started on a copy of its directory from when it ran; A, dead, had told of more than B holds."""
    fleet = Fleet().serving()
    fleet.silence(A)
    fleet.silence(C)
    fleet.elect(evidence=fleet.evidence({B: positions(1_600)}, confirmed=3_000))
    must(fleet.set.master_epoch == 1, "R3: a member is elected that lacks what all members had")


def copy_that_registers() -> None:
    """B comes with a copy of its directory from when it ran, on the same boot; the leader has heard of more."""
    fleet = Fleet().serving()
    fleet.do(
        fleet.registration(B, incarnation="i2.2", holds=positions(1_600)), evidence=fleet.evidence(confirmed=3_000)
    )
    must(B not in fleet.set.sync_state_set, "R3: a copy that lacks what its leader heard is a member")


def _note(fleet: Fleet, confirm: int, epoch: int) -> None:
    told = KnownConfirm(set_key=fleet.key, master_epoch=MasterEpoch(epoch), confirm_offset=LogOffset(confirm))
    fleet.do(NoteConfirms(confirms=(told,)))


def copy_after_everybody_died() -> None:
    """Brokers and leader died together; B comes first, with a copy of its directory from when it ran."""
    fleet = Fleet().serving()
    _note(fleet, 3_000, 1)
    fleet.do(fleet.registration(B, incarnation="i2.2", holds=positions(1_600)))
    must(B not in fleet.set.sync_state_set, "R3: a copy that lacks what was noted is a member")


def confirm_of_a_reign_that_is_over() -> None:
    """Bytes that A had confirmed are lost by an unclean election; its leader's note of them is applied behind that."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(A))
    fleet.silence(A)
    fleet.elect_unclean(9_000, B, evidence=fleet.evidence({B: positions(700)}))
    _note(fleet, 3_000, 1)
    fleet.do(fleet.registration(B, incarnation="i2.2", holds=positions(700)))
    must(not fleet.replica(B).is_suspect, "R3: a member is measured by bytes that no log has any more")


def survivors_are_intact() -> None:
    """C fell by a power loss and is back; A dies: C is not in the new set."""
    fleet = Fleet().serving()
    fleet.do(fleet.registration(C, incarnation="i3.2", boot="boot-2"))
    fleet.silence(A)
    reply = fleet.elect()
    must(isinstance(reply, Elected), "B is elected")
    must(C not in fleet.set.sync_state_set, f"R6: C fell and is a survivor: {fleet.set.sync_state_set}")


def survivors_are_members() -> None:
    """C is alive and was never in sync; A dies: the new set is {B}."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(A, B))
    fleet.silence(A)
    must(isinstance(fleet.elect(), Elected), "B is elected")
    must(fleet.set.sync_state_set == (B,), f"R6: the new set is {fleet.set.sync_state_set}, C was no member")


# --- R12 -------------------------------------------------------------------------------------------------------------


def late_acks() -> None:
    """Acks of an older epoch, an older link and an older life release nothing."""
    for change in ({"master_epoch": 4}, {"link_generation": 0}, {"incarnation": "inc-2-old"}):
        master = Master((A, B), end=100)
        master.write(200)
        master.link(B)
        master.ack(B, 100)
        must(not _confirmed(master.ack(B, 200, **change)), f"R12: a late ack with {change} released a message")


def data_after_the_close() -> None:
    """The follower left the link; bytes that were under way arrive."""
    master_log = MemoryLog()
    master_log.begin_epoch(1)
    master_log.append(b"v0")
    pair = Pair(master_log, MemoryLog(), epoch=1).open().run()
    before = pair.slave_log.max_offset
    must(before == 2, "v0 was replicated")
    pair.slave.connection_lost()
    master_log.append(b"v1")
    pair.do_master(pair.master.plan_transfer(LogOffset(0), pair.now_ms))
    pair.run()
    must(pair.slave.state is SlaveLinkState.CLOSED, "R12: the link goes on after it was closed")
    must(pair.slave_log.max_offset == before, "R12: bytes of a closed link were taken")


def entry_before_its_bytes() -> None:
    """The follower's history names every epoch of its bytes."""
    master_log = MemoryLog()
    for epoch in (1, 2):
        master_log.begin_epoch(epoch)
        master_log.append(b"v%d" % epoch)
    pair = Pair(master_log, MemoryLog(), epoch=2).open().run()
    theirs, ours = pair.slave_log.history, master_log.history
    must(theirs == ours, f"R9: the master's epochs are {ours}, the follower took the bytes under {theirs}")


def waiters_of_an_ended_epoch() -> None:
    """A appends v1 in epoch 1 and loses it; what epoch 3 confirms must not release it."""
    table: WaitingSends[str] = WaitingSends(MasterEpoch(1), waiting_messages_max=10, waiting_bytes_max=1_000)
    table.register(LogOffset(950), "v1", messages=1, size_bytes=10, now_us=1)
    must(table.fail_all() == ["v1"], "R17: v1 is not told that its outcome is unknown")
    must(table.release(LogOffset(1_100)) == [], "R17: v1 is released by another epoch")


# --- elections -------------------------------------------------------------------------------------------------------


def evidence_moved() -> None:
    """ "Elect B" is taken on {A,B,C}; the alter {A,B} commits first; then the entry applies."""
    fleet = Fleet().serving()
    evidence = fleet.evidence()
    fleet.do(fleet.alter(A, B))
    reply = fleet.elect(B, evidence=evidence)
    must(isinstance(reply, Refused), "R14: an election was applied on evidence of another state")


def first_election() -> None:
    """One of three has registered; and: all have, but one brings records."""
    fleet = Fleet().joined(A)
    must(not isinstance(fleet.elect(), Elected), "R8: the first one that came was elected")
    fleet = Fleet()
    for number in (A, B, C):
        fleet.grant(f"code-{number}")
        fleet.do(fleet.registration(number, holds=positions(500 if number == B else 0)))
    must(not isinstance(fleet.elect(), Elected), "R8: a first election although a replica brings records")


def restored_longest() -> None:
    """After a wipe C registers with less than B and is heard first: C is not elected."""
    fleet = Fleet()
    for number, end in ((B, 300), (C, 200)):
        fleet.do(fleet.registration(number, holds=positions(end, epoch=9), view=stored(9, 4, B, C)))
    reply = fleet.elect(evidence=fleet.evidence(unheard=(B,)))
    must(not isinstance(reply, Elected), "R7: C was elected with 200 bytes, B had reported 300")
    must(isinstance(fleet.elect(), Elected), "R7: nobody is elected although all were heard")
    must(fleet.set.master == B, f"R7: {fleet.set.master} was elected, B is the longest")


def restarted_master() -> None:
    """A is master of epoch 1, restarts (same boot) and registers: epoch 1 is not its any more."""
    fleet = Fleet().serving()
    epoch = fleet.set.master_epoch
    fleet.do(fleet.registration(A, incarnation="i1.2"))
    is_same = (fleet.set.master, fleet.set.master_epoch, fleet.set.master_incarnation) == (A, epoch, "i1.2")
    must(not is_same, "R9: an old epoch was given to a new incarnation")


def dead_at_once() -> None:
    """Session closed, probe refused, but every link is open: a firewall, not a death."""
    world = World()
    world.take()
    master, *slaves = world.serving_set()
    world.pass_ms(4_000, master, *slaves)
    world.close(master)
    must(world.probes, "R13: a closed session is probed")
    world.do(world.duties.handle_probe(world.probes[-1], ProbeOutcome.REFUSED, None, world.now_ns))
    silent = [record.event for record in world.records if isinstance(record.event, ReplicaSilent)]
    must(
        all(event.cause is not SilenceCause.DEAD_AT_ONCE for event in silent),
        "R13: a refused probe alone made a master dead",
    )


def refusal_on_record() -> None:
    """An election without need is refused; the refusal is an event."""
    fleet = Fleet().serving()
    must(isinstance(fleet.elect(), Refused), "an election under a living master is refused")
    must(any(isinstance(event, CommandRefused) for event in fleet.events), "R24: a refusal left no record")
    must(not any(isinstance(event, MasterElected) for event in fleet.events), "nobody was elected")


def newer_operation() -> None:
    """An entry that needs a higher feature level stops the node: it is not skipped."""
    fleet = Fleet()
    payload = encode_operations([fleet.operation(Barrier(), version=FEATURE_LEVEL + 1)])
    applied = FleetMachine().apply(fleet.state, payload, term=1, index=fleet.index + 1)
    must(applied.stop_reason is not None, "R15: a newer operation was taken for a no-op; this node diverges")


def election_in_a_batch() -> None:
    """A's alter to {A} and the election of B share an entry: B is elected, and A may not acknowledge alone."""
    fleet = Fleet().serving()
    alter = fleet.operation(fleet.alter(A))
    elect = fleet.operation(ElectMaster(set_key=fleet.key, to=BrokerId(B)), evidence=fleet.evidence())
    applied = apply_operations(fleet.state, [alter, elect], term=1, index=fleet.index + 1)
    must(isinstance(applied.replies[1], Elected), "R25: an alter in front of it kept an election from being held")
    must(isinstance(applied.replies[0], Refused), "R25: an alter was decided before the election of its own entry")


# --- disks -----------------------------------------------------------------------------------------------------------


def entry_beyond_the_end() -> None:
    """Bytes were lost: an epoch that began behind the end is gone with them."""
    entries = [
        EpochEntry(epoch=MasterEpoch(epoch), start_offset=LogOffset(start)) for epoch, start in ((1, 0), (2, 100))
    ]
    repaired = EpochHistory(entries).repaired(LogOffset(50))
    must(repaired.last_epoch == 1, f"W5: the log ends at 50 and its epochs are {repaired}")


def cut_below_confirm() -> None:
    """A master that shares 300 of 500 bytes would cut what this replica knows to be confirmed up to 400."""
    own = LogExtent(history=history((1, 0), (2, 400)), min_offset=LogOffset(0), max_offset=LogOffset(500))
    other = LogExtent(history=history((1, 0), (3, 300)), min_offset=LogOffset(0), max_offset=LogOffset(900))
    planned = plan_truncation(
        own, LogOffset(400), other, unclean_epoch=NO_EPOCH, is_record_boundary=lambda _offset: True
    )
    must(isinstance(planned, Isolate), f"R26: confirmed bytes are given up: {planned}")


def append_behind_unindexed_records() -> None:
    """A slave that received records and is elected before they are indexed: its next queue offset would be one of theirs."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        master, slave = open_log(root / "master"), open_log(root / "slave")
        for log in (master, slave):
            log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
        append_all(master, draft(b"y" * 100))
        data = log_bytes(master)
        with slave.receive_view(len(data)) as view:
            view[: len(data)] = data
        slave.commit_received(len(data))
        try:
            slave.begin_run(stored_at_ms=1)
            is_refused = False
        except IndexBehindError:
            is_refused = True
        for log in (master, slave):
            crash(log)
    must(is_refused, "R19: appends begin before the queue offsets of received records are known")


def retry_of_a_send() -> None:
    """The same sequence again is a duplicate, not a message."""
    table = ProducerTable()
    stamp = ProducerStamp(b"p" * 16, 0, 0)
    table.fold(stamp, LogOffset(0))
    must(table.judge(stamp) is SequenceVerdict.DUPLICATE, "R18: a retry is appended again")


def retry_of_a_cut_batch() -> None:
    """A log that ends inside of a batch knows the first ones of it, and the number behind them is next."""
    table = ProducerTable()
    stamp = ProducerStamp(b"p" * 16, 0, 0)
    table.fold_run(stamp, [0, 300])
    must(table.judge(stamp) is SequenceVerdict.DUPLICATE, "R18: the first ones of a batch are appended again")
    must(table.known_of(stamp, 5) == 2, "R18: the rest of a batch is called a duplicate, and is nowhere")
    rest = ProducerStamp(b"p" * 16, 0, 2)
    must(table.judge(rest) is SequenceVerdict.ACCEPT, "R18: the rest of a batch is no next message")


def empty_epochs() -> None:
    """A, then B, then A are masters without a byte; bytes of the last epoch carry it."""
    history = EpochHistory()
    for epoch in (1, 2, 3):
        history = history.appended(EpochEntry(epoch=MasterEpoch(epoch), start_offset=LogOffset(0)))
    must(history.last_epoch == 3, f"W4: bytes of epoch 3 are labelled {history.last_epoch}")


def vote_over_a_restart() -> None:
    """A vote is durable before it leaves."""
    disk = SimDisk(Kernel(1), "c1")
    journal = DurableJournal(disk, raise_stopped)
    journal.setCurrentTerm(7, "c2")
    journal.sync()
    disk.lose_power()
    again = DurableJournal(disk, raise_stopped)
    found = (again.getCurrentTerm(), again.getVotedForNodeId())
    must(found == (7, "c2"), f"Raft: voted for c2 in term 7, after a restart it knows {found}")


def answer_of_another_term() -> None:
    """R5: what a follower said in an earlier term neither commits nor gives authority in this one."""
    with pytest.MonkeyPatch.context() as patch:
        leader = VirtualGroup(patch, OurNode).elect()
        transport = leader.library.transport
        peer = next(iter(transport._answered_ns))
        newest_ns = transport._newest_stamp_ns
        transport._answered_ns[peer] = 0
        stale = Answer(
            term=leader.term - 1,
            sent_ns=newest_ns,
            next_index=leader.last_index + 1,
            is_success=True,
            is_reset=False,
            is_voter=True,
        )
        transport._on_answer(peer, stale)
        heard_ns = transport._answered_ns[peer]
    must(heard_ns == 0, "R5: an answer of an earlier term gives authority")


# --- roles -----------------------------------------------------------------------------------------------------------


def _registered_machine(fleet: Fleet, broker_id: int, marks: EpochMarks) -> RoleMachine:
    """A role machine whose process found ``marks`` on its disk, as far as the fleet's present view carries it."""
    view = view_of(fleet.state, fleet.key)
    replica = fleet.replica(broker_id)
    assert view is not None
    assert replica.incarnation is not None
    machine = RoleMachine(set_key=fleet.key, incarnation=replica.incarnation)
    registered = Registered(
        broker_id=replica.broker_id,
        session_ordinal=replica.session_ordinal,
        intactness=replica.intactness,
        is_in_sync=True,
        view=view,
    )
    machine.handle(RecoveryStarted(), now_us=1)
    machine.handle(Recovered(marks=marks, has_clean_mark=False), now_us=2)
    machine.handle(SessionEstablished(registered=registered), now_us=3)
    for now_us in range(4, 40):
        step = machine.pending
        if step is None:
            break
        machine.handle(StepDone(step=step.step, offset=LogOffset(0)), now_us=now_us)
    return machine


def epoch_entered_twice() -> None:
    """A controller (restored, or wrong) gives a broker an epoch that it had promised before this process began."""
    fleet = Fleet().serving()
    epoch = fleet.set.master_epoch
    machine = _registered_machine(fleet, A, EpochMarks(promised=epoch, entered=epoch))
    is_on_its_way = machine.published.state in (BrokerState.MASTER, BrokerState.PROMISED)
    must(not is_on_its_way, f"W3: epoch {epoch} is entered twice")


def peer_in_a_higher_epoch() -> None:
    """B shows the next epoch on a link; A has missed its notice: A asks the controllers now, not at its next heartbeat."""
    session = beating()
    now_ms = NOW_MS + TIMING.reconnect_delay_ms
    must(session.next_due_ms is not None and session.next_due_ms > now_ms, "the next heartbeat is some time away")
    asked = session.look_up(now_ms)
    must(any(isinstance(action, Beat) for action in asked), "R21: A does not ask after the epoch that B shows")


def ack_of_a_stranger() -> None:
    """Somebody names itself replica 9 of the set, or 2 in an incarnation that nobody has registered, and acks everything."""
    log = MemoryLog()
    log.begin_epoch(1)
    log.append(bytes(10))
    for stranger in (identity(9), identity(2, incarnation="inc-made-up")):
        pair = Pair(log, MemoryLog(), epoch=1, slave=stranger).open().run()
        must(not pair.acks, f"R2: an ack of {stranger.broker_id} {stranger.incarnation} counts, who has not registered")


def ack_of_an_ended_incarnation() -> None:
    """2 restarts and registers; acks of its first life, whose tail may be lost, still stand in the old link's socket."""
    log = MemoryLog()
    log.begin_epoch(1)
    log.append(bytes(10))
    pair = Pair(log, MemoryLog(), epoch=1).open().run()
    restarted = replace(
        pair.reign, incarnations={BrokerId(A): Incarnation("inc-1"), BrokerId(B): Incarnation("inc-2.2")}
    )
    pair.do_master(pair.master.replicas_changed(restarted, LogOffset(0), 10))
    before = len(pair.acks)
    log.append(bytes(10))
    pair.run()
    must(len(pair.acks) == before, "R2: an ack of an ended incarnation counts")


def stale_master_after_a_restart() -> None:
    """B promised epoch 2 and restarts; what it is told still names A in epoch 1: B must not follow."""
    fleet = Fleet().serving()
    epoch = MasterEpoch(fleet.set.master_epoch + 1)
    machine = _registered_machine(fleet, B, EpochMarks(promised=epoch))
    must(
        machine.goal.kind is not GoalKind.FOLLOW, f"R9: B promised epoch {epoch} and follows the master of {epoch - 1}"
    )


def start_after_the_link() -> None:
    """B follows A and is elected: the link is stopped before the start of the new epoch is fixed."""
    fleet = Fleet().serving()
    machine = _registered_machine(fleet, B, EpochMarks())
    must(machine.goal.kind is GoalKind.FOLLOW, "B follows")
    fleet.silence(A)
    must(isinstance(fleet.elect(B), Elected), "B is elected")
    view = view_of(fleet.state, fleet.key)
    assert view is not None
    actions = machine.handle(ViewArrived(view=view), now_us=100)
    for now_us in range(101, 140):
        step = machine.pending
        if step is None:
            break
        actions += machine.handle(StepDone(step=step.step, offset=LogOffset(0)), now_us=now_us)
    kinds = [type(action) for action in actions]
    must(RecordEpochEntry in kinds and StopSlaveLink in kinds, f"B enters its epoch: {kinds}")
    is_stopped_first = kinds.index(StopSlaveLink) < kinds.index(RecordEpochEntry)
    must(is_stopped_first, "R12: the start was fixed while the link to the old master still brought bytes")


CASES: dict[str, Callable[[], None]] = {
    "alter-retry-is-the-same": alter_retry_is_the_same,
    "alter-answer-lost": alter_answer_lost,
    "alter-overtaken": alter_overtaken,
    "alter-far-ahead": alter_far_ahead,
    "alter-on-a-moved-set": alter_on_a_moved_set,
    "alter-of-an-ended-incarnation": alter_of_an_ended_incarnation,
    "late-registration": late_registration,
    "alter-without-an-answer": alter_without_an_answer,
    "refused-mastership": refused_mastership,
    "state-of-another-epoch": state_of_another_epoch,
    "state-of-another-fleet": state_of_another_fleet,
    "refused-proposal": refused_proposal,
    "join-test": join_test,
    "join-below-the-start": join_below_the_start,
    "join-below-confirm": join_below_confirm,
    "learner-is-no-candidate": learner_is_no_candidate,
    "union-when-adding": union_when_adding,
    "union-when-removing": union_when_removing,
    "min-in-sync-of-a-proposal": min_in_sync_of_a_proposal,
    "min-in-sync-raised-in-a-reign": min_in_sync_raised_in_a_reign,
    "set-below-its-minimum": set_below_its_minimum,
    "member-without-a-report": member_without_a_report,
    "older-copy": older_copy,
    "copy-of-a-running-broker": copy_of_a_running_broker,
    "copy-that-registers": copy_that_registers,
    "copy-after-everybody-died": copy_after_everybody_died,
    "confirm-of-a-reign-that-is-over": confirm_of_a_reign_that_is_over,
    "survivors-are-intact": survivors_are_intact,
    "survivors-are-members": survivors_are_members,
    "entry-before-its-bytes": entry_before_its_bytes,
    "entry-beyond-the-end": entry_beyond_the_end,
    "retry-of-a-send": retry_of_a_send,
    "retry-of-a-cut-batch": retry_of_a_cut_batch,
    "late-acks": late_acks,
    "data-after-the-close": data_after_the_close,
    "waiters-of-an-ended-epoch": waiters_of_an_ended_epoch,
    "evidence-moved": evidence_moved,
    "restored-longest": restored_longest,
    "first-election": first_election,
    "restarted-master": restarted_master,
    "dead-at-once": dead_at_once,
    "refusal-on-record": refusal_on_record,
    "newer-operation": newer_operation,
    "empty-epochs": empty_epochs,
    "vote-over-a-restart": vote_over_a_restart,
    "answer-of-another-term": answer_of_another_term,
    "start-after-the-link": start_after_the_link,
    "stale-master-after-a-restart": stale_master_after_a_restart,
    "epoch-entered-twice": epoch_entered_twice,
    "peer-in-a-higher-epoch": peer_in_a_higher_epoch,
    "ack-of-a-stranger": ack_of_a_stranger,
    "ack-of-an-ended-incarnation": ack_of_an_ended_incarnation,
    "election-in-a-batch": election_in_a_batch,
    "cut-below-confirm": cut_below_confirm,
    "append-behind-unindexed-records": append_behind_unindexed_records,
    **DISK_CASES,
    **REIGN_CASES,
    **RECOVERY_CASES,
    **QUORUM_CASES,
    **MEMBER_CASES,
    **FLEET_CASES,
    **POLICY_CASES,
}
"""By name; mutants name the case that finds them."""
