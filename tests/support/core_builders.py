"""
A small fleet to drive the controller's core with: sends operations entry by entry and checks the invariants after each.

Here: ``Fleet``, with a verb per command and evidence gathered from the state as a leader would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    Bootstrap,
    CleanReplicas,
    ElectMaster,
    ElectUnclean,
    InitialiseFleet,
    MarkAlive,
    MarkSilent,
    Operation,
    RaiseFeatureLevel,
    RecordMilestones,
    RegisterReplica,
    ReportEntered,
    SayGoodbye,
)
from rollcall_ha.controller.contract.events import AnyEvent, EventRecord, chain_of
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    ReplicaKind,
    RequestId,
    SessionOrdinal,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.replies import AnyReply, Refused
from rollcall_ha.controller.contract.values import (
    CleanMark,
    DetectionStamps,
    Evidence,
    Joining,
    Milestone,
    Positions,
    ReplicaDescription,
    ReplicaEvidence,
    SetConfiguration,
    SilenceCause,
    StoredView,
)
from rollcall_ha.controller.core.apply import Applied, apply_operations
from rollcall_ha.controller.core.invariants import check_state, check_transition
from rollcall_ha.controller.core.state import EMPTY_FLEET, FleetState, ReplicaState, SetState

SET_A = SetKey(cluster=ClusterName("c"), name=BrokerName("broker-a"))
SET_B = SetKey(cluster=ClusterName("c"), name=BrokerName("broker-b"))
FLEET = FleetIncarnation("f" * 32)
OLD_FLEET = FleetIncarnation("0" * 32)
THREE = SetConfiguration(expected_replicas=3)
NOTHING = Positions(last_epoch=MasterEpoch(-1), max_offset=LogOffset(0), confirm_offset=LogOffset(0))

R = TypeVar("R")
E = TypeVar("E")


def positions(
    end: int, *, epoch: int = 1, confirm: int = 0, released: int = 0, confirm_epochs: tuple[int, ...] | None = None
) -> Positions:
    """What a replica holds; it does not say in which epochs its last confirmed byte is, but for ``confirm_epochs``."""
    return Positions(
        last_epoch=MasterEpoch(epoch),
        max_offset=LogOffset(end),
        confirm_offset=LogOffset(confirm),
        released=LogOffset(released),
        confirm_epochs=UNSET if confirm_epochs is None else tuple(map(MasterEpoch, confirm_epochs)),
    )


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    """A SyncStateSet."""
    return tuple(BrokerId(number) for number in numbers)


def stored(epoch: int, set_epoch: int, *members: int, fleet: FleetIncarnation = OLD_FLEET) -> StoredView:
    """What a replica kept of an earlier control plane."""
    return StoredView(
        fleet_incarnation=fleet,
        master_epoch=MasterEpoch(epoch),
        sync_state_set_epoch=SyncStateSetEpoch(set_epoch),
        sync_state_set=ids(*members),
    )


class Fleet:
    """Applies one operation per entry and keeps every record. Every step is checked against the invariants."""

    def __init__(self, *, key: SetKey = SET_A, is_initialised: bool = True) -> None:
        self.term = 1
        self.passed_ms = 0
        """Added to the stamps of entries, which otherwise follow each other by a millisecond."""
        self.state: FleetState = EMPTY_FLEET
        self.key = key
        self.records: list[EventRecord] = []
        self.entries: list[tuple[Operation, ...]] = []
        self.index = 0
        self.requests = 0
        self.last = Applied(state=self.state, replies=(), records=())
        if is_initialised:
            self.found()

    def found(self) -> None:
        """Begin the fleet, at the newest level, in one entry."""
        self.apply(
            [
                self.operation(InitialiseFleet(fleet_incarnation=FLEET)),
                self.operation(RaiseFeatureLevel(level=FEATURE_LEVEL)),
            ]
        )

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def set(self) -> SetState:
        """The set under test."""
        return self.state.sets[self.key]

    def replica(self, broker_id: int) -> ReplicaState:
        """One of its replicas."""
        found = self.set.replica(BrokerId(broker_id))
        assert found is not None
        return found

    @property
    def events(self) -> list[AnyEvent]:
        """Events of the last entry."""
        return [record.event for record in self.last.records]

    def event(self, kind: type[E]) -> E:
        """The one event of this kind in the last entry."""
        found = [event for event in self.events if isinstance(event, kind)]
        assert len(found) == 1, self.events
        return found[0]

    # --- applying ----------------------------------------------------------------------------------------------------

    def operation(
        self,
        command: AnyCommand,
        *,
        evidence: Evidence | None = None,
        request_id: str | None = None,
        version: int | None = None,
        requested_by: str = "controller:c1",
        stamped_at_ms: int | None = None,
        principal: Principal | None = None,
    ) -> Operation:
        """An operation with a request id of its own; ``version`` None: the level of the fleet."""
        self.requests += 1
        return Operation(
            version=self.state.feature_level if version is None else version,
            request_id=RequestId(request_id or f"r{self.requests}"),
            stamped_at_ms=1_000_000 + self.passed_ms + self.index if stamped_at_ms is None else stamped_at_ms,
            requested_by=requested_by,
            command=command,
            evidence=evidence,
            principal=principal,
        )

    def apply(self, operations: Iterable[Operation]) -> Applied[FleetState]:
        """Apply one entry; no invariant may break."""
        before = self.state
        self.index += 1
        entry = tuple(operations)
        self.entries.append(entry)
        self.last = apply_operations(before, entry, term=self.term, index=self.index)
        assert self.last.stop_reason is None, self.last.stop_reason
        self.state = self.last.state
        self.records.extend(self.last.records)
        broken = (*check_state(self.state), *check_transition(before, self.state, self.last.records))
        assert broken == (), broken
        return self.last

    def do(
        self,
        command: AnyCommand,
        *,
        evidence: Evidence | None = None,
        request_id: str | None = None,
        by: Principal | None = None,
    ) -> AnyReply:
        """Apply one command in an entry of its own, as asked ``by`` somebody."""
        operation = self.operation(command, evidence=evidence, request_id=request_id, principal=by)
        return self.apply([operation]).replies[0]

    def want(self, reply: AnyReply, kind: type[R]) -> R:
        """``reply`` as ``kind``, or a failure that shows it."""
        assert isinstance(reply, kind), reply
        return reply

    # --- verbs -------------------------------------------------------------------------------------------------------

    def grant(self, code: str = "code-1", *, applied: int | None = None) -> AnyReply:
        """Ask for an id."""
        return self.do(
            ApplyBrokerId(
                set_key=self.key,
                register_code=RegisterCode(code),
                address="10.0.0.1:911",
                applied_broker_id=None if applied is None else BrokerId(applied),
            )
        )

    def registration(
        self,
        broker_id: int,
        *,
        incarnation: str | None = None,
        holds: Positions = NOTHING,
        boot: str = "boot-1",
        store: str | None = None,
        configuration: SetConfiguration = THREE,
        kind: ReplicaKind = ReplicaKind.NATIVE,
        zone: str = "",
        priority: int = 100,
        is_learner: bool = False,
        mark: CleanMark | None = None,
        view: StoredView | None = None,
        code: str | None = None,
        lives: tuple[str, ...] | None = None,
    ) -> RegisterReplica:
        """The registration of one replica, made against what is registered now; ``lives`` None: it knows that one."""
        replica = self.state.sets[self.key].replica(BrokerId(broker_id)) if self.key in self.state.sets else None
        registered = replica.registered_as if replica is not None else None
        known = () if registered is None else (registered.incarnation,)
        return RegisterReplica(
            set_key=self.key,
            broker_id=BrokerId(broker_id),
            register_code=RegisterCode(code or f"code-{broker_id}"),
            incarnation=Incarnation(incarnation or f"i{broker_id}.1"),
            boot_id=boot,
            store_id=f"store-{broker_id}" if store is None else store,
            description=ReplicaDescription(
                address=f"10.0.0.{broker_id}:911",
                ha_address=f"10.0.0.{broker_id}:912",
                kind=kind,
                zone=zone,
                priority=priority,
                is_learner=is_learner,
            ),
            configuration=configuration,
            positions=holds,
            clean_mark=mark,
            stored=view,
            replaces=registered,
            previous_incarnations=known if lives is None else tuple(map(Incarnation, lives)),
        )

    def evidence(
        self,
        ends: Mapping[int, Positions] | None = None,
        *,
        unready: tuple[int, ...] = (),
        unheard: tuple[int, ...] = (),
        draw: int = 0,
        detection: DetectionStamps | None = None,
        confirmed: int | None = None,
    ) -> Evidence:
        """
        Evidence that a leader would gather now; ``ends`` replaces those that replicas registered with.

        ``confirmed``: members had told of it before each of them told its end.
        """
        ends = ends or {}
        known = UNSET if confirmed is None else LogOffset(confirmed)
        return Evidence(
            read_at_index=self.index,
            master_epoch=self.set.master_epoch,
            sync_state_set_epoch=self.set.sync_state_set_epoch,
            replicas=tuple(
                replace(
                    _evidence_of(replica, ends.get(replica.broker_id), is_ready=replica.broker_id not in unready),
                    confirmed_before=known,
                )
                for replica in self.set.replicas
                if replica.is_registered and replica.broker_id not in unheard
            ),
            detection=detection,
            epoch_jump_draw=draw,
            confirmed=known,
        )

    def elect(self, to: int | None = None, *, evidence: Evidence | None = None, **expected: int) -> AnyReply:
        """Elect by policy."""
        return self.do(
            ElectMaster(
                set_key=self.key,
                to=None if to is None else BrokerId(to),
                expected_epoch=MasterEpoch(expected["epoch"]) if "epoch" in expected else None,
                expected_master=BrokerId(expected["master"]) if "master" in expected else None,
            ),
            evidence=evidence or self.evidence(),
        )

    def elect_unclean(self, loss: int, to: int | None = None, *, evidence: Evidence | None = None) -> AnyReply:
        """Elect by the unclean verb."""
        return self.do(
            ElectUnclean(set_key=self.key, accepted_loss_bytes=loss, to=None if to is None else BrokerId(to)),
            evidence=evidence or self.evidence(),
        )

    def bootstrap(self, master: int, *, evidence: Evidence | None = None) -> AnyReply:
        """First election by an operator's word."""
        return self.do(Bootstrap(set_key=self.key, master=BrokerId(master)), evidence=evidence or self.evidence())

    def enter(self, start: int = 0, *, acked: int = 0, is_mode_confirmed: bool = True) -> AnyReply:
        """The recorded master enters its epoch."""
        assert self.set.master is not None
        assert self.set.master_incarnation is not None
        return self.do(
            ReportEntered(
                set_key=self.key,
                broker_id=self.set.master,
                incarnation=self.set.master_incarnation,
                master_epoch=self.set.master_epoch,
                start_offset=LogOffset(start),
                acked_end_max=LogOffset(acked),
                is_mode_confirmed=is_mode_confirmed,
            )
        )

    def alter(self, *members: int, seq: int = 1) -> AlterSyncStateSet:
        """The alter that the recorded master would send now."""
        assert self.set.master is not None
        assert self.set.master_incarnation is not None
        added = [member for member in members if member not in self.set.sync_state_set]
        return AlterSyncStateSet(
            set_key=self.key,
            broker_id=self.set.master,
            incarnation=self.set.master_incarnation,
            master_epoch=self.set.master_epoch,
            seq=seq,
            sync_state_set_epoch=self.set.sync_state_set_epoch,
            new_set=ids(*members),
            joining=tuple(
                Joining(broker_id=BrokerId(member), incarnation=self.replica(member).incarnation or Incarnation(""))
                for member in added
            ),
        )

    def silence(
        self,
        broker_id: int,
        cause: SilenceCause = SilenceCause.TIMEOUT,
        *,
        detection: DetectionStamps | None = None,
    ) -> AnyReply:
        """The leader finds a replica gone."""
        replica = self.replica(broker_id)
        assert replica.incarnation is not None
        return self.do(
            MarkSilent(
                set_key=self.key,
                broker_id=replica.broker_id,
                incarnation=replica.incarnation,
                session_ordinal=replica.session_ordinal,
                cause=cause,
                detection=detection,
            )
        )

    def revive(self, broker_id: int) -> AnyReply:
        """A silent replica is heard again."""
        replica = self.replica(broker_id)
        assert replica.incarnation is not None
        return self.do(
            MarkAlive(
                set_key=self.key,
                broker_id=replica.broker_id,
                incarnation=replica.incarnation,
                session_ordinal=replica.session_ordinal,
            )
        )

    def goodbye(self, broker_id: int, *, end: int = 0, nonce: str = "n") -> CleanMark:
        """A replica stops cleanly; returns its mark."""
        replica = self.replica(broker_id)
        assert replica.incarnation is not None
        mark = CleanMark(nonce=nonce, end_offset=LogOffset(end))
        self.do(
            SayGoodbye(
                set_key=self.key,
                broker_id=replica.broker_id,
                incarnation=replica.incarnation,
                session_ordinal=replica.session_ordinal,
                clean_mark=mark,
            )
        )
        return mark

    def clean(self, *broker_ids: int, is_unclean: bool = False) -> AnyReply:
        """Remove replicas, or the set."""
        return self.do(CleanReplicas(set_key=self.key, broker_ids=ids(*broker_ids), is_unclean=is_unclean))

    def milestones(self, *milestones: Milestone) -> AnyReply:
        """Put milestones on record."""
        return self.do(RecordMilestones(set_key=self.key, milestones=milestones))

    # --- ready-made situations ---------------------------------------------------------------------------------------

    def joined(self, *broker_ids: int, configuration: SetConfiguration = THREE, **rest: object) -> Fleet:
        """Replicas with ids and a first registration, logs empty."""
        for broker_id in broker_ids:
            self.grant(f"code-{broker_id}")
            self.do(replace(self.registration(broker_id, configuration=configuration), **_known(rest)))
        return self

    def serving(
        self, *, configuration: SetConfiguration = THREE, master: int = 1, replicas: tuple[int, ...] = (1, 2, 3)
    ) -> Fleet:
        """A set with a first master that has entered; all replicas are members."""
        self.joined(*replicas, configuration=configuration)
        self.elect(to=master)
        self.enter()
        return self

    def serving_java(self, configuration: SetConfiguration = THREE, *, replicas: tuple[int, ...] = (1, 2)) -> Fleet:
        """As ``serving``, of RocketMQ's replicas; whoever the policy prefers is master, and alone in its set."""
        for broker_id in replicas:
            self.grant(f"code-{broker_id}")
            self.do(self.registration(broker_id, kind=ReplicaKind.ROCKETMQ, configuration=configuration))
        self.elect()
        self.enter()
        return self


