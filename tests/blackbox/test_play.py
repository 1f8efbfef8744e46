"""README's Play as a newcomer types it: line by line in one bash, in a fresh directory."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollcall_ha.deploy.local.processes import our_environment

ROOT = Path(__file__).resolve().parents[2]
STAMPS = (".server", ".installed")
"""Of the Makefile: what is installed is as new as the lock."""
ENDED = "==== exit code"
pytestmark = [pytest.mark.cluster, pytest.mark.prove]


def printed_lines() -> list[str]:
    """The fenced lines behind "To play:", comments and all."""
    found = re.search(r"^To play:\n\n```\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def of_a_newcomer() -> dict[str, str]:
    """The environment without what ``make`` leaves for a ``make`` below it, and without settings of ours."""
    kept = {name: value for name, value in our_environment().items() if not name.startswith(("MAKE", "ROLLCALL"))}
    return {name: value for name, value in kept.items() if name not in ("MFLAGS", "DEMO")}


def make_checkout(folder: Path) -> None:
    """This checkout by links, without its ``.demo``, and with the environment that runs the tests in place of ``.venv``."""
    environment = folder / ".venv"
    environment.mkdir(parents=True)
    for path in ROOT.iterdir():
        if not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    for path in Path(sys.prefix).iterdir():
        if path.name not in STAMPS:
            (environment / path.name).symlink_to(path)
    for name in STAMPS:
        (environment / name).touch()


def test_play_ends_well_as_printed(tmp_path: Path) -> None:
    """It ended in "AUDIT FAILED": no line started the killed broker again, and the name in it was that of a slave."""
    lines = printed_lines()
    checkout = tmp_path / "checkout"
    make_checkout(checkout)
    began = time.monotonic()
    try:
        played = subprocess.run(
            ["bash"],
            input="".join(f"{line}\necho '{ENDED}' $?\n" for line in lines),
            capture_output=True,
            text=True,
            check=False,
            cwd=checkout,
            env=of_a_newcomer(),
            timeout=120,
        )
    finally:
        subprocess.run(["make", "demo-down"], check=False, cwd=checkout, env=of_a_newcomer(), timeout=30)
    took_s = time.monotonic() - began
    told = played.stdout + played.stderr
    answers = re.split(rf"^{ENDED} (\d+)\n", played.stdout, flags=re.MULTILINE)[:-1]
    by_line = dict(zip(lines, answers[0::2], strict=True))

    assert set(answers[1::2]) == {"0"}, told
    assert [line.partition("#")[0].split()[-1] for line in lines][-2:] == ["demo-down", ".demo"]
    assert played.stderr.count("installing") == 0
    up, kill, history, explain, start, status, down, audit = by_line.values()
    assert "It runs." in up
    assert re.fullmatch(r"SIGKILL to broker-a-\d, pid \d+\n", kill)
    assert "\nEPOCH " in history
    assert explain.strip()
    assert "all replicas are in sync" in start
    assert "3 replicas in sync" in status
    assert int(re.findall(r" master +serving +(\d+) ", status)[0]) >= 2, "a failover"
    assert down.startswith("stopped 7: ")
    counts = {name: int(count.replace(",", "")) for name, count in re.findall(r"(\w+) ([\d,]+)", audit)}
    assert audit.startswith("AUDIT ok"), told
    assert (counts["audited_replicas"], counts["lost"], counts["duplicated"]) == (3, 0, 0)
    assert counts["acked"] > 0

    # Here and not in the whole story of the demo, whose ledger is a hundred times as long, and would be read five times.
    audit_itself = [sys.executable, "-I", str(ROOT / "deploy" / "local" / "audit.py"), ".demo", "--self-test"]
    again = subprocess.run(audit_itself, capture_output=True, text=True, check=False, cwd=checkout, timeout=120)

    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count(": found: ") == 4
    print(f"{len(lines)} lines, {counts['acked']:,} acknowledged, {took_s:.1f} s")
