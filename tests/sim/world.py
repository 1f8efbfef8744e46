"""
A whole fleet in one thread: controllers, broker sets, producers, and hands to hurt them.

Here: making, killing and restarting things, and the checks after every event. Not here: when to hurt what (``faults``,
scenarios), what must hold (``oracle``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import structlog

from rollcall_ha.broker.retention import shell as retention
from rollcall_ha.broker.retention.core import Rules
from rollcall_ha.controller.contract.commands import ElectMaster, ElectUnclean, OperatorCommand
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    ControllerName,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    MasterEpoch,
    SetKey,
)
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.timing import PRESETS, Preset, Timing
from rollcall_ha.controller.contract.values import ReplicaDescription, SetConfiguration
from rollcall_ha.controller.core.state import FleetState, SetState
from rollcall_ha.controller.core.views import condition_of
from rollcall_ha.controller.replication.ports import AppliedEntry
from rollcall_ha.node.process import ExitCode
from tests.sim.broker import BrokerNode, BrokerPlan, watched_brokers
from tests.sim.client import Consumer, Petitioner, Producer
from tests.sim.controller import ControllerNode
from tests.sim.log import ReplicaDisk
from tests.sim.log_laws import FORCED_PERCENT, REFUSED_PERCENT, LogLaws
from tests.sim.machine import Machine
from tests.sim.oracle import Oracle
from tests.sim.orders import Operator
from tests.sim.quorum import MemoryQuorum, Quorum
from tests.sim.rocketmq import RocketmqBroker, RocketmqLaws, RocketmqMachine
from tests.sim.seats import Seats
from tests.sim.slave_reads import Reader
from tests.sim.violation import Violation
from tests.support.raft_seams import replaced_library_clock
from tests.support.sim_disk import SimDisk
from tests.support.sim_files import FileCalls, Image
from tests.support.sim_kernel import MS, SECOND, Host, Kernel, Process
from tests.support.sim_net import SimNet
from tests.support.sim_streams import simulated_sockets

PREFERRED = 2
"""The number of the replica to which masters return, where they do."""
READ_MS = 100
"""Mean pause between two pulls of a reader of slaves."""
PETITION_MS = 300
"""Mean pause between two sends that no broker takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size and manners of a world."""

    controllers: int = 3
    founders: int = 0
    """Of ``controllers``, those that found the fleet; others are added while it runs, and take their places (``seats``).
    0: all."""
    """Of the program that founded the fleet: one below ours leaves it at its own, until an operator raises it (R15)."""
    sets: int = 1
    replicas: int = 3
    learners: int = 0
    """Per set, besides its replicas."""
    producers: int = 2
    flush: FlushMode = FlushMode.ASYNC
    min_in_sync: int = 0
    segment_bytes: int = 4096
    disk_segments: int = 0
    """So many fit on the disk of a broker; 0: as many as there are."""
    frees_late_us: int = 0
    """So late such a disk shows that a segment is gone."""
    rocketmq_replicas: int = 0
    """Of one set more, whose brokers are RocketMQ's."""
    cuts_controllers: bool = False
    """Before all faults no broker reaches them for a while (``absences``)."""
    orders_switchovers: bool = False
    """An operator moves masters by order, besides all else."""
    has_policies: bool = False
    """Masters that cannot acknowledge are left, and sets that flap wait for somebody (``policies``)."""
    returns_masters: bool = False
    """And, behind the faults, they go back to the second replica, which is preferred."""
    prepares: float = 0.0
    """Share of prepared records, and somebody asks for what is not served (``client``)."""
    delays: float = 0.0
    """Share of delayed messages."""
    slave_reads: bool = False
    """Slaves give messages, and somebody pulls from any replica (``slave_reads``)."""
    pause_ms: int = 25
    """Mean pause of a producer between two messages."""


