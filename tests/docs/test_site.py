"""The manual as a site: it builds, every page has a place, every link leads somewhere, and nothing is fetched elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_no_page_fetches_from_another_origin(site: Path) -> None:
    found = {url for page in site.rglob("*.html") for url in FETCHED.findall(page.read_text())}

    assert found == set()
