"""The demo from outside: commands, pid files, HTTP and raw files; nothing of ours is asked how it went."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.deploy.local.processes import our_environment, wait_until
from tests.docs.transcripts import assert_shown

ROOT = Path(__file__).resolve().parents[2]
MASKS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "WHEN"),
    (r"(?<=kill -9 )\d+", "PID"),
    (r"broker-a-\d", "BROKER"),
    (r"controller:c\d", "controller:LEADER"),
    (r"(?:(?<=failover )|(?<=first )) *\S.*?(?= +(?:none|BROKER)->BROKER)", "WHAT WAS SEEN"),
    (r"(?:over )?\d[\d.]* m?s\b(?: to \d[\d.]* m?s\b)?|(?<= )(?:-|unknown)(?= )", "TIME"),
    # A column that is there once a slave has told its cut.
    (r" CUT\b|(?<= 0 B) +(?:TIME|\d[\d.]* \w+)(?= +proven)", ""),
    (r"[\d,]+(?= messages,)|\d[\d,]*(?= given twice)", "COUNT"),
    (r" +", " "),
)
"""Of README's part of the demo: what is another in each run."""
pytestmark = pytest.mark.cluster


def run(directory: Path, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """A command, from another directory than the checkout."""
    argv = [sys.executable, *arguments]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=directory, env=our_environment(), timeout=timeout_s
    )


def rollcall(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(directory, "-m", "rollcall_ha.cli.main", *arguments)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Path]:
    """``rollcall demo up`` in an empty directory."""
    done = rollcall(tmp_path, "demo", "up")
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield tmp_path
    finally:
        rollcall(tmp_path, "demo", "down")


def read_set(directory: Path) -> dict[str, Any]:
    """The set by whichever controller answers, as curl would get it; empty while none does."""
    tls = directory / ".demo" / "tls"
    context = ssl.create_default_context(cafile=tls / "ca.pem")
    context.load_cert_chain(tls / "admin.pem", tls / "admin.key")
    fleet = tomllib.loads((directory / ".demo" / "rollcall.toml").read_text())
    for section in fleet["controllers"].values():
        try:
            url = f"https://{section['rest']}/v1/sets/demo/broker-a"
            with urllib.request.urlopen(url, timeout=1, context=context) as answer:
                found: dict[str, Any] = json.load(answer)["set"]["view"]
                return found
        except (urllib.error.URLError, OSError):
            continue
    return {}


def run_the_program_of_the_readme(demo: Path) -> None:
    """It had the port of another checkout, and was silent for 30 s."""
    found = re.search(
        r"^```python\n(import asyncio\n.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    (demo / "program.py").write_text(found[1])
    done = run(demo, "program.py")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SendResult(")


def test_readmes_program_runs_as_printed_and_a_killed_master_is_replaced(demo: Path) -> None:
    """By pid file and HTTP alone: masterEpoch + 1 and another master; then ledger and disks agree."""
    run_the_program_of_the_readme(demo)
    before = read_set(demo)
    fleet = tomllib.loads((demo / ".demo" / "rollcall.toml").read_text())
    members = {member["brokerId"]: member["description"]["address"] for member in before["members"]}
    name = next(n for n, section in fleet["brokers"].items() if section["listen"] == members[before["master"]])
    os.kill(int((demo / ".demo" / "run" / f"{name}.pid").read_text()), signal.SIGKILL)

    def replaced() -> bool:
        now = read_set(demo)
        return bool(now) and now["masterEpoch"] == before["masterEpoch"] + 1 and now["master"] != before["master"]

    wait_until(replaced, deadline_s=10, what="another master in the next masterEpoch")
    history = rollcall(demo, "history", "broker-a", "-o", "json")
    dead = rollcall(demo, "elect", "broker-a", "--to", str(before["master"]))

    assert json.loads(history.stdout)["rows"][0]["grade"] in ("proven", None)
    assert dead.returncode == 1
    assert dead.stderr.count("not") > 0

    down = rollcall(demo, "demo", "down")
    audit = run(demo, "-I", str(ROOT / "deploy" / "local" / "audit.py"), ".demo", "--json")

    assert down.stdout.startswith("stopped 6: ")
    found = json.loads(audit.stdout)
    assert found["acked"] > 0
    assert found["duplicated"] == 0


@pytest.mark.prove
def test_whole_story_ends_with_a_result_that_counts_something(tmp_path: Path) -> None:
    """``make demo``: nothing lost, nothing doubled, and something acknowledged, retried, answered twice and cut."""
    # With as few kills as it has: more of them measure its times, and nothing here is about times.
    words = ("run", "--kills", "5", "--directory", str(tmp_path / ".demo"))
    done = run(tmp_path, "-m", "rollcall_ha.deploy.local.demo", *words, timeout_s=300)
    last = done.stdout.strip().splitlines()[-1]

    assert last.startswith("RESULT "), done.stdout[-2000:] + done.stderr
    assert_shown(done.stdout, masks=MASKS)
    result = json.loads(last.removeprefix("RESULT "))
    assert (result["lost"], result["duplicated"], result["audited_replicas"]) == (0, 0, 3)
    assert result["consumed_missing"] == 0
    assert min(result[name] for name in ("acked", "consumed", "retried", "duplicate_answers", "truncated_bytes")) > 0
    assert result["grade"] == "proven"