class BrokerMachine(Machine):
    """A replica."""

    def __init__(self, world: World, plan: BrokerPlan) -> None:
        super().__init__(world.kernel, plan.name)
        self.files = world.file_calls.disk(world.kernel, plan.name)
        self.disk = ReplicaDisk(self.files)
        self.files.on_failed_sync = self._failed_sync
        self.plan = plan
        self.first_plan = plan
        """As an operator wants it in the end."""
        self.node: BrokerNode | None = None
        self.is_damaged = False
        """Something on its disk has rotted."""

    def crashed(self) -> None:
        """The process is gone, the page cache is not."""
        self.disk.log = None
        before = self.disk.end_on_disk()
        if (self.files.folder / "cut-mark").exists():
            # The next start zeroes the tail again. That makes its pages dirty, which cannot be seen in their bytes.
            self.files.dirty_again()
        self.files.crash()
        self._lost(before)

    def power_lost(self, *, forgets_all: bool) -> int:
        self.disk.log = None
        before = self.disk.end_on_disk()
        self.files.lose_power(forgets_all=forgets_all)
        # In mode sync every acked byte is on the disk: such a set counts a power loss as nothing (R3c).
        self.disk.was_harmed |= self.plan.configuration.flush is FlushMode.ASYNC
        return self._lost(before)

    def _lost(self, before: int) -> int:
        lost = max(before - self.disk.end_on_disk(), 0)
        self.disk.lost_bytes += lost
        self.disk.was_harmed |= lost > 0
        return lost

    def _failed_sync(self) -> None:
        """The process disowns its store now, and registers as one that may have lost something (R3b)."""
        self.disk.was_harmed = self.disk.has_failed_sync = True

    def replaced(self) -> None:
        """A new machine under the old name: its disk is empty, and it will get an id of its own."""
        self.disk.was_replaced = self.disk.is_gone = True
        self.disk = ReplicaDisk(self.files)
        self.files.wipe()
        self.is_damaged = False

    def rolled_back(self, image: Image) -> None:
        """An old image is put back while it stands still."""
        self.files.restore(image)
        self.disk.was_replaced = self.disk.was_harmed = True
        self.disk.has_old_births = False

    def rolled_back_as_volume(self) -> None:
        """The copy that was put back last was the image of a volume: its files are those that were there before."""
        self.files.births -= 1
        self.disk.has_old_births = True

    def mend(self) -> None:
        self.files.is_full = self.files.is_slow = False
        self.files.failing_syncs = self.files.dies_in_calls = 0


class ControllerMachine(Machine):
    """A controller."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.kernel, name)
        self.disk = SimDisk(world.kernel, name)
        self.node: ControllerNode | None = None

    def power_lost(self, *, forgets_all: bool) -> int:
        lost = self.disk.forget_unsynced() if forgets_all else 0
        return lost + self.disk.lose_power()

    def mend(self) -> None:
        self.disk.is_full = self.disk.dies_in_sync = False


@contextmanager
def product_inside() -> Iterator[None]:
    """Within: the product's processes run on simulated clocks, sockets and files, watched and without their log lines."""
    with ExitStack() as stack:
        stack.enter_context(replaced_library_clock())
        stack.enter_context(simulated_sockets())
        stack.enter_context(watched_brokers())
        stack.enter_context(_without_log_lines())
        yield


@contextmanager
def small_disks(shape: Shape) -> Iterator[None]:
    """
    Within: brokers look at a small disk often, delete by RocketMQ's shares of it, and keep no segment for the window of
    producers' numbers.
    """
    values: Any = retention
    known = values.LOOK_MS, values.LOOK_AGAIN_MS, values.window_start, values.rules_of
    rules = Rules(forced_percent=FORCED_PERCENT, refused_percent=REFUSED_PERCENT)
    if shape.disk_segments:
        values.LOOK_MS, values.LOOK_AGAIN_MS = 400, 150
        values.window_start, values.rules_of = lambda end: end, lambda _settings: rules
    try:
        yield
    finally:
        values.LOOK_MS, values.LOOK_AGAIN_MS, values.window_start, values.rules_of = known


@contextmanager
def _without_log_lines() -> Iterator[None]:
    known = structlog.get_config()
    structlog.configure(processors=[_drop], wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**known)


def _drop(_logger: object, _method: str, _line: object) -> NoReturn:
    raise structlog.DropEvent


QuorumMaker = Callable[["World"], Quorum]


def memory_quorum(world: World) -> Quorum:
    """The log without Raft."""
    return MemoryQuorum(world.kernel, world.net, tuple(ControllerName(name) for name in world.controller_names))


