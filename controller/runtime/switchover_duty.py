"""
The deadlines of orders to switch over: the duty, as a machine (R29).

Here: from when an order has its time on this leader, and what is proposed when it is over. Not here: draining
(``broker.core.role``), other ends of an order (``controller.core.switchover_ends``), the way back of a target that does
not enter (``election_duty``). Times are nanoseconds of one monotonic clock.

Rule 1 (R14): the time of an order begins when this leader hears of it. By the stamp of its entry, a leader whose clock
is an hour ahead would withdraw each order at once. The next leader gives it its whole time again: an order takes at
most one deadline for each leader that it meets.
Rule 2: before its election an order is withdrawn; behind it the set has to have a master: the target that has not
entered by then is replaced.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.controller.contract.commands import EndSwitchover
from rollcall_ha.controller.contract.ids import RequestId, SetKey
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.core.actions import Action, ProposeCommand
from rollcall_ha.controller.core.election_duty import ElectionDuty
from rollcall_ha.controller.core.views import ViewOf

RETRY_MS = 500
"""After a withdrawal whose outcome is not known, or that came to nothing."""


class _Timed(msgspec.Struct):
    order: RequestId
    due_ns: int


class SwitchoverDuty:
    """The machine of one leader."""

    def __init__(self, *, view_of: ViewOf, elections: ElectionDuty) -> None:
        """``view_of``: the newest applied state of a set."""
        self._view_of = view_of
        self._elections = elections
        self._timed: dict[SetKey, _Timed] = {}

    def disarm(self) -> None:
        self._timed.clear()

    def set_changed(self, key: SetKey, now_ns: int) -> None:
        """An applied entry changed this set, or this controller begins to lead."""
        view = self._view_of(key)
        order = view.switchover if view is not None else None
        if order is None:
            self._timed.pop(key, None)
        elif key not in self._timed or self._timed[key].order != order.order:
            self._timed[key] = _Timed(order.order, now_ns + order.deadline_ms * NS_PER_MS)

    def tick(self, now_ns: int) -> list[Action]:
        """Look at deadlines that have passed."""
        actions: list[Action] = []
        for key, timed in tuple(self._timed.items()):
            view = self._view_of(key)
            order = view.switchover if view is not None else None
            if order is None or timed.due_ns > now_ns:
                continue
            timed.due_ns = now_ns + RETRY_MS * NS_PER_MS
            if order.elected_epoch is None:
                reason = f"broker {order.master} had not drained within {order.deadline_ms} ms"
                actions.append(
                    ProposeCommand(command=EndSwitchover(set_key=key, order=order.order, reason=reason), evidence=None)
                )
            else:
                actions += self._elections.overdue(key, f"the order's deadline of {order.deadline_ms} ms", now_ns)
        return actions
