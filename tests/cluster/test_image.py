"""The image as docs/containers.md builds it: it has the command, and serves a fleet that it has founded itself."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import rollcall_ha

ROOT = Path(__file__).resolve().parents[2]
PODMAN = shutil.which("podman") or ""
BUILD = re.compile(r"^podman (build .* -t) \S+ \.$", re.MULTILINE)
IMAGE = "rollcall:of-a-test"
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


def podman(*words: str, timeout_s: float = 120) -> str:
    """What it printed on standard output."""
    done = subprocess.run([PODMAN, *words], capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout_s)
    assert done.returncode == 0, f"podman {words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    found = BUILD.search((ROOT / "docs/containers.md").read_text())
    assert found is not None, "the page builds no image"
    podman(*shlex.split(found[1]), IMAGE, ".", timeout_s=1_800)
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
