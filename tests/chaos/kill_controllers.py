"""
Kill -9 all controllers in the middle of commits, again and again: nothing acknowledged may be missing afterwards.

    python3 -m tests.chaos.kill_controllers --rounds 10

Here: the loop and its counts. Each round: commands are acknowledged one after the other, all controllers are killed at
once, started again, and every acknowledged command is asked for. A producer works all the time: brokers go on without
controllers. The commands are grants of broker ids: an id belongs to its register code for ever.
"""

from __future__ import annotations

import argparse
import itertools
import json
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError, RefusedError
from rollcall_ha.controller.contract.commands import ApplyBrokerId
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, RegisterCode, SetKey
from rollcall_ha.deploy.local import ledger
from rollcall_ha.deploy.local.demo import PRODUCER, start_producer
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import LauncherError, wait_until

COMMANDS_EACH_ROUND = 50
COMMANDS_DEADLINE_S = 20.0
GAP_MS_MAX = 500.0
PROBE_SETS = 256
"""Ids are asked for in so many sets: one keeps 64 of them at most."""


class Submitter:
    """Asks for one broker id after the other until it is told to stop; remembers what was acknowledged."""

    def __init__(self, fleet: Fleet) -> None:
        self.granted: dict[RegisterCode, BrokerId] = {}
        self.refused: RefusedError | None = None
        """A definite no ended the work."""
        self._fleet = fleet
        # A short limit: while no controller runs, the next one is tried soon.
        self._client = Client(fleet.rest_addresses(), identity=fleet.identity(), limit_ms=500)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="submitter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop asking; returns when the last call has ended."""
        self._stopped.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            code = RegisterCode(secrets.token_hex(16))
            try:
                self.granted[code] = grant(self._client, self._fleet, code)
            except RefusedError as error:
                self.refused = error
                return
            except ClientError:
                # Not acknowledged, so nothing was promised. Its code is not used again: a grant that came through after
                # all would be counted as kept, and hide a lost one.
                continue


def probe_of(code: RegisterCode) -> str:
    """The set of which a code asks for an id."""
    return f"probe-{int(code, 16) % PROBE_SETS}"


def grant(client: Client, fleet: Fleet, code: RegisterCode) -> BrokerId:
    """The id that belongs to a register code. Raises ``ClientError``."""
    probe = probe_of(code)
    key = SetKey(ClusterName(fleet.file.fleet.name), BrokerName(probe))
    return client.apply_broker_id(ApplyBrokerId(set_key=key, register_code=code, address="127.0.0.1:1")).broker_id


@dataclass(slots=True)
class TrialCounts:
    """Sums over all rounds."""

    rounds: int = 0
    acked: int = 0
    lost: int = 0
    epoch_falls: int = 0

    def one_round(self, fleet: Fleet) -> None:
        """Commit, kill all in the middle of it, start again, ask for everything that was acknowledged."""
        key = fleet.set_keys()[0]
        before = fleet.wait_set(key, lambda _: True, what="to be known").view.master_epoch
        submitter = Submitter(fleet)
        wait_until(
            lambda: len(submitter.granted) >= COMMANDS_EACH_ROUND or submitter.refused,
            deadline_s=COMMANDS_DEADLINE_S,
            what=f"{COMMANDS_EACH_ROUND} acknowledged commands",
        )
        if submitter.refused is not None:
            raise LauncherError(f"a command was refused: {submitter.refused}")
        for name in fleet.controllers:
            fleet.processes.signal(name, signal.SIGKILL)
        wait_until(lambda: not any(map(fleet.pid, fleet.controllers)), deadline_s=5, what="all controllers to be gone")
        submitter.stop()
        for name in fleet.controllers:
            fleet.restart(name)
        fleet.leader()
        client = fleet.client()
        lost = sum(grant(client, fleet, code) != granted for code, granted in submitter.granted.items())
        after = fleet.wait_set(key, lambda _: True, what="to be known again").view.master_epoch
        self.rounds += 1
        self.acked += len(submitter.granted)
        self.lost += lost
        self.epoch_falls += after < before
        acked = len(submitter.granted)
        print(f"round {self.rounds}: {acked} acknowledged, {lost} lost, masterEpoch {before} -> {after}", flush=True)


def run(directory: Path, rounds: int) -> int:
    """Exit code 0 if nothing was lost and brokers kept acknowledging."""
    counts = TrialCounts()
    # Insecure: the probes are ids in hundreds of sets, each of which would need a broker's certificate of its own.
    with Fleet.create(directory, Layout(is_insecure=True)) as fleet:
        fleet.up()
        start_producer(fleet)
        wait_until(lambda: ledger.read(fleet.directory), deadline_s=20, what="a first acknowledgement")
        since_ns = last_ack_ns(fleet)
        for _ in range(rounds):
            counts.one_round(fleet)
        fleet.processes.terminate(PRODUCER)
        stamps = sorted(line.acked_at_ns for line in ledger.read(fleet.directory) if line.acked_at_ns >= since_ns)
    gap_ms = max((later - sooner for sooner, later in itertools.pairwise(stamps)), default=0) / 1e6
    result = {
        "rounds": counts.rounds,
        "acked_commands": counts.acked,
        "lost_commands": counts.lost,
        "epoch_falls": counts.epoch_falls,
        "acked_messages": len(stamps),
        "ack_gap_ms_max": round(gap_ms, 1),
    }
    wrong = [name for name in ("lost_commands", "epoch_falls") if result[name]]
    wrong += [name for name in ("rounds", "acked_commands", "acked_messages") if not result[name]]
    wrong += ["ack_gap_ms_max"] if gap_ms >= GAP_MS_MAX else []
    for name in wrong:
        print(f"FAILED  {name} is {result[name]}")
    print(f"RESULT {json.dumps(result)}")
    return 1 if wrong else 0


def last_ack_ns(fleet: Fleet) -> int:
    """When the newest message was acknowledged."""
    return max(line.acked_at_ns for line in ledger.read(fleet.directory))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run in a directory of its own that is removed afterwards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kill-controllers-") as folder:
        try:
            return run(Path(folder) / "fleet", options.rounds)
        except LauncherError as error:
            sys.stderr.write(f"kill-controllers: {error}\n")
            return 1


if __name__ == "__main__":
    sys.exit(main())
