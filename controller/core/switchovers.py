"""
The life of an order to switch over, as its events tell it: in the state of its set, and in a journal (R29).

Here: ``noted`` keeps it, ``switchovers_of`` reads a journal, and what brokers and operators see of it. Not here:
whether an order is taken (``decide_switchover``), which event ends it (``switchover_ends``).

Rule: the order that ended is kept until the next one: whoever asks again by its request id hears how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from rollcall_ha.controller.contract.events import (
    EventRecord,
    MasterElected,
    SwitchoverEnded,
    SwitchoverOrdered,
)
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.replies import SwitchoverRow, SwitchoverView
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.state import SetState, Switchover


def switchover_view(set_state: SetState) -> SwitchoverView | None:
    """The order that is under way, as brokers and the leader's duties see it."""
    order = set_state.pending_switchover
    if order is None:
        return None
    return made_from(order, SwitchoverView)


def noted(set_state: SetState, record: EventRecord) -> SetState:
    """``set_state`` with what ``record`` says of its order."""
    event = record.event
    if isinstance(event, SwitchoverOrdered):
        return replace(set_state, switchover=_ordered(record, event))
    order = set_state.pending_switchover
    if order is None:
        return set_state
    if isinstance(event, MasterElected) and event.verdict.kind is ElectionKind.SWITCHOVER:
        changed = replace(order, elected_epoch=event.master_epoch)
        if order.elected_epoch is None:
            drained_us = event.detection.first_sign_age_us if event.detection is not None else 0
            changed = replace(changed, elected_at_ms=record.stamped_at_ms, drained_us=drained_us)
        return replace(set_state, switchover=changed)
    if isinstance(event, SwitchoverEnded) and event.order == order.order:
        changed = replace(order, end=event.end, ended_at_ms=record.stamped_at_ms, reason=event.reason)
        return replace(set_state, switchover=changed)
    return set_state


def _ordered(record: EventRecord, event: SwitchoverOrdered) -> Switchover:
    return Switchover(
        order=event.order,
        ordered_by=record.ref,
        requested_by=record.requested_by,
        master=event.master,
        master_incarnation=event.master_incarnation,
        master_epoch=event.master_epoch,
        target=event.target,
        target_incarnation=event.target_incarnation,
        deadline_ms=event.deadline_ms,
        ordered_at_ms=record.stamped_at_ms,
    )


def row_of(order: Switchover) -> SwitchoverRow:
    """What an operator hears of an order. Times are differences of stamps: of a clock that was set meanwhile, 0."""
    elected_ms = None if order.elected_at_ms is None else max(0, order.elected_at_ms - order.ordered_at_ms)
    ended_ms = None if order.ended_at_ms is None else max(0, order.ended_at_ms - order.ordered_at_ms)
    return made_from(
        order,
        SwitchoverRow,
        from_master=order.master,
        to_master=order.target,
        from_epoch=order.master_epoch,
        epoch=order.elected_epoch,
        drained_us=order.drained_us if order.elected_at_ms is not None else None,
        elected_ms=elected_ms,
        entered_ms=ended_ms if order.elected_at_ms is not None else None,
        took_ms=ended_ms,
        event=order.ordered_by,
    )


def switchovers_of(records: Iterable[EventRecord]) -> tuple[SwitchoverRow, ...]:
    """
    One value per order, newest first.

    Args:
        records: Events of one set, in order; others are ignored. A repeated event changes nothing (S81).
    """
    orders: dict[RequestId, Switchover] = {}
    newest: RequestId | None = None
    for record in records:
        event = record.event
        if isinstance(event, SwitchoverOrdered):
            newest = event.order
            if newest in orders:
                continue
        if record.set_key is None or newest is None:
            continue
        before = SetState(set_key=record.set_key, switchover=orders[newest]) if newest in orders else None
        after = noted(before or SetState(set_key=record.set_key), record)
        if after.switchover is not None:
            orders[newest] = after.switchover
    return tuple(row_of(order) for order in reversed(orders.values()))
