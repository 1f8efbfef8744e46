"""
``RaftLog``: the Raft group as ``ports.ReplicatedLog`` and ``ports.PeerCalls``, with real sockets, real files and the
thread that drives it.

Here: the raft thread. Not here: the member itself (``member``, ``node``), links (``transport``), files (``journal``,
``snapshot``).
Rule 1: only the raft thread touches the library. State and leadership reach others by one assignment each.
Rule 2: a tick that fails is logged and repeated; ``FAILED_TICKS_MAX`` in a row end the process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.replication.membership import Change
from rollcall_ha.controller.replication.ports import (
    Answerer,
    CallOutcome,
    HandoverEnd,
    ProposalOutcome,
    RefusedPeer,
    Reply,
    StateMachine,
)
from rollcall_ha.controller.replication.raft.config import FAILED_TICKS_MAX, TICK_SECONDS
from rollcall_ha.controller.replication.raft.disk import DirectoryDisk
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.internals import Member
from rollcall_ha.controller.replication.raft.member import (
    FOUNDING_FILE_NAME,
    RaftAddressInUse,
    RaftMember,
    RaftStartError,
)
from rollcall_ha.controller.replication.raft.resolver import Resolver
from rollcall_ha.controller.replication.raft.seams import Seams
from rollcall_ha.controller.replication.raft.transport import LinkPoller, TlsTransport
from rollcall_ha.node.certified import PeerCertificate
from rollcall_ha.node.remoting.links import CloseCause
from rollcall_ha.node.tls import Credentials

__all__ = ["FOUNDING_FILE_NAME", "RaftAddressInUse", "RaftLog", "RaftStartError"]

S = TypeVar("S")

FAILED_TICK_PAUSE_SECONDS = 0.02

_logger = logging.getLogger(__name__)


class RaftLog(RaftMember[S]):
    """One member of the Raft group, with a thread that drives it; ``stop`` ends both."""

    def __init__(
        self,
        machine: StateMachine[S],
        *,
        me: ControllerName,
        members: Mapping[ControllerName, str],
        directory: Path,
        timing: Timing,
        tls: Credentials | None,
        compaction_floor: Callable[[], int] | None = None,
        compaction_entries: int = 20_000,
        seams: Seams | None = None,
        recorded_index: int = 0,
        bind: str | None = None,
    ) -> None:
        """
        Args:
            machine: The deterministic part.
            me: Own name; it must be in ``members`` and in the certificate.
            members: Name -> host:port of all, this one included; the same everywhere. One, three, five or seven.
            directory: Holds journal and snapshots; made (0700) if missing.
            timing: The raft_* durations and ``propose_timeout_ms``.
            tls: Its certificate; None only if every address is loopback.
            compaction_floor: Index up to which the event journal is synced; snapshots wait for it (R24).
            compaction_entries: Entries after which a snapshot is written.
            seams: Clock, chance and exit; None: the real ones.
            recorded_index: Newest entry that the event journal knows, as it was found on the disk.
            bind: host:port to listen on; None: the own address in ``members``.

        Raises:
            RaftStartError: ``me`` is no member.
        """
        seams = seams if seams is not None else Seams()
        self._directory = DirectoryDisk(directory)
        self._waker_read, self._waker_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        poller = LinkPoller()
        poller.subscribe(self._waker_read, self._on_wake, 1)
        self._is_awake = False
        resolver = Resolver()
        self._transport: TlsTransport | None = None

        def carrier(own: Member, peers: Sequence[Member], stranger: Callable[[str], Member | None]) -> TlsTransport:
            self._transport = TlsTransport(
                own,
                peers,
                timing=timing,
                tls=tls,
                clock_ns=seams.monotonic_ns,
                resolve=resolver,
                bind=bind,
                stranger=stranger,
            )
            return self._transport

        super().__init__(
            machine,
            me=me,
            members=members,
            disk=self._directory,
            carrier=carrier,
            poller=poller,
            timing=timing,
            seams=seams,
            compaction_floor=compaction_floor,
            compaction_entries=compaction_entries,
            recorded_index=recorded_index,
        )
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    @property
    def peer_certificates(self) -> tuple[PeerCertificate, ...]:
        """The certificates of the controllers that are linked to this one; for any thread."""
        return () if self._transport is None else self._transport.peer_certificates

    @property
    def peers_refused(self) -> tuple[RefusedPeer, ...]:
        """Peers that this member has refused a link, the last one last; for any thread."""
        return () if self._transport is None else self._transport.refused

    @property
    def links_closed(self) -> Mapping[CloseCause, int]:
        """Why links of the Raft port ended, counted since the start; any thread."""
        return Counter() if self._transport is None else self._transport.closed_by_cause

    def propose(self, payload: str, done: Callable[[ProposalOutcome], None]) -> None:
        super().propose(payload, done)
        self._wake()

    def hand_over(self, target: ControllerName, done: Callable[[HandoverEnd], None]) -> None:
        super().hand_over(target, done)
        self._wake()

    def change(self, change: Change, done: Callable[[ProposalOutcome], None]) -> None:
        super().change(change, done)
        self._wake()

    def call(self, peer: ControllerName, request: bytes, done: Callable[[CallOutcome], None]) -> None:
        """As ``ports.PeerCalls.call``."""
        super().call(peer, request, done)
        self._wake()

    def answer_calls(self, answerer: Answerer) -> None:
        """As ``ports.PeerCalls.answer_calls``."""

        def answer(caller: ControllerName, request: bytes, reply: Reply) -> None:
            def reply_now(response: bytes) -> None:
                reply(response)
                self._wake()

            answerer(caller, request, reply_now)

        super().answer_calls(answer)

    def start(self) -> None:
        """Recover, bind, take part. Raises ``RaftStartError``."""
        super().start()
        self._thread = threading.Thread(target=self._run, name="raft", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave; returns when everything buffered is durable and the thread has ended."""
        self._is_stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join()
        self._directory.close()
        os.close(self._waker_read)
        os.close(self._waker_write)

    def _wake(self) -> None:
        # One byte for all proposals of a tick. The flag is set BEFORE the byte is written and falls AFTER it is read.
        if not self._is_awake:
            self._is_awake = True
            try:
                os.write(self._waker_write, b"w")
            except OSError:
                return  # full: it wakes anyway; closed: it has stopped

    def _on_wake(self, descriptor: int, _events: int) -> None:
        os.read(descriptor, 4096)
        # AFTER the read; a proposer that finds it set has queued already, and the next tick looks. Before the read, a
        # byte of the moment between would be swallowed with the flag set, and every later proposal wait for the tick's
        # timeout.
        self._is_awake = False

    def _run(self) -> None:
        failures = 0
        while not self._is_stopping:
            try:
                self.tick(TICK_SECONDS)
                failures = 0
            except Exception as error:
                failures += 1
                _logger.exception("tick failed, %d in a row", failures)
                # A leader whose ticks fail may still send heartbeats: the others elect nobody, and nothing commits.
                if failures >= FAILED_TICKS_MAX:
                    self._seams.fail_stop(FailStop.TICKS, f"{failures} ticks failed in a row, the last with {error!r}")
                time.sleep(FAILED_TICK_PAUSE_SECONDS)
        super().stop()
