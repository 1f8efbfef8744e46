"""
The steps that move a set from RocketMQ's controllers to ours, or back. Pure.

Here: ``plan_import``, ``plan_export``. Not here: reading (``reading``), doing it (``replay``, the command line).

Import, rule 1: a set can be imported only while its master lives under its controllers.
Import, rule 2: it starts above every masterEpoch that its controllers or any of its brokers show.
Export, rule 3: ids keep their numbers, and the next new broker gets the number that it would get here.
Export, rule 4: the set is left without a master, our master alone in sync, in an epoch above ours, so that our master
is elected when it comes, and no other broker.
Export, rule 5: a set in which those controllers have elected a master is theirs, and is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from rollcall_ha.api.rocketmq.moving.reading import ForeignSet, Read
from rollcall_ha.controller.contract.commands import ImportSet
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import Condition, SetView
from rollcall_ha.controller.contract.values import ImportedReplica

RAISES_MAX = 100_000
"""Epochs that one export raises: RocketMQ does it one by one, some thousands per second."""
GAP_CODE = "127.0.0.1:1;rollcall-gap"
"""Check code of an id that was cleaned here; no broker has its address."""


class Verb(StrEnum):
    """What an import would do."""

    CREATE = "create"
    REFRESH = "refresh"
    """The set was imported before and moves; what its controllers say by now is taken."""
    REFUSE = "refuse"


class ImportLine(Read):
    """One set of an import."""

    set_key: SetKey
    verb: Verb
    reason: str
    found: ForeignSet
    order: ImportSet | None
    """What to send; None = nothing."""


def plan_import(
    found: Sequence[ForeignSet], known: Mapping[SetKey, SetView], *, reason: str = ""
) -> tuple[ImportLine, ...]:
    """One line per set, in the order of their keys."""
    return tuple(_import_line(one, known, reason) for one in sorted(found, key=lambda one: one.set_key))


def _import_line(found: ForeignSet, known: Mapping[SetKey, SetView], reason: str) -> ImportLine:
    refusal = _refusal(found, known)
    if refusal or found.master is None:
        return ImportLine(set_key=found.set_key, verb=Verb.REFUSE, reason=refusal, found=found, order=None)
    order = ImportSet(
        set_key=found.set_key,
        replicas=tuple(
            ImportedReplica(broker_id=replica.broker_id, address=replica.address) for replica in found.replicas
        ),
        next_id=found.next_id,
        master=found.master,
        # Not the controllers' epoch alone (rule 2): restored from a backup they may say 5 while a broker has written 9.
        # Our first epoch would be one that exists already, with other records in it.
        master_epoch=found.highest_epoch,
        sync_state_set=found.sync_state_set,
        sync_state_set_epoch=found.sync_state_set_epoch,
        reason=reason,
    )
    is_known = found.set_key in known and known[found.set_key].condition is not Condition.CLEANED
    silent = [str(replica.broker_id) for replica in found.replicas if replica.is_alive and replica.last_epoch is None]
    note = f"broker {', '.join(silent)} did not say its epochs" if silent else ""
    return ImportLine(
        set_key=found.set_key,
        verb=Verb.REFRESH if is_known else Verb.CREATE,
        reason=note,
        found=found,
        order=order,
    )


def _refusal(found: ForeignSet, known: Mapping[SetKey, SetView]) -> str:
    master = next((replica for replica in found.replicas if replica.broker_id == found.master), None)
    ours = known.get(found.set_key)
    # Imported again, our set would forget the elections that it has held since.
    if ours is not None and ours.master is not None:
        return f"it is run here already: broker {ours.master} is master in epoch {ours.master_epoch}"
    if master is None:
        return "its controllers know no master; let them elect one first"
    # A dead master's SyncStateSet belongs to the past (rule 1): which broker holds everything that was acknowledged is
    # known only while the master that acknowledges it says who is in sync.
    if not master.is_alive:
        return f"its master, broker {master.broker_id}, is not alive under its controllers; start it there first"
    if not master.is_in_sync:
        return f"its master, broker {master.broker_id}, is not in its SyncStateSet; read again"
    return ""


# --- back ------------------------------------------------------------------------------------------------------------


class Step(Read, tag_field="step"):
    """Base of the steps at RocketMQ's controllers."""


class Wipe(Step, tag="wipe"):
    """Forget the set; they refuse that while they have a master in it."""


class Apply(Step, tag="apply"):
    """Give out one id."""

    broker_id: BrokerId
    check_code: str


class Elect(Step, tag="elect"):
    """First election: unconditional in RocketMQ."""

    broker_id: BrokerId


