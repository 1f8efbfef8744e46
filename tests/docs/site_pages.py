"""
The pages of the site that lie outside of docs/, and the links between all of them: a hook of MkDocs.

Here: the Markdown files of the top folder and adr/ as pages beside those of docs/, and below each title the question that the
page answers, as docs/README.md has it. Not here: their order (``mkdocs.yml``).

A page is read as it lies in the repository, where its links lead from its own folder; on the site docs/ is the top. The
README.md of the top folder is ``overview.md`` there, since docs/README.md is the first page.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("ARCHITECTURE.md", "GLOSSARY.md", "DIVERGENCE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[\w./-]+)(?P<anchor>#[\w-]+)?\)")
_QUESTION = re.compile(r"^\| (?P<question>[^|]+\?) \| \[[^\]]*\]\((?P<path>[^)#]+)\) \|$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/."""
    decisions = sorted((ROOT / "adr").glob("*.md"))
    listed = "\n".join(f"* [{title(path)}]({path.name})" for path in decisions)
    texts = {"overview.md": ROOT / "README.md"} | {name: ROOT / name for name in TOPS}
    texts |= {f"adr/{path.name}": path for path in decisions}
    for uri, path in texts.items():
        files.append(File.generated(config, uri, content=with_links(path.read_text(), path.parent, uri)))
    files.append(File.generated(config, "adr/README.md", content=f"# Decisions\n\n{listed}\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Its question; and those of docs/: their links that lead out of it."""
    uri = page.file.src_uri
    text = markdown if page.file.generated_by is not None else with_links(markdown, ROOT / "docs", uri)
    asked = [question for question, path in questions() if path == uri]
    return re.sub(r"\A(# .*\n)", rf"\1\n*{asked[0]}*\n", text) if asked else text


def questions() -> list[tuple[str, str]]:
    """Each question that is answered by a whole page, and the page on the site."""
    docs = ROOT / "docs"
    rows = _QUESTION.findall((docs / "README.md").read_text())
    return [(question, uri_of((docs / path).resolve().relative_to(ROOT))) for question, path in rows]


def title(path: Path) -> str:
    """Its first heading."""
    return path.read_text().split("\n", 1)[0].removeprefix("# ")


def with_links(text: str, folder: Path, uri: str) -> str:
    """``text`` of a page in ``folder`` with the links of the site, seen from the page ``uri``."""
    up = "../" * uri.count("/")

    def moved(found: re.Match[str]) -> str:
        target = (folder / found["path"]).resolve()
        if not target.is_relative_to(ROOT):
            return found[0]
        path = target.relative_to(ROOT)
        if path.suffix != ".md" and path != Path("adr") and not path.is_relative_to("docs"):
            return f"{found['text']} (`{path}`)"  # a file of the code: nobody finds it on the site
        return f"[{found['text']}]({up}{uri_of(path)}{found['anchor'] or ''})"

    return _LINK.sub(moved, text)


def uri_of(path: Path) -> str:
    """Of the page on the site that is ``path`` in the repository."""
    if path == Path("README.md"):
        return "overview.md"
    if path == Path("adr"):
        return "adr/README.md"
    return str(path.relative_to("docs")) if path.is_relative_to("docs") else str(path)
