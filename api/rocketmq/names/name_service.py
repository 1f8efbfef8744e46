"""
The name service of one controller: its codes on the broker port, its clock, its file.

Here: frames to requests and answers to frames, what the controllers have committed as ``CommittedSet``, expiry, keeping
the table across restarts. Not here: what is answered (``machine``).

Rule 1: every controller serves, also a follower and one without a leader, from the state that it has applied.
Rule 2: the table is soft: a controller that starts again reads its file, ends registrations that are not renewed, and
learns the rest when brokers register again, within 30 s. A file that cannot be read is an empty table, and logged.
Rule 3: the file is written by a thread of its own, at most every ``SAVE_INTERVAL_MS``, and once more at the stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from rollcall_ha.api.broker_port.code_table import CodeTable, Handler, Request, Served
from rollcall_ha.api.rocketmq.names.machine import NameCode, NameMachine, NameRequest
from rollcall_ha.api.rocketmq.names.table import CommittedSet, NameTable, SavedTable
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.core.state import FleetState, SetState
from rollcall_ha.controller.replication.ports import Published
from rollcall_ha.controller.runtime.session_state import ConnectionId
from rollcall_ha.node.files import atomic_replace
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.telemetry import get_logger

FILE_NAME = "names.json"
EXPIRY_INTERVAL_MS = 1_000
SAVE_INTERVAL_MS = 5_000

_decode_saved = msgspec.json.Decoder(SavedTable).decode
_encode_saved = msgspec.json.Encoder().encode


class CommittedSets:
    """The state that a controller has applied, by brokerName: the ``CommittedOf`` of a name table."""

    def __init__(self, published: Callable[[], Published[FleetState]]) -> None:
        """``published`` gives the newest applied state."""
        self._published = published
        self._index = -1
        self._words: dict[str, CommittedSet | None] = {}
        self._keys: dict[str, SetKey] = {}

    def __call__(self, name: str) -> CommittedSet | None:
        """The committed state of this set; None if the controllers do not know it, or it was cleaned."""
        published = self._published()
        # Forgotten with each applied entry: an answer from before the election would name the old master.
        if published.index != self._index:
            self._index = published.index
            self._words.clear()
        if name not in self._words:
            self._words[name] = self._find(published.state, name)
        return self._words[name]

    def _find(self, state: FleetState, name: str) -> CommittedSet | None:
        if len(self._keys) != len(state.sets):
            # Sets are never removed, tombstones stay: equal counts are equal keys.
            self._keys = {key.name: key for key in sorted(state.sets)}
        key = self._keys.get(name)
        found = state.sets.get(key) if key is not None else None
        if found is None or found.is_tombstone or (found.recovery is not None and found.recovery.elsewhere is not None):
            # A set that moves here is run by its old controllers still: its brokers' claims count. By our own state it
            # would have no master, and producers no route, for as long as the move takes.
            return None
        return committed_set(found)


def committed_set(found: SetState) -> CommittedSet:
    """The committed state of one set, as the name table needs it."""
    master = found.replica(found.master)
    return CommittedSet(
        cluster=found.set_key.cluster,
        master=master.address if master is not None else None,
        ids={replica.address: int(replica.broker_id) for replica in found.replicas},
        alive=frozenset(replica.address for replica in found.replicas if replica.is_alive),
    )


class NameService:
    """See the module. All methods run on the loop."""

    def __init__(
        self,
        *,
        published: Callable[[], Published[FleetState]],
        monotonic_ns: Callable[[], int],
        file: Path | None,
        settings: dict[str, str],
    ) -> None:
        """``file`` None: the table does not survive this process. Nothing is read before ``start``."""
        self.table = NameTable(committed_of=CommittedSets(published))
        self._service = NameMachine(self.table, settings=settings)
        self._monotonic_ns = monotonic_ns
        self._file = file
        self._logger = get_logger("names")
        self._saver = ThreadPoolExecutor(max_workers=1, thread_name_prefix="names")
        self._saved_changes = 0
        self._saving: asyncio.Future[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def register(self, codes: CodeTable) -> None:
        """Serve the codes of a name server on a port."""
        for code in NameCode:
            handler = self._handler(code)
            if code is NameCode.NAMES_BROKER_HEARTBEAT:
                # One number, two protocols: the controllers' 904 carries a broker id, the name server's does not. Taken
                # for each other, brokers of one kind would fall silent.
                codes.register(Served(code=code, name=code.name, handler=handler, only_if=_has_no_broker_id))
            else:
                codes.register(Served(code=code, name=code.name, handler=handler))

    def start(self) -> None:
        """Read the file, and begin to expire and to save on the running loop."""
        if self._file is not None and self._file.exists():
            try:
                self.table.restore(_decode_saved(self._file.read_bytes()), now_ms=self._now_ms())
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._logger.warning("names_file_unreadable", file=str(self._file), error=str(error))
        self._every(EXPIRY_INTERVAL_MS, self._expire)
        self._every(SAVE_INTERVAL_MS, self._save)

    async def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        # First the save that is under way: else the last one would be left out, and the file be 5 s old.
        if self._saving is not None:
            await self._saving
        self._save()
        if self._saving is not None:
            await self._saving
        self._saver.shutdown()

    def closed(self, connection: ConnectionId) -> None:
        """A link of the port is gone."""
        self.table.closed(connection, now_ms=self._now_ms())

    # --- how ---------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._monotonic_ns() // NS_PER_MS

    def _handler(self, code: NameCode) -> Handler:
        def serve(request: Request) -> None:
            frame = request.frame
            answer = self._service.handle(
                NameRequest(
                    code=code,
                    fields=request.fields,
                    body=frame.body,
                    version=frame.version,
                    connection=request.link,
                    now_ms=self._now_ms(),
                )
            )
            request.answer(answer.code, header=answer.header, body=answer.body, remark=answer.remark)

        return serve

    def _every(self, interval_ms: int, work: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        slot = len(self._timers)

        def turn() -> None:
            self._timers[slot] = loop.call_later(interval_ms / 1000, turn)
            work()

        self._timers.append(loop.call_later(interval_ms / 1000, turn))

    def _expire(self) -> None:
        if ended := self.table.expire(now_ms=self._now_ms()):
            self._logger.info("names_expired", brokers=ended)

    def _save(self) -> None:
        if self._file is None or self.table.changes == self._saved_changes:
            return
        if self._saving is not None and not self._saving.done():
            return
        # The number BEFORE the copy: a change that comes during the write must be written by the next one.
        self._saved_changes = self.table.changes
        loop = asyncio.get_running_loop()
        self._saving = loop.run_in_executor(self._saver, self._write, self._file, self.table.saved())

    def _write(self, file: Path, saved: SavedTable) -> None:
        """Runs on the thread. A full disk costs the copy, not the service."""
        try:
            atomic_replace(file, _encode_saved(saved))
        except OSError as error:
            self._logger.warning("names_file_not_written", file=str(file), error=str(error))


def _has_no_broker_id(frame: Frame) -> bool:
    return "brokerId" not in (frame.ext_fields or {})
