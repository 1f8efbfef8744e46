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
    disks/NAME/        instead of data/, where each node has a machine of its own: all that lies on it
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Self

import msgspec

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError
from rollcall_ha.client.identity import Identity
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, SetKey
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.contract.views import ControllerStatus, SetStatus
from rollcall_ha.deploy.local import sites
from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.machines import Machines
from rollcall_ha.deploy.local.partitions import two_way
from rollcall_ha.deploy.local.processes import (
    DeadlineError,
    LauncherError,
    Processes,
    free_ports,
    our_environment,
    python_module,
    wait_until,
)
from rollcall_ha.node.config import (
    FLEET_FILE_NAME,
    BrokerSection,
    FleetFile,
    bind_address,
    load_fleet_file,
    split_address,
)

READY_DEADLINE_S = 20.0
INIT_DEADLINE_S = 30.0


class Layout(Frozen):
    """The size and settings of a new fleet."""

    name: str = "demo"
    controllers: int = 3
    sets: dict[str, int] = msgspec.field(default_factory=lambda: {"broker-a": 3})
    """Replicas of each broker set; they are named SET-1, SET-2, …"""
    timing: str = "normal"
    segment_bytes: int = 64 * 1024 * 1024
    ack_mode: str = "all"
    min_in_sync: int = 0
    flush: str = "async"
    name_service: bool = False
    """Whether the controllers serve RocketMQ's name server codes too."""
    is_insecure: bool = False
    """Plain ports that believe whoever connects (``fleet.insecure``); its certificates are there all the same."""
    rocketmq: tuple[str, ...] = ()
    """Networks from which RocketMQ's peers come, unproven."""
    rocketmq_keys: bool = False
    """Whether they have to sign."""
    rocketmq_tls: str = "permissive"
    host: str = "127.0.0.1"
    """Loopback address of all ports."""

    @property
    def controller_names(self) -> tuple[str, ...]:
        """c1, c2, …"""
        return tuple(f"c{number}" for number in range(1, self.controllers + 1))

    @property
    def broker_names(self) -> tuple[str, ...]:
        """SET-1, SET-2, … of every set."""
        return tuple(f"{name}-{number}" for name, count in self.sets.items() for number in range(1, count + 1))


