"""
Pictures of the report, in Chromium: of a fleet with one failover, and of a thousand sets, at three widths and on paper.

``python -m tests.docs.report_pictures`` writes histories of ``tests.synthetic``, makes their lakes and reports by the command
line, and writes all pictures anew; ``make pictures`` does it after those of the console (``pictures``). Not here: that no word
is too small, over another or outside (``tests/blackbox/test_report_browser.py``).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.synthetic.files import write_fleet
from tests.synthetic.plan import Mix, Plan

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIZES = {"400": (400, 900), "1000": (1_000, 1_200), "1600": (1_600, 1_200), "paper": (688, 973)}
"""Width and height in pixels; paper is what lies between the margins of a sheet of A4."""
_CRASH = Mix(**(dict.fromkeys(Mix.__struct_fields__, 0.0) | {"crash": 1.0}))
PLANS = {
    # The first seed whose history has one failover.
    "one": Plan(seed=3, fleets=1, sets=1, days=2, faults_per_day=0.5, mix=_CRASH, controller_changes_per_day=0),
    "thousand": Plan(fleets=4, sets=250, days=100, faults_per_day=0.03, controller_changes_per_day=0.1),
}
PICTURES = {f"report/{name}-{size}.png" for name in PLANS for size in SIZES}


def journals_of(plan: Plan, folder: Path) -> Path:
    """The journals of a history."""
    for number in range(plan.fleets):
        write_fleet(plan, number, folder)
    return folder / "journals"


def report_of(journals: Path, lake: Path) -> Path:
    """The page, made as a person makes it."""
    for words in (("run", journals, "--lake", lake, "-q"), ("report", lake)):
        subprocess.run([sys.executable, "-m", "rollcall_ha.analytics.cli", *map(str, words)], check=True)
    return lake / "report" / "index.html"


def draw(browser: Any, page: Path, name: str) -> None:
    """The first screen, or sheet, at each size. Raises if the page is wider than its window."""
    for size, (width, height) in SIZES.items():
        tab = browser.new_page(viewport={"width": width, "height": height})
        tab.emulate_media(media="print" if size == "paper" else "screen", color_scheme="light")
        tab.goto(page.as_uri())
        if tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"):
            raise RuntimeError(f"{name} at {size}: the page is wider than its window")
        tab.screenshot(path=DOCS / f"report/{name}-{size}.png")
        tab.close()


def main(browser: Any) -> None:
    """Make the pictures of each plan. Raises ``RuntimeError`` if a page is wider than its window."""
    (DOCS / "report").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, plan in PLANS.items():
            folder = Path(directory) / name
            draw(browser, report_of(journals_of(plan, folder), folder / "lake"), name)


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    from tests.docs.pictures import BROWSER

    with sync_playwright() as playwright:
        main(playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"]))
