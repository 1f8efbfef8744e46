"""
The hooks' process: reads the record, makes deliveries of it, and has them delivered.

Here: the composition root and the reading loop. Not here: the parts that it joins, the command line (``__main__``).

Rule 1: it knows controllers by REST alone, and they do not know it: whatever it does, no decision waits for it.
Rule 2: it is stopped and killed at any time: all that it must know is in the store before it counts.
Rule 3: it never ends because controllers are away or deny it: it says so, and tries again. It does end, for its
supervisor to start it again, when its own disk fails.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import msgspec
from prometheus_client import Metric, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.consuming import GroupPage
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.contract.views import ControllerStatus
from rollcall_ha.hooks.commands import Command
from rollcall_ha.hooks.courier import Courier, Sender
from rollcall_ha.hooks.desk import Desk
from rollcall_ha.hooks.following import (
    Cursor,
    EventsGone,
    Follower,
    Judged,
    RecordExchanged,
    decode_record,
    newest,
)
from rollcall_ha.hooks.notices import (
    GapTold,
    Kind,
    LagTold,
    Notice,
    SetMemory,
    certificate_notice,
    felt_notice,
    gap_notice,
    key_of,
    lag_notice,
    notices_of,
    seeded,
)
from rollcall_ha.hooks.settings import HookSection, HooksFile
from rollcall_ha.hooks.store import DIRECTORY_KIND, DIRECTORY_VERSION, Store
from rollcall_ha.hooks.webhook import Webhook
from rollcall_ha.node.config import split_address
from rollcall_ha.node.files import DataDirectory
from rollcall_ha.node.process import ExitCode, tell_supervisor
from rollcall_ha.node.telemetry import Telemetry, get_logger
from rollcall_ha.probe.journal import end_of, read_on
from rollcall_ha.probe.lines import GapLine, Line

PAUSE_MS = 500
"""Before controllers that gave nothing are asked again."""
FULL_PAUSE_MS = 200
GATHER_MS = 100
"""After a page: events come with each sync of a journal; a question for each would be a load on the controllers."""
CERTIFICATES_INTERVAL_S = 600.0
LAG_INTERVAL_S = 30.0
PROBE_INTERVAL_MS = 1_000
LAGGING_MAX = 16
"""Groups that are said to lag at a time; those that lag most."""
DAY_MS = 86_400_000

_log = get_logger("hooks")


class WrongFleet(RuntimeError):
    """``--accept-fleet`` names another fleet than the one that is found."""


def now_ms() -> int:
    """UTC."""
    return time.time_ns() // 1_000_000


def sender_of(made: HooksFile, hook: HookSection) -> Sender:
    """What delivers for a hook. Blocks. Raises ``ConfigError``."""
    if hook.command:
        return Command(hook)
    context = made.context(hook) if hook.url.startswith("https:") else None
    return Webhook(hook, made.secrets(hook, os.environ), context=context, now_s=time.time)


def letters_of(notices: Iterable[Notice], hooks: Sequence[HookSection]) -> Iterator[tuple[str, Notice]]:
    """(hook, notice) of all that is to be delivered."""
    return ((hook.name, notice) for notice in notices for hook in hooks if hook.wants(notice))


def due_certificates(
    controllers: Iterable[ControllerStatus],
    days: Sequence[int],
    told: frozenset[tuple[str, int]],
    *,
    fleet: FleetIncarnation,
    now_ms: int,
) -> tuple[list[tuple[str, int]], list[Notice]]:
    """
    What is to be remembered as said, (serial, days), and what is said now.

    The smallest of the limits that a certificate has passed is said: found two days before its end, one notice will do.
    """
    remembered: list[tuple[str, int]] = []
    notices: dict[str, Notice] = {}
    for controller in controllers:
        for one in controller.certificates:
            passed = [limit for limit in sorted(days) if one.expires_at_ms - now_ms <= limit * DAY_MS]
            if not passed or (one.serial, passed[0]) in told or one.serial in notices:
                continue
            remembered += [(one.serial, limit) for limit in passed]
            notices[one.serial] = certificate_notice(
                one, passed[0], fleet=fleet, told_by=controller.name, now_ms=now_ms
            )
    return remembered, list(notices.values())


def due_lags(
    page: GroupPage, limit: int, told: frozenset[str], *, fleet: FleetIncarnation, now_ms: int
) -> tuple[list[str], list[Notice]]:
    """The groups that lag from now on, and what is said now."""
    found: dict[str, LagTold] = {name: LagTold(group=name, lag=0, limit=limit, stuck_queues=0) for name in told}
    for line in page.groups:
        one = found.get(line.group) or LagTold(group=line.group, lag=0, limit=limit, stuck_queues=0)
        stuck = one.stuck_queues + line.stuck_queues
        found[line.group] = msgspec.structs.replace(one, lag=one.lag + line.lag, stuck_queues=stuck)
    # Back at half of the limit: a group that stays near it would be said every half minute.
    back = [found[name] for name in sorted(told) if found[name].lag * 2 <= limit]
    # A set that does not answer makes a lag smaller, never larger.
    back = [] if any(one.trouble for one in page.read) else back
    lagging = told - {one.group for one in back}
    worst = sorted((one for one in found.values() if one.lag > limit), key=lambda one: (-one.lag, one.group))
    new = [one for one in worst if one.group not in lagging][: max(0, LAGGING_MAX - len(lagging))]
    notices = [lag_notice(one, fleet=fleet, now_ms=now_ms) for one in (*back, *new)]
    return sorted(lagging | {one.group for one in new}), notices


class Reading(msgspec.Struct):
    """How reading goes, for metrics."""

    cursor: Cursor | None = None
    is_refused: bool = False
    failures: int = 0
    """Rounds in which no controller gave what was asked for."""
    gaps: int = 0


class HooksProcess(msgspec.Struct):
    """One life of the process. Of one event loop."""

    made: HooksFile
    client: Client
    store: Store
    courier: Courier
    accepts_fleet: str = ""
    reading: Reading = msgspec.field(default_factory=Reading)
    _memories: dict[str, SetMemory] = msgspec.field(default_factory=dict)

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``. Raises ``sqlite3.Error``, ``WrongFleet``."""
        works = [
            asyncio.create_task(self.courier.run(stop)),
            asyncio.create_task(self._read(stop)),
            asyncio.create_task(self._watch_certificates(stop)),
            asyncio.create_task(self._watch_lags(stop)),
            asyncio.create_task(self._follow_probe(stop)),
        ]
        try:
            await asyncio.gather(*works)
        finally:
            for work in works:
                work.cancel()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, stop: asyncio.Event) -> None:
        cursor = await self._begin(stop)
        if cursor is None:
            return
        self._memories = await self.courier.on_store(self.store.memories)
        follower = Follower(self.client, self.made.fleet.controllers, draw=random.randrange)
        while not stop.is_set():
            self.reading.cursor = cursor
            if self.courier.desk.is_full:
                # Unread is where it is safest: with the controllers, which keep their record for weeks.
                await _pause(stop, FULL_PAUSE_MS)
                continue
            try:
                judged = await asyncio.to_thread(follower.read, cursor)
            except RecordExchanged as error:
                await self._refuse(cursor, error)
                return
            except EventsGone as error:
                cursor = await self._skip(cursor, error.judged)
                continue
            if judged is None:
                self.reading.failures += 1
                _log.warning("record_not_read", **{"from": cursor.start}, troubles=follower.troubles)
                await _pause(stop, PAUSE_MS)
            elif judged.records or judged.cursor != cursor:
                cursor = await self._take(judged.cursor, judged.records)
                await _pause(stop, GATHER_MS)

    async def _begin(self, stop: asyncio.Event) -> Cursor | None:
        """Where reading goes on; None: nowhere, a person is needed, or the process stops."""
        cursor = await self.courier.on_store(self.store.cursor)
        reason = await self.courier.on_store(self.store.refused)
        # A record that went back is still the same fleet's: there, to name that fleet is to accept.
        is_accepted = (
            cursor is not None and self.accepts_fleet != "" and bool(reason or self.accepts_fleet != cursor.fleet)
        )
        if cursor is not None and not is_accepted:
            if reason:
                self.reading.is_refused = True
                _log.error("record_refused", reason=reason, remedy="rollcall hooks run --accept-fleet INCARNATION")
                await stop.wait()
                return None
            return cursor
        while not stop.is_set():
            try:
                found = await asyncio.to_thread(self._seed)
            except ClientError as error:
                self.reading.failures += 1
                _log.warning("fleet_not_found", reason=str(error))
                found = None
            if found is None:
                await _pause(stop, PAUSE_MS)
                continue
            begun, memories = found
            if self.accepts_fleet not in ("", begun.fleet):
                raise WrongFleet(
                    f"--accept-fleet names {self.accepts_fleet}, and the controllers are of fleet {begun.fleet}"
                )
            await self.courier.on_store(self.store.begin, begun, memories)
            _log.info("reading_begins", fleet=begun.fleet, index=begun.index, sets=len(memories))
            return begun
        return None

    def _seed(self) -> tuple[Cursor, dict[str, SetMemory]] | None:
        """The end of the record, and the sets as they are then; None: there is no event yet. Raises ``ClientError``."""
        # In this order: what happens between the two is read, and finds sets that may know it; the other way round it
        # would be lost.
        begun = newest(self.client)
        if begun is None:
            return None
        sets = self.client.sets(consistency="local").sets
        return begun, {str(status.view.set_key): seeded(status) for status in sets}

    async def _take(self, cursor: Cursor, records: Sequence[EventRecord], *notices: Notice) -> Cursor:
        """Events as deliveries, durably with the cursor behind them."""
        told, changed = [*notices], dict[str, SetMemory | None]()
        for record in records:
            name = str(key_of(record) or "")
            if not name:
                continue
            memory, found = notices_of(record, self._memories.get(name, SetMemory()))
            told += found
            changed[name] = memory
            if memory is None:
                self._memories.pop(name, None)
            else:
                self._memories[name] = memory
        letters = list(letters_of(told, self.made.hooks))
        await self.courier.on_store(self._store_page, cursor, changed, letters, "")
        if letters:
            self.courier.wake()
        return cursor

    def _store_page(
        self, cursor: Cursor, changed: dict[str, SetMemory | None], letters: list[tuple[str, Notice]], refused: str
    ) -> None:
        self.store.take(cursor, changed, letters, now_ms=now_ms(), refused=refused)

    async def _skip(self, cursor: Cursor, judged: Judged) -> Cursor:
        """Go on behind a hole that all controllers have."""
        assert judged.first is not None
        self.reading.gaps += 1
        told = GapTold(
            reason=judged.text,
            after_index=cursor.index,
            up_to_index=judged.first.index - 1,
            previous_fleet=cursor.fleet,
            is_refused=False,
        )
        _log.error("events_missing", after=cursor.index, up_to=told.up_to_index, reason=judged.text)
        records: tuple[EventRecord, ...] = ()
        with suppress(msgspec.ValidationError):
            records = (decode_record(judged.first_line),)
        return await self._take(judged.first, records, gap_notice(told, fleet=judged.first.fleet, now_ms=now_ms()))

    async def _refuse(self, cursor: Cursor, error: RecordExchanged) -> None:
        """Say it to every hook, once, and read no further."""
        self.reading.is_refused = True
        self.reading.gaps += 1
        told = GapTold(
            reason=error.reason,
            after_index=cursor.index,
            up_to_index=None,
            previous_fleet=cursor.fleet,
            is_refused=True,
        )
        letters = list(letters_of([gap_notice(told, fleet=error.found, now_ms=now_ms())], self.made.hooks))
        await self.courier.on_store(self._store_page, cursor, {}, letters, error.reason)
        self.courier.wake()
        _log.error(
            "record_refused",
            reason=error.reason,
            remedy=f"rollcall hooks run --accept-fleet {error.found or cursor.fleet}",
        )

    # --- certificates ------------------------------------------------------------------------------------------------

    async def _watch_certificates(self, stop: asyncio.Event) -> None:
        if not any(Kind.CERTIFICATES in hook.kinds for hook in self.made.hooks):
            return
        while not stop.is_set():
            controllers = await asyncio.to_thread(self._controllers)
            if controllers and self.reading.cursor is not None:
                told = await self.courier.on_store(self.store.certificates_told)
                remembered, notices = due_certificates(
                    controllers,
                    self.made.certificate_days,
                    told,
                    fleet=self.reading.cursor.fleet,
                    now_ms=now_ms(),
                )
                letters = list(letters_of(notices, self.made.hooks))
                if remembered:
                    await self.courier.on_store(self._store_certificates, remembered, letters)
                    self.courier.wake()
            await _pause(stop, int(CERTIFICATES_INTERVAL_S * 1000) if controllers else PAUSE_MS)

    def _store_certificates(self, remembered: list[tuple[str, int]], letters: list[tuple[str, Notice]]) -> None:
        self.store.tell_certificates(remembered, letters, now_ms=now_ms())

    # --- lag ---------------------------------------------------------------------------------------------------------

    async def _watch_lags(self, stop: asyncio.Event) -> None:
        while not stop.is_set() and any(Kind.LAG in hook.kinds for hook in self.made.hooks):
            cursor, limit = self.reading.cursor, self.made.group_lag_alarm_messages
            with suppress(ClientError):
                if cursor is not None:
                    page = await asyncio.to_thread(self.client.consuming, GroupPage, "groups")
                    told = await self.courier.on_store(self.store.lagging)
                    lagging, notices = due_lags(page, limit, told, fleet=cursor.fleet, now_ms=now_ms())
                    letters = list(letters_of(notices, self.made.hooks))
                    await self.courier.on_store(partial(self.store.tell_lagging, lagging, letters, now_ms=now_ms()))
                    self.courier.wake()
            await _pause(stop, PAUSE_MS if cursor is None else int(LAG_INTERVAL_S * 1000))

    # --- what a probe felt -------------------------------------------------------------------------------------------

    async def _follow_probe(self, stop: asyncio.Event) -> None:
        trouble = ""
        while self.made.probe and not stop.is_set():
            try:
                # Unread, a gap is safe where it is, in its journal.
                if self.reading.cursor is not None and not self.courier.desk.is_full:
                    await self._tell_felt(self.made.path(self.made.probe), self.reading.cursor.fleet)
                trouble = ""
            except OSError as error:
                if str(error) != trouble:
                    _log.error("probe_not_read", reason=str(error))
                trouble = str(error)
            await _pause(stop, PROBE_INTERVAL_MS)

    async def _tell_felt(self, folder: Path, fleet: FleetIncarnation) -> None:
        """Read on in the journal, and store what is to be told. Raises ``OSError``: the next turn reads it again."""
        known = await self.courier.on_store(self.store.probed)
        if known is None:
            # As with the record: what was felt before the first start is told to nobody.
            behind, lines = await asyncio.to_thread(end_of, folder), list[Line]()
        else:
            behind, lines = await asyncio.to_thread(read_on, folder, known)
        if behind == known:
            return
        felt = (felt_notice(one, self.made.probe_gap_ms, fleet=fleet) for one in lines if isinstance(one, GapLine))
        letters = list(letters_of([one for one in felt if one is not None], self.made.hooks))
        await self.courier.on_store(partial(self.store.tell_felt, behind, letters, now_ms=now_ms()))
        if letters:
            self.courier.wake()

    def _controllers(self) -> tuple[ControllerStatus, ...]:
        """All of them by the word of the first that answers; () if none does."""
        for address in self.made.fleet.controllers:
            with suppress(ClientError):
                return self.client.members_by(address)
        return ()