class World:
    def __init__(
        self,
        seed: int,
        shape: Shape,
        *,
        make_quorum: QuorumMaker = memory_quorum,
        keep_lines: bool = False,
        starts_brokers: bool = True,
    ) -> None:
        self.kernel = Kernel(seed, keep_lines=keep_lines)
        self.file_calls = FileCalls()
        self.shape = shape
        self.net = SimNet(self.kernel)
        self.timing: Timing = PRESETS[Preset.FAST]
        self.counts = self.kernel.counts
        self.fleet_incarnation = FleetIncarnation(self.kernel.hex_digits())
        self.controller_names = tuple(f"c{number}" for number in range(1, shape.controllers + 1))
        self.founder_names = self.controller_names[: shape.founders or shape.controllers]
        self.seats: Seats | None = None
        """The operator who changes the controllers, if this seed has one."""
        self.counts.add("groups of five controllers", int(shape.controllers == 5))
        self.controllers = {name: ControllerMachine(self, name) for name in self.controller_names}
        self.keys = [SetKey(cluster=ClusterName("sim"), name=BrokerName(f"s{number}")) for number in range(shape.sets)]
        self.brokers: dict[str, BrokerMachine] = {}
        self.before_a_cut: Callable[[BrokerMachine], None] = lambda _broker: None
        """Told in front of a cut; a place to plan a death inside of it."""
        self.loses_alter_answer: Callable[[], bool] = lambda: False
        """Asked in front of each answer to an alter; True: its link is reset instead."""
        self.broken: Violation | None = None
        """What was found where nothing may be raised: raised after the event."""
        self.gone: list[tuple[SetKey, BrokerId]] = []
        """Ids of replicas whose machines were replaced: an operator removes them in the end."""
        self.replaced: set[tuple[SetKey, BrokerId]] = set()
        """The same, also of ids that were granted again since."""
        self._lives: list[BrokerNode | ControllerNode | RocketmqBroker] = []
        """All, the dead ones included: a coroutine that is collected would run its ``finally``."""
        for number, name in enumerate(self.controller_names, 1):
            self.net.hosts[f"10.0.0.{number}"] = name
        self.operator = Operator(self)
        self._disks: dict[tuple[SetKey, BrokerId], ReplicaDisk] = {}
        for key in self.keys:
            for number in range(1, shape.replicas + 1):
                is_preferred = shape.returns_masters and number == PREFERRED
                self._add_broker(key, f"{key.name}r{number}", priority=1 if is_preferred else 100)
            for number in range(1, shape.learners + 1):
                self._add_broker(key, f"{key.name}l{number}", is_learner=True)
        self._all_brokers = tuple(self.brokers.values())
        self.rocketmq: dict[str, RocketmqMachine] = {}
        self.rocketmq_key = SetKey(cluster=ClusterName("sim"), name=BrokerName("rocketmq"))
        laws = RocketmqLaws(self.rocketmq_key, self.counts)
        for number in range(1, shape.rocketmq_replicas + 1):
            name, address = f"j{number}", f"10.0.2.{number}"
            self.net.hosts[address] = name
            self.rocketmq[name] = RocketmqMachine(self.kernel, name, address, laws)
        self.oracle = Oracle(
            self.kernel, lambda key, broker_id: self._disks[key, broker_id], expected_replicas=shape.replicas
        )
        self.oracle.incarnation_of = self._incarnation_of
        self.oracle.rocketmq = laws
        self.laws = LogLaws(self.counts, lambda key, broker_id: self._disks[key, broker_id], self._reigning)
        self.quorum = make_quorum(self)
        self.producers: list[Producer] = []
        self.kernel.after_each = self._check
        for name in self.founder_names:
            self.start(self.controllers[name])
        for broker in (*self.brokers.values(), *self.rocketmq.values()) if starts_brokers else ():
            self.kernel.after(self.kernel.random.randrange(1, 200) * MS, "start", partial(self.start, broker))

    def _add_broker(self, key: SetKey, name: str, *, is_learner: bool = False, priority: int = 100) -> None:
        address = f"10.0.1.{len(self.brokers) + 1}"
        self.net.hosts[address] = name
        plan = BrokerPlan(
            name=name,
            address=address,
            set_key=key,
            description=ReplicaDescription(
                address=f"{address}:10911", ha_address=f"{address}:10912", is_learner=is_learner, priority=priority
            ),
            configuration=SetConfiguration(
                expected_replicas=self.shape.replicas, flush=self.shape.flush, min_in_sync=self.shape.min_in_sync
            ),
            controllers=tuple(self.broker_ports.values()),
            timing=self.timing,
            segment_bytes=self.shape.segment_bytes,
            slave_reads=self.shape.slave_reads,
            disk_segments=self.shape.disk_segments,
            frees_late_us=self.shape.frees_late_us,
        )
        self.brokers[name] = BrokerMachine(self, plan)

    def clone(self, broker: BrokerMachine, name: str) -> None:
        """Another machine, with a copy of what is on the disk of ``broker`` now; it is not started."""
        self._add_broker(broker.plan.set_key, name)
        self.brokers[name].files.restore(broker.files.image())

    @property
    def broker_ports(self) -> dict[ControllerName, str]:
        """Where brokers reach each controller."""
        return {ControllerName(name): f"{self.net.address_of(name)}:9000" for name in self.controller_names}

    def _by_fleet_file(self, name: ControllerName) -> dict[ControllerName, str]:
        """Broker ports of the founders and its own: of all others it hears from the log."""
        known = (*self.founder_names, name)
        return {one: address for one, address in self.broker_ports.items() if one in known}

    def close(self) -> None:
        """The end of everything in it, and of the files of its hosts."""
        for machine in self.machines():
            machine.process.is_alive = False
        for life in self._lives:
            life.loop.dispose()
        self._lives.clear()
        self.file_calls.close()

    def found(self, violation: Violation) -> None:
        """By code that must not raise."""
        self.broken = self.broken or violation

    @property
    def is_sync_flush(self) -> bool:
        """Every replica syncs before it acks."""
        return self.shape.flush is FlushMode.SYNC

    @property
    def payloads(self) -> list[str]:
        """Entries that were ever proposed, in order."""
        return self.quorum.payloads

    def propose_again(self, payload: str) -> None:
        """A late duplicate reaches whoever leads."""
        self.quorum.propose_again(payload)

    def _incarnation_of(self, key: SetKey, broker_id: BrokerId) -> str | None:
        for broker in self.brokers.values():
            node = broker.node
            if (
                broker.process.is_alive
                and node is not None
                and (broker.plan.set_key, node.broker_id) == (key, broker_id)
            ):
                return node.incarnation
        return None

    def is_harmed(self, key: SetKey, broker_id: BrokerId) -> bool:
        """Whether a fault may have taken something from this replica's disk since it was last a member for good."""
        disk = self._disks.get((key, broker_id))
        return disk is None or disk.is_gone or disk.was_harmed

    def has_had(self, key: SetKey, broker_id: BrokerId) -> bool:
        """Whether a machine has ever had this id."""
        return (key, broker_id) in self._disks

    def good_copies(self, broker: BrokerMachine) -> list[BrokerId]:
        """Replicas of its set that live, on disks that have not rotted, without itself."""
        key, state = broker.plan.set_key, self.set_state(broker.plan.set_key)
        good = [
            one.node.broker_id
            for one in self._all_brokers
            if one.plan.set_key == key
            and one is not broker
            and one.node is not None
            and not (one.is_damaged or one.disk.rotten)
        ]
        alive = [replica.broker_id for replica in state.replicas if replica.is_alive] if state is not None else []
        return [one for one in alive if one in good]

    def is_spare(self, broker: BrokerMachine) -> bool:
        """Whether two others hold, on good disks, all that it was asked to hold: it is no last copy of anything."""
        state = self.set_state(broker.plan.set_key)
        if state is None or broker.node is None or not state.is_established:
            return False
        return len([one for one in self.good_copies(broker) if one in state.sync_state_set]) >= 2

    def _reigning(self, key: SetKey, broker_id: BrokerId) -> tuple[Incarnation, MasterEpoch] | None:
        for broker in self._all_brokers:
            node = broker.node
            if broker.process.is_alive and node is not None and node.broker_id == broker_id:
                reign = node.reign
                if broker.plan.set_key == key and reign is not None:
                    return node.incarnation, reign.master_epoch
        return None

    # --- life and death ---

    def machines(self) -> list[Machine]:
        """All, in a fixed order."""
        return [*self.controllers.values(), *self.brokers.values(), *self.rocketmq.values()]

    def start(self, machine: Machine) -> None:
        """Power on, if need be, and start the process, if none lives."""
        if machine.process.is_alive:
            return
        if not machine.is_powered:
            machine.is_powered = True
            self.net.power_on(machine.name)
        machine.lives += 1
        machine.process = Process(machine.host, machine.name)
        self.kernel.note(f"{machine.name} starts")
        if isinstance(machine, ControllerMachine):
            self._start_controller(machine)
        elif isinstance(machine, BrokerMachine):
            self._start_broker(machine)
        elif isinstance(machine, RocketmqMachine):
            machine.node = machine.begin(self.net, tuple(self.broker_ports.values()), self.found)
            self._lives.append(machine.node)

    def _start_controller(self, machine: ControllerMachine) -> None:
        name = ControllerName(machine.name)
        machine.node = ControllerNode(
            name=name,
            process=machine.process,
            net=self.net,
            log=self.quorum.open(name, machine.process),
            timing=self.timing,
            fleet_incarnation=self.fleet_incarnation,
            addresses=self._by_fleet_file(name),
            keeps_seats=bool(self.shape.founders),
            rocketmq_replicas=max(self.shape.rocketmq_replicas, 1),
            on_applied=self._applied,
            on_violation=self.found,
            loses_alter_answer=self._loses_alter_answer,
        )
        self._lives.append(machine.node)
        machine.node.start()

    def _start_broker(self, machine: BrokerMachine) -> None:
        machine.node = BrokerNode(
            plan=machine.plan,
            process=machine.process,
            net=self.net,
            disk=machine.disk,
            oracle=self.oracle,
            laws=self.laws,
            on_violation=self.found,
        )
        self._lives.append(machine.node)
        machine.files.boot()
        machine.files.on_death = lambda with_power: self._died(machine, with_power=with_power)
        machine.node.before_a_cut = lambda: self.before_a_cut(machine)
        machine.node.on_exit = lambda how, error: self._exited(machine, how, error)
        machine.node.has_an_id = partial(self._has_an_id, machine)
        machine.node.start()

    def _has_an_id(self, machine: BrokerMachine, broker_id: BrokerId) -> None:
        of = (machine.plan.set_key, broker_id)
        self._disks[of] = machine.disk
        # Controllers that were put back grant it again: the operator would remove the new machine for the old one.
        self.gone = [one for one in self.gone if one != of]

    def _loses_alter_answer(self) -> bool:
        """Chaos comes later than the first controllers."""
        return self.loses_alter_answer()

    def _applied(self, node: ControllerNode, entry: AppliedEntry[FleetState]) -> None:
        try:
            self.oracle.applied(node.name, entry)
        except Violation as violation:
            # A log guards itself against its listeners: it would swallow this.
            self.found(violation)
        for broker in self._all_brokers:
            if broker.node is not None and broker.process.is_alive:
                broker.node.check_required_set()

    def kill(self, machine: Machine) -> None:
        """SIGKILL: what was written stays with the kernel."""
        if machine.process.is_alive:
            self.counts.add(f"{self._sort(machine)} killed")
            self.kernel.note(f"{machine.name} killed")
            self._end_process(machine)

    def lose_power(self, machine: Machine, *, forgets_all: bool = False) -> int:
        """
        The plug: unsynced bytes may go, connections do not say goodbye, the boot id changes.

        ``forgets_all``: the worst case, without chance. Returns how many bytes of a log or journal are gone.
        """
        if not machine.is_powered:
            return 0
        self.net.power_off(machine.name)
        machine.is_powered = False
        machine.process.kill()
        self._count(machine)
        lost = machine.power_lost(forgets_all=forgets_all)
        sort = self._sort(machine)
        self.counts.add(f"{sort} power losses")
        self.counts.add(f"unsynced bytes lost by {sort}", lost)
        self.kernel.note(f"{machine.name} loses power and {lost} bytes")
        machine.host.reboot()
        return lost

    def _end_process(self, machine: Machine) -> None:
        machine.process.kill()
        self._count(machine)
        if isinstance(machine, BrokerMachine):
            machine.crashed()

    def _died(self, machine: BrokerMachine, *, with_power: bool) -> None:
        """Inside of a file call; somebody starts it again."""
        if with_power:
            self.lose_power(machine)
        else:
            self._end_process(machine)
        self.start_later(machine)

    def _count(self, machine: Machine) -> None:
        if isinstance(machine, BrokerMachine) and machine.node is not None:
            machine.node.count()

    def _exited(self, machine: BrokerMachine, code: ExitCode, reason: str) -> None:
        """The process ends itself; a supervisor starts it again, unless its folder is of no use."""
        self._end_process(machine)
        if code is ExitCode.STORAGE:
            self.start_later(machine)
        elif code is ExitCode.DIRECTORY and machine.is_damaged:
            self.counts.add("damaged disks replaced")
            self.replace(machine)
        elif code is not ExitCode.OK:
            self.found(Violation(f"{machine.name} ends with {code.name}, its disk is whole: {reason}"))

    def replace(self, machine: BrokerMachine) -> None:
        """The machine is thrown away; another one takes its name and registers anew (W29)."""
        self.kill(machine)
        self.kernel.note(f"{machine.name} is replaced")
        self.counts.add("machines replaced")
        had = [of for of, disk in self._disks.items() if disk is machine.disk]
        self.gone += had
        self.replaced.update(had)
        machine.replaced()
        self.start_later(machine)

    def start_later(self, machine: Machine) -> None:
        """As a supervisor does."""
        delay_us = self.kernel.random.randrange(50, 1_500) * MS
        self.kernel.after(delay_us, "supervisor", partial(self.start, machine))

    def change_plan(self, broker: BrokerMachine, plan: BrokerPlan) -> None:
        """An operator's edit of the configuration: it counts from the next start on, which comes with it."""
        self.kill(broker)
        # A learner is no candidate, and comes back without a vote (R23).
        broker.disk.was_harmed |= plan.description.is_learner
        broker.plan = plan

    def _sort(self, machine: Machine) -> str:
        if isinstance(machine, RocketmqMachine):
            return "rocketmq brokers"
        return "controllers" if isinstance(machine, ControllerMachine) else "brokers"

    def heal(self) -> None:
        """No faults any more: everything runs, everything is connected."""
        self.net.weather = type(self.net.weather)()
        self.net.heal_all()
        for machine in self.machines():
            machine.mend()
            machine.process.resume()
            if isinstance(machine, BrokerMachine) and machine.plan != machine.first_plan:
                self.change_plan(machine, machine.first_plan)
            self.start(machine)

    # --- clients ---

    def start_producers(self) -> None:
        """Each on a host of its own."""
        for number in range(self.shape.producers):
            key = self.keys[number % len(self.keys)]
            name = f"p{number}"
            process = Process(Host(self.kernel, name), name)
            addresses = tuple(
                broker.plan.description.address for broker in self.brokers.values() if broker.plan.set_key == key
            )
            producer = Producer(
                process=process,
                net=self.net,
                oracle=self.oracle,
                key=key,
                addresses=addresses,
                first_value=(number + 1) * 1_000_000,
                pause_ms=self.shape.pause_ms,
                prepares=self.shape.prepares,
                delays=self.shape.delays,
            )
            self.producers.append(producer)
            producer.start()
        for number, key in enumerate(self.keys if self.shape.producers else ()):
            name = f"q{number}"
            addresses = tuple(
                broker.plan.description.address for broker in self._all_brokers if broker.plan.set_key == key
            )
            Consumer(
                process=Process(Host(self.kernel, name), name),
                net=self.net,
                oracle=self.oracle,
                key=key,
                addresses=addresses,
                pause_ms=4 * self.shape.pause_ms + 100,
            ).ask()
            if self.shape.prepares:
                process = Process(Host(self.kernel, f"u{number}"), f"u{number}")
                Petitioner(process=process, net=self.net, addresses=addresses, pause_ms=PETITION_MS).ask()
            if self.shape.slave_reads:
                process = Process(Host(self.kernel, f"r{number}"), f"r{number}")
                Reader(process=process, net=self.net, addresses=addresses, pause_ms=READ_MS).ask()

    # --- operators ---

    def leader(self) -> ControllerNode | None:
        """The controller that has authority now."""
        found = [
            machine.node
            for machine in self.controllers.values()
            if machine.process.is_alive
            and not machine.process.is_paused
            and machine.node is not None
            and machine.node.has_authority
        ]
        if len(found) > 1:
            raise Violation(f"R5: {', '.join(node.name for node in found)} have authority at once")
        return found[0] if found else None

    def holder(self, key: SetKey, broker_id: BrokerId) -> BrokerMachine | None:
        """The machine that got this id last."""
        disk = self._disks.get((key, broker_id))
        return next((one for one in self.brokers.values() if one.disk is disk), None)

    def set_state(self, key: SetKey) -> SetState | None:
        """Newest committed state of a set."""
        return self.oracle.state.sets.get(key) if self.oracle.state is not None else None

    def elect(self, key: SetKey, designated: BrokerId | None, *, accepted_loss_bytes: int | None = None) -> None:
        """As the CLI would: switchover, or an unclean election."""
        node, state = self.leader(), self.set_state(key)
        if node is None or state is None:
            return
        command: ElectMaster | ElectUnclean
        if accepted_loss_bytes is None:
            command = ElectMaster(set_key=key, to=designated, reason="switchover")
        else:
            command = ElectUnclean(
                set_key=key, to=designated, accepted_loss_bytes=accepted_loss_bytes, reason="operator"
            )
        self.order(command)

    # --- checks ---

    def _check(self) -> None:
        """After every event. What must hold is looked at where it can change, which is much rarer."""
        if self.broken is not None:
            raise self.broken

    # --- the end ---

    def settle(self, limit_us: int = 30 * SECOND) -> None:
        """
        Heal, let producers finish, and wait until every set serves and all replicas hold the same.

        Raises:
            Violation: it does not come to that (L1-L5), or something acknowledged is missing.
        """
        self.heal()
        deadline_us = self.kernel.now_us + limit_us
        why = "nothing was looked at"
        stop_at_us = self.kernel.now_us + 1_500 * MS
        while self.kernel.now_us < deadline_us:
            self.kernel.run_until(self.kernel.now_us + 250 * MS)
            if self.kernel.now_us >= stop_at_us:
                for producer in self.producers:
                    producer.is_stopped = True
            for machine in self.machines():
                # A clean stop that was asked for before the end of the faults may end behind it.
                self.start(machine)
            self.operator.act()
            if self.seats is not None:
                self.seats.act()
            why = self._unsettled()
            if not why:
                return
        alarms = [alarm for broker in self.brokers.values() if broker.node is not None for alarm in broker.node.alarms]
        why += f"; alarms: {alarms}" if alarms else ""
        raise Violation(f"liveness: {why} after {limit_us // SECOND} s without faults")

    def order(self, command: OperatorCommand) -> None:
        """As by REST, of the controller that has authority now."""
        node = self.leader()
        assert node is not None
        node.order(
            command,
            done=lambda reply: self.kernel.note(f"asked: {type(reply).__name__} {getattr(reply, 'reason', '')}"),
        )

    def _unsettled(self) -> str:
        if any(producer.is_waiting or not producer.is_stopped for producer in self.producers):
            return "a producer waits for an answer"
        for key in self.keys:
            state = self.set_state(key)
            if state is None:
                return f"{key} is unknown to the controllers"
            condition, reason = condition_of(state)
            if condition is not Condition.SERVING:
                return f"{key} is {condition.value}: {reason}"
            if state.pending_switchover is not None:
                return f"{key} switches over since {state.pending_switchover.ordered_at_ms}"
            if len(state.sync_state_set) != self.shape.replicas:
                return f"{key} has SyncStateSet {state.sync_state_set}"
            disks = [
                (broker.node.broker_id, broker.disk)
                for broker in self.brokers.values()
                if broker.plan.set_key == key and broker.node is not None and broker.node.broker_id is not None
            ]
            differs = self.oracle.converged(key, disks)
            if differs is not None:
                return f"{key}: {differs}"
        if unsettled := self._unsettled_rocketmq():
            return unsettled
        if self.seats is not None and (unsettled := self.seats.unsettled()):
            return unsettled
        for name in self.controllers if self.seats is None else self.seats.goal:
            if not self.quorum.is_voter(ControllerName(name)):
                return f"{name} was wiped and does not vote yet"
        return ""

    def _unsettled_rocketmq(self) -> str:
        """L1, L2: a master, and each broker knows it and is a member."""
        state = self.set_state(self.rocketmq_key)
        if not self.rocketmq or state is None:
            return "no RocketMQ broker is known" if self.rocketmq else ""
        condition, reason = condition_of(state)
        if condition is not Condition.SERVING or len(state.sync_state_set) != len(self.rocketmq):
            return f"{state.set_key} is {condition.value}: {reason}, SyncStateSet {state.sync_state_set}"
        for name, machine in self.rocketmq.items():
            node = machine.node
            if node is None or not node.follows(state.master, state.master_epoch):
                return f"{name} does not follow {state.master} in epoch {state.master_epoch}"
        return ""
