"""
The broker process: ``python -m rollcall_ha.broker.server --config rollcall.toml --name broker-a-1``.

Here: command line, start, stop, exit codes. Not here: the running replica (``broker.replica``).
Start: check the configuration, claim the data directory, open the health address, recover the log, open the listen
port, dial the controllers, open the HA address. Ready, by /readyz: registered, and a role is applied.
SIGTERM and SIGINT: go on until nobody waits for this replica (a master hands over, a slave leaves the SyncStateSet),
for ``handover_ms`` at most; then leave the role, sync the log and the epoch list, write the clean mark, say goodbye,
exit 0. The second one: without waiting for others.
Exit codes: ``node.process.ExitCode``; 64 configuration, 65 data directory, 66 address in use, 72 storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from functools import partial

from rollcall_ha.broker.config import BrokerConfig, broker_config, rocketmq_config
from rollcall_ha.broker.consuming.tools import About
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.handlers.listen import listen_server
from rollcall_ha.broker.health import HealthServer, HealthSnapshot
from rollcall_ha.broker.identity import disown, remember
from rollcall_ha.broker.log.checkpoint import CheckpointError
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.cut import LOG_FOLDER_NAME, QUARANTINE_FOLDER_NAME
from rollcall_ha.broker.log.segment import SegmentError
from rollcall_ha.broker.names import Names
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.broker.replica import Replica
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.epoch.codec import EpochFileCorrupt
from rollcall_ha.epoch.store import EpochFileMissing
from rollcall_ha.node.certificates_held import CertificateCollector, CertificatesHeld
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.credentials import broker_name, credentials_of, of_ports
from rollcall_ha.node.disk_usage import DiskUsage
from rollcall_ha.node.files import DataDirectory, DirectoryError
from rollcall_ha.node.process import ExitCode, StopAsked, run, tell_supervisor
from rollcall_ha.node.remoting.secured import Door
from rollcall_ha.node.renewal import watch_files
from rollcall_ha.node.standard_error import leave
from rollcall_ha.node.starting import begin
from rollcall_ha.node.telemetry import LoopLag, Telemetry, get_logger, refuse_start

DIRECTORY_KIND = "broker"
DIRECTORY_VERSION = 1
STOP_MS_MAX = 20_000
"""A clean stop that takes longer is given up: the next start checks every record."""

DISK_MS_MAX = 5_000
"""Time for a write or sync that is under way at the end."""

NOT_OF_THE_DISK = frozenset(
    {
        *(errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT),
    }
)
"""Errors that no failed sync ends in, or (a full disk) that lose no page of a segment, which has its space already."""

_log = get_logger("server")


def main() -> int:
    """Run one broker until it is asked to stop; returns the exit code."""
    document, name = begin("broker")
    try:
        config = broker_config(document, name)
        own_name = broker_name(document, name, document.broker(name))
        credentials = of_ports(document, credentials_of(document, own_name))
        directory = DataDirectory.claim(config.directory, kind=DIRECTORY_KIND, version=DIRECTORY_VERSION)
    except ConfigError as error:
        return refuse_start(ExitCode.CONFIG, str(error))
    except DirectoryError as error:
        return refuse_start(ExitCode.DIRECTORY, str(error))
    except OSError as error:
        return refuse_start(ExitCode.STORAGE, str(error))
    try:
        return run(lambda stop: serve(config, directory, stop, Parts(credentials=credentials, measures_disk=True)))
    finally:
        directory.release()


def refuse_part_of_a_log(config: BrokerConfig, log: CommitLog) -> None:
    """Raises ``DirectoryError``: a learner's log that begins at the last segment is no member's (R23)."""
    # Counted as a member, it would be elected without what was acknowledged before its first byte, give the next
    # messages queue offsets that older ones have (R19), and the failure budget would call it a whole copy.
    if not log.front.is_whole and not config.description.is_learner:
        raise DirectoryError(
            f"the log in {config.directory} begins at {log.min_offset}, as a learner's may or one without its state "
            f"file, and is_learner of brokers.{config.name} is false: a member needs all that its set keeps; wipe the "
            "directory, then it is copied from the master, or set is_learner = true"
        )


async def serve(config: BrokerConfig, directory: DataDirectory, stop: asyncio.Event, parts: Parts | None = None) -> int:
    """One broker, until ``stop`` is set or it cannot go on; returns the exit code."""
    try:
        while True:
            async with AsyncExitStack() as stack:
                code = await Server(config, directory, stack, parts or Parts()).serve(stop)
            if code is not None:
                return code
    except ConfigError as error:
        return refuse_start(ExitCode.CONFIG, str(error))
    except RecordError as error:
        remedy = f"wipe {config.directory} and start again: everything is copied from the master"
        lost = DirectoryError(f"{error}; it had been synced, so the disk has lost or changed it; {remedy}")
        return refuse_start(ExitCode.DIRECTORY, str(lost))
    except (DirectoryError, SegmentError, EpochFileMissing, EpochFileCorrupt, CheckpointError) as error:
        return refuse_start(ExitCode.DIRECTORY, str(error))
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        return refuse_start(ExitCode.ADDRESS_IN_USE if is_taken else ExitCode.STORAGE, str(error))


async def release(disk: Executor, *, exit_now: Callable[[int], object] = leave) -> None:
    """The last write is over. One that never ends would keep the process for ever: it is left behind."""
    last = asyncio.get_running_loop().run_in_executor(disk, lambda: None)
    disk.shutdown(wait=False)
    await asyncio.wait((last,), timeout=DISK_MS_MAX / 1000)
    if not last.done():
        _log.error(
            "disk_hangs",
            waited_ms=DISK_MS_MAX,
            meaning="a write or sync does not return; the process ends without it, the next start checks every record",
        )
        exit_now(int(ExitCode.STORAGE))


class Server:
    """One start of the broker; ``stack`` closes its parts, last first."""

    def __init__(self, config: BrokerConfig, directory: DataDirectory, stack: AsyncExitStack, parts: Parts) -> None:
        self._config = config
        self._parts = parts
        self._directory = directory
        self._stack = stack
        self._replica: Replica | None = None
        self._failure: BaseException | None = None
        self._files = ReplicaFiles(config.directory)
        self._disk, self._folds_disk = parts.make_disk(), parts.make_disk()
        self._usage: DiskUsage | None = None
        self._held_since_us = parts.now_us()

    async def serve(self, stop: asyncio.Event) -> int | None:
        """
        Returns the exit code; None: the broker begins anew.

        Raises the errors that ``serve`` of this module translates.
        """
        config, stack = self._config, self._stack
        stack.push_async_callback(release, self._disk)
        stack.push_async_callback(release, self._folds_disk)
        telemetry = Telemetry()
        credentials = self._parts.credentials
        if credentials is None:
            _log.warning("insecure", meaning="ports are plain and believe whoever connects: fleet.insecure")
        held = CertificatesHeld(credentials, is_insecure=credentials is None)
        telemetry.registry.register(CertificateCollector(held))
        if self._parts.measures_disk:
            self._measure_disk(telemetry)
        health = HealthServer(telemetry, self._health, credentials=credentials)
        await health.start(*config.health)
        stack.push_async_callback(health.stop)
        lag = LoopLag(telemetry)
        lag.start()
        stack.callback(lag.stop)

        replica, folds = await self._recover()
        stack.push_async_callback(replica.close)
        if credentials is not None:
            stack.callback(asyncio.create_task(watch_files(credentials)).cancel)
        listen = listen_server(replica.listen, door=None if credentials is None else Door(credentials=credentials))
        await listen.start(*config.listen)
        health.ports.update(listen=listen.links, ha=replica.ends.links)
        stack.push_async_callback(listen.stop)
        self._replica = replica
        if self._failure is not None:
            replica.failed(self._failure)
        replica.start()
        folds.start(self._folds_disk)
        if config.tells_names:
            names = Names(
                config,
                topics=replica.consuming.topics,
                gate=replica.gate,
                broker_id=lambda: replica.status.probe.broker_id,
                controllers=lambda: replica.session.controllers,
                credentials=credentials,
                wall_ms=self._parts.wall_ms,
            )
            replica.consuming.assignments.routes = names.read_queues
            names.start()
            stack.push_async_callback(names.stop)
        # Before it is registered: where no controller is up it would never be ready, and be killed and started again.
        tell_supervisor("READY=1")
        return await self._until_ended(replica, stop)

    def _measure_disk(self, telemetry: Telemetry) -> None:
        directory = self._config.directory
        parts = {part: directory / part for part in (LOG_FOLDER_NAME, QUARANTINE_FOLDER_NAME)}
        self._usage = usage = DiskUsage(directory, parts, telemetry.registry)
        self._stack.callback(asyncio.create_task(usage.run()).cancel)

    async def _recover(self) -> tuple[Replica, Dispatcher]:
        config, files, disk, parts = self._config, self._files, self._disk, self._parts
        loop = asyncio.get_running_loop()
        if self._directory.was_empty:
            _log.info("empty_directory", directory=str(config.directory), meaning="a new replica, or a wiped one")
        try:
            log = await loop.run_in_executor(disk, self._open_log, loop)
        except OSError as error:
            self._disown_after(error)
            raise
        refuse_part_of_a_log(config, log)
        # After the log: one that lacks synced bytes has removed the mark of its store, and this draws another.
        remembering = partial(remember, files, config.set_key, parts, last_epoch=log.history.last_epoch)
        remembered = await loop.run_in_executor(disk, partial(remembering, held_since_us=self._held_since_us))
        report = log.recovery
        if report.lost:
            _log.error("log_lost_bytes", reason=report.lost, meaning="this replica proves nothing and leaves its set")
        if report.history_fallback is not None:
            _log.warning("epoch_history_from_backup", reason=report.history_fallback)
        _log.info(
            "recovered",
            incarnation=remembered.process.incarnation,
            end_offset=report.end_offset,
            was_clean=report.was_clean,
            torn_bytes=report.torn_bytes,
            finished_cut=report.finished_cut,
            duration_us=report.duration_us,
        )
        folds = await loop.run_in_executor(disk, partial(Dispatcher.open, config.directory, log, parts.fold_sizes))
        replica = Replica(
            config=config,
            remembered=remembered,
            files=files,
            log=log,
            folds=folds,
            disk=disk,
            parts=parts,
            about=About(
                config=lambda: rocketmq_config(config, replica.machine.view),
                disk_share=lambda: None if self._usage is None else self._usage.taken_share,
                wall_ms=parts.wall_ms,
            ),
        )
        remedy = f"if that was nobody's intention, wipe {config.directory}: everything is copied from the master"
        for amiss in filter(None, (report.damaged, remembered.amiss)):
            _log.error("directory_amiss", reason=amiss, remedy=remedy)
            replica.raise_alarm(f"{amiss}; {remedy}")
        return replica, folds

    def _open_log(self, loop: asyncio.AbstractEventLoop) -> CommitLog:
        """Blocking. Recover the log; a sync that fails later ends the process. Raises as ``CommitLog.open``."""
        config, files, parts = self._config, self._files, self._parts

        def stop_process(error: BaseException) -> None:
            # A failed sync may have lost bytes that were acked. With its store id gone, the next start on this
            # directory is a new one for the controllers, not one whose pages outlived the process (R3b).
            if isinstance(error, OSError):
                disown(files)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends already
                loop.call_soon_threadsafe(self._storage_failed, error)

        return CommitLog.open(
            config.directory,
            segment_bytes=config.segment_bytes,
            flush_mode=config.configuration.flush,
            store_host=config.store_host,
            stop_process=stop_process,
            post=loop.call_soon_threadsafe,
            quarantine_days=config.quarantine_days,
            quarantine_bytes=config.quarantine_bytes,
            on_loss=files.store.remove,
            now_ms=parts.wall_ms,
            on_flush_due=parts.on_flush_due,
            clock_s=lambda: parts.now_us() / 1_000_000,
            boot_id=parts.boot_id(),
        )

    def _storage_failed(self, error: BaseException) -> None:
        self._failure = error
        if self._replica is not None:
            self._replica.failed(error)

    def _disown_after(self, error: BaseException) -> None:
        """
        After a failed read, write or sync: on the disk's thread, which ``release`` waits for.

        A sync that failed once succeeds when it is tried again, although its pages are gone. That of an open, a cut, a
        clean close, the marks or the epoch file is as bad as the flush thread's: the next start would pass for the same
        store (R3b).
        """
        cause = error if isinstance(error, OSError) else error.__cause__
        # A name server that was away when the HA address was opened is an ``OSError`` too: the only replica of a set
        # would come back as a suspect, and wait for an operator to elect it.
        if isinstance(cause, OSError) and not isinstance(cause, socket.gaierror) and cause.errno not in NOT_OF_THE_DISK:
            self._disk.submit(disown, self._files)

    async def _until_ended(self, replica: Replica, stop: asyncio.Event) -> int | None:
        asked = asyncio.ensure_future(stop.wait())
        await asyncio.wait((asked, replica.ended), return_when=asyncio.FIRST_COMPLETED)
        if not replica.ended.done():
            _log.info("stopping")
            replica.ask_to_stop()
            await self._until_stopped(replica, stop)
        asked.cancel()
        if not replica.ended.done():
            _log.error("stop_took_too_long", limit_ms=STOP_MS_MAX)
            return int(ExitCode.FAILED)
        ending = replica.ended.result()
        if ending.error is None:
            _log.info("stopped", is_clean=ending.is_clean)
            return None if replica.begins_anew and not stop.is_set() else int(ExitCode.OK)
        self._disown_after(ending.error)
        if isinstance(ending.error, OSError):
            is_taken = ending.error.errno == errno.EADDRINUSE
            return int(ExitCode.ADDRESS_IN_USE if is_taken else ExitCode.STORAGE)
        return int(ExitCode.FAILED)

    async def _until_stopped(self, replica: Replica, stop: asyncio.Event) -> None:
        """``STOP_MS_MAX`` at most, and once more for a second signal."""
        again = asyncio.ensure_future((stop.again if isinstance(stop, StopAsked) else asyncio.Event()).wait())
        await asyncio.wait((again, replica.ended), timeout=STOP_MS_MAX / 1000, return_when=asyncio.FIRST_COMPLETED)
        if again.done() and not replica.ended.done():
            _log.info("stopping_at_once")
            replica.ask_to_stop(at_once=True)
            await asyncio.wait((replica.ended,), timeout=STOP_MS_MAX / 1000)
        again.cancel()

    def _health(self) -> HealthSnapshot:
        if self._replica is None:
            return HealthSnapshot(state=BrokerState.RECOVERING, is_ready=False, reason="reading the log", values=())
        return self._replica.health()


if __name__ == "__main__":
    sys.exit(main())
