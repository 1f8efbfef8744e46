"""
Real RocketMQ processes on this machine: name server, controllers, brokers, our Java clients, mqadmin.

Start one Java broker against given controllers and name servers::

    from pathlib import Path
    from tests.interop_java.artifacts import obtain
    from tests.interop_java.fleet import JavaFleet

    with JavaFleet(Path("/tmp/some-directory"), obtain()) as java:
        java.start_broker("b1", controllers="127.0.0.1:9000;127.0.0.1:9001", namesrv="127.0.0.1:9876")
        java.wait_serving("b1")                      # or java.wait_route("127.0.0.1:9876", master="b1")
        print(java.mqadmin("getSyncStateSet", "-a", "127.0.0.1:9000", "-b", "broker-a").output)

The same by hand, until control-C:
``python -m tests.interop_java.fleet --directory D --controllers A;B --namesrv N``.
Add ``nice -n 19`` where the machine is shared.

Here: property files, command lines, readiness, kill and stop by name (``processes``: ``deploy.local.processes``). Not
here: where the artifacts come from (``artifacts``), Rollcall's own fleet (``deploy.local.fleet``), what is tried with
them (``tests.interop_java``).

Rule 1: unmodified main classes; only addresses, sizes and what makes a fleet safe (all acks) are configured.
Rule 2: everything lies below one directory; what runs is known by ``run/NAME.json``; only that is ever signalled.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rollcall_ha.deploy.local.processes import (
    PORT_FIRST,
    PORT_LAST,
    DeadlineError,
    LauncherError,
    Processes,
    free_ports,
    is_free,
    wait_until,
)
from rollcall_ha.node.config import split_address
from tests.interop_java import asking
from tests.interop_java.artifacts import VERSION, RocketMq, obtain

HOST = "127.0.0.1"
CLUSTER = "interop"
SET = "broker-a"
READY_DEADLINE_S = 180.0
GONE_DEADLINE_S = 60.0
"""A broker's mapped files are taken apart before it is gone."""
ADMIN_DEADLINE_S = 60.0
SEGMENT_BYTES = 64 * 1024 * 1024
NAMESRV_HEAP_MIB = 128
CONTROLLER_HEAP_MIB = 192
BROKER_HEAP_MIB = 384
CLIENT_HEAP_MIB = 128
DIRECT_MIB = 256
TRIES_FOR_PORTS_MAX = 200
LIGHT_JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dio.netty.handler.ssl.util.selfSignedKeyStrength=1024",
)
"""
Quick to start and light on cores, where speed is not what is looked at; without them Java chooses for itself.

At each start a broker makes two RSA keys for certificates that sign themselves, which nobody here asks for: with 2048
bits half of what a start costs, and minutes on a machine that is busy with others.
"""

NAMESRV_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
CONTROLLER_MAIN = "org.apache.rocketmq.controller.ControllerStartup"
BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
ADMIN_MAIN = "rollcall.interop.AdminShell"
PRODUCER_MAIN = "rollcall.interop.LedgerProducer"
CONSUMER_MAIN = "rollcall.interop.LedgerConsumer"
SENDER_MAIN = "rollcall.interop.Sender"

USERS_PROVIDER = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"

_LOG_LINES = re.compile(r"^\d\d:\d\d:\d\d,\d+ \|-.*\n?", re.MULTILINE)
"""What the logging library says about itself when a process begins."""
_END_OF_ANSWER = b"\n\x04\n"

