"""
What the tests on real processes share: a fleet under load, questions as ``curl`` would ask them, and the judge.

Here: starting a fleet and healing it between two tests, a producer with its ledger, plain HTTP, the CLI as a program,
sends straight to one broker, the audit. Not here: processes (``deploy.local.fleet``), what a test expects.

Rule 1: nothing here sleeps for a time: it waits for a condition, with a deadline that names what it waited for.
Rule 2: only what was started under the test's own directory is ever signalled.
"""

from __future__ import annotations

import itertools
import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.send import encode_send
from rollcall_ha.controller.contract.ids import MasterEpoch, SetKey
from rollcall_ha.controller.contract.timing import PRESETS, Preset, Timing
from rollcall_ha.controller.contract.views import HistoryRow, SetStatus
from rollcall_ha.deploy.local import audit, ledger, producer, sites
from rollcall_ha.deploy.local.demo import PRODUCER, is_complete
from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import python_module, wait_until
from tests.support.fleet_links import listen_socket
from tests.support.frames import FrameDecoder

FIRST_ACKS = 200
PAUSE_MS = 10.0
"""Hundreds of sends a second show every gap; thousands would be read again by each audit, and take the cores of the fleet."""
FLAT_OUT = 0.0
"""As fast as it goes, for what dies with as much as possible under way."""
ACKS_DEADLINE_S = 40.0
HEAL_DEADLINE_S = 60.0
RECORD_DEADLINE_S = 15.0
CLI_DEADLINE_S = 30.0
AUDIT_DEADLINE_S = 120.0


@contextmanager
def running(
    directory: Path, layout: Layout | None = None, *, prepare: Callable[[Fleet], None] | None = None
) -> Iterator[Fleet]:
    """A new fleet, all up and in sync; everything that runs under ``directory`` is stopped at the end."""
    with Fleet.create(directory, layout) as fleet:
        if prepare is not None:
            prepare(fleet)
        fleet.up(deadline_s=HEAL_DEADLINE_S)
        yield fleet


def heal(fleet: Fleet) -> SetStatus:
    """Wake what hangs, start what is dead, and wait until every set has all its replicas: tests come in any order."""
    for name in (*fleet.controllers, *fleet.brokers):
        if fleet.pid(name) is not None:
            fleet.cont(name)
        else:
            fleet.restart(name)
    fleet.leader(deadline_s=HEAL_DEADLINE_S)
    # Two of three have a leader, and the set all its replicas, before the third one listens.
    fleet.wait_live(fleet.controllers, deadline_s=HEAL_DEADLINE_S)
    # Controllers that were away too still show the dead as members: a restarted broker is ready when it has a role.
    fleet.wait_ready(fleet.brokers, deadline_s=HEAL_DEADLINE_S)
    key = only_set(fleet)
    fleet.wait_redundant(key, deadline_s=HEAL_DEADLINE_S)
    # A leader of this moment knows the set by its log: a replica that it has not heard yet is eligible for nothing. Nor is
    # one that was found silent and woke a moment ago, though it is still in the set.
    return fleet.wait_set(
        key,
        lambda status: all(one.state is not None and one.is_alive for one in status.replicas if one.is_in_sync),
        what="to have all its members heard by the leading controller",
        deadline_s=HEAL_DEADLINE_S,
    )


