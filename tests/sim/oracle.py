"""
Who knows everything: what was acknowledged, where every epoch began, what was committed; and what must therefore hold.

Here: facts and checks over all processes and disks at once. Not here: how facts come about (``world``), rules of the
controller's own state (``controller.core.invariants``, called from here).
Names in failures are those of docs/invariants.md (C, D, L, I) and docs/safety.md (R).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.events import (
    AlterRefused,
    CommandRefused,
    ElectionsPaused,
    ElectionsResumed,
    ElectionWithheld,
    EventRecord,
    LossGraded,
    MaintenanceBegun,
    MaintenanceEnded,
    MasterElected,
    MasterEntered,
    ReplicaAlive,
    ReplicaRegistered,
    ReplicasCleaned,
    SessionOpened,
    SetConfigured,
    SettingsApplied,
    SyncStateSetAltered,
)
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, SetKey, SyncStateSet
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade, Intactness, LossVerdict
from rollcall_ha.controller.core import invariants
from rollcall_ha.controller.core.state import FleetState, SetState
from rollcall_ha.controller.replication.ports import AppliedEntry
from rollcall_ha.epoch.codec import encode_history
from tests.sim.amnesia import Watch
from tests.sim.delays import count_deliveries, look_at_deliveries
from tests.sim.log import RECORD_BYTES, Record, ReplicaDisk
from tests.sim.policies import PolicyJudge
from tests.sim.rocketmq import RocketmqLaws
from tests.sim.slave_reads import Given, SlaveReads
from tests.sim.switchovers import SwitchoverJudge
from tests.sim.violation import Violation
from tests.support.sim_kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A message that a client got PUT_OK for."""

    value: int
    end: LogOffset
    """0 after a duplicate's answer, which does not name it."""
    place: int | None
    """In its queue; None after a duplicate's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """An election as it was applied."""

    kind: ElectionKind
    master: BrokerId


class SetFacts:
    """What is known of one set."""

    def __init__(self) -> None:
        self.acked: dict[int, Acked] = {}
        self.forgiven: dict[int, Acked] = {}
        """Acknowledged, and lost in an election that said it could lose."""
        self.aged: dict[int, int] = {}
        """Where each message ended that a replica has deleted, rightfully."""
        self.sent: dict[int, None] = {}
        self.elections: dict[MasterEpoch, Won] = {}
        self.starts: dict[MasterEpoch, LogOffset] = {}
        self.entered: dict[MasterEpoch, tuple[BrokerId, str]] = {}
        self.released: dict[MasterEpoch, LogOffset] = {}
        self.lost_bytes: dict[MasterEpoch, int] = {}
        self.alters: dict[tuple[MasterEpoch, int], AlterSyncStateSet] = {}
        self.forgave: dict[MasterEpoch, None] = {}
        """Epochs whose election could lose something."""
        self.grades: dict[MasterEpoch, LossVerdict] = {}
        self.left_as_learners: set[BrokerId] = set()
        """Since the last alter or election: the master may not have heard of it yet."""
        self.judged: set[Incarnation] = set()
        """Processes whose registration was applied once, also by controllers that have forgotten it since."""
        self.legal = LogOffset(0)
        """Consumers were told to go on up to here (R19)."""
        self.losses = 0
        """Elections that could lose something, as of then."""
        self.reads: SlaveReads
        """Made with the oracle's counts."""
        self.watch: Watch | None = None
        """From the loss of the controllers' memory to the next election."""
        self.forgot_a_loss = False
        """Controllers that had lost their memory elected a replica that had lost something, and called it no loss."""
        self.may_lose = False
        """The election after that loss could choose only among replicas whose disks had lost something."""

    def lacking(self, disk: ReplicaDisk) -> list[Acked]:
        """What was acknowledged and is not there; in front of the log's first byte it may have been deleted."""
        held, begin = {record.value for record in disk.records()}, disk.begin()
        lost = (one for one in self.acked.values() if one.value not in held)
        return [one for one in lost if self.aged.get(one.value, begin + 1) > begin]

    def could_lose(self, epoch: MasterEpoch) -> bool:
        """Whether its election was unclean, or had only replicas to choose from that had lost something (R7)."""
        return self.elections[epoch].kind is ElectionKind.UNCLEAN or epoch in self.forgave