async def _pause(stop: asyncio.Event, pause_ms: int) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(pause_ms / 1000):
            await stop.wait()


class HooksCollector(msgspec.Struct, frozen=True):
    """Counts of one process for Prometheus."""

    process: HooksProcess

    def collect(self) -> Iterator[Metric]:
        """Each scrape."""
        courier, reading = self.process.courier, self.process.reading
        deliveries = CounterMetricFamily(
            "rollcall_hooks_deliveries", "Tries by what came of them.", labels=["hook", "outcome"]
        )
        for (hook, outcome), count in list(courier.desk.totals.items()):
            deliveries.add_metric([hook, outcome], count)
        yield deliveries
        for name, text, found in (
            ("rollcall_hooks_waiting", "Deliveries that wait.", dict(courier.desk.waiting)),
            ("rollcall_hooks_dead_letters", "Deliveries that were given up and are kept.", dict(courier.dead)),
        ):
            family = GaugeMetricFamily(name, text, labels=["hook"])
            for hook, count in found.items():
                family.add_metric([hook], count)
            yield family
        index = reading.cursor.index if reading.cursor is not None else 0
        yield GaugeMetricFamily("rollcall_hooks_cursor_index", "Raft index of the last event that was read.", index)
        yield GaugeMetricFamily(
            "rollcall_hooks_refused", "1: the record was exchanged, nothing is read.", int(reading.is_refused)
        )
        yield CounterMetricFamily(
            "rollcall_hooks_read_failures", "Rounds in which no controller gave events.", reading.failures
        )
        yield CounterMetricFamily("rollcall_hooks_gaps", "Gaps of the record that were told.", reading.gaps)


