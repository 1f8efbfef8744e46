"""
The controller process: ``python -m rollcall_ha.api.server --config rollcall.toml --name c1``.

Here: the composition root: files, threads, ports and loop of one controller, started and stopped in order. Not here:
the work of any of them. Exit codes: ``node.process.ExitCode``.

Rule 1: one uvloop loop runs HTTP, the broker port and the leader's duties; the Raft log and the event journal have a
thread each.
Rule 2: nothing listens before the data directory is claimed and the configuration is found safe.
Rule 3: a controller that stops closes its broker links first, so that brokers look for the next leader at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import NoReturn

import psutil

from rollcall_ha.api.broker_port.metrics import GatewayMetrics, LinkMetrics
from rollcall_ha.api.broker_port.port import FRAME_BYTES_MAX as SESSION_FRAME_BYTES_MAX
from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.api.rest.app import make_app
from rollcall_ha.api.rest.listening import RestServer
from rollcall_ha.api.rest.peers import Peers
from rollcall_ha.api.rest.relay import PeerDoor
from rollcall_ha.api.rocketmq.access.accounts import AccountsFile, watch_accounts
from rollcall_ha.api.rocketmq.access.judging import AccessRules, RocketmqAccess, accounts_of, rules_of
from rollcall_ha.api.rocketmq.controller.assembly import RocketmqController
from rollcall_ha.api.rocketmq.metrics import NameMetrics, RocketmqMetrics
from rollcall_ha.api.rocketmq.names.name_service import EXPIRY_INTERVAL_MS, NameService
from rollcall_ha.api.rocketmq.names.name_service import FILE_NAME as NAMES_FILE_NAME
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.async_calls import AsyncCalls
from rollcall_ha.controller.replication.machine import FleetMachine
from rollcall_ha.controller.replication.raft.log import FOUNDING_FILE_NAME, RaftAddressInUse, RaftLog, RaftStartError
from rollcall_ha.controller.runtime.directories import (
    DIRECTORY_KIND,
    DIRECTORY_VERSION,
    EVENTS_DIRECTORY,
    RAFT_DIRECTORY,
    RESTORING_FILE_NAME,
    Owner,
    own,
    refuse_other_owner,
)
from rollcall_ha.controller.runtime.event_journal import EventJournal
from rollcall_ha.controller.runtime.journal_segments import JournalDamaged
from rollcall_ha.controller.runtime.live_settings import tell_of_file
from rollcall_ha.controller.runtime.metrics import ControllerMetrics
from rollcall_ha.controller.runtime.queries import Queries
from rollcall_ha.controller.runtime.seating import Seating
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.settings import ServiceSettings, settings_from
from rollcall_ha.controller.runtime.transfers import Leaving, step_aside
from rollcall_ha.controller.runtime.watchdog import LOOK_INTERVAL_MS, WatchdogReading, look
from rollcall_ha.node.certificates_held import CertificateCollector, CertificatesHeld
from rollcall_ha.node.config import ConfigError, FleetFile, split_address
from rollcall_ha.node.credentials import controller_name, credentials_of, of_ports
from rollcall_ha.node.disk_usage import DiskUsage
from rollcall_ha.node.files import (
    DataDirectory,
    DirectoryError,
    fsync_directory,
)
from rollcall_ha.node.process import ExitCode, run, tell_supervisor
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX
from rollcall_ha.node.remoting.secured import Door
from rollcall_ha.node.renewal import watch_files
from rollcall_ha.node.standard_error import leave
from rollcall_ha.node.starting import begin
from rollcall_ha.node.telemetry import LoopLag, Telemetry, get_logger, refuse_start
from rollcall_ha.node.tls import Credentials

BACKFILL_INTERVAL_MS = 5_000
STOP_MS_MAX = 2_000
CHECK_INVARIANTS = "ROLLCALL_CHECK_INVARIANTS"
"""Environment: ``1`` checks the invariants of the replicated state after each applied entry, and stops at a breach."""


class AddressInUse(Exception):
    """The message names the port and, if it can be seen, the process that has it."""


def main() -> int:
    """Parse the command line and run until told to stop; returns the exit code."""
    document, name = begin("controller")
    try:
        settings = settings_from(document, name)
    except ConfigError as error:
        return refuse_start(ExitCode.CONFIG, str(error))
    return run(lambda stop: _serve(document, settings, stop))


def _exit_storage(reason: str) -> NoReturn:
    """From the journal's thread: end the process, without running anything else of ours (``node.files``)."""
    leave(ExitCode.STORAGE, f"rollcall: {reason}")


