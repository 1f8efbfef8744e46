"""
Random lives of a broker set, for the laws of the controller's core.

Here: ``lives``, a strategy of steps, and ``live``, which turns steps into operations against the state at hand, some of
them late, repeated or wrong. A step is five small integers: shrinking stays readable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    AnnounceStop,
    AnyCommand,
    ApplyBrokerId,
    ApplySettings,
    BeginMaintenance,
    Bootstrap,
    CleanReplicas,
    ConfigureSet,
    ElectMaster,
    ElectUnclean,
    EndMaintenance,
    EndSwitchover,
    ImportSet,
    IssueToken,
    LeaveMaster,
    MarkAlive,
    MarkSilent,
    NoteConfirms,
    Operation,
    OrderSwitchover,
    PauseElections,
    RecordMilestones,
    RegisterReplica,
    ReportDrained,
    ReportEntered,
    ReportWrites,
    ResumeElections,
    RevokeCertificate,
    RevokeToken,
    SayGoodbye,
)
from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    ReplicaKind,
    RequestId,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.settings import settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import (
    CleanMark,
    ImportedReplica,
    KnownConfirm,
    MaintenanceScope,
    Milestone,
    Phase,
    SetConfiguration,
    SilenceCause,
    StopReason,
    host_of,
)
from rollcall_ha.controller.core.register_codes import kept_code
from rollcall_ha.controller.core.state import ReplicaState, SetState
from rollcall_ha.controller.core.tokens import digest_of
from tests.support.core_builders import SET_A, Fleet, ids, positions, stored

Step = tuple[int, int, int, int, int]
"""(kind, replica, two free numbers, mischief)."""

KINDS = 35
"""How many makers there are."""
_NOBODY = Incarnation("nobody")
_FAR_MS = 2**50
_CODES = {kept_code(code): code for code in (RegisterCode(f"code-{number}") for number in range(8))}
"""The code behind what is kept of it."""


def lives(max_steps: int = 25) -> st.SearchStrategy[list[list[Step]]]:
    """Entries of one to three steps each."""
    small = st.integers(min_value=0, max_value=5)
    step = st.tuples(
        st.integers(min_value=0, max_value=KINDS - 1), small, small, small, st.integers(min_value=0, max_value=9)
    )
    return st.lists(st.lists(step, min_size=1, max_size=3), min_size=1, max_size=max_steps)


def live(fleet: Fleet, life: Sequence[Sequence[Step]]) -> Fleet:
    """Apply ``life`` entry by entry. Every entry is checked against the invariants by ``Fleet``."""
    for entry in life:
        fleet.apply([operation_of(fleet, step) for step in entry])
    return fleet


def settled() -> Fleet:
    """Where most lives begin: three replicas, a master that has entered."""
    return Fleet().serving()


def operation_of(fleet: Fleet, step: Step) -> Operation:
    """The operation that a step means against the present state; with mischief 0 an earlier one comes again."""
    kind, _, number, _, mischief = step
    if mischief == 0 and fleet.entries:
        past = fleet.entries[number * 7 % len(fleet.entries)][0]
        return past if number % 2 else replace(past, request_id=fleet.operation(past.command).request_id)
    makers = _MAKERS
    command = makers[kind % len(makers)](fleet, step)
    caller = _caller(step) if isinstance(command, ApplyBrokerId | RegisterReplica) else None
    needs_evidence = isinstance(
        command, ElectMaster | ElectUnclean | Bootstrap | AnnounceStop | ReportDrained | OrderSwitchover | LeaveMaster
    )
    if not needs_evidence or fleet.key not in fleet.state.sets:
        return fleet.operation(command, principal=caller)
    ends = {
        number + 1: positions(100 * ((number + step[2]) % 5), epoch=max(-1, fleet.set.master_epoch), confirm=step[3])
        for number in range(4)
    }
    evidence = fleet.evidence(
        ends if fleet.set.is_established else None,
        unready=(step[3],) if mischief == 1 else (),
        unheard=(step[2],) if mischief == 2 else (),
        draw=step[3],
    )
    if mischief == 3:
        evidence = replace(evidence, sync_state_set_epoch=evidence.sync_state_set_epoch + 1)
    # These two are no controller's: a pause withholds them from nobody.
    by = "admin:a" if isinstance(command, ElectUnclean | Bootstrap) else "controller:c1"
    return fleet.operation(command, evidence=evidence, requested_by=by)


def _set(fleet: Fleet) -> SetState:
    return fleet.state.sets.get(fleet.key) or SetState(set_key=fleet.key)


def _replica(fleet: Fleet, number: int) -> ReplicaState:
    found = _set(fleet).replica(BrokerId(number % 4 + 1))
    return found or ReplicaState(broker_id=BrokerId(number % 4 + 1), register_code=RegisterCode("none"), address="")


def _apply_id(fleet: Fleet, step: Step) -> AnyCommand:
    return ApplyBrokerId(
        set_key=fleet.key,
        register_code=RegisterCode(f"code-{step[1]}"),
        address="10.0.0.9:911",
        applied_broker_id=BrokerId(step[2]) if step[4] == 1 else None,
    )


def _register(fleet: Fleet, step: Step) -> AnyCommand:
    _, number, life, end, mischief = step
    replica = _replica(fleet, number)
    is_known = replica.register_code != "none"
    epoch = _set(fleet).master_epoch + (life if mischief == 1 else 0)
    mark = replica.goodbye if mischief != 2 else CleanMark(nonce="made up", end_offset=LogOffset(0))
    command = fleet.registration(
        replica.broker_id,
        code=_CODES.get(replica.register_code, replica.register_code) if is_known else None,
        incarnation=f"i{replica.broker_id}.{life}",
        boot=f"boot-{life // 3}",
        holds=positions(100 * end if _set(fleet).is_established else 0, epoch=epoch, confirm=50 * end),
        kind=ReplicaKind.ROCKETMQ if mischief == 3 else ReplicaKind.NATIVE,
        is_learner=mischief == 4,
        zone="ab"[number % 2],
        priority=life,
        mark=mark,
        configuration=SetConfiguration(
            expected_replicas=end % 3 + 1, flush=list(FlushMode)[life % 2], ack_mode=list(AckMode)[life % 3]
        ),
    )
    if mischief in (5, 6):
        members = sorted({number % 4 + 1, life % 4 + 1})
        command = replace(command, stored=stored(life * 3, end, *members))
    return command


def _silent(fleet: Fleet, step: Step) -> AnyCommand:
    replica = _replica(fleet, step[1])
    return MarkSilent(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation or _NOBODY,
        session_ordinal=replica.session_ordinal,
        cause=list(SilenceCause)[step[2] % 4],
    )


def _alive(fleet: Fleet, step: Step) -> AnyCommand:
    replica = _replica(fleet, step[1])
    return MarkAlive(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation or _NOBODY,
        session_ordinal=replica.session_ordinal,
    )


def _goodbye(fleet: Fleet, step: Step) -> AnyCommand:
    replica = _replica(fleet, step[1])
    return SayGoodbye(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation or _NOBODY,
        session_ordinal=replica.session_ordinal,
        clean_mark=CleanMark(nonce=f"n{step[2]}", end_offset=LogOffset(100 * step[3])),
    )


def _stopping(fleet: Fleet, step: Step) -> AnyCommand:
    replica = _replica(fleet, step[1])
    return AnnounceStop(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation or _NOBODY,
        session_ordinal=replica.session_ordinal,
        master_epoch=MasterEpoch(max(0, _set(fleet).master_epoch - step[3] % 2)),
        drained_us=1000 * step[2],
    )


def _order(fleet: Fleet, step: Step) -> AnyCommand:
    return OrderSwitchover(set_key=fleet.key, to=BrokerId(step[1] % 4 + 1) if step[4] % 2 else None)


def _pending(fleet: Fleet) -> RequestId:
    pending = _set(fleet).pending_switchover
    return pending.order if pending is not None else RequestId("none")


def _withdraw(fleet: Fleet, step: Step) -> AnyCommand:
    del step
    return EndSwitchover(set_key=fleet.key, order=_pending(fleet), reason="time is over")


def _drained(fleet: Fleet, step: Step) -> AnyCommand:
    """Mostly the master reports it, for the order that is under way."""
    replica = _replica(fleet, (_set(fleet).master or BrokerId(1)) - 1 + (step[4] == 2))
    return ReportDrained(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation or _NOBODY,
        master_epoch=_set(fleet).master_epoch,
        drained_us=1000 * step[2],
        order=_pending(fleet),
    )


def _writes(fleet: Fleet, step: Step) -> AnyCommand:
    replica = _replica(fleet, step[1])
    return ReportWrites(
        set_key=fleet.key,
        broker_id=replica.broker_id,
        incarnation=replica.incarnation or _NOBODY,
        master_epoch=MasterEpoch(max(0, _set(fleet).master_epoch - step[4] % 2)),
        seq=step[3],
        reason=StopReason.NOT_ACKNOWLEDGED,
        detail="",
        age_us=1000 * step[2],
        stopped_us=1000 * step[3] if step[2] % 2 else None,
    )


def _leave(fleet: Fleet, step: Step) -> AnyCommand:
    """Mostly for the stop that goes on."""
    writes = _set(fleet).writes
    return LeaveMaster(
        set_key=fleet.key,
        master_epoch=MasterEpoch(max(0, _set(fleet).master_epoch - (step[4] == 1))),
        seq=(writes.seq if writes is not None else 1) + (step[4] == 2),
        reason="writes are stopped",
    )


def _elect(fleet: Fleet, step: Step) -> AnyCommand:
    return ElectMaster(
        set_key=fleet.key,
        to=BrokerId(step[1]) if step[4] > 6 else None,
        expected_epoch=_set(fleet).master_epoch if step[2] % 2 else None,
    )


def _unclean(fleet: Fleet, step: Step) -> AnyCommand:
    return ElectUnclean(
        set_key=fleet.key,
        accepted_loss_bytes=1_000_000 * (step[2] % 2),
        to=BrokerId(step[1]) if step[4] > 6 else None,
    )


def _bootstrap(fleet: Fleet, step: Step) -> AnyCommand:
    return Bootstrap(set_key=fleet.key, master=BrokerId(step[1]))


def _alter(fleet: Fleet, step: Step) -> AnyCommand:
    state = _set(fleet)
    if state.master is None:
        return _elect(fleet, step)
    wanted = sorted({state.master, *(BrokerId(n % 4 + 1) for n in (step[1], step[2]))})
    known = [broker_id for broker_id in wanted if state.replica(broker_id) is not None]
    last = state.last_alter.verdict.seq if state.last_alter is not None else 0
    command = fleet.alter(*known, seq=last + step[3] % 3)
    return replace(command, new_set=ids(step[1])) if step[4] == 1 else command


def _entered(fleet: Fleet, step: Step) -> AnyCommand:
    state = _set(fleet)
    return ReportEntered(
        set_key=fleet.key,
        broker_id=state.master or BrokerId(1),
        incarnation=state.master_incarnation or _NOBODY,
        master_epoch=state.master_epoch,
        start_offset=LogOffset(100 * step[2]),
        acked_end_max=LogOffset(100 * step[3]),
        is_mode_confirmed=step[4] > 3,
    )


def _milestones(fleet: Fleet, step: Step) -> AnyCommand:
    return RecordMilestones(
        set_key=fleet.key,
        milestones=(
            Milestone(
                master_epoch=MasterEpoch(max(0, _set(fleet).master_epoch - step[3] % 2)),
                phase=list(Phase)[step[2] % len(Phase)] if step[4] > 4 else Phase.TRUNCATED,
                elapsed_us=1000 * step[2],
                broker_id=BrokerId(step[1] % 4 + 1),
                cut_from=LogOffset(100 * step[2]),
                cut_to=LogOffset(100 * step[2] + 50),
                released=LogOffset(100 * step[3]),
            ),
        ),
    )


def _clean(fleet: Fleet, step: Step) -> AnyCommand:
    return CleanReplicas(
        set_key=fleet.key, broker_ids=ids(step[1]) if step[2] else (), is_unclean=step[4] in (1, 2) and step[3] < 2
    )


def _import(fleet: Fleet, step: Step) -> AnyCommand:
    members = ids(*range(1, step[1] % 4 + 2))
    return ImportSet(
        set_key=fleet.key,
        replicas=tuple(
            ImportedReplica(broker_id=broker_id, address=f"10.0.0.{broker_id}:911") for broker_id in members
        ),
        next_id=BrokerId(len(members) + 1 + step[3]),
        master=members[step[2] % len(members)],
        master_epoch=MasterEpoch(step[3] + 1),
        sync_state_set=members,
        sync_state_set_epoch=SyncStateSetEpoch(step[2]),
    )


def _caller(step: Step) -> Principal | None:
    """The replica's own broker mostly; now and then a neighbour, a key, somebody unproven, a revoked certificate."""
    _, number, life, _, mischief = step
    if mischief > 6:
        return None
    name = f"b{number % 4 + (mischief == 6)}"
    proof = ProvedBy.SIGNATURE if mischief == 5 else ProvedBy.CERTIFICATE
    return Principal(name=name, role=Role.BROKER, proved_by=proof, serial=f"{name}{life}", set_key=SET_A)