class CleanIds(Step, tag="clean-ids"):
    """Forget ids that only filled gaps."""

    broker_ids: tuple[BrokerId, ...]


class Raise(Step, tag="raise"):
    """Let elections fail until the epoch is reached; that leaves the set without a master."""

    from_epoch: MasterEpoch
    to_epoch: MasterEpoch


AnyStep = Wipe | Apply | Elect | CleanIds | Raise


class ExportLine(Read):
    """One set of an export. No steps and no refusal: those controllers are ready for it."""

    set_key: SetKey
    refusal: str
    steps: tuple[AnyStep, ...]
    master: BrokerId | None
    from_epoch: MasterEpoch
    to_epoch: MasterEpoch


def plan_export(view: SetView, found: ForeignSet | None, *, raises_max: int = RAISES_MAX) -> ExportLine:
    """The steps that make those controllers ready; ``found`` is the set as they know it, None = not at all."""
    # Above ours: in an equal epoch a broker ignores the controllers' word, 1008 being acted on only if it is newer.
    to_epoch = MasterEpoch(max(view.master_epoch + 1, 2))
    refusal = _export_refusal(view, found)
    if refusal or view.master is None:
        return _line(view, refusal, (), to_epoch)
    is_same = found is not None and _is_same(view, found)
    # Done before: a second export after a broken one must not wipe what the first has made.
    if is_same and found is not None and found.master_epoch > view.master_epoch:
        return _line(view, "", (), found.master_epoch)
    began = found.master_epoch if is_same and found is not None else MasterEpoch(1)
    if to_epoch - began > raises_max:
        raises = f"raising masterEpoch from {began} to {to_epoch} takes {to_epoch - began} requests, {raises_max} are"
        return _line(view, f"{raises} allowed; allow more with --raises-max", (), to_epoch)
    raising = Raise(from_epoch=began, to_epoch=to_epoch)
    if is_same:
        return _line(view, "", (raising,), to_epoch)
    steps: list[AnyStep] = [Wipe()] if found is not None else []
    addresses = {member.broker_id: member.description.address for member in view.members}
    gaps = []
    for number in range(1, _next_id(view)):
        broker_id = BrokerId(number)
        # RocketMQ counts its next id by additions. With a gap left out, broker 3 would be given 2, and its log be taken
        # for that of the broker that had the number.
        if broker_id not in addresses:
            gaps.append(broker_id)
        code = f"{addresses[broker_id]};rollcall-{number}" if broker_id in addresses else f"{GAP_CODE}-{number}"
        steps.append(Apply(broker_id=broker_id, check_code=code))
    # The first election there makes the SyncStateSet: our master alone, the broker that holds everything (rule 4).
    steps.append(Elect(broker_id=view.master))
    # AFTER the election: cleaning an id of a set that has never elected leaves RocketMQ with a set it cannot elect in.
    if gaps:
        steps.append(CleanIds(broker_ids=tuple(gaps)))
    return _line(view, "", (*steps, raising), to_epoch)


def _line(view: SetView, refusal: str, steps: tuple[AnyStep, ...], to_epoch: MasterEpoch) -> ExportLine:
    return ExportLine(
        set_key=view.set_key,
        refusal=refusal,
        steps=steps,
        master=view.master,
        from_epoch=view.master_epoch,
        to_epoch=to_epoch,
    )


def _next_id(view: SetView) -> BrokerId:
    return BrokerId(max([view.next_id, *(member.broker_id + 1 for member in view.members)]))


def _export_refusal(view: SetView, found: ForeignSet | None) -> str:
    natives = [str(m.broker_id) for m in view.members if m.description.kind is not ReplicaKind.ROCKETMQ]
    # A broker of ours speaks to no controller of theirs: the set would be there, and never have a master.
    if natives:
        return f"brokers {', '.join(natives)} are no RocketMQ brokers"
    if view.master is None:
        return f"it has no master here: {view.condition_reason}"
    # Wiped, it would be left without a master while its brokers serve (rule 5).
    if found is not None and found.master is not None:
        return (
            f"those controllers run it already: broker {found.master} is master there in epoch {found.master_epoch}; "
            "export to empty ones"
        )
    return ""


def _is_same(view: SetView, found: ForeignSet) -> bool:
    """Whether those controllers know the set as an export leaves it, but for the epoch."""
    theirs = {replica.broker_id: replica.address for replica in found.replicas}
    ours = {member.broker_id: member.description.address for member in view.members}
    return theirs == ours and found.next_id == _next_id(view) and found.sync_state_set == (view.master,)