async def _serve(document: FleetFile, settings: ServiceSettings, stop: asyncio.Event) -> int:
    path = document.path(document.controller(settings.name).data)
    owner = Owner(fleet=document.fleet.name, incarnation=settings.fleet_incarnation, controller=settings.name)
    try:
        # BEFORE the directory, which a start that is refused leaves as it was.
        credentials = credentials_of(document, controller_name(document, settings.name))
        accounts = accounts_of(document)
        rules = rules_of(document, accounts)
    except ConfigError as error:
        return refuse_start(ExitCode.CONFIG, str(error))
    try:
        refuse_other_owner(path, owner)
        _accept_founded(path, settings.fleet_incarnation)
        directory = DataDirectory.claim(path, kind=DIRECTORY_KIND, version=DIRECTORY_VERSION)
    except DirectoryError as error:
        return refuse_start(ExitCode.DIRECTORY, str(error))
    except OSError as error:
        # Not "the directory": after that no supervisor starts it again, also when the disk is back.
        return refuse_start(ExitCode.STORAGE, str(error))
    try:
        node = _Node(document, settings, owner, credentials=credentials, accounts=accounts, rules=rules)
    except JournalDamaged as error:
        return refuse_start(ExitCode.DIRECTORY, str(error))
    try:
        return await node.run(stop)
    except (AddressInUse, RaftAddressInUse) as error:
        return refuse_start(ExitCode.ADDRESS_IN_USE, str(error))
    except RaftStartError as error:
        return refuse_start(ExitCode.DIRECTORY, str(error))
    finally:
        directory.release()


def _accept_founded(path: Path, incarnation: FleetIncarnation) -> None:
    """
    Make a directory that ``rollcall init`` has just founded ours: it holds the mark of founding and nothing else.

    The mark moves into the Raft directory, whose right to vote it is. Raises ``DirectoryError``, ``OSError``.
    """
    if (path / RESTORING_FILE_NAME).exists():
        raise DirectoryError(f"{path}: a restore has not ended here; give its command again, with the same --token")
    mark = path / FOUNDING_FILE_NAME
    if not mark.exists():
        return
    # Two machines of three were forgotten when the fleet was restored, and their fleet files were copied: they would
    # found an empty fleet under the name of the restored one, and be its majority (R7).
    if (founded := mark.read_text().strip()) != incarnation:
        raise DirectoryError(
            f"{path} was founded for fleet incarnation {founded!r}, the fleet file says {incarnation!r}; if this fleet "
            "was restored from a backup, restore this controller, too: rollcall restore FILE --name NAME --token TOKEN"
        )
    # Judged whole before the mark moves: it is the right to found, and a start that is refused must not spend it.
    claimed = DataDirectory.claim(
        path, kind=DIRECTORY_KIND, version=DIRECTORY_VERSION, fresh=(FOUNDING_FILE_NAME, RAFT_DIRECTORY)
    )
    try:
        # The mark moves LAST: killed before, the next start does all of this again.
        raft = path / RAFT_DIRECTORY
        raft.mkdir(mode=0o700, exist_ok=True)
        mark.rename(raft / FOUNDING_FILE_NAME)
        fsync_directory(raft)
        fsync_directory(path)
    finally:
        claimed.release()


class _Started(Frozen):
    serving: asyncio.Task[None]
    background: tuple[asyncio.Task[None], ...]


