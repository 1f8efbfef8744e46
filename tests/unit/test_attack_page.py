"""The page of the attack table: whole, and with some rows run again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rollcall_ha.api.rest.roles import ROLES
from rollcall_ha.controller.contract.principals import Role
from tests.attacks.page import BEGIN, END, Row, write_page
from tests.attacks.scene import Attack
from tests.attacks.web import not_for


def row(name: str, came_back: str, verdict: str = "ok") -> Row:
    attack = Attack(name=name, port="rest", run=lambda _: "", refused_with=())
    return Row(attack=attack, verdict=verdict, came_back=came_back, counted='rollcall_x_total{reason="y"} +3', gap_ms=7)


def totals(command: str) -> dict[str, Any]:
    counts = dict.fromkeys(("attacks", "refused", "open", "skipped", "failed", "seconds", "longest_gap_ms"), 1)
    return counts | {"command": command, "audits": {"a": {"acked": 5, "wrong": 0}}}


def test_rows_that_are_run_again_take_their_places_and_say_so(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")

    write_page(
        page, [row("a", "status 401"), row("b", "x|y\nz", "FAILED")], totals("make prove PARTS=attacks"), is_whole=True
    )
    first = page.read_text()
    write_page(page, [row("b", "status 403")], totals("one row"), is_whole=False)
    second = page.read_text()

    assert "old" not in first
    assert '| rest | b | FAILED: x/y z | `rollcall_x_total{reason="y"}` | 7 |' in first
    assert second.startswith("before\n")
    assert second.endswith(f"{END}\nafter\n")
    assert second.count("| rest |") == 2
    assert [line for line in second.splitlines() if line.startswith("| rest | a")] == [
        line for line in first.splitlines() if line.startswith("| rest | a")
    ]
    assert "FAILED" not in second
    assert second.index("`make prove PARTS=attacks`") < second.index("`one row`") < second.index("| port |")


def test_the_attacks_visited_fewer_routes_than_rest_has() -> None:
    """``python -m tests.attacks --page docs/threats.md --only "on every route"`` visits those of today."""
    page = (Path(__file__).resolve().parents[2] / "docs/threats.md").read_text()
    shown = dict(re.findall(r"\| rest \| (.*) on every route.* \| status 40[13] on (\d+) routes \|", page))

    assert {name: int(count) for name, count in shown.items()} == {
        "nobody": len(ROLES),
        "a viewer's token": len(not_for(Role.VIEWER)),
        "an operator's token": len(not_for(Role.OPERATOR)),
    }
