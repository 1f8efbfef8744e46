"""What a test that failed has left open is told of as its own, not of the test behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEAKING = """
import asyncio, gc

def test_that_fails():
    async def main():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        opened = await asyncio.open_connection(*server.sockets[0].getsockname())
        raise ValueError(opened)

    asyncio.run(main())

def test_that_is_innocent():
    gc.collect()
"""


@pytest.mark.slow
def test_a_writer_that_a_failed_test_has_left_open_fails_no_other_test(tmp_path: Path) -> None:
    """The next test in the same worker failed for it."""
    (tmp_path / "test_leaking.py").write_text(LEAKING)
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path / "test_leaking.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert "1 failed, 1 passed, 1 error" in ended.stdout, ended.stdout
    assert "test_that_is_innocent" not in ended.stdout.partition("short test summary")[2]