def _known(rest: Mapping[str, object]) -> dict[str, object]:
    return dict(rest)


def _evidence_of(replica: ReplicaState, holds: Positions | None, *, is_ready: bool) -> ReplicaEvidence:
    holds = holds or replica.positions or NOTHING
    assert replica.incarnation is not None
    return ReplicaEvidence(
        broker_id=replica.broker_id,
        incarnation=replica.incarnation,
        session_ordinal=SessionOrdinal(replica.session_ordinal),
        heartbeat_age_ms=100 if replica.is_alive else 5_000,
        is_ready=is_ready,
        last_epoch=holds.last_epoch,
        max_offset=holds.max_offset,
        confirm_offset=holds.confirm_offset,
        released=holds.released,
    )


def refusal(reply: AnyReply) -> Refused:
    """It is one."""
    assert isinstance(reply, Refused), reply
    return reply


def failed_over() -> list[EventRecord]:
    """First election, a failover, each with its start."""
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect(evidence=fleet.evidence({2: positions(900), 3: positions(1_000)}))
    fleet.enter(900)
    return fleet.records


def gone_and_back() -> list[EventRecord]:
    """Both slaves are found silent and come back, one after the other."""
    fleet = Fleet().serving()
    for broker_id in (2, 3):
        fleet.silence(broker_id)
        fleet.revive(broker_id)
    return fleet.records


def rechained(records: Sequence[EventRecord], chain: str = "") -> list[EventRecord]:
    """The same events with hashes that continue ``chain``, by somebody who knows how they are made."""
    made = []
    for record in records:
        chain = chain_of(chain, record)
        made.append(replace(record, chain=chain))
    return made
