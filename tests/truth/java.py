"""
The same ends of the master of a set of RocketMQ's brokers before our controllers.

Here: that set as a ``Stage``, and its faults. Not here: starting Java (``tests.interop_java``), rows (``__main__``).

Rule: RocketMQ's brokers tell nobody when they serve, nor that writes are stopped. So the record of a reign has phases and no
total; a stop within a reign is on no record, and only a client knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from tests.interop_java.artifacts import JavaUnavailableError, obtain
from tests.interop_java.brokers import Brokers, java_brokers
from tests.interop_java.fleet import CLUSTER, SET, JavaFleet
from tests.truth.faults import HEAL_S, SkipError, Stage
from tests.truth.recorded import Recorded


@dataclass(slots=True, kw_only=True)
class JavaStage(Stage):
    """Three brokers of RocketMQ's behind three controllers of ours."""

    brokers: Brokers
    java: JavaFleet
    coarse: int = 5
    """Its Java answers late while it compiles."""

    def addresses(self) -> list[str]:
        return [self.brokers.address(name) for name in self.brokers.replicas]

    def proofs(self) -> list[str]:
        return ["", "", ""]

    def seeds(self) -> dict[str, str]:
        return {"name-servers": self.brokers.names}

    def master(self) -> str:
        return self.brokers.master()

    def slaves(self) -> list[str]:
        master = self.master()
        return [name for name in self.brokers.replicas if name != master]

    def epoch(self) -> int:
        return self.brokers.epoch()

    def kill(self, master: str) -> None:
        self.brokers.kill(master)

    def wait_next(self, epoch: int) -> None:
        self.brokers.wait_elected(epoch)

    def heal(self) -> None:
        for name in self.brokers.replicas:
            if self.java.processes.pid(name) is not None:
                self.brokers.hang(name, is_hanging=False)
        self.brokers.start_dead()
        self.brokers.wait_whole()


@contextmanager
def java_stage(directory: Path) -> Iterator[JavaStage]:
    """Up; stopped afterwards. Raises ``SkipError``: there is no Java here."""
    try:
        release = obtain()
    except JavaUnavailableError as error:
        raise SkipError(str(error)) from error
    key = SetKey(ClusterName(CLUSTER), BrokerName(SET))
    with java_brokers(directory, release) as (brokers, java):
        yield JavaStage(fleet=brokers.fleet, key=key, brokers=brokers, java=java)


def known(rows: Sequence[Mapping[str, Any]]) -> Recorded:
    """The phases that are on record, together: nobody has told when the new master served."""
    spans = [span["durationUs"] or 0 for row in rows for span in row["phases"]]
    kinds = tuple(row["kind"] for row in rows)
    return Recorded(kinds=kinds, lower_ms=sum(spans) / 1000, upper_ms=None, waited_ms=0.0, missing=())


def hang_master(stage: Stage) -> None:
    """SIGSTOP, and SIGCONT when another one serves."""
    assert isinstance(stage, JavaStage)
    epoch, master = stage.epoch(), stage.master()
    stage.brokers.hang(master, is_hanging=True)
    stage.wait_next(epoch)
    stage.brokers.hang(master, is_hanging=False)


def hang_slave(stage: Stage) -> None:
    """A member of the SyncStateSet does not ack: nothing is acknowledged until the master has removed it."""
    assert isinstance(stage, JavaStage)
    slave = stage.slaves()[0]
    stage.brokers.hang(slave, is_hanging=True)
    try:
        stage.fleet.wait_set(
            stage.key, lambda one: len(one.view.sync_state_set) < 3, what="to shrink", deadline_s=HEAL_S
        )
    finally:
        stage.brokers.hang(slave, is_hanging=False)


def restart_master(stage: Stage) -> None:
    """SIGTERM, and a new process."""
    assert isinstance(stage, JavaStage)
    epoch, master = stage.epoch(), stage.master()
    stage.java.terminate(master)
    stage.wait_next(epoch)
    stage.java.restart(master)
