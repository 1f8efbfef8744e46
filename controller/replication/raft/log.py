"""
``RaftLog``: the Raft group as ``ports.ReplicatedLog``, with the thread that drives it.

Here: life cycle, the raft thread, publishing. Not here: the protocol (``node``, ``repairs``), links (``transport``), files
(``journal``, ``snapshot``).
Rule 1: only the raft thread touches the library. State and leadership reach others by one assignment each.
Rule 2: this controller proposes only while it leads; nothing is forwarded inside Raft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from controller.contract.ids import ControllerName
from controller.contract.timing import Timing
from controller.replication.ports import AppliedEntry, Leadership, ProposalOutcome, Published, StateMachine
from node.tls import TlsFiles

S = TypeVar("S")

FOUNDING_FILE_NAME = "FOUNDING"
"""Written into each controller's raft directory by ``rollcall init``, and by nothing else: allows an empty directory to vote."""


class RaftStartError(RuntimeError):
    """This node must not start; the message says why and what to do."""


class RaftLog(Generic[S]):
    """One member of the Raft group; implements ``ports.ReplicatedLog``."""

    def __init__(
        self,
        machine: StateMachine[S],
        *,
        me: ControllerName,
        members: Mapping[ControllerName, str],
        directory: Path,
        timing: Timing,
        tls: TlsFiles | None,
        compaction_floor: Callable[[], int] | None = None,
        compaction_entries: int = 20_000,
    ) -> None:
        """
        Args:
            machine: The deterministic part.
            me: Own name; it must be in ``members`` and in the certificate.
            members: Name -> host:port of all, this one included; the same everywhere. One, three or five.
            directory: Holds journal and snapshots; made if missing.
            timing: The raft_* durations and ``propose_timeout_ms``.
            tls: Certificate files; None only if every address is loopback.
            compaction_floor: Index up to which the event journal is synced; snapshots wait for it (R24).
            compaction_entries: Entries after which a snapshot is written.
        """
        raise NotImplementedError

    @property
    def published(self) -> Published[S]:
        """Newest applied state; any thread."""
        raise NotImplementedError

    @property
    def leadership(self) -> Leadership:
        """Newest known leadership; any thread."""
        raise NotImplementedError

    @property
    def ticked_at_ns(self) -> int:
        """Monotonic time of the newest completed tick, for the watchdog; any thread."""
        raise NotImplementedError

    def propose(self, payload: str, done: Callable[[ProposalOutcome], None]) -> None:
        """As ``ports.ReplicatedLog.propose``."""
        raise NotImplementedError

    def transfer_leadership(self, to: ControllerName | None, done: Callable[[str | None], None]) -> None:
        """Ask ``to`` (None: whoever has most) to elect itself at once; ``done(None)`` once asked, else with the reason."""
        raise NotImplementedError

    def subscribe(self, listener: Callable[[AppliedEntry[S]], None]) -> None:
        """As ``ports.ReplicatedLog.subscribe``."""
        raise NotImplementedError

    def start(self) -> None:
        """Recover, bind, take part. Raises ``RaftStartError``."""
        raise NotImplementedError

    def stop(self) -> None:
        """Leave; returns when everything buffered is durable and the thread has ended."""
        raise NotImplementedError
