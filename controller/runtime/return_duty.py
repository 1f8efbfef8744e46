"""
Returning masters to the replicas that are preferred, by a policy that is off until set: a duty of the leader.

Here: for how long a preferred replica has been in sync, and the order. Not here: which one is preferred
(``controller.core.preferred``), the switchover itself (R29). Times are nanoseconds of one monotonic clock.

Rule 1: the replica has to be the preferred one, in sync and the same process, for ``return_after_ms`` without a break.
A new leader counts anew. One that restarts every few minutes gets nothing.
Rule 2: the return is a switchover: it drains, loses nothing, and goes back if its target fails. After an order,
whatever comes of it, the time begins anew: a target that fails each time costs one short pause of sends in it.
Rule 3: few at a time. After a data centre is back, all sets would else switch over in one second.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.controller.contract.commands import OrderSwitchover
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SetKey
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.core.preferred import preferred_heir
from rollcall_ha.controller.core.settings import settings_in_force
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.runtime.order_ends import FleetNow

LOOK_INTERVAL_MS = 1_000
AT_A_TIME = 4


class _Candidate(msgspec.Struct):
    broker_id: BrokerId
    incarnation: Incarnation | None
    since_ns: int


class ReturnDuty:
    """The machine of one leader."""

    def __init__(self, fleet_now: FleetNow) -> None:
        self._fleet_now = fleet_now
        self._candidates: dict[SetKey, _Candidate] = {}
        self._look_ns = 0

    def disarm(self) -> None:
        self._candidates.clear()

    def tick(self, now_ns: int) -> list[OrderSwitchover]:
        """The returns that are due, each second at most once; the caller adds the evidence."""
        if now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + LOOK_INTERVAL_MS * NS_PER_MS
        fleet, _ = self._fleet_now()
        applied = settings_in_force(fleet)
        after_ms = applied.settings.return_after_ms if applied is not None else 0
        if not after_ms:
            self._candidates.clear()
            return []
        self._look(fleet, now_ns)
        under_way = sum(one.pending_switchover is not None for one in fleet.sets.values())
        due = [key for key, one in self._candidates.items() if now_ns - one.since_ns >= after_ms * NS_PER_MS]
        orders = []
        for key in due[: max(0, AT_A_TIME - under_way)]:
            self._candidates[key].since_ns = now_ns
            orders.append(self._order(fleet, key, after_ms))
        return orders

    def _look(self, fleet: FleetState, now_ns: int) -> None:
        for key, set_state in fleet.sets.items():
            heir = set_state.replica(preferred_heir(fleet, set_state))
            if heir is None:
                # Its own switchover is under way, or the set is not whole: a new count begins when it is again.
                self._candidates.pop(key, None)
                continue
            known = self._candidates.get(key)
            if known is None or (known.broker_id, known.incarnation) != (heir.broker_id, heir.incarnation):
                self._candidates[key] = _Candidate(heir.broker_id, heir.incarnation, now_ns)

    def _order(self, fleet: FleetState, key: SetKey, after_ms: int) -> OrderSwitchover:
        set_state = fleet.sets[key]
        return OrderSwitchover(
            set_key=key,
            to=self._candidates[key].broker_id,
            expected_master=set_state.master,
            expected_epoch=set_state.master_epoch,
            reason=f"returned by policy: preferred, and in sync for {after_ms} ms",
        )
