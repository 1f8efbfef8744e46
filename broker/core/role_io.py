"""
Inputs and actions of the role machine (``broker.core.role``), as values.

Inputs come from the shell: the log's recovery, the session, HA links, timers, signals. Actions go to the shell.
A *step* is an action with a ``step`` number: the shell does it and answers ``StepDone`` or ``StepFailed`` with that
number, exactly once; at most one step is outstanding. All other actions are done at once, in order, before the next
input.
"""

from __future__ import annotations

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.controller.contract.commands import ReportEntered
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, RequestId
from rollcall_ha.controller.contract.replies import Registered, SetView
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import CleanMark, Frozen, Milestone, Phase, StoredView
from rollcall_ha.ha.truncation import TruncationPlan

# --- inputs ----------------------------------------------------------------------------------------------------------


class RecoveryStarted(Frozen):
    """The data directory is ours; the log is being read."""


class Recovered(Frozen):
    """The log ends at a whole record, epoch entries beyond it are dropped (R9), interrupted cuts are finished (R20)."""

    marks: EpochMarks
    has_clean_mark: bool
    """The mark of the last clean stop is still on disk: it goes before the first append or ack (R3a)."""


class SessionEstablished(Frozen):
    """This incarnation is registered. The first one unfences; later ones are reconnects."""

    registered: Registered


class SessionLost(Frozen):
    """No controller can be reached. Changes no role (promise 3)."""


class ViewArrived(Frozen):
    """A push, or the view in a heartbeat's answer."""

    view: SetView
    transit_us: int = 0
    """How long a push was under way; 0 = not known."""


class EnteredAnswered(Frozen):
    """The answer to the last ``SendEntered``. ``is_definite`` False: outcome unknown, to be sent again."""

    master_epoch: MasterEpoch
    is_definite: bool


class StepDone(Frozen):
    """A step succeeded; the optional values are those that the step's docstring names."""

    step: int
    offset: LogOffset | None = None
    clean_mark: CleanMark | None = None


class StepFailed(Frozen):
    """A step changed nothing, or can be repeated. ``is_fatal``: repeating cannot help (a failed sync)."""

    step: int
    reason: str
    is_fatal: bool = False


class TruncationPlanned(Frozen):
    """
    The link has shaken hands and waits: no byte is applied and no ack sent before ``ResumeSlaveLink``.

    While a cut is executed no other link is dialled, so no second plan for the same log exists.
    """

    generation: int
    plan: TruncationPlan
    released: LogOffset
    """Highest end that this replica ever acknowledged as a master (fact 4 of a proof)."""


class LinkOpened(Frozen):
    """The slave link ``generation`` transfers: handshake finished, cut synced."""

    generation: int


class SlaveLinkClosed(Frozen):
    """The link is gone or did not open; it dials again by itself until it is stopped. Told once per attempt."""

    generation: int
    reason: str


class PhaseReached(Frozen):
    """The shell saw something of the reign ``master_epoch`` that the machine cannot see: FIRST_ACK, FULL_REDUNDANCY."""

    master_epoch: MasterEpoch
    phase: Phase
    reached_at_us: int
    """On the machine's clock; not after the event is handed over."""
    waited_us: int | None = None
    """Told with FIRST_ACK alone, as ``Milestone.waited_us``: the longest wait that a sender told."""


class ReignRefused(Frozen):
    """The controllers refused something because this reign is over, without naming the present master (R2)."""

    master_epoch: MasterEpoch
    reason: str


class IncarnationEnded(Frozen):
    """The controllers know a newer incarnation of this replica: another process runs on its identity (S12)."""

    reason: str


class HigherEpochShown(Frozen):
    """A replica that the newest view names shows a higher epoch than this reign's (R21)."""

    master_epoch: MasterEpoch


class RoleTick(Frozen):
    """Time has passed; needed at ``RoleMachine.next_due_us``."""


class Stop(Frozen):
    """Stop cleanly; the second one at once."""

    leave_ms: int = 0
    """For so long it goes on at most until nobody waits for it: a successor, or a smaller SyncStateSet."""


class Drained(Frozen):
    """Since ``StartDraining`` everything that was appended has been confirmed, and every sender has its answer."""

    master_epoch: MasterEpoch


class StopAnswered(Frozen):
    """The answer to the last ``TellStop`` or ``TellDrained``."""

    is_over: bool
    """The controllers have nothing more to do for it, or cannot. False: to be asked again."""


RoleInput = (
    RecoveryStarted
    | Recovered
    | SessionEstablished
    | SessionLost
    | ViewArrived
    | EnteredAnswered
    | StepDone
    | StepFailed
    | TruncationPlanned
    | LinkOpened
    | SlaveLinkClosed
    | PhaseReached
    | ReignRefused
    | IncarnationEnded
    | HigherEpochShown
    | RoleTick
    | Stop
    | Drained
    | StopAnswered
)

