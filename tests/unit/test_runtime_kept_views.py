"""Views that are kept between entries: the same as new ones after every order, and the same objects where nothing changed."""

from __future__ import annotations

from rollcall_ha.controller.contract.commands import BeginMaintenance, CleanReplicas, ElectMaster, EndMaintenance
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.values import MaintenanceScope
from rollcall_ha.controller.core.state import EMPTY_FLEET
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.controller.runtime.kept_views import KeptViews
from tests.support.core_builders import SET_A, SET_B, Fleet


def test_a_kept_view_is_that_of_the_newest_state_after_every_order() -> None:
    """A maintenance changes the view of a set, and not the set: kept by the set alone, its condition was an old one."""
    views, fleet = KeptViews(), Fleet().serving()
    scope = MaintenanceScope(set_key=SET_A, broker_id=BrokerId(2))
    assert views.of(EMPTY_FLEET, SET_A) is None
    seen = set()
    for command in (
        BeginMaintenance(scope=scope, expires_at_ms=2_000_000, spends_last=True, reason="new disk"),
        None,
        EndMaintenance(scope=scope),
        ElectMaster(set_key=SET_A),
        CleanReplicas(set_key=SET_B, broker_ids=(BrokerId(1),)),
        CleanReplicas(set_key=SET_A, broker_ids=(), is_unclean=True),
    ):
        if command is None:
            fleet.silence(1)
        else:
            evidence = fleet.evidence() if isinstance(command, ElectMaster) else None
            fleet.apply([fleet.operation(command, requested_by="operator:alice", evidence=evidence)])
        for key in (SET_A, SET_B):
            assert views.of(fleet.state, key) == view_of(fleet.state, key)
        view = views.of(fleet.state, SET_A)
        assert view is not None
        seen.add(view.condition_reason)
    assert len(seen) == 5


def test_an_entry_about_nothing_of_a_set_makes_no_view_of_it_anew() -> None:
    views, fleet = KeptViews(), Fleet().serving()
    before = views.of(fleet.state, SET_A)
    fleet.apply([fleet.operation(CleanReplicas(set_key=SET_B, broker_ids=(BrokerId(1),)))])

    after = views.of(fleet.state, SET_A)

    assert before is not None
    assert after is not None
    assert after.index == fleet.state.index > before.index
    assert after.members is before.members
    assert views.of(fleet.state, SET_A) is after
