"""
Laying out a fleet over machines: what runs where, which files go there, which ports are open between whom.

Here: placing nodes, standard ports, the tables that ``rollcall init`` prints. Not here: writing files (``founding``).

Rule 1: controllers are c1 to c3 on the first three machines, or c1 alone if there are fewer.
Rule 2: replica n of the s-th set is on machine s + n, counted round: the first replicas, which become masters, are on
different machines, and so are the replicas of one set as far as there are machines. If that leaves a machine idle,
brokers are on the machines without a controller alone.
Rule 3: ports are the same on each machine; the n-th broker of one machine has the next ones.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from rollcall_ha.cli.output import Figure, Table, columns
from rollcall_ha.controller.contract.values import Frozen, Value
from rollcall_ha.node.config import UNSPECIFIED_HOSTS, ConfigError, FleetFile, split_address

CONTROLLER_PORTS = {"raft": 9300, "broker": 9100, "rest": 9200}
BROKER_PORTS = {"listen": 10911, "ha": 10912, "health": 9400}
BROKER_PORT_STEPS = {"listen": 10, "ha": 10, "health": 1}
"""Between the brokers of one machine."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SET = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]{0,59})=(?P<replicas>[1-9][0-9]?)")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*")


class PortUse(Value):
    """A port that somebody must reach."""

    node: str
    machine: str
    port: int
    protocol: str
    callers: str
    authentication: str


class Placed(Value):
    """A process on its machine."""

    node: str
    machine: str
    host: str
    command: str


class LaidOut(Value):
    """What ``rollcall init -o json`` prints."""

    fleet: str
    directory: str
    nodes: tuple[Placed, ...]
    ports: tuple[PortUse, ...]


class Placement(Frozen):
    """Nodes with their addresses, as the options of the explicit form would say it."""

    hosts: Mapping[str, str]
    """Host by machine, without brackets."""
    machine_of: Mapping[str, str]
    """Machine by node."""
    controllers: tuple[str, ...]
    brokers: tuple[str, ...]


def place(machines: Sequence[str], sets: Sequence[str]) -> Placement:
    """
    ``machines``: NAME=HOST each. ``sets``: SET=REPLICAS each. Raises ``ConfigError`` with the value and the remedy.
    """
    hosts = dict(_machine(text) for text in machines)
    if len(hosts) != len(machines):
        raise ConfigError("two machines have the same name")
    names = tuple(hosts)
    machine_of: dict[str, str] = {}
    controllers: list[str] = []
    brokers: list[str] = []
    for number, machine in enumerate(names[: 3 if len(names) >= 3 else 1], start=1):
        machine_of[f"c{number}"] = machine
        controllers.append(f"c{number}={_addresses(hosts[machine], CONTROLLER_PORTS)}")
    rounds = [_replicas(text) for text in sets]
    replicas, idle = _spread(rounds, names, machine_of.values())
    without = names[len(controllers) :]
    if idle and all(count <= len(without) for _, count in rounds):
        replicas, idle = _spread(rounds, without, machine_of.values())
    count_on = dict.fromkeys(names, 0)
    for node, machine in replicas.items():
        ports = {key: port + BROKER_PORT_STEPS[key] * count_on[machine] for key, port in BROKER_PORTS.items()}
        count_on[machine] += 1
        machine_of[node] = machine
        brokers.append(f"{node}={_addresses(hosts[machine], ports)}")
    if idle:
        raise ConfigError(
            f"nothing would run on {', '.join(idle)}: of three machines or more the first three have a controller, "
            "fewer have one in all; give more replicas, or fewer machines"
        )
    return Placement(hosts=hosts, machine_of=machine_of, controllers=tuple(controllers), brokers=tuple(brokers))


def _replicas(text: str) -> tuple[str, int]:
    found = _SET.fullmatch(text)
    if found is None:
        raise ConfigError(f"--brokers {text!r} is not SET=REPLICAS with 1 to 99 replicas, e.g. broker-a=3")
    return found["name"], int(found["replicas"])