BROKER_SETTINGS: Mapping[str, str] = {
    "brokerClusterName": CLUSTER,
    "brokerName": SET,
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
}
"""
What every Java broker gets besides its addresses and folders. ``allAckInSyncStateSet``: without it the reference acks
what only the master has. The segment size keeps a run small on disk.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Access keys with their secrets; everybody speaks TLS then."""

    brokers: tuple[str, str]
    clients: tuple[str, str]
    mqadmin: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one run of mqadmin printed."""

    output: str
    seconds: float


class JavaFleet:
    """The RocketMQ processes of one directory. Not for several threads."""

    def __init__(
        self,
        directory: Path,
        rocketmq: RocketMq,
        *,
        brokers: RocketMq | None = None,
        jvm: tuple[str, ...] = LIGHT_JVM,
    ) -> None:
        """Use ``directory``; nothing is started yet. ``brokers``: another release for brokers alone."""
        self.keys: Keys | None = None
        """With which they sign, from the next start on."""
        self.directory = directory.resolve()
        self.rocketmq = rocketmq
        self._of_brokers = brokers or rocketmq
        self._jvm = jvm
        self.processes = Processes(self.directory)
        self._addresses: dict[str, str] = {}
        self._argv: dict[str, list[str]] = {}
        self._admin: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Use as a context: ``down`` is certain."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything that was started here."""
        self.down()

    # --- start -------------------------------------------------------------------------------------------------------

    def start_namesrv(self, name: str = "namesrv") -> str:
        """Start a name server; returns its address. It may not be ready yet."""
        (port,) = free_ports(1)
        self._configure(name, {"listenPort": str(port), "bindAddress": HOST})
        return self._launch(name, NAMESRV_MAIN, port, NAMESRV_HEAP_MIB)

    def start_controllers(
        self, count: int = 3, settings: Mapping[str, str] | None = None, *, prefix: str = "jc"
    ) -> str:
        """
        Start ``count`` new controllers, the names ``jc0``, ``jc1``, …; returns their addresses, joined by ``;``.

        Raises:
            LauncherError: as ``Processes.start``.
        """
        ports = free_ports(count)
        peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
        for number, port in enumerate(ports):
            name = f"{prefix}{number}"
            own = {
                "controllerDLegerGroup": "group1",
                "controllerDLegerPeers": peers,
                "controllerDLegerSelfId": f"n{number}",
                "controllerStorePath": str(self.data(name) / "store"),
                "rocketmqHome": str(self.data(name)),
                "mappedFileSize": str(SEGMENT_BYTES),
            }
            self._configure(name, own | dict(settings or {}))
            self._launch(name, CONTROLLER_MAIN, port, CONTROLLER_HEAP_MIB)
        return ";".join(f"{HOST}:{port}" for port in ports)

    def start_broker(
        self, name: str, *, controllers: str, namesrv: str, settings: Mapping[str, str] | None = None
    ) -> str:
        """
        Start a broker with an empty disk on new ports, or one that ran here before with its disk on its old ports.

        Args:
            name: Its name here; RocketMQ does not learn it.
            controllers: ``host:port;host:port``.
            namesrv: The same, of name servers.
            settings: Properties that go above ``BROKER_SETTINGS``.

        Returns:
            host:port of its listener. It may not be ready yet (``wait_serving``).
        """
        known = self._addresses.get(name)
        port = int(known.rpartition(":")[2]) if known else _broker_port()
        store = self.data(name) / "store"
        own = {
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "controllerAddr": controllers,
            "namesrvAddr": namesrv,
        }
        if self.keys is not None:
            key, secret = self.keys.brokers
            own["innerClientAuthenticationCredentials"] = f'{{"accessKey":"{key}","secretKey":"{secret}"}}'
            # A broker that has the first and not this one ends at its start, also if it asks nobody for a key itself.
            own["authenticationMetadataProvider"] = USERS_PROVIDER
        self._configure(name, {**BROKER_SETTINGS, **own, **(settings or {})})
        return self._launch(name, BROKER_MAIN, port, BROKER_HEAP_MIB, self._of_brokers)

    def start_producer(
        self,
        directory: Path,
        *,
        namesrv: str,
        topic: str,
        threads: int = 4,
        body_bytes: int = 256,
        pause_ms: int = 10,
        seconds_max: int = 3600,
        route_poll_ms: int = 0,
        ordered_topic: str = "",
        name: str = "producer",
    ) -> int:
        """
        Start the producer that keeps ``directory/ledger.jsonl``; ``route_poll_ms`` 0 leaves RocketMQ's 30 s.

        ``ordered_topic``: it sends there, too, and its keys say what becomes of each message (``keys``).
        """
        directory.mkdir(parents=True, exist_ok=True)
        numbers = (threads, body_bytes, pause_ms, seconds_max, route_poll_ms)
        ordered = (ordered_topic,) if ordered_topic else ()
        return self._client(name, PRODUCER_MAIN, namesrv, topic, str(directory), *map(str, numbers), *ordered)

    def start_consumer(
        self,
        directory: Path,
        *,
        namesrv: str,
        topic: str,
        seconds_max: int = 3600,
        name: str = "consumer",
        groups: Sequence[tuple[str, str, str, str]] = (),
    ) -> int:
        """
        Start the push consumer that writes ``directory/consumed.tsv``.

        ``groups``: (group, topic, tag or sql or ordered, expression) of each that it has instead, in folders of their own.
        """
        directory.mkdir(parents=True, exist_ok=True)
        words = (word for group in groups for word in group)
        return self._client(name, CONSUMER_MAIN, namesrv, topic, str(directory), str(seconds_max), *words)

    def start_sender(
        self, directory: Path, *, namesrv: str, group: str, topic: str, messages: Sequence[str], seconds_max: int = 3600
    ) -> int:
        """
        Start a producer that sends ``messages``, KEY/TAG/QUEUE/LEVEL each, and stays connected; its name is its group's.

        ``directory/ids.tsv`` has a line for each that is stored: key, unique id, id by place.
        """
        directory.mkdir(parents=True, exist_ok=True)
        return self._client(group, SENDER_MAIN, namesrv, group, topic, str(directory), str(seconds_max), *messages)

    def restart(self, name: str) -> int:
        """Start again, as it was, one that is down; returns its pid."""
        self.processes.forget(name)
        ports = [split_address(self._addresses[name])] if name in self._addresses else []
        return self.processes.start(name, self._argv[name], ports=ports)

    def sign(self, name: str, key: tuple[str, str]) -> None:
        """From its next start on a client signs with this access key and secret; mqadmin from its next command on."""
        folder = self.data(name) / "conf"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tools.yml").write_text(f"accessKey: {key[0]}\nsecretKey: {key[1]}\n")

    def _client(self, name: str, main: str, *arguments: str) -> int:
        if self.keys is not None:
            self.sign(name, self.keys.clients)
        self._argv[name] = self.rocketmq.java(main, *arguments, options=self._options(name, CLIENT_HEAP_MIB))
        return self.processes.start(name, self._argv[name])

    def _configure(self, name: str, settings: Mapping[str, str]) -> None:
        self.data(name).mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        self._properties(name).write_text("".join(lines))

    def _launch(self, name: str, main: str, port: int, heap_mib: int, release: RocketMq | None = None) -> str:
        options = self._options(name, heap_mib)
        self._argv[name] = (release or self.rocketmq).java(main, "-c", str(self._properties(name)), options=options)
        self._addresses[name] = f"{HOST}:{port}"
        self.processes.forget(name)
        self.processes.start(name, self._argv[name], ports=[(HOST, port)])
        return self._addresses[name]

    def _options(self, name: str, heap_mib: int) -> tuple[str, ...]:
        home = self.data(name)
        home.mkdir(parents=True, exist_ok=True)
        return (
            *self._jvm,
            *(() if self.keys is None else ("-Dtls.enable=true",)),
            f"-Xmx{heap_mib}m",
            f"-XX:MaxDirectMemorySize={DIRECT_MIB}m",
            # Releases before 5.2 unmap their files by a class that Java 17 does not export.
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            "-Djava.net.preferIPv4Stack=true",
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            f"-Drocketmq.client.logRoot={home}/logs",
        )

    # --- who ---------------------------------------------------------------------------------------------------------

    def data(self, name: str) -> Path:
        """Folder of one process: its store, its own logs."""
        return self.directory / "data" / name

    def _properties(self, name: str) -> Path:
        return self.data(name) / "configured.properties"

    def address(self, name: str) -> str:
        """host:port of a listener that was started here. Raises ``LauncherError``."""
        try:
            return self._addresses[name]
        except KeyError:
            raise LauncherError(f"{name} was never started here; known: {sorted(self._addresses)}") from None

    def name_of(self, address: str) -> str:
        """Whose listener ``address`` is. Raises ``LauncherError``."""
        for name, known in self._addresses.items():
            if known == address:
                return name
        raise LauncherError(f"{address} is nobody's that was started here; known: {self._addresses}")

    # --- faults and the end ------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """SIGKILL; returns when the process is gone."""
        self.processes.kill(name, deadline_s=GONE_DEADLINE_S)

    def stop(self, name: str) -> None:
        """SIGSTOP: it hangs."""
        self.processes.signal(name, signal.SIGSTOP)

    def cont(self, name: str) -> None:
        """SIGCONT: it goes on where it was."""
        self.processes.signal(name, signal.SIGCONT)

    def terminate(self, *names: str, deadline_s: float = 20.0) -> None:
        """SIGTERM to all of them at once; returns when all are gone."""
        for name in names:
            with contextlib.suppress(LauncherError, ProcessLookupError):  # gone already, or between the two
                self.processes.signal(name, signal.SIGTERM)
                self.processes.signal(name, signal.SIGCONT)
        for name in names:
            self.processes.terminate(name, deadline_s=deadline_s)

    def down(self) -> None:
        """Stop what was started here: clients first, name servers last."""
        self._end_admin()
        names = self.processes.names()
        servers = [name for name in names if name in self._addresses]
        self.terminate(*(name for name in names if name not in self._addresses))
        self.terminate(*servers)
        for name in names:
            self.processes.forget(name)

    # --- readiness ---------------------------------------------------------------------------------------------------

    def require_running(self, *names: str) -> None:
        """Raise ``LauncherError`` with the end of the log of one that has ended."""
        for name in names:
            if self.processes.pid(name) is None:
                raise LauncherError(f"{name} has ended; the end of its log:\n{self.processes.tail(name)}")

    def wait_listening(self, *names: str, deadline_s: float = READY_DEADLINE_S) -> None:
        """Return when each accepts connections. Raises ``LauncherError`` with the end of the log of a silent one."""
        for name in names:
            address = self.address(name)

            def settled(name: str = name, address: str = address) -> bool:
                return self.processes.pid(name) is None or _accepts(address)

            try:
                wait_until(settled, deadline_s=deadline_s, what=f"{name} to listen on {address}")
            except DeadlineError as error:
                raise LauncherError(f"{error}; the end of its log:\n{self.processes.tail(name)}") from None
            self.require_running(name)

    def wait_serving(self, name: str, *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Return when a broker listens, which it does only after it has registered and has a role."""
        self.wait_listening(name, deadline_s=deadline_s)

    def wait_route(
        self, namesrv: str, *, master: str | None = None, members: int = 1, deadline_s: float = READY_DEADLINE_S
    ) -> Mapping[int, str]:
        """Return when the name server routes to ``members`` brokers of the set and, if given, to ``master`` as 0."""
        found: dict[int, str] = {}

        def routed() -> bool:
            found.clear()
            found.update(asking.brokers_of(namesrv, SET))
            leads = found.get(0)
            return leads is not None and len(found) >= members and (master is None or leads == self.address(master))

        wait_until(routed, deadline_s=deadline_s, what=f"{namesrv} to route to {members} brokers of {SET}")
        return found

    def wait_in_sync(
        self, controllers: str, members: int, *, set_name: str = SET, deadline_s: float = READY_DEADLINE_S
    ) -> asking.SetSeen:
        """First view of a set that has a living master and ``members`` members of its SyncStateSet."""
        last: list[asking.SetSeen] = []

        def enough() -> bool:
            seen = asking.set_of(controllers, set_name)
            if seen is None:
                return False
            last[:] = [seen]
            return seen.master is not None and len(seen.in_sync) >= members

        try:
            wait_until(enough, deadline_s=deadline_s, what=f"{members} members of {set_name} in sync")
        except DeadlineError as error:
            raise DeadlineError(f"{error}; last seen: {last[0] if last else 'no answer'}") from None
        return last[0]

    # --- mqadmin -----------------------------------------------------------------------------------------------------

    def mqadmin(self, *arguments: str, deadline_s: float = ADMIN_DEADLINE_S, until: str = "") -> Said:
        """
        What one command of RocketMQ's own admin tool prints; all commands of a fleet share one Java process.

        ``until``: a command that does not end by itself is ended, and that process with it, when it has printed this.

        ``log/mqadmin.log`` keeps every word of it.

        Raises:
            DeadlineError: it did not end in time.
            LauncherError: the tool's process ended.
        """
        if self._admin is None or self._admin.poll() is not None:
            options = self._options("mqadmin", CLIENT_HEAP_MIB)
            self._admin = subprocess.Popen(
                self.rocketmq.java(ADMIN_MAIN, options=options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Some commands write files where they stand.
                cwd=self.data("mqadmin"),
            )
        began = time.monotonic()
        end = until.encode() or _END_OF_ANSWER
        output = _converse(self._admin, "\t".join(arguments), end, deadline_s=deadline_s)
        if until:
            self._end_admin()
        with (self.processes.log / "mqadmin.log").open("a") as log:
            log.write(f"mqadmin {' '.join(arguments)}\n{output}\n")
        return Said(output=_LOG_LINES.sub("", output).strip(), seconds=time.monotonic() - began)

    def _end_admin(self) -> None:
        if self._admin is None:
            return
        self._admin.kill()
        self._admin.communicate()
        self._admin = None


def _converse(process: subprocess.Popen[bytes], line: str, end: bytes, *, deadline_s: float) -> str:
    """Write a line and read until ``end`` comes. Raises ``DeadlineError``, ``LauncherError``."""
    if process.stdin is None or process.stdout is None:
        raise LauncherError("the admin tool has no pipes")
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
    said = bytearray()
    deadline = time.monotonic() + deadline_s
    while end not in said:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise DeadlineError(
                f"mqadmin {line!r} did not end within {deadline_s:.0f} s; so far: {said.decode()[-500:]}"
            )
        data = os.read(process.stdout.fileno(), 64 * 1024)
        if not data:
            raise LauncherError(f"mqadmin ended during {line!r}: {said.decode()[-500:]}")
        said += data
    return said.removesuffix(_END_OF_ANSWER).decode(errors="replace")


def _accepts(address: str) -> bool:
    try:
        with socket.create_connection(split_address(address), timeout=1.0):
            return True
    except OSError:
        return False


def _broker_port() -> int:
    """A port whose neighbours are free too: RocketMQ takes listenPort - 2 and, for HA, listenPort + 1."""
    pick = random.SystemRandom()
    for _ in range(TRIES_FOR_PORTS_MAX):
        port = pick.randrange(PORT_FIRST + 2, PORT_LAST - 1)
        if all(is_free(HOST, near) for near in (port - 2, port, port + 1)):
            return port
    raise LauncherError(f"no three free ports near each other from {PORT_FIRST} to {PORT_LAST}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Start Java brokers and leave them running until control-C."""
    parser = argparse.ArgumentParser(description="Java brokers against given controllers and name servers.")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--controllers", required=True, help="HOST:PORT;HOST:PORT")
    parser.add_argument("--namesrv", required=True, help="HOST:PORT;HOST:PORT")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--version", default=VERSION, help=f"release of the brokers, {VERSION}")
    options = parser.parse_args(arguments)
    with JavaFleet(options.directory, obtain(), brokers=obtain(options.version)) as java:
        names = [f"b{number}" for number in range(1, options.brokers + 1)]
        for name in names:
            address = java.start_broker(name, controllers=options.controllers, namesrv=options.namesrv)
            print(f"{name} {address} pid {java.processes.pid(name)} log {java.processes.log / name}.log", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
