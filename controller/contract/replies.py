"""
Answers of the control plane: computed inside apply, so never on stale state (W31).

Here: every reply, ``SetView``, the authoritative state of a set that brokers act on (R2), the answers of orders that go
on after they are applied, and ``AnsweredBy``, which tells the answer of each order to whoever checks types.
Not here: what REST adds from the leader's soft state (``views``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    ControllerName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RequestId,
    SessionOrdinal,
    SetKey,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.values import (
    EventRef,
    RegisteredAs,
    ReplicaDescription,
    SetConfiguration,
    SwitchoverEnd,
    Value,
)
from rollcall_ha.controller.contract.verdicts import Intactness, Verdict
from rollcall_ha.epoch.model import NO_EPOCH

Answer = TypeVar("Answer")


class AnsweredBy(Value, Generic[Answer]):
    """Base of all that a person may ask for: REST answers it by ``Answer``, or refuses it."""


class Reply(Value, tag_field="reply"):
    """Base of all answers that apply computes."""


class Condition(StrEnum):
    """State of a set; ``SetView.condition_reason`` says why."""

    WAITING_FOR_REPLICAS = "waiting-for-replicas"
    """Fewer than the expected replicas have registered; no first election yet (R8)."""
    NEEDS_BOOTSTRAP = "needs-bootstrap"
    WAITING_FOR_REPORTS = "waiting-for-reports"
    ENTERING = "entering"
    """Elected, ``entered`` not reported yet."""
    SERVING = "serving"
    WRITES_STOPPED = "writes-stopped"
    """The master reigns, and by its own word acknowledges no write."""
    MASTER_SILENT = "master-silent"
    NO_ELIGIBLE_REPLICA = "no-eligible-replica"
    CLEANED = "cleaned"

    @property
    def has_master(self) -> bool:
        """A master is elected and alive, by replicated state. It may be entering, or acknowledge nothing."""
        return self in (Condition.SERVING, Condition.ENTERING, Condition.WRITES_STOPPED)


class MemberView(Value):
    """One registered replica, from replicated state."""

    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    description: ReplicaDescription
    is_alive: bool
    is_suspect: bool
    is_stopping: bool = False
    """It has announced that it is about to stop: its master proposes to remove it."""
    owner: str = ""
    """Name in the certificate of the one broker that may be this replica; empty = it is bound to nobody yet."""


class AlterVerdict(Value):
    """Stored answer to the last alter of this set: an outcome never gets lost (R1)."""

    master_epoch: MasterEpoch
    seq: int
    is_accepted: bool
    refusal: RefusalCode | None
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch


class SwitchoverView(Value):
    """An order to switch over, while it is under way."""

    order: RequestId
    master: BrokerId
    master_epoch: MasterEpoch
    """The reign that drains."""
    target: BrokerId
    deadline_ms: int
    elected_epoch: MasterEpoch | None
    """The epoch of the target, or of the old master on its way back; None: nobody is elected yet."""


class SetView(Value):
    """Authoritative state of one set at (term, index). A broker adopts it by R2 and R9 only."""

    set_key: SetKey
    fleet_incarnation: FleetIncarnation
    term: int
    index: int
    master: BrokerId | None
    master_incarnation: Incarnation | None
    master_epoch: MasterEpoch
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch
    configuration: SetConfiguration
    members: tuple[MemberView, ...]
    has_entered: bool
    start_offset: LogOffset | None
    last_alter: AlterVerdict | None
    condition: Condition
    condition_reason: str
    unclean_epoch: MasterEpoch = NO_EPOCH
    """The newest masterEpoch that began without a clean election: explains a cut below confirm (R26)."""
    next_id: BrokerId = BrokerId(0)
    """The id that the next newcomer gets; 0 = a controller that does not say it yet."""
    switchover: SwitchoverView | None = None
    """The order that is under way (R29); None = there is none."""


class Refused(Reply, tag="Refused"):
    """Asked for something that cannot be; nothing changed (C10), except that the refusal is on record (R24)."""

    code: RefusalCode
    reason: str
    """Both values, e.g. ``masterEpoch 7 is stale, current is 9``."""
    hint: str
    """The remedy, e.g. ``read the set again and retry``."""
    requested: str | None = None
    current: str | None = None
    verdict: Verdict | None = None
    alter: AlterVerdict | None = None
    registered: RegisteredAs | None = None
    """
    To a registration that was made against something else: what to make the next one against; None = nobody.

    To one of an ended incarnation: whose place a new start may take; None = nobody's, it has to stay out.
    """


class Done(Reply, tag="Done"):
    """Applied; there is nothing more to say."""


class IdGranted(Reply, tag="IdGranted"):
    """This id belongs to the register code for ever."""

    broker_id: BrokerId


class Registered(Reply, tag="Registered"):
    """The session is open."""

    broker_id: BrokerId
    session_ordinal: SessionOrdinal
    intactness: Intactness
    is_in_sync: bool
    view: SetView


class Elected(Reply, tag="Elected"):
    """A master was elected; also the answer of a dry run, whose verdict then is a preview."""

    verdict: Verdict
    view: SetView


class AlterDecided(Reply, tag="AlterDecided"):
    """Verdict on an alter, also when it is a refusal that R1 stores."""

    verdict: AlterVerdict
    reason: str


AnyReply = Refused | Done | IdGranted | Registered | Elected | AlterDecided


# --- orders that go on after they are applied ------------------------------------------------------------------------


class SwitchoverRow(Value):
    """One order to switch over; times are differences of stamps, by the clocks of the leading controllers."""

    order: RequestId
    requested_by: str
    from_master: BrokerId
    to_master: BrokerId
    """The target, whether it became master or not."""
    from_epoch: MasterEpoch
    epoch: MasterEpoch | None
    """The newest that was elected by it: of the target, or of the old master on its way back. None: nobody was."""
    ordered_at_ms: int
    """UTC."""
    end: SwitchoverEnd | None
    """None: under way."""
    reason: str
    """Why it ended; empty: it goes on."""
    drained_us: int | None
    """For how long the master had taken no sends when it asked for the election, on its clock; None: it did not ask."""
    elected_ms: int | None
    """From the order to the election."""
    entered_ms: int | None
    """From the order until the one who was elected had entered; None: nobody was elected."""
    took_ms: int | None
    """From the order to its end."""
    event: EventRef
    """The order."""


class SwitchoverAnswer(Value):
    """Answer of POST .../switchover; ``row.end`` None: it goes on, ask again with the same request id."""

    row: SwitchoverRow
    view: SetView


class ControllersChanged(Value):
    """Answer of POST /v1/controllers/add and /remove: the members from now on, on the disks of a majority."""

    voters: tuple[ControllerName, ...]
    learners: tuple[ControllerName, ...]


class LeadershipTransferred(Value):
    """Answer of POST /v1/controllers/transfer: who leads now. Not always the controller that was asked to."""

    leader: ControllerName
    term: int
