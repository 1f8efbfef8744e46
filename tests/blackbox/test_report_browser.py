"""
The report in a real browser: the Chromium of this machine, driven by Playwright, measures what it has laid out.

Skips with the reason where one of both is missing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.analytics.report.page import page
from tests.support.report_rows import story

pytestmark = [pytest.mark.slow, pytest.mark.prove]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAPER = 688
"""Pixels between the margins of a sheet of A4."""
SMALLEST_PX = 9
PAGE_BYTES_MAX = 1_000_000

WORDS = "text, .line :is(b, span, code, .value), .scroll :is(b, span, small)"

MEASURE = """() => {
  const pictures = [...document.querySelectorAll("figure")], overlaps = [], outside = [], small = [];
  const name = one => one.textContent.trim();
  let texts = 0;
  for (const picture of pictures) {
    const found = [...picture.querySelectorAll(WORDS)]
      .map(one => [one, one.getBoundingClientRect()]).filter(([one, box]) => name(one) && box.width);
    texts += found.length;
    const isMoved = picture.scrollWidth > picture.clientWidth + 1;
    for (const [one, box] of found) {
      const scale = one instanceof SVGElement ? one.getScreenCTM().a : 1;
      const size = parseFloat(getComputedStyle(one).fontSize) * scale;
      if (size < SMALLEST) small.push([name(one), size]);
      if (!isMoved && (box.left < 0 || box.right > innerWidth)) outside.push([name(one), box.left, box.right]);
    }
    found.forEach(([one, a], n) => found.slice(n + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 3) overlaps.push([name(one), name(other)]);
    }));
  }
  const colours = one => getComputedStyle(document.querySelector(one));
  return {
    pictures: pictures.length, texts, overlaps, outside, small,
    sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    moved: [...document.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth + 1).length,
    paper: colours("body").backgroundColor, ink: colours("body").color,
    text: colours("svg text.value").fill, filled: colours("rect.phase-1").fill,
  };
}""".replace("SMALLEST", str(SMALLEST_PX)).replace("WORDS", repr(WORDS))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    if BROWSER is None:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page of it that loads nothing."""
    found = browser.new_page()
    yield found
    found.close()


def shown(tab: Any, folder: Path, text: str, *, width: int, media: str = "screen", scheme: str = "light") -> None:
    """Open a page there."""
    (folder / "page.html").write_text(text)
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(media=media, color_scheme=scheme)
    tab.goto((folder / "page.html").as_uri())


@pytest.mark.parametrize(("width", "media"), [(400, "screen"), (1_000, "screen"), (1_600, "screen"), (PAPER, "print")])
@pytest.mark.parametrize(("days", "sets"), [(1, 1), (120, 50), (800, 1_000)])
def test_every_word_can_be_read(tab: Any, tmp_path: Path, days: int, sets: int, width: int, media: str) -> None:
    """
    Of a fleet of a day or of years, on a telephone, a screen and paper: none too small, over another or outside.

    What is wider than a telephone is moved in its own place, never the page; on paper nothing can be moved.
    """
    text = page(story(days=days, sets=sets))
    shown(tab, tmp_path, text, width=width, media=media)
    found = tab.evaluate(MEASURE)

    assert len(text.encode()) < PAGE_BYTES_MAX
    assert found["pictures"] == 16
    assert found["texts"] > 150
    assert (found["overlaps"], found["outside"], found["small"], found["sideways"]) == ([], [], [], 0)
    assert found["moved"] == 0 or width == 400


def test_dark_and_light_are_both_readable(tab: Any, tmp_path: Path) -> None:
    """Paper and ink change places; words in pictures go with them, colours that mean something stay."""
    text = page(story(days=9, sets=4))

    def laid_out(scheme: str) -> dict[str, Any]:
        shown(tab, tmp_path, text, width=1_000, scheme=scheme)
        found: dict[str, Any] = tab.evaluate(MEASURE)
        return found

    light, dark = laid_out("light"), laid_out("dark")

    assert brightness(light["paper"]) - brightness(light["ink"]) > 150
    assert brightness(dark["ink"]) - brightness(dark["paper"]) > 150
    assert (light["text"], dark["text"]) == (light["ink"], dark["ink"])
    assert light["filled"] == dark["filled"] == "rgb(213, 94, 0)"


def brightness(colour: str) -> float:
    """Mean of red, green and blue."""
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def shown_places(tab: Any) -> list[str]:
    """Places of all rows that a reader sees."""
    found: list[str] = tab.eval_on_selector_all(
        "[data-in]", "all => all.filter(one => one.offsetParent).map(one => one.dataset.in)"
    )
    return found


def test_a_choice_shows_its_fleet_and_period(tab: Any, tmp_path: Path) -> None:
    """Without the script the page is that of all fleets and the whole time, and has no choice that would do nothing."""
    text = page(story(days=120, sets=50))
    shown(tab, tmp_path, text, width=1_000)
    whole = shown_places(tab)
    tab.select_option("select[name=fleet]", "f0")
    tab.select_option("select[name=period]", "2026-02")
    chosen = shown_places(tab)
    tiles = tab.locator(".tiles:visible")

    assert len(whole) > 30
    assert all({"all:all", "all:"} & set(one.split()) for one in whole)
    assert len(chosen) > 10
    assert all({"f0:2026-02", "f0:"} & set(one.split()) for one in chosen)
    assert tiles.count() == 1
    assert "January 2026" in tiles.inner_text()
    assert tab.locator("#budgets .line:visible").count() == 10
    bare = tab.context.browser.new_page(java_script_enabled=False)
    shown(bare, tmp_path, text, width=1_000)
    assert bare.locator("form.filter").is_hidden()
    assert bare.locator("#incidents .line:visible").count() == 10
    assert bare.locator(".tiles:visible").count() == 1
    bare.close()


def test_it_prints(tab: Any, tmp_path: Path) -> None:
    """On a handful of pages."""
    shown(tab, tmp_path, page(story()), width=PAPER, media="print")
    pages = re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True))

    assert 2 <= len(pages) <= 14


def test_browsers_are_held_to_the_policy(tab: Any, tmp_path: Path) -> None:
    """A script that got into the page does not run."""
    script = '<script>document.body.setAttribute("data-ran", "")</script></body>'
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page(story(days=1, sets=1)))
    for text, ran in ((page(story(days=1, sets=1)), False), (bare, True)):
        shown(tab, tmp_path, text.replace("</body>", script), width=1_000)
        assert tab.evaluate("document.body.hasAttribute('data-ran')") is ran