def _revoke(fleet: Fleet, step: Step) -> AnyCommand:
    del fleet
    return RevokeCertificate(serial=f"b{step[1] % 4}{step[2]}", name=f"b{step[1] % 4}", expires_at_ms=_FAR_MS)


def _issue(fleet: Fleet, step: Step) -> AnyCommand:
    del fleet
    return IssueToken(
        token_id=f"t{step[1]}",
        digest=digest_of(f"{step[1] if step[4] else step[2]}"),
        role=Role.OPERATOR,
        name="deploy",
        expires_at_ms=_FAR_MS * step[3],
    )


def _take_back(fleet: Fleet, step: Step) -> AnyCommand:
    del fleet
    return RevokeToken(token_id=f"t{step[1]}")


def _pause(fleet: Fleet, step: Step) -> AnyCommand:
    del fleet
    return PauseElections(set_key=None if step[1] == 0 else SET_A, expires_at_ms=1_000_000 + step[2] * 100_000)


def _resume(fleet: Fleet, step: Step) -> AnyCommand:
    key = None if step[1] == 0 else SET_A
    pause = fleet.state.pauses.get(key)
    return ResumeElections(set_key=key, expired_at_ms=pause.expires_at_ms if pause and step[4] > 4 else None)


def _settings(fleet: Fleet, step: Step) -> AnyCommand:
    file = PRESETS[Preset.NORMAL]
    present = fleet.state.settings[-1] if fleet.state.settings else None
    start = present.settings if present is not None else settings_of(file)
    return ApplySettings(
        settings=replace(start, heartbeat_timeout_ms=500 + step[2] * 300),
        expected_version=(present.version if present is not None else 0) + (step[4] == 6),
        file=file,
    )


