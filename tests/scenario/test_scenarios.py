"""
Transcripts: what happens in the situations that must be survived, told line by line and compared as a whole.

``python -m tests.scenario.test_scenarios --rewrite`` writes what happens now into the files. Commit a change only if you
understand what caused it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.scenario.stage import Stage

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))


def perform(text: str) -> str:
    """The transcript with the output that its commands give now. Blocks are separated by an empty line."""
    stage = Stage()
    performed = []
    try:
        for block in text.strip().split("\n\n"):
            lines = block.splitlines()
            commands = lines[: lines.index("----")] if "----" in lines else lines
            output: list[str] = []
            for command in commands:
                if not command.startswith("#"):
                    output += stage.do(command)
            is_title = all(command.startswith("#") for command in commands)
            performed.append("\n".join(commands if is_title else [*commands, "----", *output]))
    finally:
        stage.close()
    return "\n\n".join(performed) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_story_is_still_the_same(path: Path) -> None:
    """Every command's output, every invariant after every event."""
    told = path.read_text()

    assert perform(told) == told


def main(arguments: list[str]) -> int:
    """``--rewrite`` [NAME...]: write the files; otherwise compare."""
    names = [argument for argument in arguments if not argument.startswith("--")]
    changed = 0
    for path in FILES:
        if names and path.stem not in names:
            continue
        told = path.read_text()
        happened = perform(told)
        if happened != told:
            changed += 1
            print(f"{path.name} {'rewritten' if '--rewrite' in arguments else 'differs'}")
            if "--rewrite" in arguments:
                path.write_text(happened)
    return int(bool(changed) and "--rewrite" not in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
