"""
Views of sets for a reader of many: that of a set is made anew when the set has changed, not with each entry.

Here: ``KeptViews``. Not here: what a view shows (``controller.core.views``).

Each heartbeat asks for the view of its set. Made with each entry, those of 1,000 sets were a tenth of what their leader
did.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.core.state import FleetState, SetState
from rollcall_ha.controller.core.views import view_of


class KeptViews:
    """One view of each set that was asked for."""

    def __init__(self) -> None:
        self._kept: dict[SetKey, tuple[SetState, object, SetView]] = {}

    def of(self, fleet: FleetState, set_key: SetKey) -> SetView | None:
        """As ``view_of``. States are values: what is the same object has not changed."""
        set_state = fleet.sets.get(set_key)
        known, maintenances, view = self._kept.get(set_key, (None, None, None))
        is_same = known is set_state and maintenances is fleet.maintenances
        if view is None or not is_same or view.fleet_incarnation != fleet.fleet_incarnation:
            view = view_of(fleet, set_key)
        elif (view.term, view.index) == (fleet.term, fleet.index):
            return view
        else:
            view = replace(view, term=fleet.term, index=fleet.index)
        if set_state is None or view is None:
            self._kept.pop(set_key, None)
            return None
        self._kept[set_key] = (set_state, fleet.maintenances, view)
        return view
