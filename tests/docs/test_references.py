"""What code and pages refer to is in the repository: pages, parts of pages, files. Nobody is sent to a page that is not here."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.cited_numbers import CODE, ROOT, other_files, python_files

FILES = [*python_files(*CODE, "tests"), *other_files()]

GONE = ("rocketmq-wire", "rocketmq-ha", "wire-captures", "the wire document", "design section", "section of the design")
"""Pages of the time before the first commit. What they said is in docs/safety.md, docs/invariants.md, docs/wire.md."""

SECTION = re.compile(r"(?i)\bsections? \d")
PAGE = re.compile(r"(?<![\w*{}/.-])((?:\.\./)?(?:[\w-]+/)*[\w-]+\.md)\b")
PART = re.compile(r"(docs/wire\.md)(?:, | \()([\w -]+)|(docs/[\w-]+\.md), \"([^\"]+)\"")
"""``docs/wire.md, controller codes``: the part of a page that is meant."""


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def headings(page: str) -> tuple[str, ...]:
    found = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    return tuple(str(heading).lower() for heading in found)


@cache
def bare_names() -> frozenset[str]:
    """Names of pages that may be said without their folder."""
    return frozenset(path.name for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("adr/*.md")])


def is_page(name: str, path: Path) -> bool:
    """Found from the root, from beside the file that names it, or by its name alone where a page of docs/ names it."""
    places = [ROOT / name, path.parent / name]
    if path.suffix == ".md" and path.parent.name == "docs":
        places.append(ROOT / "docs" / name)
    return any(place.is_file() for place in places)


def test_there_are_files() -> None:
    """The other tests would pass on nothing."""
    assert len(FILES) > 400


def test_every_page_that_is_named_exists() -> None:
    """ "safety.md" in a docstring is a page that nobody finds; "docs/safety.md" is one."""
    missing = [
        f"{where(path)}: {name}" for path in FILES for name in PAGE.findall(path.read_text()) if not is_page(name, path)
    ]

    assert missing == [], f"name it from the root of the repository; there are {sorted(bare_names())}"


def test_every_part_of_a_page_that_is_named_exists() -> None:
    """docs/wire.md, controller codes: the words begin with one of the page's headings, or hold one."""
    named = [
        (path, page or other, words or title)
        for path in FILES
        for page, words, other, title in PART.findall(_joined(path))
    ]
    missing = [
        f"{where(path)}: {page}, {words}"
        for path, page, words in named
        if not any(heading in words.lower() for heading in headings(page))
    ]

    assert named
    assert missing == []


def _joined(path: Path) -> str:
    """The text with a sentence on one line: comments and docstrings break wherever a line is full."""
    return re.sub(r"\n\s*(?:# )?", " ", path.read_text())


@pytest.mark.parametrize("words", GONE)
def test_no_page_is_named_that_is_gone(words: str) -> None:
    """Nobody can open them."""
    assert [where(path) for path in FILES if words in _joined(path) and path.name != "test_references.py"] == []


def test_no_section_is_cited_by_a_number() -> None:
    """Our pages have headings; "section 2.4" was one of a page that is not here."""
    found = [f"{where(path)}: {match[0]}" for path in FILES for match in SECTION.finditer(_joined(path))]

    assert [text for text in found if not text.startswith("tests/docs/")] == []


def test_files_that_pages_name_in_backticks_exist() -> None:
    """A file without its folder, too: `election.py` was renamed, and two pages went on naming it."""
    names = {path.name for path in (*python_files(*CODE, "tests", "src"), *ROOT.glob("deploy/**/*"), *ROOT.glob("*"))}
    missing = [
        f"{where(page)}: {name}"
        for page in other_files()
        if page.suffix == ".md" and page.parent.name != "adr"
        for name in re.findall(r"`([\w-]+\.(?:py|sh))`", page.read_text())
        if name not in names
    ]

    assert missing == []


def test_files_that_code_names_exist() -> None:
    """A path in a comment or docstring: `tests/sim/oracle.py`, `controller/core/apply.py`."""
    tops = "|".join((*CODE, "tests", "docs", "adr"))
    missing = [
        f"{where(path)}: {name}"
        for path in FILES
        for name in re.findall(rf"(?<![\w/.-])((?:{tops})/[\w/-]+\.(?:py|sh|toml|json|txt))\b", path.read_text())
        if not (ROOT / name).exists()
    ]

    assert missing == []


def test_names_of_the_glossary_are_in_the_code() -> None:
    """The columns "in code" and "in JSON": a type that was renamed is renamed here too."""
    rows = re.findall(r"^\| (.*?) \| .*? \| (.*?) ?\| (.*?) ?\|$", (ROOT / "GLOSSARY.md").read_text(), re.MULTILINE)
    source = "\n".join([*map(where, python_files(*CODE)), *(path.read_text() for path in python_files(*CODE))])
    words = set(re.findall(r"\w+(?:-\w+)*", source)) | set(re.findall(r"\w+", source))
    words |= {re.sub(r"_(\w)", lambda match: match[1].upper(), word) for word in words if "_" in word}
    missing = [
        f"{term}: {name}"
        for term, code, wire in rows
        for name in re.findall(r"`([^`]+)`", code + wire)
        if not set(name.split(".")) <= words
    ]

    assert len(rows) > 40
    assert missing == []
