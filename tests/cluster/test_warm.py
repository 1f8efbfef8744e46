"""Servers that tests fork from a warm interpreter are those that ``python -m`` starts (``tests.support.warm``)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rollcall_ha.deploy.local.processes import Child, Processes, python_module, wait_until
from tests.support.fleet_story import running
from tests.support.warm import Forked, WarmInterpreter

Starts = Callable[..., Child]
SERVERS = ("rollcall_ha.api.server", "rollcall_ha.broker.server")
DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def warm() -> Starts:
    return WarmInterpreter().popen


def ended(popen: Starts, directory: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> tuple[int | None, str]:
    """Exit status and output of a process that ends by itself."""
    monkeypatch.setattr(Processes, "popen", staticmethod(popen))
    processes = Processes(directory)
    child_pid = processes.start("one", argv)
    wait_until(lambda: processes.pid("one") is None, deadline_s=DEADLINE_S, what="its end")
    child = processes._children[child_pid]
    return child.poll(), re.sub(r'"timestamp":"[^"]*"', "", processes.tail("one", 50))


@pytest.mark.parametrize("module", SERVERS)
@pytest.mark.parametrize("arguments", [("--help",), ("--unknown",), ("--config", "nowhere.toml", "--name", "c1")])
def test_a_forked_server_ends_as_the_real_one_does(
    warm: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, arguments: tuple[str, ...]
) -> None:
    """Its arguments, its folder, its output and its exit status are the same."""
    argv = python_module(module, *arguments)
    real = ended(subprocess.Popen, tmp_path / "same", monkeypatch, *argv)
    (tmp_path / "same").rename(tmp_path / "kept")
    forked = ended(warm, tmp_path / "same", monkeypatch, *argv)

    assert forked == real
    assert (real[0] == 0) == (arguments == ("--help",))
    assert real[1]


def test_a_forked_server_has_a_session_and_a_folder_of_its_own_and_dies_by_signals(
    warm: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leading session of its own, no input, the folder of its fleet; -9 for a kill, 0 for a clean stop."""
    seen = []
    for folder, popen, kind in (("real", subprocess.Popen, subprocess.Popen), ("forked", warm, Forked)):
        monkeypatch.setattr(Processes, "popen", staticmethod(popen))
        with running(tmp_path / folder / "fleet") as fleet:
            pids = [pid for name in ("c1", "broker-a-1") if (pid := fleet.pid(name))]
            children = [fleet.processes._children[pid] for pid in pids]
            assert [type(child) for child in children] == [kind, kind]
            groups = [(os.getsid(pid) == pid, os.getpgid(pid) == pid) for pid in pids]
            files = [os.readlink(f"/proc/{pid}/{of}") for pid in pids for of in ("cwd", "fd/0", "fd/1", "fd/2")]
            fleet.kill("c1")
            fleet.processes.terminate("broker-a-1")
            seen.append(
                (groups, [file.replace(f"/{folder}/", "/") for file in files], [one.poll() for one in children])
            )

    real, forked = seen
    assert forked == real
    assert real[0] == [(True, True)] * 2
    assert real[2] == [-signal.SIGKILL, 0]