def shell(fleet: Fleet, *words: str, given: str = "") -> None:
    """A command as somebody types it, with ``given`` on its standard input; it ends with 0."""
    done = subprocess.run(
        fleet.command(*words),
        input=given,
        env=fleet.commands_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def only_set(fleet: Fleet) -> SetKey:
    """The set of a fleet that has one."""
    (key,) = fleet.set_keys()
    return key


def timing_of(fleet: Fleet) -> Timing:
    """The durations that this fleet runs on."""
    return PRESETS[Preset(fleet.file.fleet.timing)]


def counted(**numbers: object) -> None:
    """One line that says what a test has seen."""
    print("COUNTED", json.dumps(numbers, default=str))


# --- load ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """A producer process that waits for the whole SyncStateSet, and what it was promised."""

    fleet: Fleet

    def acked(self) -> int:
        """Messages acknowledged so far; fails if the producer ended."""
        assert self.fleet.processes.pid(PRODUCER) is not None, f"it ended:\n{self.fleet.processes.tail(PRODUCER)}"
        return producer.read_counts(self.fleet.books).acked

    def wait_more(self, count: int = FIRST_ACKS, *, deadline_s: float = ACKS_DEADLINE_S) -> None:
        """Until ``count`` more messages are acknowledged than now."""
        goal = self.acked() + count
        wait_until(lambda: self.acked() >= goal, deadline_s=deadline_s, what=f"{count} more acknowledgements")

    def stamps(self, since_ns: int) -> list[int]:
        """When messages were acknowledged, in order: the last one before ``since_ns`` and all after it."""
        stamps = sorted(line.acked_at_ns for line in ledger.read(self.fleet.books))
        before = [stamp for stamp in stamps if stamp < since_ns]
        return before[-1:] + stamps[len(before) :]

    def longest_gap_ms(self, since_ns: int) -> float:
        """The longest time without an acknowledgement since then."""
        stamps = self.stamps(since_ns)
        assert len(stamps) > 1, "nothing was acknowledged: there is no gap to measure"
        return max(later - sooner for sooner, later in itertools.pairwise(stamps)) / 1e6


@contextmanager
def load(fleet: Fleet, *, in_flight: int = 8, body_bytes: int = 256, pause_ms: float = PAUSE_MS) -> Iterator[Load]:
    """A producer that works inside the block; the ledger grows over all blocks of a fleet."""
    fleet.processes.forget(PRODUCER)
    # What an earlier producer counted is not ours.
    (fleet.books / producer.COUNTS_FILE_NAME).unlink(missing_ok=True)
    arguments = [
        "--directory",
        str(fleet.seen_directory),
        "--in-flight",
        str(in_flight),
        "--body-bytes",
        str(body_bytes),
        "--pause-ms",
        str(pause_ms),
    ]
    argv = python_module("rollcall_ha.deploy.local.producer", *arguments)
    fleet.processes.start(PRODUCER, fleet.inside(sites.CLIENT, argv))
    work = Load(fleet)
    try:
        work.wait_more()
        yield work
    finally:
        fleet.processes.terminate(PRODUCER, deadline_s=15)


def judge(fleet: Fleet, *, audit_deadline_s: float = AUDIT_DEADLINE_S) -> dict[str, Any]:
    """
    Read ledger and disks by the program that knows nothing of ours; the load has ended.

    Fails unless every acknowledged message is on every replica exactly once, and logs and epoch files are equal.
    """
    status = heal(fleet)
    wait_settled(fleet)
    done = subprocess.run(
        [sys.executable, "-I", str(Path(audit.__file__)), str(fleet.directory), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=audit_deadline_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["acked"] > 0
    assert found["audited_replicas"] == len(status.replicas)
    assert (found["lost"], found["duplicated"], found["troubles"]) == (0, 0, 0)
    return found


def wait_settled(fleet: Fleet) -> SetStatus:
    """
    Return the status by which all replicas have the same confirmed end, and the disks have it too.

    A status is a heartbeat old. Two waits, first for such a status and then for its end on disk, waited for an end of before
    a short load, which the disks had left behind.
    """

    def is_settled(status: SetStatus) -> bool:
        ends = {end for replica in status.replicas for end in (replica.max_offset, replica.confirm_offset)}
        return len(ends) == 1 and ends == {_stored(fleet)}

    what = "all replicas at the same confirmed end, which is on disk"
    return fleet.wait_set(only_set(fleet), is_settled, what=what, deadline_s=HEAL_DEADLINE_S)


def _stored(fleet: Fleet) -> int:
    """Checkpoints are a flush interval old: read at once, those of a fleet's first second say that nothing is confirmed."""
    (replicas,) = audit.broker_directories(fleet.directory).values()
    return max(audit.read_confirm(path) for path in replicas.values())


def wait_row(fleet: Fleet, epoch: MasterEpoch, condition: Callable[[HistoryRow], bool] = is_complete) -> HistoryRow:
    """The record of an epoch, once ``condition`` holds for it."""
    found: list[HistoryRow] = []

    def holds() -> bool:
        rows = fleet.client().history(only_set(fleet)).rows
        found[:] = [row for row in rows if row.master_epoch == epoch]
        return bool(found) and condition(found[0])

    wait_until(holds, deadline_s=RECORD_DEADLINE_S, what=f"the record of masterEpoch {epoch}")
    return found[0]


def phases_ms(row: HistoryRow) -> dict[str, float | None]:
    """Phase by phase, for the line that says what was seen."""
    return {str(span.phase): None if span.duration_us is None else span.duration_us / 1000 for span in row.phases}


# --- questions as curl asks them ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one controller answered, without following anything."""

    status: int
    headers: dict[str, str]
    document: Any
    elapsed_ms: float


def curl(
    endpoint: Endpoint,
    path: str,
    *,
    body: dict[str, Any] | None = None,
    limit_s: float = 5.0,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request on a connection of its own. Raises ``OSError`` if nobody answers within ``limit_s``."""
    began = time.monotonic()
    connection = endpoint.connection(timeout_s=limit_s)
    try:
        content = None if body is None else json.dumps(body)
        sent = {"Content-Type": "application/json"} | (headers or {})
        connection.request("GET" if body is None else "POST", path, body=content, headers=sent)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    return Answer(
        status=response.status,
        headers={name.lower(): value for name, value in response.getheaders()},
        document=json.loads(text) if text else None,
        elapsed_ms=(time.monotonic() - began) * 1000,
    )


def readiness(fleet: Fleet, name: str) -> tuple[int, str]:
    """Status and words of /readyz of a node."""
    return plain(fleet.health(name), "/readyz")


def plain(endpoint: Endpoint, path: str) -> tuple[int, str]:
    """Status and text of an answer that is not JSON. Raises ``OSError``."""
    connection = endpoint.connection(timeout_s=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def set_path(fleet: Fleet, verb: str = "") -> str:
    """Path of the only set."""
    key = only_set(fleet)
    return f"/v1/sets/{key.cluster}/{key.name}{verb}"


def rest(fleet: Fleet, controller: str) -> Endpoint:
    """A controller's REST port."""
    return fleet.rest(controller)


def await_authority(fleet: Fleet, controllers: tuple[str, ...], *, deadline_s: float = 20.0) -> str:
    """Name of the first of ``controllers`` that answers a linearizable read itself."""
    found: list[str] = []

    def answers() -> bool:
        for name in controllers:
            try:
                answer = curl(rest(fleet, name), "/v1/status?limit=1", limit_s=2.0)
            except OSError:
                continue
            if answer.status == 200:
                found[:] = [name]
                return True
        return False

    wait_until(answers, deadline_s=deadline_s, what=f"one of {', '.join(controllers)} to answer with authority")
    return found[0]


def rollcall(fleet: Fleet, *arguments: str, limit_s: float = CLI_DEADLINE_S) -> subprocess.CompletedProcess[str]:
    """A command of the CLI, as a program, on this fleet."""
    return subprocess.run(
        fleet.command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
        env=fleet.commands_environment(),
    )


# --- sends straight to one broker ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fates:
    """What became of sends to one broker."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    """Said so, or the connection ended without an answer."""
    reasons: set[str] = field(default_factory=set)


class DirectSends:
    """Sends to one broker on one connection, whatever its role: for questions to a master that should not be one."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        """Connect; the broker may hang: the kernel accepts for it only if it was listening."""
        self.fates = Fates()
        self._socket = listen_socket(fleet.file, name)
        self._decoder = FrameDecoder()
        self._open: set[int] = set()

    def send(self, count: int, *, body_bytes: int = 256) -> None:
        """Write ``count`` sends without waiting for any answer."""
        for _ in range(count):
            self.fates.sent += 1
            self._open.add(self.fates.sent)
            key = secrets.token_hex(16).upper()
            self._socket.sendall(
                encode_send(
                    opaque=self.fates.sent,
                    group="direct",
                    topic="demo",
                    queue_id=0,
                    born_at_ms=time.time_ns() // 1_000_000,
                    properties=f"UNIQ_KEY\x01{key}\x02",
                    body=b"x" * body_bytes,
                )
            )

    def settle(self, *, limit_s: float) -> Fates:
        """Read until every send is answered, or the connection ends, or ``limit_s`` is over; then close."""
        until = time.monotonic() + limit_s
        try:
            while self._open and (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                data = self._socket.recv(65536)
                if not data:
                    break
                self._count(data)
        except OSError:
            pass
        finally:
            self._socket.close()
        self.fates.unknown += len(self._open)
        self._open.clear()
        return self.fates

    def _count(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if frame.opaque not in self._open:
                continue
            self._open.discard(frame.opaque)
            fields = frame.ext_fields or {}
            self.fates.reasons.add(fields.get("reason", ""))
            if frame.code == ClientResult.PUT_OK:
                self.fates.acknowledged += 1
            elif fields.get("outcome") == "not-appended":
                self.fates.refused += 1
            else:
                self.fates.unknown += 1


def ended_by(fleet: Fleet, name: str) -> int | None:
    """Exit status of a child that ended: negative = minus the signal; None while it runs."""
    record = fleet.processes.record(name)
    child = fleet.processes._children.get(record.pid) if record is not None else None
    return None if child is None else child.poll()


SIGBUS = -int(signal.SIGBUS)
