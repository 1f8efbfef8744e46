"""
Catch-up of a wiped slave in a running fleet, beside the raw limit in the same run.

The limit: the same segment files by sendfile over loopback TCP into a mapped, preallocated file, two processes, nothing
else. The slave: its directory is removed and its process started again; the time runs from the master's answer to its
handshake until the controllers hold it in the SyncStateSet. The ratio counts, not the absolute figures.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import shutil
import socket
import time
from collections.abc import Sequence
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.perf.bench_put import KIB, put
from tests.perf.results import Measure
from tests.perf.section import Context, Section

MIB = KIB * KIB
TURN_BYTES = MIB
CATCH_UP_DEADLINE_S = 60.0
ANSWERED = '"event":"master_answered"'


def raw_receive(path: Path, size: int, pipe: Connection) -> None:
    """recv_into straight into a mapped, preallocated file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(fd, 0, size)
    target = mmap.mmap(fd, size)
    with socket.create_server(("127.0.0.1", 0)) as listener, memoryview(target) as view:
        pipe.send(listener.getsockname()[1])
        sock, _ = listener.accept()
        received = 0
        while received < size:
            count = sock.recv_into(view[received : received + TURN_BYTES])
            if not count:
                raise ConnectionError(f"the sender left after {received} of {size} bytes")
            received += count
        sock.send(b"!")
        sock.close()
    os.close(fd)


def raw_mib_per_s(files: Sequence[Path], target: Path) -> float:
    """The limit."""
    size = sum(path.stat().st_size for path in files)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=raw_receive, args=(target, size, theirs), daemon=True)
    child.start()
    try:
        with socket.create_connection(("127.0.0.1", ours.recv())) as sock:
            began = time.perf_counter()
            for path in files:
                with path.open("rb") as file:
                    position, end = 0, path.stat().st_size
                    while position < end:
                        position += os.sendfile(sock.fileno(), file.fileno(), position, min(TURN_BYTES, end - position))
            sock.recv(1)
            seconds = time.perf_counter() - began
    finally:
        child.join()
    target.unlink()
    return size / MIB / seconds


def fill(fleet: Fleet, mib: int) -> list[Path]:
    """Put until the master has so much; its full segments."""
    folder = fleet.data(fleet.master(fleet.set_keys()[0])) / "commitlog"
    while True:
        put(fleet, 8, 256 * KIB, 2.0)
        full = sorted(folder.glob("[0-9]" * 20))[:-2]
        if sum(path.stat().st_size for path in full) >= mib * MIB:
            return full


def answered_at_ms(log: Path) -> float | None:
    """When the newest handshake of a broker was answered, UTC, by its log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if ANSWERED in line]
    return datetime.fromisoformat(json.loads(lines[-1])["timestamp"]).timestamp() * 1000 if lines else None


def wipe(fleet: Fleet) -> tuple[str, float]:
    """Kill a slave and remove its directory; returns its name and the MiB that it lacks."""
    key = fleet.set_keys()[0]
    master = fleet.master(key)
    slave = next(name for name in fleet.brokers if name != master)
    fleet.kill(slave)
    shutil.rmtree(fleet.data(slave))
    (fleet.processes.log / f"{slave}.log").unlink()
    wait = fleet.wait_set(key, lambda status: len(status.view.sync_state_set) == 2, what="to have removed the slave")
    return slave, max(replica.max_offset or 0 for replica in wait.replicas) / MIB


def catch_up(fleet: Fleet) -> tuple[float, float]:
    """(MiB, seconds) of one wiped slave."""
    key = fleet.set_keys()[0]
    slave, size_mib = wipe(fleet)
    log = fleet.processes.log / f"{slave}.log"
    fleet.restart(slave)
    fleet.wait_redundant(key, deadline_s=CATCH_UP_DEADLINE_S)
    in_sync_ms = time.time() * 1000
    wait_until(lambda: answered_at_ms(log) is not None, deadline_s=5, what="the slave's log to tell of its handshake")
    answered_ms = answered_at_ms(log)
    assert answered_ms is not None
    return size_mib, (in_sync_ms - answered_ms) / 1000


def run_catch_up(context: Context) -> dict[str, float]:
    """Both sides twice, in turns; the better of each counts: others on this machine make both slower, never faster."""
    raw: list[float] = []
    link: list[float] = []
    with context.fleet(Layout(name="perf")) as fleet:
        files = fill(fleet, 128 if context.is_quick else 384)
        for _ in range(1 if context.is_quick else 2):
            raw.append(raw_mib_per_s(files, context.directory / "raw"))
            mib, seconds = catch_up(fleet)
            link.append(mib / seconds)
            context.say(f"{mib:.0f} MiB in {seconds:.1f} s: {link[-1]:.0f} MiB/s, raw limit {raw[-1]:.0f} MiB/s")
    context.detail["raw_mib_per_s"], context.detail["link_mib_per_s"] = raw, link
    return {"link": max(link), "raw": max(raw), "ratio": max(link) / max(raw) * 100}


CATCH_UP = Section(
    name="catch-up",
    title="catch-up of a wiped slave",
    measures=(
        Measure(key="ratio", what="share of the raw limit", unit="%", aim=70, is_floor=True),
        Measure(key="link", what="  catch-up until in sync", unit="MiB/s", reference="140"),
        Measure(key="raw", what="  limit: sendfile to a map", unit="MiB/s", reference="208-488"),
    ),
    run=run_catch_up,
)
