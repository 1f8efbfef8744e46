"""
Which event ends an order to switch over (R29).

Here: ``with_end`` adds its end to the events that bring it about. Not here: deadlines
(``controller.runtime.switchover_duty``), what is kept of an order (``switchovers``).

Rule 1: an order ends once, by an event of its own, in the entry that ends it. Without one it would go on under the next
leader, and its master would take no sends for an order that nobody remembers.
Rule 2: before its election an order ends with whatever takes its master or its target away. Behind it the election has
to come to an end: the one that enters ends the order.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.controller.contract.events import (
    AnyEvent,
    GoodbyeSaid,
    MasterElected,
    MasterEntered,
    ReplicaRegistered,
    ReplicasCleaned,
    ReplicaSilent,
    StopAnnounced,
    SwitchoverEnded,
    SyncStateSetAltered,
)
from rollcall_ha.controller.contract.values import SwitchoverEnd
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.evolve import evolve
from rollcall_ha.controller.core.state import SetState, Switchover

_End = tuple[SwitchoverEnd, str]


def ended(set_state: SetState, order: Switchover, end: SwitchoverEnd, reason: str) -> SwitchoverEnded:
    """The end of ``order``, with the master that ``set_state`` has behind it."""
    return SwitchoverEnded(
        order=order.order,
        end=end,
        master=set_state.master,
        master_epoch=set_state.master_epoch,
        target=order.target,
        reason=reason,
    )


def with_end(set_state: SetState | None, events: Sequence[AnyEvent]) -> tuple[AnyEvent, ...]:
    """``events`` of one decision on ``set_state``, with the end of its order if they bring that about (rule 1)."""
    order = set_state.pending_switchover if set_state is not None else None
    if set_state is None or order is None or any(isinstance(event, SwitchoverEnded) for event in events):
        return tuple(events)
    found: _End | None = None
    for event in events:
        found = found or _end_of(order, event)
        set_state = evolve(set_state, event)
    return (*events, ended(set_state, order, *found)) if found is not None else tuple(events)


def _end_of(order: Switchover, event: AnyEvent) -> _End | None:
    if isinstance(event, MasterElected) and event.verdict.kind is not ElectionKind.SWITCHOVER:
        kind = event.verdict.kind.value
        return SwitchoverEnd.OVERTAKEN, f"broker {event.master} was elected in masterEpoch {event.master_epoch}: {kind}"
    if isinstance(event, ReplicasCleaned) and (
        not event.remaining or {order.master, order.target} & set(event.broker_ids)
    ):
        return SwitchoverEnd.OVERTAKEN, f"replicas {list(event.broker_ids)} were cleaned"
    if isinstance(event, ReplicaRegistered) and event.is_recovering:
        return SwitchoverEnd.OVERTAKEN, f"replica {event.broker_id} knows more than the controllers (R7)"
    return _end_before(order, event) if order.elected_epoch is None else _end_by_entering(order, event)


def _end_before(order: Switchover, event: AnyEvent) -> _End | None:
    """Rule 2: nobody is elected yet."""
    if isinstance(event, SyncStateSetAltered) and order.target not in event.verdict.sync_state_set:
        return SwitchoverEnd.TARGET_LOST, f"broker {order.target} left the SyncStateSet"
    if not isinstance(event, ReplicaSilent | GoodbyeSaid | StopAnnounced | ReplicaRegistered):
        return None
    if event.broker_id not in (order.master, order.target):
        return None
    is_master = event.broker_id == order.master
    is_same = event.incarnation == (order.master_incarnation if is_master else order.target_incarnation)
    # A further session of the same process: its link was cut for a moment, or another controller leads. It goes on.
    if isinstance(event, ReplicaRegistered) and is_same:
        return None
    # A slave alone announces its stop here: a master that stops asks for an election, and that is another end.
    what = {
        ReplicaSilent: "is silent",
        GoodbyeSaid: "stopped",
        StopAnnounced: "is about to stop",
        ReplicaRegistered: "has restarted",
    }[type(event)]
    cause = f" ({event.cause.value})" if isinstance(event, ReplicaSilent) else ""
    end = SwitchoverEnd.MASTER_LOST if is_master else SwitchoverEnd.TARGET_LOST
    return end, f"broker {event.broker_id}, the {'master' if is_master else 'target'}, {what}{cause}"


def _end_by_entering(order: Switchover, event: AnyEvent) -> _End | None:
    if not isinstance(event, MasterEntered) or event.master_epoch != order.elected_epoch:
        return None
    if event.broker_id == order.target:
        return SwitchoverEnd.DONE, f"broker {order.target} serves"
    return SwitchoverEnd.NOT_ENTERED, f"broker {order.target} did not enter; broker {order.master} serves again"