async def serve(made: HooksFile, *, accepts_fleet: str, stop: asyncio.Event) -> int:
    """The whole life of the process; its exit code. Raises ``DirectoryError``, ``ConfigError``, ``OSError``."""
    folder = made.path(made.data)
    directory = DataDirectory.claim(folder, kind=DIRECTORY_KIND, version=DIRECTORY_VERSION)
    try:
        with (
            closing(Store.open(folder)) as store,
            # Ended before the store is closed.
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="store") as thread,
            Client(made.fleet.controllers, identity=made.identity()) as client,
        ):
            desk = Desk(store, made.hooks, made.limits, draw=random.random, now_ms=now_ms())
            senders = {hook.name: sender_of(made, hook) for hook in made.hooks}
            courier = Courier(desk, store, senders, thread=thread, now_ms=now_ms)
            process = HooksProcess(made, client, store, courier, accepts_fleet)
            if made.metrics and not _serves_metrics(process, made.metrics):
                return int(ExitCode.ADDRESS_IN_USE)
            tell_supervisor("READY=1")
            await process.run(stop)
    except sqlite3.Error as error:
        _log.error("storage_failed", reason=str(error))
        return int(ExitCode.STORAGE)
    finally:
        directory.release()
    return int(ExitCode.OK)


def _serves_metrics(process: HooksProcess, address: str) -> bool:
    """Whether the address could be had."""
    host, port = split_address(address)
    telemetry = Telemetry()
    telemetry.registry.register(HooksCollector(process))
    try:
        start_http_server(port, host, telemetry.registry)
    except OSError as error:
        # Not "the directory": after that one systemd does not start it again.
        _log.error("metrics_not_served", address=address, reason=str(error))
        return False
    return True
