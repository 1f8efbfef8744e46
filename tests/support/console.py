"""
The console in a real browser, for the tests of ``tests/blackbox/console``.

Here: a signed-in tab, the Chromium of this machine, what is asked of page and fleet by several files. Not here: the fleet and the
tabs (``conftest``), what is to be seen.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from typing import Any

from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.labels import label
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import only_set, rollcall

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LIMIT_MS = 30_000
NARROW = 400
MARKUP = "<img src=x onerror=alert(1)>"


@dataclass(slots=True)
class Console:
    """A signed-in tab, and what the browser had to complain of."""

    page: Any
    url: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    is_cut: bool = False
    """Its controller is taken away: the browser complains of connections, and is right."""

    def open(self, view: str) -> None:
        """Go to a view; the page stays."""
        self.page.goto(f"{self.url}#/{view}")

    def text(self, selector: str) -> str:
        """As it is read."""
        found: str = self.page.locator(selector).first.inner_text(timeout=LIMIT_MS)
        return found

    def until(self, expression: str) -> None:
        """Until it is true in the page. Asked from here: what Playwright would evaluate there again, the policy forbids."""
        wait_until(lambda: self.page.evaluate(expression), deadline_s=LIMIT_MS / 1000, what=expression)

    def wait(self, selector: str) -> Any:
        """Until it is to be seen."""
        self.page.locator(selector).first.wait_for(timeout=LIMIT_MS)
        return self.page.locator(selector)


def answer_of(fleet: Fleet, *arguments: str) -> Any:
    """What a command says, as a document."""
    done = rollcall(fleet, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def named(fleet: Fleet, broker_id: BrokerId | None) -> str:
    """As it is told: the name first."""
    assert broker_id is not None
    return label(broker_id, {one.broker_id: one.name for one in fleet.client().set(only_set(fleet)).set.replicas})
