"""
One raft node in a process of its own, and the handle that tests hold on it.

The program reads commands from stdin and writes one JSON line per fact to stdout: started, leads, acknowledged ids, state.
It proposes by itself while it leads: ``load`` ids in flight, named ``<node>-<life>-<number>``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class RaftProcess:
    """A running node."""

    name: str
    process: subprocess.Popen[str]
    acknowledged: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    terms: list[int] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def read(self) -> None:
        """Collect facts until the program ends; runs on a thread of its own."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                fact = json.loads(line)
            except ValueError:
                continue  # cut off by a kill
            self.acknowledged.extend(fact.pop("acknowledged", ()))
            if "term" in fact:
                self.terms.append(fact["term"])
            self.facts.update(fact)

    def tell(self, command: str) -> None:
        """``load N``, ``state``, ``stop``."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except OSError:
            return  # it has ended

    def kill(self) -> None:
        """SIGKILL; what it had written to its pipe is still read."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = 20.0) -> int:
        code = self.process.wait(timeout_s)
        if self._reader is not None:
            self._reader.join(timeout_s)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # a command that nobody read
                    stream.close()
        return code

    def state(self, timeout_s: float = 15.0) -> list[str]:
        """Ids in the state of this node, now."""
        self.facts.pop("ids", None)
        self.tell("state")
        wait_for(lambda: "ids" in self.facts or self.process.poll() is not None, timeout_s)
        return list(self.facts["ids"])


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str = "the condition") -> None:
    """Poll until ``condition``; fails at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {timeout_s} s"
        time.sleep(0.005)


def start_node(
    name: str,
    members: Mapping[str, str],
    directory: Path,
    *,
    certificates: Path | None = None,
    compaction_entries: int = 200,
    payload_bytes: int = 100,
    file_bytes_max: int | None = None,
) -> RaftProcess:
    """Start the program below; ``certificates`` holds authority.pem, NAME.pem, NAME.key."""
    settings = {
        "name": name,
        "members": dict(members),
        "directory": str(directory),
        "certificates": None if certificates is None else str(certificates),
        "compaction_entries": compaction_entries,
        "payload_bytes": payload_bytes,
        "file_bytes_max": file_bytes_max,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.raft_driver", json.dumps(settings)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    handle = RaftProcess(name, process)
    handle._reader = threading.Thread(target=handle.read, daemon=True)
    handle._reader.start()
    return handle


def found(directories: Sequence[Path]) -> None:
    """What ``rollcall init`` does for each controller."""
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "FOUNDING").write_bytes(b"")


# --- the program ---


def _main(settings: dict[str, Any]) -> int:
    import resource

    from rollcall_ha.controller.contract.ids import ControllerName
    from rollcall_ha.controller.contract.timing import PRESETS, Preset
    from rollcall_ha.controller.replication.ports import ProposalOutcome, ProposalStatus, RaftRole
    from rollcall_ha.controller.replication.raft.log import RaftLog, RaftStartError
    from tests.support.raft_certs import credentials_in
    from tests.support.raft_ledger import Ledger, LedgerMachine

    sys.setswitchinterval(0.0005)
    if settings["file_bytes_max"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (settings["file_bytes_max"], settings["file_bytes_max"]))
    name, folder = settings["name"], settings["certificates"]
    tls = None
    if folder is not None:
        tls = credentials_in(Path(folder), name)
    log: RaftLog[Ledger] = RaftLog(
        LedgerMachine(),
        me=ControllerName(name),
        members={ControllerName(member): address for member, address in settings["members"].items()},
        directory=Path(settings["directory"]),
        timing=PRESETS[Preset.NORMAL],
        tls=tls,
        compaction_entries=settings["compaction_entries"],
    )
    lock = threading.Lock()
    slots = threading.Semaphore(0)

    def say(**fact: Any) -> None:
        with lock:
            sys.stdout.write(json.dumps(fact) + "\n")
            sys.stdout.flush()

    try:
        log.start()
    except RaftStartError as error:
        say(refused=str(error))
        return 65
    say(started=True, pid=os.getpid())
    padding = "x" * settings["payload_bytes"]
    life = f"{name}-{time.monotonic_ns()}"

    def propose() -> None:
        number = 0
        while True:
            slots.acquire()
            while log.leadership.role is not RaftRole.LEADER:
                time.sleep(0.01)
            number += 1
            text = f"{life}-{number}-{padding}"

            def done(outcome: ProposalOutcome, text: str = text) -> None:
                if outcome.status is ProposalStatus.COMMITTED:
                    say(acknowledged=[text], term=outcome.term)
                slots.release()

            log.propose(f'["{text}"]', done)

    threading.Thread(target=propose, daemon=True).start()

    def watch() -> None:
        before = None
        while True:
            leadership = log.leadership
            # A leader that has not applied an entry of its own term does not know yet what was committed before it.
            is_ready = leadership.role is not RaftRole.LEADER or log.published.term == leadership.term
            now = (leadership.role.value if is_ready else "winner", leadership.term, log.is_voter)
            if now != before:
                say(role=now[0], term=now[1], is_voter=now[2])
                before = now
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        match line.split():
            case ["load", count]:
                for _ in range(int(count)):
                    slots.release()
            case ["state"]:
                say(ids=log.published.state.ids)
            case _:
                break
    log.stop()
    say(stopped=True)
    return 0


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])))
