"""What the documents say is there, is there: paths, links, numbers. Verbs and commands: ``test_hints``."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.controller.contract.timing import PRESETS, Timing
from tests.docs.made_tables import DOCS, TABLES, with_table

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("adr/*.md")])
TOPS = (
    "analytics",
    "api",
    "broker",
    "cli",
    "client",
    "controller",
    "deploy",
    "epoch",
    "ha",
    "hooks",
    "node",
    "probe",
    "tests",
    "docs",
    "adr",
)


def words(document: Path, pattern: str) -> list[str]:
    found = re.findall(pattern, document.read_text())
    return [str(word) for word in found]


def test_there_are_documents() -> None:
    """The other tests would pass on nothing."""
    assert len(DOCUMENTS) >= 15


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_and_links_exist(document: Path) -> None:
    """Every path of ours in backticks and every relative link leads somewhere."""
    paths = words(document, rf"`((?:{'|'.join(TOPS)})/[\w./-]*)`")
    links = words(document, r"\]\(([\w./-]+)\)")
    missing = [path for path in paths if not (ROOT / path).exists()]
    missing += [link for link in links if not (document.parent / link).exists()]

    assert missing == []


def test_timing_page_has_the_numbers_of_the_presets() -> None:
    """docs/timing.md is made from controller/contract/timing.py."""
    page = (ROOT / "docs" / "timing.md").read_text()
    for name, timing in PRESETS.items():
        worst = timing.worst_case_rto_ms()
        numbers = (worst["detect"], worst["decide"], worst["enter"], sum(worst.values()))
        assert f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |" in page
    for field in msgspec.structs.fields(Timing):
        row = " | ".join(f"{getattr(timing, field.name):,}" for timing in PRESETS.values())
        assert f"| {field.name} | {row} |" in page


@pytest.mark.parametrize("name", TABLES)
def test_a_page_has_the_table_that_is_made_of_the_contract(name: str) -> None:
    """``python -m tests.docs.made_tables`` writes it."""
    page = (DOCS / f"{name}.md").read_text()
    assert with_table(name, page) == page


def test_every_weak_spot_of_the_reference_is_answered() -> None:
    """W1 to W39 each have a row."""
    named: set[int] = set()
    for row in re.findall(r"^\| (W[^|]*) \|", (ROOT / "DIVERGENCE.md").read_text(), re.MULTILINE):
        for first, last in re.findall(r"W(\d+)b?(?:-W(\d+))?", row):
            named |= set(range(int(first), int(last or first) + 1))

    assert named == set(range(1, 40))


def test_every_decision_says_what_it_cost() -> None:
    """Numbered pages with the same four parts."""
    pages = sorted((ROOT / "adr").glob("*.md"))

    assert [page.name[:4] for page in pages] == [f"{number:04d}" for number in range(1, len(pages) + 1)]
    for page in pages:
        parts = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert parts == ["Context", "Decision", "What we gave up", "How we would notice that it was wrong"]


def test_the_index_has_every_page() -> None:
    """Nobody finds a page that the index of docs/ does not name."""
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert {name for name in pages if f"]({name})" not in index} == set()


def test_no_table_or_transcript_of_the_readme_is_wider_than_100_places() -> None:
    """``history`` took 194 there: a reader saw the half of it."""
    is_block, rows = False, []
    for line in (ROOT / "README.md").read_text().splitlines():
        if line.startswith("```"):
            is_block = not is_block
        elif is_block or line.startswith("|"):
            rows.append(line)
    assert len(rows) > 40, "there are tables and transcripts"
    assert [row for row in rows if len(row) > 100 and "  # " not in row] == [], "and no comment behind a command"
