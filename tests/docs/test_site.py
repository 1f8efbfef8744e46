"""The manual as a site: it builds, every page has a place, every link leads somewhere, and nothing is fetched elsewhere."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.site_pages import questions, uri_of
from tests.docs.transcripts import shown

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "mkdocs.yml"
FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(https?:[^"' >]*)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the command of ``make site``; strict: a warning ends it."""
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", str(CONFIG), "--site-dir", str(built)],
        capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return built


def test_every_page_of_the_repository_is_on_the_site(site: Path) -> None:
    pages = {path.stem for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("adr/*.md"))} - {"README"}
    built = {path.stem for path in site.rglob("*.html")}

    assert len(pages) > 40
    assert pages - built == set()


def text_of(site: Path, uri: str) -> str:
    """The page as it was built."""
    name = (
        uri.removesuffix("README.md") + "index.html" if uri.endswith("README.md") else uri.removesuffix(".md") + ".html"
    )
    return (site / name).read_text()


def test_every_page_in_the_order_of_the_site_answers_one_question(site: Path) -> None:
    """It stands below the title, and in docs/README.md, the first page: that one asks by its title."""
    order = re.findall(r"([\w/-]+\.md)", CONFIG.read_text().partition("\nnav:\n")[2])
    asked = dict(questions())

    assert order[:4] == ["README.md", "overview.md", "three-machines.md", "first-day.md"]
    assert sorted(asked.values()) == sorted(order[1:]), (
        "docs/README.md: a row with one question for each page of mkdocs.yml"
    )
    for question, uri in asked.items():
        title = rf"<h1\b[^\n]*</h1>\s*<p><em>{re.escape(question)}</em></p>"
        assert re.search(title, html.unescape(re.sub(r"</?code>", "`", text_of(site, uri)))), (
            f"{uri} does not ask: {question}"
        )


def test_every_block_of_the_site_was_looked_at(site: Path) -> None:
    """A block that is indented instead of fenced would escape ``test_transcripts``."""
    found = Counter(uri_of(Path(block.page)) for block in shown())
    for uri in ("README.md", *found.keys() | {uri for _, uri in questions()}):
        assert text_of(site, uri).count("<pre") == found[uri], f"{uri}: a block is not between lines of ```"


def test_no_page_fetches_from_another_origin(site: Path) -> None:
    found = {url for page in site.rglob("*.html") for url in FETCHED.findall(page.read_text())}

    assert found == set()
