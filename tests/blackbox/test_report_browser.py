"""
The report in a real browser: Chromium, headless, measures what it has laid out.

Skips with the reason where no Chromium is installed (``apt-get install chromium``).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.analytics.report.page import page
from tests.support.report_rows import story

pytestmark = pytest.mark.slow

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LIMIT_S = 120
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
DARK = "--blink-settings=preferredColorScheme=0"

MEASURE = """<script>
const boxes = [...document.querySelectorAll("svg[role=img]")].map(svg => ({
  title: svg.querySelector("title").textContent,
  frame: svg.getBoundingClientRect(),
  texts: [...svg.querySelectorAll("text")].filter(text => text.textContent.trim()).map(
    text => [text.textContent, text.getBoundingClientRect()]),
}));
const overlaps = [], outside = [];
for (const {title, frame, texts} of boxes) {
  for (const [words, box] of texts)
    if (box.left < frame.left - 1 || box.right > frame.right + 1) outside.push([title, words]);
  texts.forEach(([words, one], n) => texts.slice(n + 1).forEach(([others, two]) => {
    const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
    const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
    if (wide > 1 && high > 3) overlaps.push([title, words, others]);
  }));
}
const colours = element => getComputedStyle(document.querySelector(element));
const found = {
  pictures: boxes.length,
  texts: boxes.reduce((sum, box) => sum + box.texts.length, 0),
  overlaps, outside,
  sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  tables: [...document.querySelectorAll("table")].filter(
    table => table.scrollWidth > table.parentElement.clientWidth + 1).length,
  paper: colours("body").backgroundColor, ink: colours("body").color,
  text: colours("svg[role=img] text").fill, filled: colours("rect.phase-1").fill,
};
document.body.setAttribute("data-found", JSON.stringify(found));
</script>"""


def browse(folder: Path, *flags: str) -> str:
    """Output of one run of the browser on ``folder/page.html``."""
    if BROWSER is None:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [BROWSER, *QUIET, profile, *flags, (folder / "page.html").as_uri()],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def measured(folder: Path, *flags: str, days: int = 120, sets: int = 50) -> dict[str, Any]:
    """What the browser laid out. The page forbids scripts; the copy that is measured does not."""
    text = page(story(days=days, sets=sets))
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert bare != text
    (folder / "page.html").write_text(bare.replace("</body>", f"{MEASURE}</body>"))
    dom = browse(folder, "--dump-dom", "--window-size=1120,900", *flags)
    hit = re.search(r'data-found="([^"]*)"', dom)
    assert hit is not None, "the measuring script did not run"
    found: dict[str, Any] = json.loads(unescape(hit[1]))
    return found


@pytest.mark.parametrize(("days", "sets"), [(1, 1), (9, 4), (120, 50), (800, 60)])
def test_no_words_lie_over_others(tmp_path: Path, days: int, sets: int) -> None:
    """In no picture, of a fleet of a day or of years; nothing sticks out, nothing scrolls sideways."""
    found = measured(tmp_path, days=days, sets=sets)

    assert found["pictures"] == 8
    assert found["texts"] > 100
    assert found["overlaps"] == []
    assert found["outside"] == []
    assert (found["sideways"], found["tables"]) == (0, 0)


def test_dark_and_light_are_both_readable(tmp_path: Path) -> None:
    """Paper and ink change places; words in pictures go with them, colours that mean something stay."""
    light, dark = measured(tmp_path, days=9, sets=4), measured(tmp_path, DARK, days=9, sets=4)

    assert brightness(light["paper"]) - brightness(light["ink"]) > 150
    assert brightness(dark["ink"]) - brightness(dark["paper"]) > 150
    assert (light["text"], dark["text"]) == (light["ink"], dark["ink"])
    assert light["filled"] == dark["filled"] == "rgb(213, 94, 0)"


def brightness(colour: str) -> float:
    """Mean of red, green and blue."""
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_it_prints(tmp_path: Path) -> None:
    """On a handful of pages."""
    (tmp_path / "page.html").write_text(page(story()))
    target = tmp_path / "page.pdf"
    browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={target}")
    pages = re.findall(rb"/Type\s*/Page\b", target.read_bytes())

    assert 2 <= len(pages) <= 12


def test_browsers_are_held_to_the_policy(tmp_path: Path) -> None:
    """A script that got into the page would not run."""
    (tmp_path / "page.html").write_text(page(story(days=1, sets=1)).replace("</body>", f"{MEASURE}</body>"))

    assert "data-found=" not in browse(tmp_path, "--dump-dom").split("<script>", maxsplit=1)[0]