def _spread(
    sets: Sequence[tuple[str, int]], names: Sequence[str], busy: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Machine by replica (rule 2), and the machines on which nothing would run; ``busy`` ones have a controller."""
    found = {
        f"{name}-{replica + 1}": names[(order + replica) % len(names)]
        for order, (name, count) in enumerate(sets)
        for replica in range(count)
    }
    return found, [name for name in names if name not in busy and name not in found.values()]


def _machine(text: str) -> tuple[str, str]:
    name, equals, told = text.partition("=")
    host = told.removeprefix("[").removesuffix("]") if told.startswith("[") else told
    if not equals or not _NAME.fullmatch(name) or not _is_host(host):
        raise ConfigError(
            f"--machine {text!r} is not NAME=HOST, with a host name or an address without a port, e.g. m1=10.0.0.1"
        )
    if host in UNSPECIFIED_HOSTS:
        raise ConfigError(
            f"--machine {text!r}: others are told {host} and cannot reach it; give the address that they dial, and "
            "--bind-any to listen on every address"
        )
    return name, host


def _is_host(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return bool(_HOST_NAME.fullmatch(host))
    return True


def _addresses(host: str, ports: Mapping[str, int]) -> str:
    return ",".join(f"{bracketed(host)}:{port}" for port in ports.values())


def bracketed(host: str) -> str:
    """A host as it stands before a port: numbers of IPv6 have colons of their own."""
    return f"[{host}]" if ":" in host else host


def any_address(address: str) -> str:
    """Every address of the machine, of the family of ``address``, at its port."""
    host, port = split_address(address)
    return f"{'[::]' if ':' in host else '0.0.0.0'}:{port}"


# --- what is printed --------------------------------------------------------------------------------------------------


def laid_out(fleet: FleetFile, placement: Placement, directory: str) -> LaidOut:
    """Processes and ports of a founded fleet."""
    nodes = tuple(
        Placed(
            node=node,
            machine=machine,
            host=placement.hosts[machine],
            command=f"rollcall {'controller' if node in fleet.controllers else 'broker'} {node}",
        )
        for node, machine in placement.machine_of.items()
    )
    ports = tuple(_ports(fleet, placement))
    return LaidOut(fleet=fleet.fleet.name, directory=directory, nodes=nodes, ports=ports)


def _ports(fleet: FleetFile, placement: Placement) -> Iterator[PortUse]:
    is_open = fleet.fleet.insecure
    mutual = "none (insecure)" if is_open else "TLS 1.3, certificate of a {}"
    asking = "none (insecure)" if is_open else "TLS, {}"

    def use(node: str, address: str, protocol: str, callers: str, authentication: str) -> PortUse:
        return PortUse(
            node=node,
            machine=placement.machine_of[node],
            port=split_address(address)[1],
            protocol=protocol,
            callers=callers,
            authentication=authentication,
        )

    for node, one in fleet.controllers.items():
        others = ", ".join(name for name in fleet.controllers if name != node)
        if others:
            # The only port that keeps its TLS in an insecure fleet.
            yield use(node, one.raft, "Raft", others, "TLS 1.3, certificate of a controller")
        brokers = ", ".join(fleet.brokers) or "brokers"
        yield use(node, one.broker, "sessions", brokers, mutual.format("broker"))
        yield use(node, one.rest, "HTTPS" if not is_open else "HTTP", "operators, monitoring",
                  asking.format("certificate or token with a role"))  # fmt: skip
    for node, section in fleet.brokers.items():
        controllers = ", ".join(fleet.controllers)
        yield use(node, section.listen, "RocketMQ remoting", f"producers, consumers, {controllers}",
                  mutual.format("client or node"))  # fmt: skip
        same_set = [name for name, other in fleet.brokers.items() if other.set == section.set and name != node]
        if same_set:
            yield use(node, section.ha, "HA", ", ".join(same_set), mutual.format("broker of the set"))
        yield use(node, section.health, "HTTPS" if not is_open else "HTTP", "monitoring",
                  asking.format("for metrics a certificate of the fleet"))  # fmt: skip


def tables(found: LaidOut) -> Iterator[str | Table]:
    """As ``rollcall init`` prints it."""
    machines = tuple(dict.fromkeys((one.machine, one.host) for one in found.nodes))
    yield Table(
        columns=columns("MACHINE", "HOST", "RUNS", "FILES"),
        rows=tuple(
            (
                machine,
                host,
                ", ".join(one.node for one in found.nodes if one.machine == machine),
                f"{found.directory}/machines/{machine}",
            )
            for machine, host in machines
        ),
    )
    yield Table(
        columns=columns("TO", "ON", ">PORT", "PROTOCOL", "FROM", "AUTHENTICATION"),
        rows=tuple(
            (use.node, use.machine, Figure(str(use.port), use.port), use.protocol, use.callers, use.authentication)
            for use in found.ports
        ),
    )
    yield ""
    yield "Next, for each machine: its files to it, and what runs there; controllers first."
    for machine, host in machines:
        target = bracketed(host)
        yield f"  scp -r {found.directory}/machines/{machine} {target}:rollcall"
        for one in found.nodes:
            if one.machine == machine:
                yield f"    on {machine}, in rollcall: {one.command} --config rollcall.toml"
    yield f"Operators work in {found.directory}/operator, producers and consumers need {found.directory}/client."
    yield f"Keep {found.directory}/authority on no machine of the fleet; rollcall certs renew needs it every 90 days."