class _Node:
    """The parts of one controller."""

    _exit_code = int(ExitCode.OK)
    _loop: asyncio.AbstractEventLoop | None = None
    """None: it does not run yet."""

    def __init__(
        self,
        document: FleetFile,
        settings: ServiceSettings,
        owner: Owner,
        *,
        credentials: Credentials | None,
        accounts: AccountsFile | None,
        rules: AccessRules,
    ) -> None:
        self._settings, self._owner = settings, owner
        self._path = path = document.path(document.controller(settings.name).data)
        self._credentials, self._accounts = credentials, accounts
        self._logger = get_logger("server")
        self._telemetry = Telemetry()
        self._lag = LoopLag(self._telemetry)
        self._service: ControllerService | None = None
        self._journal: EventJournal[FleetState] = EventJournal(
            path / EVENTS_DIRECTORY,
            chain_head_of=lambda state: state.chain_head,
            fail=_exit_storage,
            leave=self._leave,
            on_synced=self._on_synced,
            retention=settings.retention,
        )
        self._log: RaftLog[FleetState] = RaftLog(
            FleetMachine(checks_entries=os.environ.get(CHECK_INVARIANTS) == "1"),
            me=settings.name,
            members={name: addresses.raft for name, addresses in settings.controllers.items()},
            directory=path / RAFT_DIRECTORY,
            timing=settings.timing,
            tls=credentials,
            compaction_floor=lambda: self._journal.synced_index,
            recorded_index=self._journal.last.index if self._journal.last is not None else 0,
            bind=settings.bound.raft,
        )
        metrics = ControllerMetrics(self._telemetry.registry)
        service = ControllerService(settings=settings, log=self._log, journal=self._journal, metrics=metrics)
        self._service = service
        if credentials is not None:
            service.revocations.listeners.append(credentials.revoke)
        self._calls = AsyncCalls(self._log)
        self._peers = Peers(settings, self._calls)
        self._access = RocketmqAccess(rules)
        self._gateway = BrokerPortServer(
            service,
            frame_bytes_max=_frame_bytes_max(document),
            door=_broker_port_door(of_ports(document, credentials), rules),
            access=self._access,
        )
        self._queries = queries = Queries(service, self._certificates(document, credentials))
        self._names = self._name_service(service, path) if document.fleet.name_service else None
        # Behind the name service: of the two 904 it takes its own, and the controllers' the rest.
        self._rocketmq = RocketmqController(
            self._gateway, service, expected_replicas=document.fleet.rocketmq_expected_replicas
        )
        metrics.read_from(queries.reading)
        tls = of_ports(document, credentials)
        app = make_app(service=service, queries=queries, peers=self._peers, telemetry=self._telemetry, tls=tls)
        self._calls.serve(PeerDoor(app).answer)
        self._rest = RestServer(app, tls)
        LinkMetrics(
            {"broker": self._gateway.links, "rest": self._rest.links},
            self._telemetry.registry,
            raft=lambda: self._log.links_closed,
        )
        GatewayMetrics(self._gateway, self._telemetry.registry)
        state = {part: path / part for part in (RAFT_DIRECTORY, EVENTS_DIRECTORY)}
        self._disk = DiskUsage(path, state, self._telemetry.registry)
        RocketmqMetrics(self._access, self._rocketmq, self._telemetry.registry)

    def _certificates(self, document: FleetFile, credentials: Credentials | None) -> CertificatesHeld:
        """What status pages and metrics say of them."""
        if document.fleet.insecure:
            self._logger.warning("insecure", meaning="ports are plain and believe whoever connects: fleet.insecure")
        held = CertificatesHeld(
            credentials,
            is_insecure=document.fleet.insecure,
            peers=lambda: (
                *(link.certificate for link in self._gateway.links.snapshot()),
                *self._log.peer_certificates,
            ),
        )
        self._telemetry.registry.register(CertificateCollector(held))
        return held

    def _name_service(self, service: ControllerService, path: Path) -> NameService:
        names = NameService(
            published=lambda: service.published,
            monotonic_ns=service.ports.monotonic_ns,
            file=path / NAMES_FILE_NAME,
            settings=self._settings_of_names(),
        )
        names.register(self._gateway.codes)
        self._gateway.closed_listeners.append(names.closed)
        NameMetrics(names.table, self._telemetry.registry)
        return names

    def _settings_of_names(self) -> dict[str, str]:
        """Our settings that ``mqadmin getNamesrvConfig`` shows, under RocketMQ's keys."""
        host, port = split_address(self._settings.bound.broker)
        return {"bindAddress": host, "listenPort": str(port), "scanNotActiveBrokerInterval": str(EXPIRY_INTERVAL_MS)}

    def _on_synced(self) -> None:
        if self._service is not None:
            self._service.on_events_synced()

    def _leave(self) -> None:
        """On the journal's thread, when its disk failed: a leader that just ends is missed for an election timeout."""
        if self._service is not None and self._loop is not None:
            leaving = asyncio.run_coroutine_threadsafe(step_aside(self._service), self._loop)
            with contextlib.suppress(Exception):
                leaving.result(timeout=self._settings.timing.handover_ms / 1000)

    async def run(self, stop: asyncio.Event) -> int:
        """Start, serve until ``stop``, stop. Raises ``RaftStartError``, ``AddressInUse``."""
        assert self._service is not None
        self._loop = asyncio.get_running_loop()
        rest_socket = _listen(self._settings.bound.rest)
        leaving = Leaving(self._service)
        self._gateway.on_not_yet_valid, self._service.on_late = leaving.clock_behind, leaving.late
        self._service.refusals.peers = lambda: self._log.peers_refused
        if self._names is not None:
            self._names.start()
        try:
            await self._gateway.start(self._settings.bound.broker)
        except OSError:
            rest_socket.close()
            raise AddressInUse(_in_use(self._settings.bound.broker)) from None
        # The log LAST of the three: the entries that it applies go to the journal, and wake the service.
        self._journal.start()
        self._service.start(self._gateway)
        self._log.start()
        self._lag.start()
        started = self._start_serving(rest_socket, stop)
        self._logger.info(
            "controller_started",
            rest=self._settings.bound.rest,
            broker=self._settings.bound.broker,
            raft=self._settings.bound.raft,
            timing=self._settings.timing_name,
            rocketmq=self._access.words,
        )
        # Before it has a leader: the second of three controllers would wait for the start of the first to end.
        tell_supervisor("READY=1")
        await stop.wait()
        await self._stop(started)
        return self._exit_code

    def _start_serving(self, rest_socket: socket.socket, stop: asyncio.Event) -> _Started:
        loop = asyncio.get_running_loop()
        serving = loop.create_task(self._rest.serve(rest_socket))
        background = tuple(loop.create_task(work) for work in self._background())
        for task in (serving, *background):
            task.add_done_callback(lambda done: self._ended(done, stop))
        return _Started(serving=serving, background=background)

    def _background(self) -> Iterator[Coroutine[None, None, None]]:
        yield self._watch()
        yield self._disk.run()
        yield self._own()
        yield self._backfill()
        if self._service is not None:
            yield tell_of_file(self._log, self._service.live)
            yield Seating(self._service).keep()
        if self._credentials is not None:
            yield watch_files(self._credentials)
        if self._accounts is not None:
            yield watch_accounts(self._accounts, self._access.take_accounts)

    async def _own(self) -> None:
        """Write into the data directory whose it is, once what was applied says so."""
        assert self._service is not None
        while self._service.published.state.fleet_incarnation != self._owner.incarnation:
            if self._service.strange_fleet:
                raise DirectoryError(
                    f"{self._path} is of fleet incarnation {self._service.strange_fleet}, the fleet file says "
                    f"{self._owner.incarnation} (fleet {self._owner.fleet!r}); name the directory of this fleet"
                )
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
        try:
            await asyncio.to_thread(own, self._path, self._owner)
        except OSError as error:
            self._logger.warning("owner_not_written", reason=str(error))

    def _ended(self, task: asyncio.Task[None], stop: asyncio.Event) -> None:
        """
        End the process if a task failed: none of them ends before ``stop``.

        Without the watchdog or the REST port it would go on leading, and nobody would see what is missing.
        """
        if not task.cancelled() and (error := task.exception()) is not None:
            is_wrong = isinstance(error, DirectoryError)
            self._logger.error("task_failed", error=str(error) if is_wrong else repr(error))
            self._exit_code = int(ExitCode.DIRECTORY if is_wrong else ExitCode.FAILED)
            stop.set()

    async def _stop(self, started: _Started) -> None:
        assert self._service is not None
        self._logger.info("controller_stopping")
        # FIRST: brokers that lose their sessions find a leader at once, instead of after an election timeout.
        await step_aside(self._service)
        for task in started.background:
            task.cancel()
        await asyncio.gather(*started.background, return_exceptions=True)
        # Rule 3: the broker port BEFORE HTTP and Raft, which may take seconds; brokers would wait for answers
        # meanwhile.
        await self._rocketmq.stop()
        await self._gateway.stop()
        if self._names is not None:
            await self._names.stop()
        await self._service.stop()
        self._rest.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await started.serving
        self._lag.stop()
        await self._calls.stop()
        # The log first: the journal then has every event of what was applied.
        self._log.stop()
        self._journal.stop()
        self._queries.close()

    async def _watch(self) -> None:
        """End the process if the log's thread has stopped while this loop turns."""
        assert self._service is not None
        watch = WatchdogReading()
        while not watch.is_over:
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
            watch = look(
                watch,
                tick_age_ms=(self._service.now_ns() - self._log.ticked_at_ns) // NS_PER_MS,
                commit_index=self._log.leadership.commit_index,
                applied_index=self._log.published.index,
            )
        self._logger.error("watchdog", reason=watch.reason)
        # The log's thread may never come back: a clean stop would wait for it for ever.
        leave(ExitCode.WATCHDOG)

    async def _backfill(self) -> None:
        """Ask the other controllers for the events that the journal has never seen."""
        while True:
            await asyncio.sleep(BACKFILL_INTERVAL_MS / 1000)
            for gap in self._journal.gaps():
                records = await self._peers.events_of(gap)
                if not records:
                    continue
                try:
                    await self._queries.fill(gap, records)
                    self._logger.info("journal_filled", to_index=gap.to_index, events=len(records))
                except ValueError as error:
                    # The peer's events do not close the chain; another peer, or the same one later, may have the right
                    # ones.
                    self._logger.warning("journal_fill_refused", to_index=gap.to_index, reason=str(error))


def _frame_bytes_max(document: FleetFile) -> int:
    """The table of a broker's topics comes in one frame: as large as RocketMQ's name server takes them."""
    return FRAME_BYTES_MAX if document.fleet.name_service else SESSION_FRAME_BYTES_MAX


def _broker_port_door(credentials: Credentials | None, rules: AccessRules) -> Door | None:
    if credentials is None:
        return None
    return Door(credentials=credentials, takes_nameless=rules.takes_nameless_tls, takes_plain=rules.takes_plain)


def _listen(address: str) -> socket.socket:
    """A bound socket. Raises ``AddressInUse``."""
    host, port = split_address(address)
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
    except OSError as error:
        listener.close()
        raise AddressInUse(_in_use(address) if error.errno else str(error)) from None
    return listener


def _in_use(address: str) -> str:
    _, port = split_address(address)
    with contextlib.suppress(psutil.Error):
        for found in psutil.net_connections(kind="tcp"):
            if found.status == psutil.CONN_LISTEN and found.laddr and found.laddr[1] == port and found.pid:
                return f"port {port} is in use by pid {found.pid}"
    return f"cannot listen on {address}: the port is in use or the address is not ours"


if __name__ == "__main__":
    sys.exit(main())