class Oracle:
    """One per world."""

    def __init__(
        self, kernel: Kernel, disk_of: Callable[[SetKey, BrokerId], ReplicaDisk], *, expected_replicas: int
    ) -> None:
        self.kernel = kernel
        self.counts = kernel.counts
        self.state: FleetState | None = None
        self._sets: dict[SetKey, SetFacts] = {}
        self._disk_of = disk_of
        self._expected_replicas = expected_replicas
        self.incarnation_of: Callable[[SetKey, BrokerId], str | None] = lambda _key, _broker_id: None
        """Of the process that lives now; set by the world."""
        self.rocketmq: RocketmqLaws
        """Of the set of RocketMQ brokers, which have no disk here; set by the world."""
        self._chain_at: list[tuple[int, str]] = [(0, "")]
        self._leader_of_term: dict[int, str] = {}
        self._orders = SwitchoverJudge(self.counts)
        self.policies = PolicyJudge(kernel)

    def facts(self, key: SetKey) -> SetFacts:
        """Of one set."""
        if key not in self._sets:
            self._sets[key] = SetFacts()
            self._sets[key].reads = SlaveReads(self.counts)
        return self._sets[key]

    # --- controllers ---

    def applied(self, controller: str, entry: AppliedEntry[FleetState]) -> None:
        """A controller applied an entry, or installed a snapshot: state machine safety, then the first sight of its events."""
        state = entry.state
        at = self.index
        if entry.index <= at:
            if self._chain_at[entry.index] != (entry.term, state.chain_head):
                raise Violation(
                    f"C8: {controller} applied index {entry.index} as {(entry.term, state.chain_head[:8])}, "
                    f"another one as {self._chain_at[entry.index]}: a committed entry was replaced"
                )
            return
        if entry.is_snapshot:
            raise Violation(f"C8: {controller} installed a snapshot up to {entry.index}, nobody applied more than {at}")
        if entry.index > at + 1:
            # A library's own no-op takes an index of its own and is not heard of.
            self._chain_at += [(0, "")] * (entry.index - at - 1)
        self._chain_at.append((entry.term, state.chain_head))
        before, self.state = self.state, state
        broken = invariants.check_state(state)
        if before is not None:
            broken += invariants.check_transition(before, state, entry.records)
        if broken:
            raise Violation(f"core: {broken} after {[type(record.event).__name__ for record in entry.records]}")
        ordered = {record.set_key for record in entry.records if isinstance(record.event, SetConfigured)}
        for key, after in state.sets.items() if before is not None else ():
            known = before.sets.get(key) if before is not None else None
            if known is not None and known.configuration not in (None, after.configuration) and key not in ordered:
                raise Violation(
                    f"R11: the settings of {key} change from {known.configuration} to {after.configuration}"
                )
        for record in entry.records:
            if before is not None:
                self.policies.applied(before, record)
                self._back(before, record)
            self._event(record)

    @property
    def index(self) -> int:
        """Of the newest entry that any controller has applied."""
        return len(self._chain_at) - 1

    def forgotten(self, known: FleetState | None) -> None:
        """The controllers begin again with ``known``, or with nothing (R7). What clients and disks hold stays a fact."""
        self._chain_at = [(0, "")]
        if known is not None:
            self._chain_at = [(0, "")] * known.index + [(known.term, known.chain_head)]
        self._begin_again(known, is_copy=False)

    def rolled_back(self, known: FleetState) -> None:
        """The controllers go on behind ``known``, in the same fleet: it was of now once (R7)."""
        del self._chain_at[known.index + 1 :]
        self._begin_again(known, is_copy=True)

    def _begin_again(self, known: FleetState | None, *, is_copy: bool) -> None:
        before, self.state = self.state, known
        self._leader_of_term.clear()
        self._orders = SwitchoverJudge(self.counts, known)
        self.policies.forget()
        for key, facts in self._sets.items():
            was = before.sets.get(key) if before is not None else None
            then = known.sets.get(key) if known is not None else None
            if is_copy and was is not None and then is not None and _version(was) == _version(then):
                # Of this set nothing was decided since: it goes on at once.
                facts.alters.clear()
                continue
            members = was.sync_state_set if was is not None else ()
            suspects = [one.broker_id for one in was.replicas if one.is_suspect] if was is not None else []
            facts.alters.clear()
            if facts.watch is not None:
                # Forgotten again before anybody was elected: what was owed then is still owed.
                members, suspects = facts.watch.members, sorted(facts.watch.doubtful)
            facts.watch = Watch(
                known=then.sync_state_set if then is not None else (),
                members=members,
                suspects=tuple(suspects),
                epoch_max=max(facts.elections, default=MasterEpoch(0)),
                has_acked=bool(facts.acked),
                is_of_a_copy=is_copy,
                kept_out=(then.kept_out or ()) if then is not None else (),
                set_epoch=was.sync_state_set_epoch if was and then and was.master_epoch == then.master_epoch else None,
            )

    def leads(self, controller: str, term: int) -> None:
        """I8: one controller leads in a Raft term; this one says that it does."""
        if term not in self._leader_of_term:
            self.counts.add("raft terms")
        known = self._leader_of_term.setdefault(term, controller)
        if known != controller:
            raise Violation(f"Raft: {known} and {controller} both lead in term {term}")

    def _event(self, record: EventRecord) -> None:
        event, key = record.event, record.set_key
        self.kernel.note(f"{record.term}.{record.index}.{record.ordinal} {describe(record)}")
        if isinstance(event, ElectionsPaused):
            self.counts.add("pauses of elections")
        elif isinstance(event, ElectionsResumed) and event.is_expired:
            self.counts.add("pauses of elections ended by their time")
        elif isinstance(event, ElectionWithheld):
            self.counts.add("elections withheld")
        elif isinstance(event, MaintenanceBegun):
            self.counts.add("maintenances")
        elif isinstance(event, MaintenanceEnded) and event.is_expired:
            self.counts.add("maintenances ended by their time")
        elif isinstance(event, SettingsApplied):
            self.counts.add("versions of settings")
        elif isinstance(event, SetConfigured):
            self.counts.add("numbers of sets changed")
        if key is None:
            return
        if key == self.rocketmq.key:
            self.rocketmq.happened(event)
            return
        self._orders.applied(key, event)
        facts = self.facts(key)
        if isinstance(event, MasterElected | SyncStateSetAltered):
            facts.left_as_learners.clear()
        if isinstance(event, MasterElected):
            self._elected(key, facts, event)
        elif isinstance(event, MasterEntered):
            self._entered(key, facts, event)
        elif isinstance(event, LossGraded):
            self._graded(key, facts, event.verdict)
        elif isinstance(event, SyncStateSetAltered):
            self.counts.add("alters accepted")
            self._altered(key, facts, event)
        elif isinstance(event, AlterRefused):
            self.counts.add("alters refused")
        elif isinstance(event, ReplicaRegistered):
            self.counts.add(f"restarts {event.intactness.value}")
            facts.judged.add(event.incarnation)
            if event.description.is_learner:
                facts.left_as_learners.add(event.broker_id)
            disk = self._disk_of(key, event.broker_id)
            has_lost = bool(disk.lost_bytes) or disk.was_replaced
            # Bytes that a set which syncs loses with the power were acked by nobody.
            is_copy = disk.was_replaced and event.intactness is Intactness.SYNC_FLUSH
            # An unclean election, or a loss of memory, since a volume was put back: what it lacks is known to nobody.
            set_state = self.state.sets[key] if self.state is not None else None
            is_found = not disk.has_old_births or (
                set_state is not None and event.positions.max_offset < set_state.known_confirm
            )
            # One that is out of the set already may be intact since: it was judged in the life before, whose process died
            # before it heard so.
            is_found = is_found and event.broker_id in event.sync_state_set
            # A process that has ended spoke of the disk that it had; its successor, which is judged next, has this one.
            is_of_this_disk = self.incarnation_of(key, event.broker_id) == event.incarnation
            is_found = is_found and is_of_this_disk
            is_proven = event.intactness in (Intactness.SAME_BOOT, Intactness.CLEAN_STOP)
            if is_found and (is_copy or (has_lost and is_proven)):
                raise Violation(
                    f"R3: {event.broker_id} is called {event.intactness.value}, its log lost {disk.lost_bytes} bytes"
                )
            if disk.was_replaced and event.intactness in (Intactness.NOT_INTACT, Intactness.SUSPECT):
                self.counts.add("copies of brokers found to be old")
                self.counts.add("volumes found to be old", int(disk.has_old_births))
            if facts.watch is not None:
                facts.watch.registered(event, has_lost=has_lost)
                if facts.watch.is_over_with(event):
                    self.counts.add("judgements lost with a copy and made again")
                    facts.watch = None
            if is_of_this_disk:
                # What its disk lost before is judged now: from here on the replica answers for what it holds.
                disk.lost_bytes, disk.was_replaced, disk.has_failed_sync = 0, False, False
        elif isinstance(event, ReplicasCleaned):
            self.counts.add("ids cleaned", len(event.broker_ids))
            if facts.watch is not None:
                facts.watch.cleaned(event.broker_ids)
        elif isinstance(event, CommandRefused):
            self.counts.add("refusals")
            if "internal fault" in event.reason:
                raise Violation(f"apply: {event.reason} in {event.command}")

    def _back(self, before: FleetState, record: EventRecord) -> None:
        """A replica is heard again; of a master that nobody has succeeded that is what it was awaited for (R13)."""
        event, state = record.event, before.sets.get(record.set_key) if record.set_key is not None else None
        if isinstance(event, ReplicaAlive | SessionOpened) and state is not None and state.master == event.broker_id:
            replica = state.replica(event.broker_id)
            is_silent = replica is not None and not replica.is_alive
            self.counts.add("silent masters heard again and kept", int(is_silent))

    def _are_members_for_good(self, key: SetKey, members: Iterable[tuple[BrokerId, Incarnation]]) -> None:
        for member, incarnation in members:
            # One that lost its power, or got an older disk, behind the election, which does not know of it yet, is
            # harmed still; also if it has started since.
            if self.incarnation_of(key, member) == incarnation:
                disk = self._disk_of(key, member)
                disk.was_harmed = disk.has_failed_sync

    def _elected(self, key: SetKey, facts: SetFacts, event: MasterElected) -> None:
        self.counts.add("elections")
        self.counts.add(f"elections {event.verdict.kind.value}")
        if event.master_epoch in facts.elections:
            raise Violation(f"C2: masterEpoch {event.master_epoch} was given out twice")
        evidence, verdict = event.evidence, event.verdict
        if (evidence.master_epoch, evidence.sync_state_set_epoch) != (
            verdict.previous_epoch,
            verdict.previous_set_epoch,
        ):
            raise Violation(
                f"R14: epoch {event.master_epoch} was decided on evidence of {evidence.master_epoch}/"
                f"{evidence.sync_state_set_epoch}, the set was at {verdict.previous_epoch}/{verdict.previous_set_epoch}"
            )
        if verdict.kind is ElectionKind.FIRST and len(event.sync_state_set) != self._expected_replicas:
            raise Violation(
                f"R8: the first set is {event.sync_state_set}, expected were {self._expected_replicas} replicas"
            )
        if facts.watch is not None:
            broken = facts.watch.broken_by(event)
            if broken is not None:
                raise Violation(broken)
            self.counts.add("elections after a loss of memory")
            self.counts.add("elections by controllers that were put back", int(facts.watch.is_of_a_copy))
            facts.may_lose = facts.watch.may_lose
            facts.forgot_a_loss |= facts.may_lose and verdict.kind is not ElectionKind.UNCLEAN
        if facts.watch is not None or verdict.kind in (ElectionKind.FIRST, ElectionKind.UNCLEAN):
            # From here on its log is by definition what there is.
            self._are_members_for_good(key, event.bound_incarnations)
        facts.watch = None
        facts.elections[event.master_epoch] = Won(kind=event.verdict.kind, master=event.master)

    def _altered(self, key: SetKey, facts: SetFacts, event: SyncStateSetAltered) -> None:
        """C7: an accepted alter was a compare-and-set on exactly the version before."""
        verdict = event.verdict
        command = facts.alters.get((verdict.master_epoch, verdict.seq))
        if command is not None:
            self._are_members_for_good(key, ((member.broker_id, member.incarnation) for member in command.joining))
        if command is not None and command.sync_state_set_epoch + 1 != verdict.sync_state_set_epoch:
            raise Violation(
                f"C7: alter {verdict.master_epoch}/{verdict.seq} was proposed on version {command.sync_state_set_epoch} "
                f"and made version {verdict.sync_state_set_epoch}"
            )

    def _entered(self, key: SetKey, facts: SetFacts, event: MasterEntered) -> None:
        """D9, and I1, released(E) <= start(E') in clean elections: what was acknowledged is in the new master's log."""
        self.counts.add("epochs entered")
        start = event.start_offset
        assert start is not None, "our own brokers say where their epoch begins"
        disk = self._disk_of(key, event.broker_id)
        lost = facts.lacking(disk)
        facts.lost_bytes[event.master_epoch] = len(lost) * RECORD_BYTES
        kind = facts.elections[event.master_epoch].kind
        is_forgiven, facts.may_lose = kind is ElectionKind.UNCLEAN or facts.may_lose, False
        if lost and not is_forgiven:
            raise Violation(
                f"D9: {kind.value} election of {event.broker_id} in epoch {event.master_epoch} lost {len(lost)} acknowledged "
                f"messages, the first is {lost[0]}; its log ends at {start}"
            )
        if not is_forgiven:
            for epoch, released in facts.released.items():
                if epoch < event.master_epoch and released > start:
                    raise Violation(f"released({epoch}) = {released} > start({event.master_epoch}) = {start}")
        for acked in lost:
            self.counts.add("acknowledged messages lost in unclean elections")
            facts.forgiven[acked.value] = facts.acked.pop(acked.value)
        if is_forgiven:
            # Its tail has a try of before, which was never acknowledged; the one that was went with the other log.
            ends = {record.value: record.end for record in disk.records()}
            for acked in [one for one in facts.acked.values() if one.end and ends.get(one.value, one.end) != one.end]:
                self.counts.add("acknowledged messages at another place after unclean elections")
                facts.forgiven[acked.value] = facts.acked.pop(acked.value)
            facts.forgave[event.master_epoch] = None
            facts.released = {epoch: min(released, start) for epoch, released in facts.released.items()}
        facts.reads.entered(event.master_epoch, disk, is_forgiven=is_forgiven)
        self._grade_holds(facts, event.master_epoch)

    def _graded(self, key: SetKey, facts: SetFacts, verdict: LossVerdict) -> None:
        self.counts.add(f"graded {verdict.grade.value}")
        facts.grades[verdict.master_epoch] = verdict
        self._grade_holds(facts, verdict.master_epoch)

    def _grade_holds(self, facts: SetFacts, epoch: MasterEpoch) -> None:
        """I3: a failover that is graded proven lost nothing, one that is bounded at most its bound."""
        verdict, lost = facts.grades.get(epoch), facts.lost_bytes.get(epoch)
        if verdict is None or lost is None:
            return
        if verdict.grade is Grade.PROVEN and lost > 0:
            raise Violation(f"promise 1: epoch {epoch} is graded proven and lost {lost} acknowledged bytes")
        if verdict.grade is Grade.BOUNDED and lost > (verdict.bound_bytes or 0):
            raise Violation(
                f"promise 1: epoch {epoch} is bounded by {verdict.bound_bytes} and lost {lost} acknowledged bytes"
            )
        if verdict.grade is Grade.REFUTED and lost == 0:
            self.counts.add("refuted without a loss")

    # --- brokers ---

    def epoch_recorded(self, key: SetKey, broker_id: BrokerId | None, epoch: MasterEpoch, start: LogOffset) -> None:
        """D2: one start per epoch over all disks, for ever."""
        known = self.facts(key).starts.setdefault(epoch, start)
        if known != start:
            raise Violation(f"D2: epoch {epoch} starts at {known}, replica {broker_id} recorded {start}")

    def became_master(self, key: SetKey, broker_id: BrokerId, incarnation: str, epoch: MasterEpoch) -> None:
        """I4: one master per masterEpoch, for ever, and mastership belongs to (id, incarnation)."""
        known = self.facts(key).entered.setdefault(epoch, (broker_id, incarnation))
        if known != (broker_id, incarnation):
            raise Violation(f"promise 2: {known} and {(broker_id, incarnation)} are both master in epoch {epoch}")

    def _committed(self, key: SetKey) -> SetState | None:
        """Of a set that the controllers have not forgotten: put back, they know an older one until brokers tell them (R7)."""
        state = self.state.sets.get(key) if self.state is not None else None
        return None if state is None or state.recovery is not None or self.facts(key).watch is not None else state

    def required_set(self, key: SetKey, broker_id: BrokerId, epoch: MasterEpoch, required: SyncStateSet) -> None:
        """D7: as long as a master goes on, the committed set of its epoch is within what it waits for."""
        state = self._committed(key)
        if state is None or state.master != broker_id or state.master_epoch != epoch:
            return
        if not set(state.sync_state_set) <= set(required):
            raise Violation(
                f"D7: committed set {state.sync_state_set} of epoch {epoch} is not within {required} that master {broker_id} requires"
            )

    def sent(self, key: SetKey, value: int) -> None:
        """A client began to send ``value``."""
        self.facts(key).sent[value] = None

    def released(self, key: SetKey, end: LogOffset, epoch: MasterEpoch, in_sync_min: int) -> None:
        """
        D8, at the master, when it answers PUT_OK: every member of the committed set holds the message.

        A member whose host lost its tail since it registered still counts as member until it registers again: it is
        exempt if its disk is known to have lost something.
        """
        facts = self.facts(key)
        facts.released[epoch] = max(facts.released.get(epoch, LogOffset(0)), end)
        state = self._committed(key)
        if state is None or state.master_epoch < epoch:
            return
        if state.master_epoch > epoch:
            self._released_late(key, facts, state, end, epoch)
            return
        # Who fell, or became a learner, since the acks came has done its part: the master cannot know of it yet (R3, R23).
        if len({*state.sync_state_set, *state.fallen, *facts.left_as_learners}) < in_sync_min:
            raise Violation(f"D8: {end} released with SyncStateSet {state.sync_state_set}, min_in_sync {in_sync_min}")
        for member in state.sync_state_set:
            disk = self._disk_of(key, member)
            if disk.lost_bytes or disk.was_replaced:
                continue
            if disk.size() < end:
                raise Violation(
                    f"D8: {end} released in epoch {epoch}, member {member} of {state.sync_state_set} ends at {disk.size()}"
                )

    def _released_late(self, key: SetKey, facts: SetFacts, state: SetState, end: LogOffset, epoch: MasterEpoch) -> None:
        """I2: a master that does not know of its successor may release only what the successor holds and keeps."""
        self.counts.add("releases after a successor's election")
        if facts.may_lose or any(facts.could_lose(at) for at in facts.elections if at > epoch):
            return
        for later, start in facts.starts.items():
            if later > epoch and end > start:
                raise Violation(
                    f"released({epoch}) = {end} > start({later}) = {start}: released after its successor began"
                )
        if state.master is not None:
            disk = self._disk_of(key, state.master)
            if not disk.lost_bytes and not disk.was_replaced and disk.size() < end:
                raise Violation(
                    f"D8: {end} released in epoch {epoch}, its successor {state.master} ends at {disk.size()}"
                )

    def legal(self, key: SetKey, offset: LogOffset, epoch: MasterEpoch) -> None:
        """The master of ``epoch`` told a consumer to go on at ``offset``: nobody may refuse it, unless it was lost."""
        facts = self.facts(key)
        if not facts.may_lose and not any(facts.could_lose(later) for later in facts.elections if later > epoch):
            facts.legal = max(facts.legal, offset)

    def pulled(
        self, key: SetKey, epoch: MasterEpoch, offset: LogOffset, *, is_legal: bool, max_offset: LogOffset
    ) -> None:
        """
        D11, R19: the master of ``epoch`` answers a consumer that asks for ``offset``.

        A loss that was announced makes the law begin anew. A master that was replaced and does not know it cannot tell
        what its successor confirmed.
        """
        facts = self.facts(key)
        if epoch < max(facts.elections, default=MasterEpoch(0)):
            self.counts.add("pulls answered by a replaced master")
            return
        losses = sum(map(facts.could_lose, facts.elections)) + len(facts.forgave) + facts.may_lose
        if losses != facts.losses:
            facts.legal, facts.losses = LogOffset(0), losses
        if offset <= facts.legal:
            self.counts.add("pulls of legal offsets")
            if not is_legal or max_offset < offset:
                raise Violation(
                    f"R19: the master of epoch {epoch} calls {offset} illegal, its max offset is {max_offset}; consumers were sent to {facts.legal}"
                )

    def slave_gave(
        self,
        key: SetKey,
        name: str,
        epoch: MasterEpoch,
        end: LogOffset,
        records: Sequence[Given] = (),
        *,
        is_member: bool,
    ) -> None:
        """A slave in ``epoch`` would answer readers up to ``end``, and gives one of them ``records``."""
        facts, state = self.facts(key), self._committed(key)
        facts.reads.gave(
            name,
            end,
            records,
            is_member=is_member,
            committed=state.sync_state_set if state is not None and state.master_epoch == epoch else (),
            disk_of=lambda member: self._disk_of(key, member),
            is_forgiven=facts.may_lose or any(facts.could_lose(at) for at in facts.elections if at > epoch),
        )

    def proposed_alter(self, command: AlterSyncStateSet, start: LogOffset) -> None:
        """D12: who joins has every byte that was acknowledged, and the whole past of the epoch's start."""
        facts = self.facts(command.set_key)
        facts.alters[command.master_epoch, command.seq] = command
        unclean = max(filter(facts.could_lose, facts.elections), default=MasterEpoch(0))
        kept = [end for epoch, end in facts.released.items() if unclean <= epoch <= command.master_epoch]
        if facts.may_lose:
            # Elected out of replicas that had lost something, and not yet entered: the oracle has still to forgive.
            kept = []
        needed = max([start, *kept])
        state = self.state.sets.get(command.set_key) if self.state is not None else None
        for member in command.joining:
            disk = self._disk_of(command.set_key, member.broker_id)
            replica = state.replica(member.broker_id) if state is not None else None
            living = self.incarnation_of(command.set_key, member.broker_id)
            if replica is not None and replica.incarnation != member.incarnation:
                # Of a process that has ended since, and has a judged successor: the controllers refuse it.
                continue
            if living != member.incarnation and living in facts.judged:
                # The judged successor is among the entries that controllers lost when they were put back: it registers again.
                self.counts.add("alters for a process that has ended, its successor forgotten")
                continue
            if not disk.lost_bytes and not disk.was_replaced and disk.size() < needed:
                raise Violation(
                    f"D12: {member.broker_id} is to join in epoch {command.master_epoch} with {disk.size()} of {needed} bytes"
                )

    def recovered(self, key: SetKey, name: str, last_start: LogOffset, end: LogOffset) -> None:
        """D1: no epoch begins beyond the end of the log (W5)."""
        if last_start > end:
            raise Violation(
                f"D1: {name} of {key} recovered with an epoch that starts at {last_start}, its log ends at {end}"
            )

    def marks_written(self, name: str, before: EpochMarks, after: EpochMarks) -> None:
        """I5: marks never fall (R9)."""
        if not after.covers(before):
            raise Violation(f"R9: {name} replaces its marks {before} by {after}")

    def link_ready(self, name: str, marks: EpochMarks, epoch: MasterEpoch) -> None:
        """I5: the promise is durable before the first ack (R9)."""
        if marks.promised < epoch:
            raise Violation(f"R9: {name} acks in epoch {epoch}, its durable promise is {marks.promised}")

    def reign_prepared(self, name: str, start: LogOffset, end: LogOffset) -> None:
        """I6: the epoch starts at the end of the log (R12)."""
        if start != end:
            raise Violation(f"R12: {name} begins its epoch at {start}, its log ends at {end}")

    def acknowledged(self, key: SetKey, value: int, end: LogOffset, place: int | None) -> None:
        """A client heard PUT_OK."""
        facts = self.facts(key)
        self.counts.add("messages acked")
        facts.acked[value] = Acked(value=value, end=end, place=place)

    def deleted(self, key: SetKey, records: Iterable[Record]) -> None:
        """A replica has lost these to a full disk, rightfully: a log that begins behind them may lack them from now on."""
        facts = self.facts(key)
        for record in records:
            facts.aged.setdefault(record.value, record.end)

    # --- the end ---

    def converged(self, key: SetKey, disks: list[tuple[BrokerId, ReplicaDisk]]) -> str | None:
        """I7: why the replicas of a set do not yet hold the same; None = they do, with everything acknowledged, once."""
        facts = self.facts(key)
        first_id, first = disks[0]
        start = max(disk.begin() for _, disk in disks)
        for broker_id, disk in disks[1:]:
            ours, theirs = _log_and_epochs(first, start), _log_and_epochs(disk, start)
            for name, one, other in zip(("log", "epochs"), ours, theirs, strict=True):
                if one != other:
                    return f"{name} of {first_id} ({len(one)} bytes) and {broker_id} ({len(other)} bytes) differ"
        held: dict[int, Record] = {}
        records = first.records()
        deliveries, waiting = look_at_deliveries(first.name, records, start=first.begin())
        if missing := waiting.keys() - {record.delivers for record in deliveries}:
            return f"{len(waiting)} messages were delayed, {len(missing)} of them are not delivered"
        for record in records:
            if record.delivers:
                continue
            if record.value in held:
                raise Violation(f"R18: message {record.value} ends at {held[record.value].end} and at {record.end}")
            held[record.value] = record
        for broker_id, disk in disks:
            if lost := facts.lacking(disk):
                raise Violation(
                    f"lost: {len(lost)} messages are not in the log of {broker_id} at the end, as {lost[0]}"
                )
        for acked in facts.acked.values():
            if acked.value not in held:
                continue  # it went with the front of the log
            record = held[acked.value]
            if acked.end and record.end != acked.end:
                raise Violation(f"moved: {acked} ends at {record.end}")
            if record.is_queued and acked.place not in (None, record.queue_offset):
                raise Violation(f"I11: {acked} has the place {record.queue_offset} of its queue")
        for value in held:
            if value not in facts.sent:
                raise Violation(f"invented: message {value} was never sent")
        count_deliveries(self.counts, first.history(), deliveries, waiting)
        return None


