"""
docs/three-machines.md and docs/first-day.md as a stranger types them: block by block, each on the machine that is named.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.deploy.local.machines import Machines, MachinesError
from rollcall_ha.deploy.local.processes import our_environment
from tests.support.prometheus import program, why_not

ROOT = Path(__file__).resolve().parents[2]
FOUNDED, DAY = ROOT / "docs/three-machines.md", ROOT / "docs/first-day.md"
STOP = "\n## 7. Stop\n"
DESK = "desk"
STEP = re.compile(r"^## (\d+\. .*)$", re.MULTILINE)
BLOCK = re.compile(r"On (m[123]|your desk):\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_SECONDS_MAX = 300.0
SCP = """#!/bin/bash
# A copy between two disks, in place of scp: no machine of the test has a server of ssh.
[ "$1" = -r ] && shift
place() { case "$1" in 10.99.0.*:/*) host=${1%%:*}; echo "$DISKS/m${host##*.}/root${1#*:}" ;; *) echo "$1" ;; esac; }
for one; do places+=("$(place "$one")"); done
exec cp -r "${places[@]}"
"""
OWN_FILES = """
for folder in /etc /var/lib; do mount --bind "root$folder" $folder; done
exec "$@"
"""
"""A machine has its own users, units and state, as root finds them there."""
pytestmark = pytest.mark.cluster


def typed() -> str:
    """Both pages: a fleet is founded, has its first day, and is stopped."""
    founded, stopped = FOUNDED.read_text().split(STOP)
    return founded + DAY.read_text() + STOP + stopped


def steps() -> list[str]:
    """The heading above each of ``blocks``."""
    text = typed()
    return [STEP.findall(text, 0, found.start())[-1] for found in BLOCK.finditer(text)]


def blocks() -> list[tuple[str, str]]:
    """Machine and lines of every fenced block."""
    text = typed()
    found = [(DESK if where == "your desk" else where, lines) for where, lines in BLOCK.findall(text)]
    assert len(found) == text.count("\n```\n") / 2, "a block does not say where it is typed"
    return found


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """The addresses of the page, each with a home of its own."""
    try:
        with Machines(("m1", "m2", "m3", DESK), disks=tmp_path / "disks") as made:
            for root in (made.disk(name) / "root" for name in made.names if name != DESK):
                (root / "var/lib").mkdir(parents=True)
                shutil.copytree("/etc", root / "etc", symlinks=True)
                (root / "etc/systemd/system").mkdir(parents=True, exist_ok=True)
            yield made
    except MachinesError as error:
        pytest.skip(str(error))


def shell_on(machines: Machines, where: str) -> list[str]:
    """One that reads what is typed."""
    return machines.inside(where, [*([] if where == DESK else ["bash", "-ec", OWN_FILES, "bash"]), "bash", "-e"])


def environment(programs: Path, machines: Machines) -> dict[str, str]:
    """That of a machine on which ``rollcall`` is installed; ``scp`` goes past the mounts that hide the other disks."""
    programs.mkdir()
    installed = {
        "rollcall": [str(ROOT / "rollcall")],
        "python3": [sys.executable],
        "systemctl": [sys.executable, str(ROOT / "tests/machines/systemctl.py")],
    }
    if path := program("prometheus"):
        installed["prometheus"] = [str(path)]
    texts = {name: f'#!/bin/bash\nexec {shlex.join(words)} "$@"\n' for name, words in installed.items()}
    for name, text in {**texts, "scp": SCP}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in our_environment().items() if not name.startswith(("MAKE", "ROLLCALL"))}
    return kept | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CHECKOUT": str(ROOT),
        "DISKS": f"/proc/{os.getpid()}/root{machines.disks}",
    }


def test_three_machines_as_printed(tmp_path: Path, machines: Machines) -> None:
    """Each block of the page, typed where it says, prints what the page shows."""
    variables = environment(tmp_path / "bin", machines)
    began = time.monotonic()
    said: dict[str, str] = {}
    skipped, took = 0, dict[str, float]()
    for number, (step, (where, lines)) in enumerate(zip(steps(), blocks(), strict=True), start=1):
        if why_not("prometheus") and re.search(r"prometheus|:9090", lines):
            skipped += 1
            continue
        at = time.monotonic()
        done = subprocess.run(
            shell_on(machines, where),
            input=lines,
            capture_output=True,
            text=True,
            check=False,
            env=variables,
            timeout=BLOCK_SECONDS_MAX,
        )
        took[step] = took.get(step, 0.0) + time.monotonic() - at
        told = done.stdout + done.stderr
        assert done.returncode == 0, f"block {number}, on {where}:\n{lines}\n{told}"
        said[f"{number} {where}"] = told
    if skipped:
        print("SKIPPED:", why_not("prometheus"))
    print(*(f"STEP {seconds:6.1f} s  {step}" for step, seconds in took.items()), sep="\n")
    print("COUNTED", {"blocks": len(said), "skipped": skipped, "seconds": round(time.monotonic() - began, 1)})
