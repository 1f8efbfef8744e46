"""
The goal of a replica, given a view of the controllers (``goal_for_view``). A pure function.

Not here: reaching the goal (``role``).
Rule 1 (R9): a goal below the promise, or below the goal that is being worked on, is not taken.
Rule 2 (R9): only the incarnation named in the view enters, and only an epoch above the promise that this process
found when it began, and that it has not left: an epoch is entered once (W3).
Rule 3 (R21): only a view moves a goal. The epoch of a peer moves none: it is asked after (``core.session``).
"""

from __future__ import annotations

from enum import StrEnum

from rollcall_ha.broker.core.role_io import LinkTarget
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, MasterEpoch
from rollcall_ha.controller.contract.labels import label
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.values import Frozen


class GoalKind(StrEnum):
    """The states that the role machine works towards."""

    FENCED = "fenced"
    FOLLOW = "follow"
    REIGN = "reign"
    LEAVE = "leave"
    """About to stop: it goes on in its role until nobody waits for it."""
    ISOLATED = "isolated"
    STOPPED = "stopped"


class Goal(Frozen):
    """``master_epoch`` is the epoch to promise; ``target`` belongs to FOLLOW alone."""

    kind: GoalKind
    master_epoch: MasterEpoch
    reason: str
    target: LinkTarget | None = None

    def is_same_as(self, other: Goal) -> bool:
        """Equal but for the words."""
        return (self.kind, self.master_epoch, self.target) == (other.kind, other.master_epoch, other.target)


class Choice(Frozen):
    """``goal`` None: nothing new. ``alarm``: the controllers said something that cannot be."""

    goal: Goal | None = None
    alarm: str | None = None


class Standing(Frozen):
    """Where the replica stands when it is told something."""

    broker_id: BrokerId
    incarnation: Incarnation
    goal: Goal
    promised: MasterEpoch
    left_epoch: MasterEpoch
    """The highest epoch that must not be entered: promised before this process began, or left by it (W3)."""
    has_followed: bool
    """A master of the goal's epoch has answered our handshake: the epoch has a master, and it is not this replica."""

    @property
    def floor(self) -> MasterEpoch:
        """Nothing below it is taken."""
        return max(self.promised, self.goal.master_epoch)

    @property
    def is_final(self) -> bool:
        """Isolated, about to stop or stopping: no view and no peer changes that."""
        return self.goal.kind in (GoalKind.ISOLATED, GoalKind.LEAVE, GoalKind.STOPPED)


def is_awaited(view: SetView | None, broker_id: BrokerId | None, epoch: MasterEpoch) -> bool:
    """Whether somebody would wait for this replica if it were gone now, and another member can spare them that."""
    if view is None or view.master_epoch != epoch or broker_id not in view.sync_state_set:
        return False
    others = [one for one in view.members if one.broker_id != broker_id and one.is_alive]
    if view.master == broker_id:
        # Producers wait for a master. A set of one, and one whose other members are gone or about to stop, has no heir.
        return any(one.broker_id in view.sync_state_set and not one.is_stopping for one in others)
    # Nor is a member removed without which fewer than ``min_in_sync`` would be left: it would go on for its whole time,
    # and each stop of a fleet last as long.
    stopping = {one.broker_id for one in view.members if one.is_stopping}
    if len({*view.sync_state_set} - stopping - {broker_id}) < view.configuration.effective_min_in_sync:
        return False
    # The master of the set waits for each member.
    return any(one.broker_id == view.master for one in others)


def goal_for_view(view: SetView, standing: Standing) -> Choice:
    """The goal that the authoritative state ``view`` asks for."""
    epoch = view.master_epoch
    goal = standing.goal
    # A view of epoch 2 that arrives behind a promise of 3: followed, the deposed master of 2 would count our acks again
    # and release what the master of 3 cuts.
    if epoch < standing.floor or standing.is_final:
        return Choice()
    if view.master is None:
        # The same epoch has lost its master, as far as the controllers can see. A master that only lost its session
        # goes on in mode ``all``, and its slaves keep their links: its required set still guards every ack.
        if epoch == standing.floor and goal.kind is not GoalKind.FENCED:
            return Choice()
        return _fenced(epoch, f"masterEpoch {epoch} has no master: {view.condition_reason}")
    if view.master == standing.broker_id:
        return _goal_for_own_epoch(view, standing)
    # One epoch, two masters: impossible unless controllers were restored. To follow would be to leave an epoch in which
    # we may have released; a human must look.
    if goal.kind is GoalKind.REIGN and goal.master_epoch == epoch:
        return Choice(alarm=f"masterEpoch {epoch} is ours, but the controllers name broker {view.master} as its master")
    address = ha_address_of(view, view.master)
    if address is None:
        return _fenced(epoch, f"the HA address of broker {view.master} is not known")
    target = LinkTarget(
        master_epoch=epoch,
        broker_id=view.master,
        incarnation=view.master_incarnation or Incarnation(""),
        ha_address=address,
    )
    reason = f"broker {view.master} is master of masterEpoch {epoch}"
    return Choice(goal=Goal(kind=GoalKind.FOLLOW, master_epoch=epoch, reason=reason, target=target))


def _goal_for_own_epoch(view: SetView, standing: Standing) -> Choice:
    epoch = view.master_epoch
    goal = standing.goal
    # The election counted on what the former process had acked. This one may have lost the tail of it (R9).
    if view.master_incarnation != standing.incarnation:
        return _fenced(
            epoch, f"masterEpoch {epoch} was given to incarnation {view.master_incarnation}, which has ended"
        )
    # Entered once already, here or by the process before us: a second start in one epoch makes two different logs with
    # the same labels, and the handshake of a follower finds nothing to cut.
    if epoch <= standing.left_epoch:
        left = standing.left_epoch
        reason = f"masterEpoch {epoch} was given to us, but {left} was promised before we began, or left: never again"
        return Choice(goal=Goal(kind=GoalKind.FENCED, master_epoch=epoch, reason=reason), alarm=reason)
    # Another replica has answered as master of this very epoch: it has entered it, so we must not.
    if goal.kind is GoalKind.FOLLOW and goal.master_epoch == epoch and standing.has_followed:
        return Choice(alarm=f"{goal.reason}, but the controllers name us as its master")
    return Choice(goal=Goal(kind=GoalKind.REIGN, master_epoch=epoch, reason=f"elected in masterEpoch {epoch}"))


def ha_address_of(view: SetView, broker_id: BrokerId) -> str | None:
    """Where a member accepts HA links; None = it is not registered."""
    return next((one.description.ha_address for one in view.members if one.broker_id == broker_id), None)


def owner_in(view: SetView | None, broker_id: BrokerId) -> str:
    """Name in the certificate that an id is bound to; empty = to none yet."""
    return next((one.owner for one in view.members if one.broker_id == broker_id), "") if view is not None else ""


def named_in(view: SetView | None, broker_id: BrokerId) -> str:
    """A replica as people know it (``labels``, rule 1), by the newest view."""
    return label(broker_id, {broker_id: owner_in(view, broker_id)})


def _fenced(epoch: MasterEpoch, reason: str) -> Choice:
    return Choice(goal=Goal(kind=GoalKind.FENCED, master_epoch=epoch, reason=reason))
