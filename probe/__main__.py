"""
``rollcall probe``: ``python -m rollcall_ha.probe --controllers 127.0.0.1:7900``.

Here: arguments, what is printed, exit codes. Not here: the work (``server``), options of the CLI (``cli.probe``).

Exit codes of ``--once-s``: 0 no gap; 1 a gap, or a set that acknowledged nothing; 2 wrong use; 4 no set was found.
Without: those of a server (``node.process.ExitCode``).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import start_http_server
from prometheus_client.registry import CollectorRegistry

from rollcall_ha.client.identity import Identity
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError, is_loopback, split_address
from rollcall_ha.node.files import DataDirectory, DirectoryError
from rollcall_ha.node.log_options import LEVEL_VARIABLE, LogLevel, add_log_options
from rollcall_ha.node.process import ExitCode, StopAsked, run, tell_supervisor
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.standard_error import say
from rollcall_ha.node.telemetry import choose_form, configure_logs, refuse_start
from rollcall_ha.node.terminal import harmless, keep_printing, print_json
from rollcall_ha.node.tls import Credentials, TlsFiles, TlsFilesError
from rollcall_ha.probe.gaps import Limits
from rollcall_ha.probe.journal import Journal
from rollcall_ha.probe.server import Plan, Probe, TooManySets

REFUSED, WRONG_USE, UNREACHABLE = 1, 2, 4
INTERVALS: Final = 3
"""So many are the acknowledgement's time and the threshold, unless they are named."""
DIRECTORY_KIND: Final = "rollcall-probe"
DIRECTORY_VERSION: Final = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    keep_printing()
    asked = _parsed(arguments)
    if asked.once_s is None:
        choose_form("probe", asked.log_format)
    try:
        plan = _plan(asked)
        if asked.once_s is not None:
            configure_logs(process="probe", level=asked.log_level or LogLevel.ERROR, log_format=asked.log_format)
            return asyncio.run(_once(plan, asked.once_s, is_json=asked.json))
        configure_logs(process="probe", level=asked.log_level or LogLevel.INFO, log_format=asked.log_format)
        return run(lambda stop: _serve(plan, asked, stop))
    except (ConfigError, TlsFilesError, TooManySets) as error:
        return _fail(WRONG_USE, str(error)) if asked.once_s is not None else refuse_start(ExitCode.CONFIG, str(error))
    except DirectoryError as error:
        return refuse_start(ExitCode.DIRECTORY, str(error))
    except OSError as error:
        return refuse_start(ExitCode.STORAGE, str(error))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rollcall probe", description="A stopwatch at each set.")
    for name in ("controllers", "brokers", "name-servers", "metrics"):
        parser.add_argument(f"--{name}", default="")
    for name in ("authority", "identity", "token-file"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--directory", type=Path, default=Path("probe-data"))
    parser.add_argument("--interval-ms", type=int, default=100)
    parser.add_argument("--ack-timeout-ms", type=int)
    parser.add_argument("--threshold-ms", type=int)
    parser.add_argument("--once-s", type=float)
    parser.add_argument("--json", action="store_true")
    add_log_options(parser)
    # None: the level follows from how it runs. A table is not to stand among lines of a log.
    parser.set_defaults(log_level=os.environ.get(LEVEL_VARIABLE) or None)
    return parser.parse_args(arguments)


def _plan(asked: argparse.Namespace) -> Plan:
    """The plan that the options ask for. Raises ``ConfigError``, ``TlsFilesError``."""
    if asked.brokers and asked.name_servers:
        raise ConfigError("--brokers and --name-servers exclude each other")
    if asked.metrics and not is_loopback(split_address(asked.metrics)[0]):
        raise ConfigError(f"--metrics is {asked.metrics!r}; it asks nobody who reads it, so: 127.0.0.1:PORT")
    brokers, controllers = _split(asked.name_servers or asked.brokers), _split(asked.controllers)
    for one in brokers:
        split_address(one)
    if not brokers and not controllers:
        raise ConfigError("where are the sets? Name --controllers, --brokers or --name-servers")
    identity = Identity(authority=asked.authority, certificate=asked.identity, token_file=asked.token_file)
    expected = None
    if identity.authority is not None and not asked.name_servers:
        if identity.certificate is None or identity.key is None:
            raise ConfigError("brokers want a certificate; name one by --identity (rollcall certs issue makes it)")
        files = TlsFiles(authority=identity.authority, certificate=identity.certificate, key=identity.key)
        kinds = frozenset({PeerKind.BROKER})
        expected = ExpectedPeer(credentials=Credentials(files, fleet="", name=None), kinds=kinds)
    interval_ms, known = asked.interval_ms, {"interval_ms": asked.interval_ms}
    for name in ("ack_timeout_ms", "threshold_ms"):
        known[name] = INTERVALS * interval_ms if getattr(asked, name) is None else getattr(asked, name)
    for name, value in known.items():
        if not (least := 10 if name == "interval_ms" else 1) <= value <= 60_000:
            raise ConfigError(f"{name} is {value} ms; {least} to 60000 are possible")
    return Plan(
        limits=Limits(interval_ms=interval_ms, threshold_ms=known["threshold_ms"]),
        ack_timeout_ms=known["ack_timeout_ms"],
        controllers=controllers,
        brokers=brokers,
        identity=identity,
        expected=expected,
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.replace(";", ",").split(",") if one.strip())


def _fail(code: int, reason: str) -> int:
    say(f"rollcall: {reason}")
    return code


async def _serve(plan: Plan, asked: argparse.Namespace, stop: StopAsked) -> int:
    directory = DataDirectory.claim(asked.directory, kind=DIRECTORY_KIND, version=DIRECTORY_VERSION)
    journal = Journal(asked.directory)
    try:
        registry = CollectorRegistry()
        probe = Probe(plan, journal, registry)
        if asked.metrics:
            host, port = split_address(asked.metrics)
            try:
                start_http_server(port, host, registry)
            except OSError as error:
                return refuse_start(ExitCode.ADDRESS_IN_USE, f"{asked.metrics}: {error.strerror}")
        tell_supervisor("READY=1")
        await probe.run(stop)
    finally:
        journal.close()
        directory.release()
    return int(ExitCode.OK)


async def _once(plan: Plan, once_s: float, *, is_json: bool) -> int:
    probe, stop = Probe(plan, None, CollectorRegistry()), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.call_later(once_s, stop.set)
    for number in (signal.SIGINT, signal.SIGTERM):
        # What was felt until then is shown, a gap that is open, too: cancelled, its loop would not tell that one.
        loop.add_signal_handler(number, stop.set)
    await probe.run(stop)
    if not probe.watches:
        return _fail(UNREACHABLE, f"no set was found: {probe.trouble or 'rollcall status says why'}")
    longest = {
        name: max((one.felt_ms for one in probe.gaps if one.set_name == name), default=0) for name in probe.watches
    }
    if is_json:
        print_json({"gaps": probe.gaps, "sets": msgspec.to_builtins(probe.watches)})
    else:
        sys.stdout.write(f"{'SET':<24}{'SENDS':>8}{'FAILED':>8}{'GAPS':>6}{'LONGEST':>12}\n")
        for name, one in sorted(probe.watches.items()):
            told = f"{longest[name]} ms" if one.gaps else "-" if one.acks else "no ack"
            sys.stdout.write(f"{harmless(name):<24}{one.sends:>8}{one.failures:>8}{one.gaps:>6}{told:>12}\n")
    return REFUSED if any(one.gaps or not one.acks for one in probe.watches.values()) else os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