def _version(state: SetState) -> tuple[int, int]:
    return state.master_epoch, state.sync_state_set_epoch


def _log_and_epochs(disk: ReplicaDisk, start: int) -> tuple[bytes, bytes]:
    """Both files; without an epoch that has no byte yet: followers record it with its first one (R9)."""
    end = disk.size()
    epochs = disk.history().truncated_suffix(LogOffset(end)).truncated_prefix(LogOffset(start))
    return disk.read_at(start, max(end - start, 0)), encode_history(epochs)


def describe(record: EventRecord) -> str:
    """One line of a story."""
    event = record.event
    name = type(event).__name__
    if isinstance(event, MasterElected):
        return f"{name} {event.master} epoch {event.master_epoch} set {event.sync_state_set} {event.verdict.kind.value}"
    if isinstance(event, MasterEntered):
        return f"{name} {event.broker_id} epoch {event.master_epoch} start {event.start_offset}"
    if isinstance(event, SyncStateSetAltered | AlterRefused):
        verdict = event.verdict
        return (
            f"{name} {verdict.master_epoch}/{verdict.seq} -> {verdict.sync_state_set} at {verdict.sync_state_set_epoch}"
        )
    if isinstance(event, ReplicaRegistered):
        return f"{name} {event.broker_id} {event.intactness.value} set {event.sync_state_set}"
    if isinstance(event, CommandRefused):
        return f"{name} {event.command} {event.code.name}"
    if isinstance(event, LossGraded):
        return f"{name} epoch {event.verdict.master_epoch} {event.verdict.grade.value}"
    broker_id = getattr(event, "broker_id", "")
    return f"{name} {broker_id}"
