"""The launcher's handling of processes: by pid and creation time, with deadlines, never somebody else's."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.processes import (
    PORT_FIRST,
    PORT_LAST,
    DeadlineError,
    LauncherError,
    PortInUseError,
    Processes,
    free_ports,
    wait_until,
)

SYS_EXIT = {"x86_64": 60}.get(platform.machine(), 93)
"""Linux: ends the calling thread only."""
IDLE = (sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()",
)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    for name in made.names():
        made.terminate(name, deadline_s=0.2)


def start(processes: Processes, name: str, argv: tuple[str, ...] = IDLE) -> int:
    pid = processes.start(name, argv)
    wait_until(lambda: "up" in processes.tail(name), deadline_s=10, what="the process to be up")
    return pid


def test_pid_file_holds_the_bare_pid_of_a_group_of_its_own(processes: Processes) -> None:
    """``kill -9 $(cat run/NAME.pid)`` works, and Ctrl-C in the terminal does not reach the servers."""
    pid = start(processes, "n1")

    assert (processes.run / "n1.pid").read_text() == f"{pid}\n"
    assert os.getpgid(pid) == pid
    assert processes.pid("n1") == pid


def test_killed_process_is_gone_when_kill_returns(processes: Processes) -> None:
    """A zombie is not alive, and a second kill says what runs."""
    start(processes, "n1")
    processes.kill("n1")

    assert processes.pid("n1") is None
    with pytest.raises(LauncherError, match="n1 does not run"):
        processes.kill("n1")


def test_process_whose_first_thread_ended_was_taken_for_gone_while_others_held_its_ports(processes: Processes) -> None:
    """Killed, a process with threads shows a zombie while the kernel still takes the others apart."""
    last_words = "import ctypes, threading; threading.Thread(target=threading.Event().wait).start(); "
    last_words += f"ctypes.CDLL(None).syscall({SYS_EXIT}, 0)"
    pid = processes.start("n1", [sys.executable, "-c", last_words])
    wait_until(
        lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, deadline_s=5, what="its first thread to end"
    )

    assert processes.pid("n1") == pid
    processes.kill("n1")
    assert processes.pid("n1") is None


def test_process_of_the_same_pid_that_somebody_else_started_is_never_signalled(processes: Processes) -> None:
    """Pids are reused: the creation time tells."""
    record = {"pid": os.getpid(), "created_s": psutil.Process().create_time() - 60}
    (processes.run / "n1.json").write_text(json.dumps(record))

    assert processes.pid("n1") is None
    with pytest.raises(LauncherError):
        processes.signal("n1", signal.SIGCONT)


def test_second_start_of_a_name_is_refused(processes: Processes) -> None:
    """Two processes on one data directory is what must not happen."""
    start(processes, "n1")

    with pytest.raises(LauncherError, match="runs already as pid"):
        processes.start("n1", IDLE)


def test_process_that_ignores_the_request_to_end_is_killed(processes: Processes) -> None:
    """After the deadline there is nothing left of it."""
    start(processes, "n1", STUBBORN)
    processes.terminate("n1", deadline_s=0.1)

    assert processes.pid("n1") is None


def test_stopped_process_can_still_be_ended(processes: Processes) -> None:
    """SIGSTOP first, then terminate: it is woken for it."""
    start(processes, "n1")
    processes.signal("n1", signal.SIGSTOP)
    processes.terminate("n1", deadline_s=5)

    assert processes.pid("n1") is None


def test_taken_port_is_refused_with_the_pid_that_has_it(processes: Processes) -> None:
    """port N is in use by pid M."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} is in use by pid {os.getpid()}"):
            processes.start("n1", IDLE, ports=[("127.0.0.1", port)])

    assert processes.names() == ()


def test_free_ports_differ_and_are_below_the_ephemeral_range() -> None:
    """Outgoing connections cannot take one of them before its server starts."""
    ports = free_ports(18)

    assert len(set(ports)) == 18
    assert all(PORT_FIRST <= port < PORT_LAST for port in ports)


def test_two_launchers_found_the_same_port_free() -> None:
    """Before the broker of either listened there: the second one could not start. 300 of 10,000 each met nine times."""
    draw = "from rollcall_ha.deploy.local.processes import free_ports; print(*free_ports(300), flush=True); input()"
    launchers = [
        subprocess.Popen([sys.executable, "-c", draw], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        drawn = [set(map(int, launcher.stdout.readline().split())) for launcher in launchers if launcher.stdout]
    finally:
        for launcher in launchers:
            launcher.communicate("\n", timeout=10)

    assert [len(one) for one in drawn] == [300, 300]
    assert drawn[0].isdisjoint(drawn[1])
    assert drawn[0].isdisjoint(free_ports(300))


def test_a_broker_that_was_down_lost_its_port_to_the_next_fleet_of_its_launcher() -> None:
    assert set(free_ports(100)).isdisjoint(free_ports(100))


def test_wait_without_success_names_what_it_waited_for() -> None:
    """No bare "timed out"."""
    with pytest.raises(DeadlineError, match=r"waited 0\.0 s for rain"):
        wait_until(lambda: False, deadline_s=0.03, what="rain")


def test_health_of_nobody_is_not_ok() -> None:
    """A refused connection is an answer too."""
    (port,) = free_ports(1)

    assert not Endpoint(address=f"127.0.0.1:{port}").is_ok("/livez")
