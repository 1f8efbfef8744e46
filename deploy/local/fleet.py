"""
A whole fleet as processes on this machine: the one launcher of the demo, the cluster tests, chaos and the benches.

Here: make the fleet file, start controllers and brokers, know when they are ready, kill, stop, continue and restart
them by name, and stop what was started. Not here: what a failover looks like (``demo``), what is on disk (``audit``).

Rule 1: servers are started by exec of their modules; no code of theirs is imported.
Rule 2: the launcher never tells the system of a signal that it sent.
Rule 3: ``down`` stops the processes that this directory's records name, and no other.

Layout of the directory::

    rollcall.toml      the fleet file            tls/    the private certificate authority
    data/NAME/         one node's data           log/NAME.log    run/NAME.pid
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rollcall_ha.api.client import Client
from rollcall_ha.api.errors import ClientError
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, SetKey
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.deploy.local.processes import (
    DeadlineError,
    LauncherError,
    Processes,
    free_ports,
    http_ok,
    our_environment,
    python_module,
    wait_until,
)
from rollcall_ha.node.config import FLEET_FILE_NAME, FleetFile, bind_address, load_fleet_file, split_address

READY_DEADLINE_S = 20.0
INIT_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The size and settings of a new fleet."""

    name: str = "demo"
    controllers: int = 3
    sets: dict[str, int] = field(default_factory=lambda: {"broker-a": 3})
    """Replicas of each broker set; they are named SET-1, SET-2, …"""
    timing: str = "normal"
    segment_bytes: int = 64 * 1024 * 1024
    ack_mode: str = "all"
    min_in_sync: int = 0
    flush: str = "async"
    name_service: bool = False
    """Whether the controllers serve RocketMQ's name server codes too."""


