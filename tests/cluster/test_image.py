"""The image as docs/containers.md builds it: alone, and as the three and three of its Compose file.

Where no registry of images can be reached, ``ROLLCALL_IMAGE_BASE`` names the base that podman has (docs/containers.md).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import rollcall_ha
from rollcall_ha.deploy.local.processes import wait_until

ROOT = Path(__file__).resolve().parents[2]
PODMAN = shutil.which("podman") or ""
COMPOSE = shutil.which("podman-compose") or ""
BASE = os.environ.get("ROLLCALL_IMAGE_BASE", "")
BUILD = re.compile(r"^podman (build .* -t) \S+ \.$", re.MULTILINE)
FOUND = re.compile(r"^rollcall\s(init .*?[^\\])$", re.MULTILINE | re.DOTALL)
IMAGE = "localhost/rollcall:of-a-test"
PAGE = ROOT / "docs/containers.md"
CONTROLLERS = ("c1", "c2", "c3")
BROKERS = ("broker-a-1", "broker-a-2", "broker-a-3")
NODES = (
    "--controller=c1=127.0.0.1:9300,127.0.0.1:9100,127.0.0.1:9200",
    "--broker=a-1=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
)
ALIVE = "until rollcall health c1 --ready; do sleep 0.2; done"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prove,
    pytest.mark.skipif(not PODMAN, reason="no podman on the PATH: apt-get install podman"),
]


def run(
    *words: str, timeout_s: float = 120, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    # The tests give the command no home for its settings; the engine has its own there.
    variables = {key: value for key, value in os.environ.items() if key != "XDG_CONFIG_HOME"} | dict(environment)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout_s, env=variables
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


def podman(*words: str, timeout_s: float = 120) -> str:
    """What it printed on standard output."""
    return run(PODMAN, *words, timeout_s=timeout_s).stdout


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    found = BUILD.search(PAGE.read_text())
    assert found is not None, "the page builds no image"
    base = [f"--build-arg=BASE={BASE}"] if BASE else []
    words = shlex.split(found[1])
    podman(words[0], *base, *words[1:], IMAGE, ".", timeout_s=1_800)
    yield IMAGE
    podman("rmi", "--force", IMAGE)


def test_the_image_of_the_page_is_built_and_its_controller_leads(image: str, tmp_path: Path) -> None:
    assert podman("run", "--rm", image, "--version") == f"rollcall {rollcall_ha.__version__}\n"
    tmp_path.chmod(0o777)
    volume = f"--volume={tmp_path}:/var/lib/rollcall"
    podman("run", "--rm", volume, image, "init", *NODES)
    started = podman("run", "--detach", volume, image, "controller", "c1").strip()
    try:
        podman("exec", started, "sh", "-c", ALIVE)
        assert "c1" in podman("exec", started, "rollcall", "controllers")
    finally:
        podman("rm", "--force", "--time", "30", started)


@pytest.fixture
def compose(image: str, tmp_path: Path) -> Iterator[None]:
    """The fleet of the page, up by its Compose file."""
    section = PAGE.read_text().partition("## Compose\n")[2].partition("\n## ")[0]
    found = FOUND.search(section)
    assert found is not None, "the page founds no fleet"
    tmp_path.chmod(0o777)
    volume = f"--volume={tmp_path}:/var/lib/rollcall"
    # By the image: what it writes belongs to its own user, as the page's chown has it.
    podman("run", "--rm", volume, image, *shlex.split(found[1].replace("\\\n", " ")))
    environment = {"FLEET": str(tmp_path / "fleet"), "ROLLCALL_IMAGE": image}
    words = (COMPOSE, "-f", "deploy/compose.yaml")
    try:
        run(*words, "up", "-d", environment=environment)
        yield
    finally:
        run(*words, "down", "--volumes", environment=environment)


def logged(nodes: Sequence[str], event: str) -> list[dict[str, Any]]:
    """The entries of one event in the logs of nodes, in the order of time."""
    entries = []
    for node in nodes:
        lines = run(PODMAN, "logs", f"rollcall_{node}_1").stderr.splitlines()
        entries += [json.loads(line) for line in lines if f'"event":"{event}"' in line]
    return sorted(entries, key=lambda entry: str(entry["timestamp"]))


def masters() -> list[str]:
    """Names of the brokers that entered as masters, one after the other."""
    return [entry["process"] for entry in logged(BROKERS, "entered")]


@pytest.mark.skipif(not COMPOSE, reason="no podman-compose on the PATH: pip install podman-compose")
@pytest.mark.usefixtures("compose")
def test_three_and_three_of_the_compose_file_elect_and_fail_over() -> None:
    wait_until(masters, deadline_s=60, what="a first master")
    for name in (*CONTROLLERS, *BROKERS):
        podman("healthcheck", "run", f"rollcall_{name}_1")
        with pytest.raises(AssertionError, match="Read-only file system"):
            podman("exec", f"rollcall_{name}_1", "touch", "/x")
    podman("kill", "--signal=KILL", f"rollcall_{masters()[0]}_1")
    wait_until(lambda: len(masters()) == 2, deadline_s=30, what="a successor")
    first, second = masters()
    assert first != second
    # A stop by the engine is a handover: SIGTERM, and time enough.
    podman("stop", "--time=60", f"rollcall_{second}_1")
    assert podman("inspect", "--format={{.State.ExitCode}}", f"rollcall_{second}_1") == "0\n"
    wait_until(lambda: len(masters()) == 3, deadline_s=30, what="a successor of the one that was stopped")
    assert masters()[2] != second
    reasons = [entry["reason"] for entry in logged(CONTROLLERS, "master_elected")]
    assert reasons[0] == "all expected replicas have registered"
    assert reasons[1].endswith("is gone")
    assert reasons[2] == "handed over: asked to stop"
