"""Each picture that the manual shows has a maker, each maker a picture, and no picture is left over."""

from __future__ import annotations

import re

from tests.docs.pictures import DOCS, MAKERS, SCREENS, picture_of
from tests.docs.report_pictures import PICTURES
from tests.docs.transcripts import pages

NAMED = re.compile(r"\((?:docs/)?((?:console|report|screens)/[\w.-]+\.(?:png|svg))\)")


def test_pictures_showed_ids_long_after_the_console_showed_names() -> None:
    """Nobody could make them again: what is on pages, what is made and what is on the disk are the same."""
    named = {name for page in pages() for name in NAMED.findall(page.read_text())}
    there = {
        f"{path.parent.name}/{path.name}"
        for folder in ("console", "report", "screens")
        for path in (DOCS / folder).iterdir()
    }

    assert named == MAKERS.keys() | SCREENS | PICTURES
    assert there == named


def test_a_screen_fetches_nothing_and_cuts_nothing() -> None:
    made = picture_of("rollcall status", "x" * 90 + "\nend", 80, "dark")

    assert re.findall(r"url\(\W*http", made) == []
    assert re.findall(r">(x+|end)<", made) == ["x" * 80, "x" * 10, "end"]