class Fleet:
    """One fleet under one directory. Not for several threads."""

    def __init__(self, directory: Path) -> None:
        """Open the fleet that lies in ``directory``. Raises ``node.config.ConfigError`` if there is none."""
        self.directory = directory.resolve()
        self.file: FleetFile = load_fleet_file(self.directory / FLEET_FILE_NAME)
        self.processes = Processes(self.directory)
        self._client: Client | None = None

    @classmethod
    def create(cls, directory: Path, layout: Layout | None = None) -> Self:
        """
        Make a new fleet on free loopback ports by ``rollcall init``; nothing is started yet.

        Raises:
            LauncherError: ``init`` refused; the message is what it said.
        """
        layout = layout or Layout()
        ports = iter(free_ports(3 * (layout.controllers + sum(layout.sets.values()))))
        arguments = ["init", "--directory", str(directory.resolve()), "--name", layout.name, "--timing", layout.timing]
        for number in range(1, layout.controllers + 1):
            arguments += ["--controller", f"c{number}={_addresses(ports)}"]
        for name, count in layout.sets.items():
            for number in range(1, count + 1):
                arguments += ["--broker", f"{name}-{number}={_addresses(ports)}"]
        arguments += ["--segment-bytes", str(layout.segment_bytes), "--flush", layout.flush]
        arguments += ["--ack-mode", layout.ack_mode, "--min-in-sync", str(layout.min_in_sync)]
        arguments += ["--name-service"] if layout.name_service else []
        done = subprocess.run(
            python_module("rollcall_ha.api.cli.main", *arguments),
            capture_output=True,
            text=True,
            timeout=INIT_DEADLINE_S,
            check=False,
            env=our_environment(),
        )
        if done.returncode != 0:
            raise LauncherError(f"rollcall init failed: {(done.stderr or done.stdout).strip()}")
        return cls(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # --- who ---------------------------------------------------------------------------------------------------------

    @property
    def controllers(self) -> tuple[str, ...]:
        """Names of the controllers, in the order of the fleet file."""
        return tuple(self.file.controllers)

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers, in the order of the fleet file."""
        return tuple(self.file.brokers)

    def set_key(self, name: str = "broker-a") -> SetKey:
        """Key of a broker set in this fleet's own cluster."""
        return SetKey(ClusterName(self.file.fleet.name), BrokerName(name))

    def pid(self, name: str) -> int | None:
        return self.processes.pid(name)

    def data(self, name: str) -> Path:
        """Data directory of a node."""
        section = self.file.controllers.get(name) or self.file.broker(name)
        return self.file.path(section.data)

    def rest_addresses(self) -> tuple[str, ...]:
        """host:port of every controller's REST port."""
        return tuple(section.rest for section in self.file.controllers.values())

    def client(self) -> Client:
        """One REST client, closed by ``down``."""
        if self._client is None:
            self._client = Client(self.rest_addresses(), requested_by="launcher")
        return self._client

    # --- start and stop ----------------------------------------------------------------------------------------------

    def start(self, name: str) -> int:
        """Start one node and return its pid; it may not be ready yet. Raises ``LauncherError``."""
        if name in self.file.controllers:
            controller = self.file.controllers[name]
            module = "rollcall_ha.api.server"
            addresses = [bind_address(controller, port) for port in ("raft", "broker", "rest")]
        else:
            broker = self.file.broker(name)
            module = "rollcall_ha.broker.server"
            addresses = [bind_address(broker, port) for port in ("listen", "ha", "health")]
        argv = python_module(module, "--config", str(self.directory / FLEET_FILE_NAME), "--name", name)
        return self.processes.start(name, argv, ports=[split_address(address) for address in addresses])

    def up(self, *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Start every node that does not run; return when all are ready and every set serves with all its replicas."""
        self.up_controllers(deadline_s=deadline_s)
        for name in self.brokers:
            if self.pid(name) is None:
                is_new = not self.data(name).exists()
                self.start(name)
                if is_new:
                    # Ids are granted in the order of asking: one at a time, so that broker-a-1 is replica 1.
                    self._wait_registered(name, deadline_s=deadline_s)
        self.wait_ready(self.brokers, deadline_s=deadline_s)
        for key in self.set_keys():
            self.wait_redundant(key, deadline_s=deadline_s)

    def _wait_registered(self, name: str, *, deadline_s: float) -> None:
        section = self.file.broker(name)
        key = SetKey(ClusterName(section.cluster or self.file.fleet.name), BrokerName(section.set))

        def is_there(status: SetStatus) -> bool:
            return any(replica.address == section.listen for replica in status.replicas)

        self.wait_set(key, is_there, what=f"to know {name}", deadline_s=deadline_s)

    def up_controllers(self, *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Start every controller that does not run; return when one leads with authority."""
        for name in self.controllers:
            if self.pid(name) is None:
                self.start(name)
        self.wait_live(self.controllers, deadline_s=deadline_s)
        self.leader(deadline_s=deadline_s)

    def down(self) -> None:
        """Stop all processes of this fleet: helpers, then brokers, then controllers."""
        if self._client is not None:
            self._client.close()
            self._client = None
        # Brokers before controllers: a broker's goodbye, the proof of a clean stop (R3), needs a leader that takes it.
        others = [name for name in self.processes.names() if name not in (*self.brokers, *self.controllers)]
        for group in (others, self.brokers, self.controllers):
            for name in group:
                if self.processes.pid(name) is not None:
                    # A process that SIGSTOP holds gets its SIGTERM only once it goes on.
                    with contextlib.suppress(LauncherError, ProcessLookupError):
                        self.processes.signal(name, signal.SIGTERM)
                        self.processes.signal(name, signal.SIGCONT)
            for name in group:
                self.processes.terminate(name)
                self.processes.forget(name)

    def kill(self, name: str) -> None:
        """SIGKILL; returns when the process is gone."""
        self.processes.kill(name)

    def stop(self, name: str) -> None:
        self.processes.signal(name, signal.SIGSTOP)

    def cont(self, name: str) -> None:
        """SIGCONT: it goes on where it was."""
        self.processes.signal(name, signal.SIGCONT)

    def terminate(self, name: str) -> None:
        """SIGTERM: a clean stop; returns when the process is gone."""
        self.processes.terminate(name)

    def restart(self, name: str) -> int:
        """Start a node again that is down; returns its pid."""
        self.processes.forget(name)
        return self.start(name)

    # --- readiness ---------------------------------------------------------------------------------------------------

    def health_address(self, name: str) -> str:
        """host:port where /livez, /readyz and /metrics of a node are."""
        if name in self.file.controllers:
            return self.file.controllers[name].rest
        return self.file.broker(name).health

    def wait_live(self, names: Iterable[str], *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Return when each answers /livez. Raises ``LauncherError`` with the end of the log of one that did not."""
        self._wait_health(names, "/livez", deadline_s)

    def wait_ready(self, names: Iterable[str], *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Return when each answers /readyz with 200. Raises ``LauncherError`` as ``wait_live``."""
        self._wait_health(names, "/readyz", deadline_s)

    def _wait_health(self, names: Iterable[str], path: str, deadline_s: float) -> None:
        for name in names:
            address = self.health_address(name)

            def settled(name: str = name, address: str = address) -> bool:
                # A process that has ended never answers: without this each typing error in a fleet file waits for 20 s.
                return http_ok(address, path) or self.pid(name) is None

            try:
                wait_until(settled, deadline_s=deadline_s, what=f"{name} to answer {path} on {address}")
            except DeadlineError as error:
                raise LauncherError(f"{error}; the end of its log:\n{self.processes.tail(name)}") from None
            if self.pid(name) is None:
                raise LauncherError(f"{name} ended while starting; the end of its log:\n{self.processes.tail(name)}")

    def leader(self, *, deadline_s: float = READY_DEADLINE_S) -> str:
        """Name of the controller that leads with authority."""
        found: list[str] = []

        def leads() -> bool:
            for reached in self.client().survey():
                if reached.status is not None and reached.status.controller.has_authority:
                    found[:] = [str(reached.status.controller.name)]
                    return True
            return False

        wait_until(leads, deadline_s=deadline_s, what="a controller to lead with authority")
        return found[0]

    def set_keys(self) -> tuple[SetKey, ...]:
        """Every set that the fleet file speaks of."""
        keys = {
            SetKey(ClusterName(section.cluster or self.file.fleet.name), BrokerName(section.set)): None
            for section in self.file.brokers.values()
        }
        return tuple(keys)

    def set_status(self, key: SetKey) -> SetStatus | None:
        """What the leader says about a set now; None = no leader, or it does not know the set."""
        try:
            return self.client().set(key).set
        except ClientError:
            return None

    def wait_set(
        self, key: SetKey, condition: Callable[[SetStatus], bool], *, what: str, deadline_s: float = READY_DEADLINE_S
    ) -> SetStatus:
        """First status of a set that fulfils ``condition``. Raises ``DeadlineError`` with the last one seen."""
        last: list[SetStatus] = []

        def holds() -> bool:
            status = self.set_status(key)
            if status is None:
                return False
            last[:] = [status]
            return condition(status)

        try:
            wait_until(holds, deadline_s=deadline_s, what=f"{key}: {what}")
        except DeadlineError as error:
            seen = _describe(last[0]) if last else "the controllers did not answer for it"
            raise DeadlineError(f"{error}; last seen: {seen}") from None
        return last[0]

    def wait_redundant(self, key: SetKey, *, deadline_s: float = READY_DEADLINE_S) -> SetStatus:
        """Return when the set serves and every expected replica is in its SyncStateSet."""

        def redundant(status: SetStatus) -> bool:
            view = status.view
            expected = view.configuration.expected_replicas
            return view.condition is Condition.SERVING and len(view.sync_state_set) >= expected

        return self.wait_set(key, redundant, what="to serve with all replicas in sync", deadline_s=deadline_s)

    def broker_by_id(self, key: SetKey, broker_id: BrokerId) -> str:
        """Name, in the fleet file, of the broker that registered as ``broker_id``. Raises ``LauncherError``."""
        status = self.wait_set(key, lambda _: True, what="to be known")
        for replica in status.replicas:
            if replica.broker_id == broker_id:
                for name, section in self.file.brokers.items():
                    if section.listen == replica.address:
                        return name
        raise LauncherError(f"{key} has no broker {broker_id} of this fleet file")

    def master(self, key: SetKey) -> str:
        """Name of the broker that serves ``key`` as master, waiting for one. Raises ``DeadlineError``."""
        status = self.wait_set(key, lambda status: status.view.master is not None, what="to have a master")
        master = status.view.master
        if master is None:
            raise LauncherError(f"{key} has no master")
        return self.broker_by_id(key, master)


def _addresses(ports: Iterable[int]) -> str:
    """Three loopback addresses in the order that ``rollcall init`` takes them."""
    taken = iter(ports)
    return ",".join(f"127.0.0.1:{next(taken)}" for _ in range(3))


def _describe(status: SetStatus) -> str:
    view = status.view
    return (
        f"{view.condition} ({view.condition_reason}), master {view.master}, masterEpoch {view.master_epoch}, "
        f"SyncStateSet {set(view.sync_state_set) or '{}'}"
    )