class Fleet:
    """One fleet under one directory. Not for several threads."""

    def __init__(self, directory: Path, machines: Machines | None = None) -> None:
        """
        Open the fleet that lies in ``directory``; with ``machines``, nodes run on those that have their addresses.

        Raises ``node.config.ConfigError`` if there is none.
        """
        self.directory = directory.resolve()
        self.machines = machines
        # On machines the launcher is the operator, and has what lies on that disk: bundles must be enough.
        own = self.directory if machines is None else machines.disk(sites.OPERATOR)
        self.file: FleetFile = load_fleet_file(own / FLEET_FILE_NAME)
        self.asked: tuple[str, ...] = self.controllers
        """Controllers whose REST ports are asked: those that can be reached from where the launcher is."""
        self.processes = Processes(self.directory)
        self._client: Client | None = None
        self._context = self.identity().context()

    @classmethod
    def create(cls, directory: Path, layout: Layout | None = None, machines: Machines | None = None) -> Self:
        """
        Make a new fleet by ``rollcall init``, on free loopback ports or on machines; nothing is started yet.

        Raises:
            LauncherError: ``init`` refused; the message is what it said.
        """
        layout = layout or Layout()
        arguments = ["init", "--directory", str(directory.resolve()), "--name", layout.name, "--timing", layout.timing]
        arguments += _on_loopback(layout) if machines is None else sites.founding_options(machines, layout.sets)
        arguments += ["--segment-bytes", str(layout.segment_bytes), "--flush", layout.flush]
        # On a disk that is nearly full for other reasons it would take no sends.
        arguments += ["--retention-hours", "0"]
        arguments += ["--ack-mode", layout.ack_mode, "--min-in-sync", str(layout.min_in_sync)]
        arguments += ["--name-service"] if layout.name_service else []
        arguments += [text for network in layout.rocketmq for text in ("--rocketmq", network)]
        arguments += [*(["--rocketmq-keys"] if layout.rocketmq_keys else []), "--rocketmq-tls", layout.rocketmq_tls]
        done = subprocess.run(
            python_module("rollcall_ha.cli.main", *arguments),
            capture_output=True,
            text=True,
            timeout=INIT_DEADLINE_S,
            check=False,
            env=our_environment(),
        )
        if done.returncode != 0:
            raise LauncherError(f"rollcall init failed: {(done.stderr or done.stdout).strip()}")
        if layout.is_insecure:
            file = directory / FLEET_FILE_NAME
            file.write_text(file.read_text().replace("[fleet]\n", "[fleet]\ninsecure = true\n", 1))
        if machines is not None:
            sites.hand_out(directory.resolve(), machines)
        return cls(directory, machines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        return (self.file.path("") if self.machines is None else self.machines.disk(self.machine(name))) / section.data

    def rest_addresses(self) -> tuple[str, ...]:
        """host:port of the REST port of each controller in ``asked``."""
        return tuple(self.file.controllers[name].rest for name in self.asked)

    def identity(self, name: str = "admin") -> Identity:
        """Whom to trust, and the certificate of ``name`` to show; of an insecure fleet nothing."""
        if self.file.tls is None or self.file.fleet.insecure:
            return Identity()
        folder = self.file.path(self.file.tls.directory)
        return Identity(authority=self.file.path(self.file.tls.authority), certificate=folder / f"{name}.pem")

    def rest(self, name: str) -> Endpoint:
        """The REST port of a controller, asked with the fleet's own admin certificate."""
        return Endpoint(address=self.file.controllers[name].rest, context=self._context)

    def command(self, *arguments: str) -> list[str]:
        """The command line of a command of the CLI, as the operator gives it: in ``commands_environment``."""
        return self.inside(sites.OPERATOR, python_module("rollcall_ha.cli.main", *arguments))

    def commands_environment(self) -> dict[str, str]:
        """Environment in which the CLI is about this fleet; on machines the operator's disk says it all."""
        if self.machines is not None:
            return our_environment()
        identity = self.identity()
        found = our_environment() | {"ROLLCALL_CONTROLLERS": ",".join(self.rest_addresses())}
        if identity.authority is not None and identity.certificate is not None:
            found |= {"ROLLCALL_AUTHORITY": str(identity.authority), "ROLLCALL_IDENTITY": str(identity.certificate)}
        return found

    def run_command(
        self, *arguments: str, timeout_s: float | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of the CLI, with its output; ``variables`` are more of its environment."""
        return subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=self.commands_environment() | variables,
            # No terminal: a command that asks "Elect?" would wait for an answer that nobody gives.
            stdin=subprocess.DEVNULL,
        )

    def client(self) -> Client:
        """One REST client, closed by ``down``."""
        if self._client is None:
            self._client = Client(self.rest_addresses(), requested_by="launcher", identity=self.identity())
        return self._client

    # --- where -------------------------------------------------------------------------------------------------------

    def machine(self, name: str) -> str:
        """The machine of a node, by its address; of ``sites.CLIENT`` and ``sites.OPERATOR`` that of the name."""
        if self.machines is None:
            raise LauncherError(f"{name} has no machine of its own: this fleet is on loopback")
        if name in (sites.CLIENT, sites.OPERATOR):
            return name
        section = self.file.controllers.get(name)
        host, _ = split_address(self.file.broker(name).listen if section is None else section.raft)
        return next(one for one in self.machines.names if self.machines.address(one) == host)

    def on(self, name: str) -> AbstractContextManager[None]:
        """Sockets that are made inside the block are on the machine of ``name``, where nodes have machines."""
        return nullcontext() if self.machines is None else self.machines.on(self.machine(name))

    def inside(self, name: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` where ``name`` runs."""
        return list(argv) if self.machines is None else self.machines.inside(self.machine(name), argv)

    @property
    def seen_directory(self) -> Path:
        """The folder of the fleet file as processes see it: on machines, where their own disk is mounted."""
        return self.directory if self.machines is None or self.machines.disks is None else self.machines.disks

    @property
    def books(self) -> Path:
        """Where producers keep ledger and counts: on machines, the disk of the client."""
        return self.directory if self.machines is None else self.machines.disk(sites.CLIENT)

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
        argv = [*self.program(name, module), "--config", str(self.seen_directory / FLEET_FILE_NAME), "--name", name]
        with self.on(name):
            ports = [split_address(address) for address in addresses]
            return self.processes.start(name, self.inside(name, argv), ports=ports)

    def program(self, name: str, module: str) -> list[str]:
        """Command line of the program of a node, without arguments; a fleet of two versions has two."""
        del name
        return python_module(module)

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

        def is_there(status: SetStatus) -> bool:
            return any(replica.address == section.listen for replica in status.replicas)

        self.wait_set(self._key_of(section), is_there, what=f"to know {name}", deadline_s=deadline_s)

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

    def health(self, name: str) -> Endpoint:
        """Where /livez, /readyz and /metrics of a node are."""
        if name in self.file.controllers:
            return self.rest(name)
        return Endpoint(address=self.file.broker(name).health, context=self._context)

    def wait_live(self, names: Iterable[str], *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Return when each answers /livez. Raises ``LauncherError`` with the end of the log of one that did not."""
        self._wait_health(names, "/livez", deadline_s)

    def wait_ready(self, names: Iterable[str], *, deadline_s: float = READY_DEADLINE_S) -> None:
        """Return when each answers /readyz with 200. Raises ``LauncherError`` as ``wait_live``."""
        self._wait_health(names, "/readyz", deadline_s)

    def _wait_health(self, names: Iterable[str], path: str, deadline_s: float) -> None:
        for name in names:
            endpoint = self.health(name)

            def settled(name: str = name, endpoint: Endpoint = endpoint) -> bool:
                # A process that has ended never answers: without this each typing error in a fleet file waits for 20 s.
                with self.on(name):
                    return endpoint.is_ok(path) or self.pid(name) is None

            try:
                wait_until(settled, deadline_s=deadline_s, what=f"{name} to answer {path} on {endpoint}")
            except DeadlineError as error:
                raise LauncherError(f"{error}; the end of its log:\n{self.processes.tail(name)}") from None
            if self.pid(name) is None:
                raise LauncherError(f"{name} ended while starting; the end of its log:\n{self.processes.tail(name)}")

    def leader(self, *, deadline_s: float = READY_DEADLINE_S) -> str:
        """Name of the controller that leads with authority."""
        found: list[str] = []

        def leads() -> bool:
            found[:] = [str(one.name) for one in self._controllers_seen() if one.has_authority]
            return bool(found)

        wait_until(leads, deadline_s=deadline_s, what="a controller to lead with authority")
        return found[0]

    def _controllers_seen(self) -> tuple[ControllerStatus, ...]:
        """By their own words; if only one of them can be asked, as it hears them."""
        if self.asked == self.controllers:
            reached = self.client().survey()
            return tuple(answer.status.controller for answer in reached if answer.status is not None)
        try:
            return self.client().members_by(self.rest_addresses()[0])
        except ClientError:
            return ()

    def set_keys(self) -> tuple[SetKey, ...]:
        """Every set that the fleet file speaks of."""
        return tuple(dict.fromkeys(map(self._key_of, self.file.brokers.values())))

    def _key_of(self, section: BrokerSection) -> SetKey:
        return SetKey(ClusterName(section.cluster or self.file.fleet.name), BrokerName(section.set))

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


@contextmanager
def on_machines(directory: Path) -> Iterator[Fleet]:
    """
    A new fleet on six machines of its own, with one more for a client and one for the operator.

    The first three have a controller; brokers have the others. Inside the block the calling thread is the operator,
    whose machine reaches that of the first controller and no other. Everything is stopped and removed at the end; disks
    stay in ``directory``.
    Raises ``MachinesError``: there can be none here.
    """
    names = (*(f"m{number}" for number in range(1, 7)), sites.CLIENT, sites.OPERATOR)
    with Machines(names, disks=directory / sites.DISKS) as made, Fleet.create(directory, machines=made) as fleet:
        fleet.asked = fleet.controllers[:1]
        reached = (fleet.machine(fleet.asked[0]), sites.OPERATOR)
        made.wall_off(two_way([sites.OPERATOR], [name for name in names if name not in reached]))
        with made.on(sites.OPERATOR):
            yield fleet


def _on_loopback(layout: Layout) -> list[str]:
    """Options of ``rollcall init``: each node at free ports."""
    host = f"[{layout.host}]" if ":" in layout.host else layout.host
    ports = iter(free_ports(3 * (layout.controllers + len(layout.broker_names)), layout.host))
    found = [("--controller", f"{name}={_addresses(host, ports)}") for name in layout.controller_names]
    found += [("--broker", f"{name}={_addresses(host, ports)}") for name in layout.broker_names]
    return [text for option in found for text in option]


def _addresses(host: str, ports: Iterable[int]) -> str:
    """Three loopback addresses in the order that ``rollcall init`` takes them."""
    taken = iter(ports)
    return ",".join(f"{host}:{next(taken)}" for _ in range(3))


def _describe(status: SetStatus) -> str:
    view = status.view
    return (
        f"{view.condition} ({view.condition_reason}), master {view.master}, masterEpoch {view.master_epoch}, "
        f"SyncStateSet {set(view.sync_state_set) or '{}'}"
    )
