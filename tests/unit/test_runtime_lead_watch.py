"""Changes of the lead within ten minutes, and what is said of them."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.cli.tables import ControllerRow, status_report
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.problems import LEAD_CHANGES_MAX, LEAD_WINDOW_MS, lead_unstable_words
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.replication.ports import Leadership, RaftRole
from rollcall_ha.controller.runtime.lead_watch import CHANGES_KEPT_MAX, LeadWatch
from tests.support.fake_controllers import controller_status, fleet_status


def _led(term: int, leader: str | None = "c1") -> Leadership:
    return Leadership(
        role=RaftRole.FOLLOWER,
        term=term,
        leader=ControllerName(leader) if leader else None,
        commit_index=0,
        majority_asked_at_ns=None,
    )


def test_changes_count_for_ten_minutes() -> None:
    watch = LeadWatch()
    for number in range(4):
        watch.look(_led(7 + number), now_ns=number * NS_PER_MS)
        watch.look(_led(7 + number), now_ns=number * NS_PER_MS)
    assert watch.changes == 3
    watch.look(_led(10), now_ns=(LEAD_WINDOW_MS + 2) * NS_PER_MS)
    assert watch.changes == 2
    watch.look(_led(10), now_ns=2 * LEAD_WINDOW_MS * NS_PER_MS)
    assert watch.changes == 0


def test_a_controller_that_was_away_tells_no_changes_of_before() -> None:
    watch = LeadWatch()
    for term in (0, 3, 1_698):
        watch.look(_led(term), now_ns=NS_PER_MS)
    assert watch.changes == 1


def test_a_controller_that_is_cut_off_and_stands_changes_no_lead() -> None:
    watch = LeadWatch()
    watch.look(_led(3), now_ns=NS_PER_MS)
    for term in range(4, 40):
        watch.look(_led(term, None), now_ns=NS_PER_MS)
    watch.look(_led(40), now_ns=NS_PER_MS)
    assert watch.changes == 1


def test_what_is_kept_has_a_limit() -> None:
    watch = LeadWatch()
    for term in range(2 * CHANGES_KEPT_MAX):
        watch.look(_led(term), now_ns=NS_PER_MS)
    assert watch.changes == CHANGES_KEPT_MAX


def test_words_name_who_is_late() -> None:
    late = replace(controller_status("c1", leads=True), lead_changes=LEAD_CHANGES_MAX, late_ms=2_100)
    other = replace(controller_status("c2", leads=False), lead_changes=6)
    assert lead_unstable_words([late]) == ""
    assert lead_unstable_words([late, other]) == (
        "LEAD_UNSTABLE: the lead changed 6 times within 10 minutes; "
        "controllers come late, c1 2.1 s: too little CPU, or a slow disk"
    )
    assert lead_unstable_words([other]).endswith("; none that answers is late")


def test_status_tells_a_lead_that_changes_and_who_is_late() -> None:
    """By the word of the controller that has seen most of it."""
    fleet = fleet_status("c1")
    rows = [ControllerRow(address=name, status=fleet_status(name).controller) for name in ("c1", "c2")]
    assert "LEAD_UNSTABLE" not in str(status_report(fleet, rows).parts)
    assert rows[1].status is not None
    rows[1] = replace(rows[1], status=replace(rows[1].status, lead_changes=23, late_ms=2_100))
    words = "the lead changed 23 times within 10 minutes; controllers come late, c2 2.1 s"
    assert f"WARNING  LEAD_UNSTABLE: {words}" in str(status_report(fleet, rows).parts)
