"""
Every block of the manual, and the test that printed what it shows.

Here: finding the blocks of all pages, what each may show, and the comparison. Not here: the tests that print.

A block without a language, or of ``sh``, shows commands to type: each line begins with one of ``PROGRAMS``. Where it shows what
was printed, it is a transcript, and the line above it names the test that prints it again (a comment, which no reader sees):

    <!-- made by tests/unit/test_cli_founding.py::test_the_page_shows_what_init_prints -->

That test calls ``assert_shown`` with what it has printed. So the link holds from both ends: a transcript whose test is gone, or
compares nothing, is found by ``test_transcripts``; a test whose transcript is gone, or says something else, fails itself.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = frozenset([
    "./rollcall", ".venv/bin/python", "cat", "cd", "chown", "cp", "curl", "deploy/spark-standalone.sh", "docker", "done", "eval", "for",
    "grep",
    "kill", "kubectl", "make", "mkdir", "mqadmin", "nohup", "openssl", "podman", "printf", "python", "python3", "rm", "rollcall", "scp",
    "sleep", "systemctl", "tail", "until", "useradd", "while",
])  # fmt: skip
"""First words of commands; whatever begins otherwise was printed by one. Assignments before them do not count."""
SOURCES = frozenset(["haproxy", "ini", "java", "properties", "python", "sql", "toml", "yaml"])
"""Languages of what is written, not printed: settings, programs, queries."""
PICTURES = ("ARCHITECTURE.md", "README.md")
"""Pages with drawings, of the language ``text``."""
_BLOCK = re.compile(
    r"(?:^ *<!-- made by (?P<test>\S+) -->\n\n?)?"
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_HERE_DOCUMENT = re.compile(r"<<(\w+)\n.*?^\1$", re.MULTILINE | re.DOTALL)
_ASSIGNED = re.compile(r"^(?:\w+=\S* +)+")
Masks = Sequence[tuple[str, str]]
"""Patterns of what differs from run to run (times, pids), and what stands in their place; applied in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """Of its fence, from 1."""
    language: str
    text: str
    test: str | None
    """The one that the comment above names, as pytest writes it."""

    @property
    def printed(self) -> str:
        """Its first line that is no command; empty if it shows commands only."""
        typed = _HERE_DOCUMENT.sub("", re.sub(r"\\\n", "", self.text))
        lines = (_ASSIGNED.sub("", line.strip()) for line in typed.splitlines())
        return next((line for line in lines if line and line.split()[0] not in PROGRAMS), "")


def pages() -> list[Path]:
    """Those of the built site (``site_pages``)."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("adr/*.md")])


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """As they stand on it."""
    for found in _BLOCK.finditer(text):
        lines = (line.removeprefix(found["indent"]) for line in found["text"].splitlines(keepends=True))
        line = text.count("\n", 0, found.start("fence")) + 1
        yield Block(page=page, line=line, language=found["language"], text="".join(lines), test=found["test"])


def shown() -> list[Block]:
    """The fenced blocks of all pages, in the order of the pages."""
    return [block for path in pages() for block in blocks_of(path.relative_to(ROOT).as_posix(), path.read_text())]


def complaint(block: Block) -> str:
    """Why nobody can know that it is true, with page, line and remedy; empty if a test of this commit says so."""
    if block.test is not None:
        why = _missing_link(block.test)
    elif block.language in SOURCES or (block.language == "text" and block.page in PICTURES):
        why = ""
    elif block.language not in ("", "sh"):
        why = f"the language {block.language!r} is unknown; what is written, not printed, has one of {sorted(SOURCES)}"
    elif block.printed:
        why = f"no command begins like {block.printed!r}, and no test is named for it; <!-- made by TEST --> above the block does"
    else:
        why = ""
    return f"{block.page}:{block.line}: {why} (CONTRIBUTING.md, Transcripts and pages)" if why else ""


def _missing_link(test: str) -> str:
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"there is no file {path}; name the test that prints this"
    functions = [node for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef)]
    found = next((node for node in functions if node.name == name and name.startswith("test_")), None)
    if found is None:
        return f"there is no test {name!r} in {path}; name the one that prints this"
    called = {
        node.func.id for node in ast.walk(found) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return "" if assert_shown.__name__ in called else f"{test} compares nothing; it has to call {assert_shown.__name__}"


def masked(text: str, masks: Masks) -> str:
    """With what differs from run to run replaced, and no spaces at the ends of lines."""
    for pattern, word in masks:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def assert_shown(printed: str, *, masks: Masks = ()) -> None:
    """Each transcript that names the running test is a part of ``printed``, whole lines, but for ``masks``."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    named = [block for block in shown() if block.test == test]
    assert named, f"no page has a transcript <!-- made by {test} -->: is it on a page by another name?"
    for block in named:
        there, here = masked(printed, masks), masked(block.text, masks)
        near = there[max(there.find(here.partition("\n")[0]), 0) :][: 2 * len(here)]
        assert f"\n{here}" in f"\n{there}", f"{block.page}:{block.line} shows\n{here}\nand this was printed:\n{near}"