def _configure(fleet: Fleet, step: Step) -> AnyCommand:
    return ConfigureSet(
        set_key=fleet.key,
        expected_replicas=step[1] if step[3] % 2 else None,
        min_in_sync=step[2] % 5 if step[4] > 2 else None,
    )


def _note(fleet: Fleet, step: Step) -> AnyCommand:
    """Mostly of the present reign."""
    epoch = MasterEpoch(max(0, _set(fleet).master_epoch - step[4] % 2))
    told = KnownConfirm(set_key=fleet.key, master_epoch=epoch, confirm_offset=LogOffset(100 * step[2]))
    return NoteConfirms(confirms=(told,))


def _begin_maintenance(fleet: Fleet, step: Step) -> AnyCommand:
    return BeginMaintenance(
        scope=_worked_on(fleet, step), expires_at_ms=1_000_000 + step[2] * 100_000, spends_last=step[4] > 3
    )


def _end_maintenance(fleet: Fleet, step: Step) -> AnyCommand:
    scope = _worked_on(fleet, step)
    begun = fleet.state.maintenances.get(scope)
    return EndMaintenance(scope=scope, expired_at_ms=begun.expires_at_ms if begun and step[4] > 4 else None)


def _worked_on(fleet: Fleet, step: Step) -> MaintenanceScope:
    set_state = fleet.state.sets.get(SET_A)
    replica = set_state.replica(BrokerId(step[1])) if set_state is not None else None
    if step[3] % 2 and replica is not None:
        return MaintenanceScope(host=host_of(replica.address))
    return MaintenanceScope(set_key=SET_A, broker_id=BrokerId(step[1]))


_MAKERS: tuple[Callable[[Fleet, Step], AnyCommand], ...] = (
    _apply_id,
    _register,
    _register,
    _register,
    _silent,
    _silent,
    _alive,
    _goodbye,
    _stopping,
    _order,
    _withdraw,
    _drained,
    _drained,
    _writes,
    _leave,
    _elect,
    _elect,
    _elect,
    _unclean,
    _bootstrap,
    _alter,
    _entered,
    _milestones,
    _clean,
    _import,
    _revoke,
    _issue,
    _take_back,
    _pause,
    _resume,
    _settings,
    _begin_maintenance,
    _end_maintenance,
    _configure,
    _note,
)
assert len(_MAKERS) == KINDS