# --- steps: answered by StepDone or StepFailed -----------------------------------------------------------------------


class RemoveCleanMark(Frozen):
    """Durably, before the first append or ack (R3a)."""

    step: int


class PersistMarks(Frozen):
    """Durably, before anything that they allow (R9)."""

    step: int
    marks: EpochMarks


class StopSlaveLink(Frozen):
    """Done when nothing is applied or acked any more. ``offset`` = highest end that was acked on it."""

    step: int


class RecordEpochEntry(Frozen):
    """Start = the log's end now; sync the entry, replacing an empty last one (R12, W4). ``offset`` = the start."""

    step: int
    master_epoch: MasterEpoch


class PrepareMaster(Frozen):
    """
    Everything that a reign needs, except the permission to append.

    SyncStateSet and proposals, confirm, ack table, links of slaves; queue offsets rebuilt (R19).
    """

    step: int
    master_epoch: MasterEpoch
    start_offset: LogOffset
    view: SetView


class ExecuteCut(Frozen):
    """Carry out a ``Cut`` or ``FullResync``, crash-safely (R20)."""

    step: int
    plan: TruncationPlan


class CloseLog(Frozen):
    """Sync log and epoch list. ``offset`` = the end that is on disk."""

    step: int


class WriteCleanMark(Frozen):
    """Durably. ``clean_mark`` = the mark with the nonce that the shell drew."""

    step: int
    end_offset: LogOffset


class SayGoodbyeTo(Frozen):
    """Tell the controllers, once, within the session's time limit; failing changes nothing."""

    step: int
    clean_mark: CleanMark


Step = (
    RemoveCleanMark
    | PersistMarks
    | StopSlaveLink
    | RecordEpochEntry
    | PrepareMaster
    | ExecuteCut
    | CloseLog
    | WriteCleanMark
    | SayGoodbyeTo
)

# --- immediate actions -----------------------------------------------------------------------------------------------


class LinkTarget(Frozen):
    """Whom a slave link dials."""

    master_epoch: MasterEpoch
    broker_id: BrokerId
    incarnation: Incarnation
    ha_address: str


class StartSlaveLink(Frozen):
    """Dial, and again, until ``StopSlaveLink``; report by inputs with this generation. The promise is durable."""

    generation: int
    target: LinkTarget


class ResumeSlaveLink(Frozen):
    """The plan is carried out: apply and ack."""


class LeaveMaster(Frozen):
    """
    The reign is over: no append from here on, every waiter fails as "outcome unknown" (R17), proposal, ack table and
    links of slaves go (R12).
    """

    master_epoch: MasterEpoch
    reason: str


class AdoptView(Frozen):
    """The SyncStateSet of the running reign hears it: authoritative, its epoch is the reign's, it names us (R2)."""

    view: SetView


class PublishRole(Frozen):
    """The role that clients, probes and heartbeats see from here on. MASTER opens the appends of ``master_epoch``."""

    state: BrokerState
    master_epoch: MasterEpoch
    master: BrokerId | None
    reason: str


class PersistView(Frozen):
    """Soon, not before anything else: a wiped control plane will ask for it (R7)."""

    stored: StoredView


class SendEntered(Frozen):
    """Over the session; answered by ``EnteredAnswered``."""

    report: ReportEntered


class StartDraining(Frozen):
    """No new sends; those that were appended are confirmed and answered as ever. Answered by ``Drained``."""

    master_epoch: MasterEpoch


class StopDraining(Frozen):
    """Sends are taken again: the order to switch over is withdrawn, and this replica reigns on (R29)."""

    master_epoch: MasterEpoch


class TellStop(Frozen):
    """Over the session: this replica is about to stop. Answered by ``StopAnswered``, unless a view is the answer."""

    master_epoch: MasterEpoch


class TellDrained(Frozen):
    """Over the session: this master has drained for an order to switch over (R29). Answered as ``TellStop``."""

    master_epoch: MasterEpoch
    order: RequestId


class SendLinkReport(Frozen):
    """Over the session, one-way (R13); the shell adds the session's names. Dropped without a session."""

    master: BrokerId
    master_epoch: MasterEpoch
    is_open: bool


class ReportMilestone(Frozen):
    """Over the session, in batches, as soon as there is one."""

    milestone: Milestone
    reached_at_us: int
    """On the machine's clock."""


class RaiseAlarm(Frozen):
    """A human must look: log it loudly, count it, show it in /readyz."""

    reason: str


class ExitProcess(Frozen):
    """The process may end. ``is_clean``: the clean mark is on disk."""

    is_clean: bool


RoleAction = (
    Step
    | StartSlaveLink
    | ResumeSlaveLink
    | LeaveMaster
    | AdoptView
    | PublishRole
    | PersistView
    | SendEntered
    | StartDraining
    | StopDraining
    | TellStop
    | TellDrained
    | SendLinkReport
    | ReportMilestone
    | RaiseAlarm
    | ExitProcess
)
