"""
The pictures of the manual, made of a living fleet: the console in Chromium, and the command line at three widths.

``python -m tests.docs.pictures`` (``make pictures``) founds a fleet, kills a master, and writes all of them anew. Here: what each
picture shows. Not here: those of the report (``report_pictures``), where they stand on pages, and that each has a maker
(``test_pictures``).
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from rollcall_ha.controller.contract.ids import MasterEpoch, SetKey
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.docs import report_pictures
from tests.support.fleet_story import load, rollcall, running

DOCS = Path(__file__).resolve().parents[2] / "docs"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDE, NARROW, SHEET = (1280, 800), (400, 800), (800, 1060)
DEADLINE_S = 60.0
LIMIT_MS = 60_000
WIDTHS = (80, 120, 200)
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": SVG_EXPORT_THEME}
COMMANDS = {
    "status": ("status",),
    "history": ("history", "broker-a"),
    "explain": ("explain", "broker-a"),
    "events": ("events", "--limit", "20"),
}
SCREENS = {f"screens/{name}-{width}-{theme}.svg" for name in COMMANDS for width in WIDTHS for theme in THEMES}
_FETCHED = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts from another address: the manual fetches nothing elsewhere."""


class Studio:
    """A fleet whose old master is gone, and tabs of its console."""

    def __init__(self, fleet: Fleet, key: SetKey, epoch: MasterEpoch, browser: Any, token: str) -> None:
        self.key, self.view, self.epoch = key, f"set/{key.cluster}/{key.name}", epoch
        self._fleet, self._browser, self._token = fleet, browser, token

    @contextmanager
    def tab(self, view: str, shown: str, size: tuple[int, int] = WIDE, **how: Any) -> Iterator[Any]:
        """Signed in, with ``shown`` to be seen."""
        width, height = size
        context = self._browser.new_context(
            ignore_https_errors=True, viewport={"width": width, "height": height}, reduced_motion="reduce", **how
        )
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.goto(f"https://{self._fleet.rest(self._fleet.leader()).address}/console")
        page.fill("#token", self._token)
        page.click("button[type=submit]")
        page.wait_for_selector("#verdict[class]")
        page.goto(f"{page.url.partition('#')[0]}#/{view}")
        page.wait_for_selector(shown)
        yield page
        context.close()

    def film(self, size: tuple[int, int] = WIDE, **how: Any) -> Any:
        """The film of the failover, in a tab of its own."""
        return self.tab(f"{self.view}/epoch/{self.epoch}", ".figures", size, **how)


def fleet_wide(studio: Studio, path: Path) -> None:
    with studio.tab("fleet", "tr.warn") as page:
        page.wait_for_selector(".controllers span")
        page.screenshot(path=path)


def fleet_narrow(studio: Studio, path: Path) -> None:
    with studio.tab("fleet", "tr.warn", NARROW) as page:
        page.wait_for_selector(".controllers span")
        page.screenshot(path=path)


def set_page(studio: Studio, path: Path) -> None:
    with studio.tab(studio.view, f"tr[data-epoch='{studio.epoch}'] svg.bar") as page:
        page.screenshot(path=path)


def film(studio: Studio, path: Path) -> None:
    """The film as it stands after its third step."""
    with studio.film() as page:
        step(page, 3)
        page.screenshot(path=path)


def film_dark(studio: Studio, path: Path) -> None:
    with studio.film(color_scheme="dark") as page:
        step(page, 3)
        page.screenshot(path=path)


def film_print(studio: Studio, path: Path) -> None:
    with studio.film(SHEET) as page:
        step(page, 3)
        page.emulate_media(media="print")
        page.screenshot(path=path)


def step(page: Any, count: int) -> None:
    for _ in range(count):
        page.click("[data-film=on]")


def switchover(studio: Studio, path: Path) -> None:
    """Previewed, and not given."""
    with studio.tab(studio.view, "tr[data-epoch] svg.bar") as page:
        page.get_by_role("button", name="Switch over…").click()
        page.fill("#reason", "new disks")
        page.get_by_role("button", name="Preview").click()
        page.wait_for_selector(".foreseen")
        page.screenshot(path=path)


MAKERS: dict[str, Callable[[Studio, Path], None]] = {
    "console/fleet.png": fleet_wide,
    "console/fleet-narrow.png": fleet_narrow,
    "console/set.png": set_page,
    "console/film.png": film,
    "console/film-dark.png": film_dark,
    "console/film-print.png": film_print,
    "console/switchover.png": switchover,
}
AGAIN_WHOLE = ("console/switchover.png",)
"""Those of a time when the old master is back."""


def screens(fleet: Fleet, docs: Path) -> None:
    """What each command prints on terminals of three widths, light and dark."""
    (docs / "screens").mkdir(exist_ok=True)
    for name, arguments in COMMANDS.items():
        for width in WIDTHS:
            done = subprocess.run(
                fleet.command(*arguments), env={**fleet.commands_environment(), "COLUMNS": str(width)},
                capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            if done.returncode not in (0, 1):
                raise RuntimeError(f"{name}: {done.stderr}")
            for theme in THEMES:
                svg = picture_of(f"rollcall {' '.join(arguments)}", done.stdout, width, theme)
                (docs / "screens" / f"{name}-{width}-{theme}.svg").write_text(svg)


def picture_of(title: str, printed: str, width: int, theme: str) -> str:
    """An SVG of a terminal. Lines that are too long go on in the next one, as terminals do."""
    lines = [line[at : at + width] for line in printed.splitlines() for at in range(0, max(1, len(line)), width)]
    console = Console(record=True, width=width, file=io.StringIO(), legacy_windows=False, color_system=None)
    console.print(Text("\n".join(lines)), no_wrap=True, crop=False)
    return _FETCHED.sub("", console.export_svg(title=title, theme=THEMES[theme], unique_id="screen")) + "\n"


def main() -> None:
    """Found a fleet, kill its master, and make all pictures of it."""
    from playwright.sync_api import sync_playwright

    layout = Layout(name="shop", sets={"broker-a": 3, "billing": 1})
    with tempfile.TemporaryDirectory() as directory, running(Path(directory) / "fleet", layout) as fleet, load(fleet):
        key = next(one for one in fleet.set_keys() if one.name == "broker-a")
        path = Path(directory) / "token"
        told = ("tokens", "issue", "--role", "operator", "--name", "alice", "--out", str(path))
        if (done := rollcall(fleet, *told)).returncode:
            raise RuntimeError(done.stderr)
        epoch = MasterEpoch(fleet.wait_redundant(key).view.master_epoch + 1)
        old = fleet.master(key)
        fleet.kill(old)
        wait_until(
            lambda: any(
                row.master_epoch == epoch and row.total_us is not None for row in fleet.client().history(key).rows
            ),
            deadline_s=DEADLINE_S,
            what=f"the record of masterEpoch {epoch}",
        )
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
            studio = Studio(fleet, key, epoch, browser, path.read_text().strip())
            for name in MAKERS.keys() - AGAIN_WHOLE:
                MAKERS[name](studio, DOCS / name)
            fleet.restart(old)
            fleet.wait_redundant(key)
            for name in AGAIN_WHOLE:
                MAKERS[name](studio, DOCS / name)
            report_pictures.main(browser)
            browser.close()
        screens(fleet, DOCS)


if __name__ == "__main__":
    if BROWSER is None:
        sys.exit("no Chromium on the PATH: apt-get install chromium")
    main()
