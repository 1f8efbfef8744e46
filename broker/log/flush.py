"""
Group commit: one thread syncs, many wait.

Here: the thread, its rounds, and the hand-over to the loop. Not here: the sync itself (``commit_log``).

Rule 1: one round serves all requests from before it began; the loop hears of it once.
Rule 2: in mode sync a request starts a round at once; in mode async rounds follow ``interval_ms``.
Rule 3: a failed sync ends the process, through the ``stop_process`` port: the kernel may have dropped the pages, and a
second fsync would report success for them. So does any other error of this thread: without it nothing becomes durable
any more, and no request would ever say so.
Rule 4: chores run on the same thread: ``prepare`` (the next segment) before the sync, ``chores`` (checkpoints) after
it; in mode sync, where acks wait for the next round, at most once in ``interval_ms``. A full disk in one of them is
reported and tried again, because nothing was promised yet.
Rule 5: a cut may come between a sync and its hand-over. The end that the sync found is void then: ``rewind`` has the
last word.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.model import LogOffset


class GroupFlusher:
    """Owns the flush thread between ``start`` and ``stop``."""

    def __init__(
        self,
        *,
        mode: FlushMode,
        interval_ms: int,
        prepare: Callable[[], None],
        sync: Callable[[], LogOffset],
        chores: Callable[[], None],
        publish: Callable[[LogOffset], None],
        stop_process: Callable[[BaseException], None],
        clock_s: Callable[[], float] = time.monotonic,
        on_due: Callable[[], None] | None = None,
    ) -> None:
        """
        ``sync`` makes the log durable and returns up to where; ``publish`` is called on the flush thread with each new
        end; ``stop_process`` must not return to normal work. With ``on_due`` there is no thread: it is called when a
        round should not wait, and its owner calls ``turn``, then and each ``interval_ms``.
        """
        self._mode = mode
        self._interval_s = interval_ms / 1000
        self._prepare = prepare
        self._sync = sync
        self._chores = chores
        self._publish = publish
        self._stop_process = stop_process
        self._clock_s = clock_s
        self._on_due = on_due
        self._wake = threading.Condition()
        self._requested = LogOffset(0)
        self._flushed = LogOffset(0)
        self._chore_requested = False
        self._are_chores_due = True
        self._chores_done_at_s = 0.0
        self._is_stopping = False
        self._rewinds = 0
        self._thread: threading.Thread | None = None
        self.rounds = 0
        """Syncs so far."""
        self.chore_error: OSError | None = None
        """Error of the last chores; None = they worked."""

    def start(self, flushed: LogOffset) -> None:
        """Begin; everything below ``flushed`` is durable already."""
        self._flushed = self._requested = flushed
        if self._on_due is not None:
            return
        self._thread = threading.Thread(target=self._run, name="log-flush", daemon=True)
        self._thread.start()

    def request(self, offset: LogOffset) -> None:
        """Ask for everything below ``offset``; in mode async it may take ``interval_ms``."""
        if offset > self._requested:
            with self._wake:
                self._requested = offset
                # Mode async: no wake-up per batch. The thread looks by itself each ``interval_ms``.
                if self._mode is FlushMode.SYNC:
                    self._notify()

    def request_chores(self) -> None:
        """Run the chores soon, without a sync in mode async."""
        with self._wake:
            self._chore_requested = True
            self._notify()

    def sync_at_once(self) -> None:
        """From here on mode sync; earlier requests are synced now."""
        with self._wake:
            self._mode = FlushMode.SYNC
            self._notify()

    def rewind(self, end: LogOffset) -> None:
        """The log was cut: requests above ``end`` are void."""
        # ``_flushed`` left at 900 after a cut to 500: the requests of the next 400 bytes would start no round, and in
        # mode sync their acks would wait for the interval; for ever, if the log stops at 900 again.
        with self._wake:
            self._rewinds += 1
            self._requested = min(self._requested, end)
            self._flushed = min(self._flushed, end)

    def turn(self) -> None:
        """One round, for an owner that has no thread for it (``on_due``)."""
        if self._is_stopping:
            return
        try:
            self._take_chores()
            self._round()
        except BaseException as error:  # noqa: BLE001 (rule 3)
            # No further round, as the thread makes none: the next sync says yes without the pages of this one, and the
            # checkpoint would call them synced.
            self._is_stopping = True
            self._stop_process(error)

    def stop(self) -> None:
        """End the thread; blocks until its round is over. Makes nothing durable."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _notify(self) -> None:
        self._wake.notify()
        if self._on_due is not None:
            self._on_due()

    def _run(self) -> None:
        try:
            while self._await_work():
                self._round()
        except BaseException as error:  # noqa: BLE001 (rule 3)
            self._stop_process(error)

    def _round(self) -> None:
        # The next segment before the sync: a busy disk takes a second for it, and a loop that runs into the end of the
        # last one waits that long with all its links.
        prepared = self._try_chore(self._prepare)
        rewinds = self._rewinds
        flushed = self._sync()
        self.rounds += 1
        with self._wake:
            # Synced up to 900, cut to 500 before this line, filled to 900 again: set to 900 here, the next sync would
            # find nothing new and tell nobody, and in mode sync the acks of those 400 bytes would wait for ever.
            is_new = flushed != self._flushed and rewinds == self._rewinds
            if is_new:
                self._flushed = flushed
        if is_new:
            self._publish(flushed)
        now_s = self._clock_s()
        is_failing = prepared is not None or self.chore_error is not None
        # In mode sync producers wait for the next round: a checkpoint in each would double their latency.
        is_time = self._mode is FlushMode.ASYNC or now_s - self._chores_done_at_s >= self._interval_s
        if is_time or is_failing or self._are_chores_due:
            self._are_chores_due, self._chores_done_at_s = False, now_s
            self.chore_error = self._try_chore(self._chores) or prepared

    @staticmethod
    def _try_chore(chore: Callable[[], None]) -> OSError | None:
        try:
            chore()
        except OSError as error:
            return error
        return None

    def _await_work(self) -> bool:
        with self._wake:
            if not self._has_urgent_work():
                self._wake.wait(self._interval_s)
            self._take_chores()
            return not self._is_stopping

    def _take_chores(self) -> None:
        self._are_chores_due |= self._chore_requested
        self._chore_requested = False

    def _has_urgent_work(self) -> bool:
        is_asked = self._mode is FlushMode.SYNC and self._requested > self._flushed
        return self._is_stopping or self._chore_requested or is_asked
