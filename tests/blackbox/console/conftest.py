"""
A fleet, the Chromium of this machine and signed-in tabs for each file of this folder.

Chromium is driven by Playwright; skipped with the reason where one of both is missing. No test here judges a time:
``make prove PARTS=console-bench`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.console import BROWSER, Console
from tests.support.fleet_story import heal, rollcall, running

WATCH = """
window.__complaints = [];
addEventListener("securitypolicyviolation", (event) => __complaints.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
addEventListener("error", (event) => __complaints.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => __complaints.push(`rejected: ${event.reason}`));
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three controllers and three brokers, with certificates."""
    if BROWSER is None:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    with running(tmp_path_factory.mktemp("console") / "fleet") as found:
        yield found


@pytest.fixture(scope="module")
def browser(fleet: Fleet) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def tokens(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One of each role."""
    folder, found = tmp_path_factory.mktemp("tokens"), {}
    for role in ("viewer", "operator"):
        told = ("tokens", "issue", "--role", role, "--name", f"{role}-of-the-console", "--out", str(folder / role))
        done = rollcall(fleet, *told)
        assert done.returncode == 0, done.stderr
        found[role] = (folder / role).read_text().strip()
    return found


@pytest.fixture
def consoles(fleet: Fleet, browser: Any, tokens: dict[str, str]) -> Iterator[Any]:
    """Makes tabs. At the end of the test: no error, no violation of the policy, nothing asked of another address."""
    heal(fleet)
    made: list[Console] = []

    def make(role: str = "operator", *, controller: str = "", **how: Any) -> Console:
        address = fleet.rest(controller or fleet.leader()).address
        context = browser.new_context(ignore_https_errors=True, viewport={"width": 1440, "height": 900}, **how)
        context.add_init_script(WATCH)
        page = context.new_page()
        found = Console(page, f"https://{address}/console")
        page.on("console", lambda said: found.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda request: found.asked.append(request.url))
        page.goto(found.url)
        if role:
            page.fill("#token", tokens[role])
            page.click("button[type=submit]")
            found.wait("#verdict[class]")
        made.append(found)
        return found

    yield make
    for one in made:
        # A refusal is an answer, and so is an outcome that is not known as the leader changes (asked for again under the
        # same id); the browser writes a line for each that is not 2xx.
        excused = r"status of (401|403|404|409|422|503|504)" + ("|net::ERR_" if one.is_cut else "")
        of_page = [said for said in one.complaints if not re.search(excused, said)]
        assert of_page == []
        assert one.page.evaluate("window.__complaints") == []
        assert {url.split("/")[2] for url in one.asked} == {one.url.split("/")[2]}
        secrets = [url for url in one.asked if any(token in url for token in tokens.values())]
        assert secrets == []
        one.page.context.close()
