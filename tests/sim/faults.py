"""
What goes wrong, when, by chance: the schedule of one seed.

Here: choosing and timing. Not here: how to do it (``world``).
Rule: whatever is done is undone by ``World.heal`` at the latest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.runtime.transfers import successor_now
from tests.sim import amnesia
from tests.sim.absences import cut
from tests.sim.copies import Copies
from tests.sim.machine import Machine
from tests.sim.policies import CLOCKS_SET
from tests.sim.world import BrokerMachine, ControllerMachine, World
from tests.support.sim_files import Image
from tests.support.sim_kernel import MS, SECOND
from tests.support.sim_net import Weather

MILD_MEAN_MS = 2_500
"""Between two faults of a seed that is about policies, which has faults of its own (``policies``)."""
STRAND_MEAN_MS = 300
"""Between two moments at which a master loses its slaves."""
ROCKETMQ_MEAN_MS = 1_200
"""Between two faults of the RocketMQ brokers."""
TAIL_TRIES_MAX = 15
"""Looks whether something was appended that no slave has."""
HOT_COPY_MS = (1_000, 4_000)
"""Between two copies of running brokers."""
AMNESIA_PROBABILITY = 0.3
"""Of a seed in which the controllers lose their memory once."""

SETTINGS_CHANGED = (
    "scan_interval_ms",
    "stall_ms",
    "survivors_wait_ms",
    "catch_up_timeout_ms",
    "handover_ms",
    "session_rpc_timeout_ms",
)
"""By a fault, besides heartbeats."""


class Chaos:
    """Hurts ``world`` until ``until_us``."""

    def __init__(self, world: World, until_us: int) -> None:
        self._world = world
        self._kernel = world.kernel
        self._random = world.kernel.random
        self._until_us = until_us
        self._images: dict[str, Image] = {}
        self.copies: Copies | None = None
        """Of the controllers' directories, if this seed puts them back."""
        # A set that loses its members to all else has no heirs that a policy could choose.
        self._mean_ms = MILD_MEAN_MS if world.shape.has_policies else self._random.choice((200, 400, 800))
        self._faults: list[tuple[int, Callable[[], None]]] = [
            (10, self._kill_broker),
            (5, self._kill_master),
            (6, self._power_broker),
            (2, self._power_set),
            (3, self._stop_broker),
            (6, self._pause_broker),
            (8, self._cut_pair),
            (4, self._isolate),
            (4, self._break_connections),
            (4, self._weather),
            (4, self._kill_controller),
            (2, self._power_controller),
            (1, self._all_controllers),
            (3, self._pause_controller),
            (2, self._disk_full),
            (2, self._controller_disk_full),
            (3, self._slow_disk),
            (2, self._failing_sync),
            (4, self._die_in_a_call),
            (1, self._rot),
            (1, self._replace),
            (3, self._roll_back),
            (2, self._wall_clock),
            (2, self._change_role),
            (5, self._switchover),
            (6, self._late_duplicate),
            (2, self._wipe_controller),
            (2, self._change_min_in_sync),
            (2, self._rot_segment),
            (8, self._hide_elections),
            (2, self._pause_elections),
            (4, self._transfer_lead),
            (2, self._maintain),
            (3, self._change_settings),
            (1, self._cut_controllers),
        ]
        # Each seed has its own taste: some faults often, some never.
        self._weights = [weight * self._random.choice((0, 1, 1, 3)) for weight, _ in self._faults]
        if not any(self._weights):
            self._weights[0] = 1
        world.before_a_cut = self._before_a_cut
        world.loses_alter_answer = self._loses_alter_answer
        self._lost_answers = self._random.choice((0.4, 0.6, 0.8))
        self._schedule()
        if not world.shape.has_policies:
            self._strand_again()
        if world.rocketmq:
            self._rocketmq_again()
        # A RocketMQ broker whose id the controllers have forgotten asks for ever, until somebody empties its disk.
        # And controllers that begin again with the founders' files alone are another story.
        elif not world.shape.founders:
            if self._kernel.chance(AMNESIA_PROBABILITY):
                self._later(500, (until_us - self._kernel.now_us) // MS, "amnesia", self._forget)
            elif not world.shape.has_policies:
                self.copies = Copies(world, until_us)
        self._copy_again()

    def _schedule(self) -> None:
        delay_us = int(self._random.expovariate(1.0 / self._mean_ms) * MS)
        self._kernel.after(delay_us, "fault", self._fault)

    def _fault(self) -> None:
        if self._kernel.now_us >= self._until_us:
            return
        number = self._random.choices(range(len(self._faults)), self._weights)[0]
        fault = self._faults[number][1]
        self._kernel.counts.add("faults")
        fault()
        self._schedule()

    def _later(self, low_ms: int, high_ms: int, label: str, action: Callable[[], None]) -> None:
        self._kernel.after(self._random.randrange(low_ms, high_ms) * MS, label, action)

    def _restart_later(self, machine: Machine) -> None:
        self._later(20, self._random.choice((100, 1_000, 3_000)), "restart", lambda: self._world.start(machine))

    def _any_broker(self) -> BrokerMachine:
        return self._random.choice(list(self._world.brokers.values()))

    def _any_controller(self) -> ControllerMachine:
        return self._random.choice(list(self._world.controllers.values()))

    def _master(self) -> BrokerMachine | None:
        key = self._random.choice(self._world.keys)
        state = self._world.set_state(key)
        master = state.master if state is not None else None
        for broker in self._world.brokers.values():
            node = broker.node
            if master is not None and node is not None and (broker.plan.set_key, node.broker_id) == (key, master):
                return broker
        return None

    # --- what the proof is about: logs that differ, and alters that nobody hears of (R1, R2, S01, S23) ---

    def _strand_again(self) -> None:
        self._later(100, 2 * STRAND_MEAN_MS, "strand", self._strand)

    def _strand(self) -> None:
        """
        A master loses its slaves until it has something that no other log has; then its life, or every link it has.

        What was sent to it meanwhile has to go when it comes back behind its successor.
        """
        if self._kernel.now_us >= self._until_us:
            return
        broker = self._master()
        # Where nothing is in sync there is nobody to succeed it, and nothing comes of it.
        if (
            broker is None
            or not broker.process.is_alive
            or broker.process.is_paused
            or not self._world.is_spare(broker)
        ):
            self._later(50, 200, "strand", self._strand)
            return
        self._strand_again()
        self._kernel.counts.add("masters stranded")
        slaves = [one for one in self._world.brokers.values() if one.plan.set_key == broker.plan.set_key]
        pairs = self._cut_off(broker, [one for one in slaves if one is not broker])
        self._later(30, 120, "tail", lambda: self._strand_with_a_tail(broker, pairs, TAIL_TRIES_MAX))

    def _strand_with_a_tail(self, broker: BrokerMachine, pairs: list[tuple[str, str]], tries: int) -> None:
        log = broker.disk.log
        if broker.process.is_alive and log is not None and log.max_offset == log.confirm_offset and tries > 0:
            self._later(20, 60, "tail", lambda: self._strand_with_a_tail(broker, pairs, tries - 1))
            return
        tail_bytes = log.max_offset - log.confirm_offset if log is not None else 0
        self._kernel.note(f"{broker.name} is stranded with {tail_bytes} bytes")
        # What it has sent its slaves is under way still, and would arrive when the cut is healed.
        self._world.net.break_host(broker.name)
        if self._kernel.chance(0.85):
            self._world.kill(broker)
            self._later(300, 900, "restart", lambda: self._world.start(broker))
            self._later(1, 20, "heal", lambda: self._heal(pairs))
        else:
            others = self._cut_off(broker, list(self._world.controllers.values()))
            self._later(1_500, 2_500, "heal", lambda: self._heal([*pairs, *others]))

    def _cut_off(self, broker: BrokerMachine, others: Sequence[Machine]) -> list[tuple[str, str]]:
        pairs = [pair for other in others for pair in ((broker.name, other.name), (other.name, broker.name))]
        for source, target in pairs:
            self._world.net.cut(source, target)
        return pairs

    def _heal(self, pairs: list[tuple[str, str]]) -> None:
        for source, target in pairs:
            self._world.net.heal(source, target)

    def _loses_alter_answer(self) -> bool:
        """The answer to an alter is about to leave: now and then its link is reset instead."""
        return self._kernel.now_us < self._until_us and self._kernel.chance(self._lost_answers)

    # --- RocketMQ brokers ---

    def _rocketmq_again(self) -> None:
        self._later(200, 2 * ROCKETMQ_MEAN_MS, "rocketmq fault", self._hurt_rocketmq)

    def _hurt_rocketmq(self) -> None:
        """Its master mostly: it dies, hangs, is cut off from the controllers, or from everybody."""
        if self._kernel.now_us >= self._until_us:
            return
        self._rocketmq_again()
        machines = list(self._world.rocketmq.values())
        state = self._world.set_state(self._world.rocketmq_key)
        masters = [one for one in machines if state is not None and one.disk.broker_id == state.master]
        machine = self._random.choice(masters if masters and self._kernel.chance(0.6) else machines)
        way = self._random.choice(("kill", "kill", "pause", "cut", "alone"))
        if way == "kill":
            self._world.kill(machine)
            self._restart_later(machine)
        elif way == "pause":
            self._pause(machine)
        else:
            others = list(self._world.controllers.values()) if way == "cut" else self._world.machines()
            names = [one.name for one in others if one is not machine]
            self._heal_later([pair for name in names for pair in ((machine.name, name), (name, machine.name))])

    # --- brokers ---

    def _kill_broker(self) -> None:
        broker = self._any_broker()
        self._world.kill(broker)
        self._restart_later(broker)

    def _kill_master(self) -> None:
        broker = self._master()
        if broker is not None:
            self._world.kill(broker)
            self._restart_later(broker)

    def _power_broker(self) -> None:
        broker = self._any_broker()
        self._world.lose_power(broker)
        self._restart_later(broker)

    def _power_set(self) -> None:
        """A rack: some or all replicas of a set at the same instant."""
        key = self._random.choice(self._world.keys)
        for broker in self._world.brokers.values():
            if broker.plan.set_key == key and self._kernel.chance(0.7):
                self._world.lose_power(broker)
                self._restart_later(broker)

    def _stop_broker(self) -> None:
        broker = self._any_broker()
        if broker.process.is_alive and broker.node is not None:
            node = broker.node
            broker.process.run("stop", node.stop)
            self._later(400, 2_000, "restart", lambda: self._world.start(broker))

    def _pause_broker(self) -> None:
        broker = self._master() if self._kernel.chance(0.4) else self._any_broker()
        self._pause(broker or self._any_broker())

    def _pause(self, machine: Machine) -> None:
        process = machine.process
        process.pause()
        self._kernel.counts.add("pauses")
        self._later(50, self._random.choice((400, 1_500, 4_000)), "resume", process.resume)

    def _change_role(self) -> None:
        """A replica comes back as a learner, or as what it was (R23)."""
        broker = self._any_broker()
        description = broker.plan.description
        other = msgspec.structs.replace(description, is_learner=not description.is_learner)
        if broker.first_plan.description.is_learner:
            return
        self._world.change_plan(broker, replace(broker.plan, description=other))
        self._kernel.counts.add("members made learners" if other.is_learner else "learners made members again")
        self._restart_later(broker)

    def _change_min_in_sync(self) -> None:
        """
        By an order while the set serves, or in one replica's fleet file: the set keeps what it has, and asks its file after
        a wipe only (R11).
        """
        broker = self._any_broker()
        if self._kernel.chance(0.5):
            self._world.operator.configure(broker.plan.set_key, self._random.randrange(1, 3))
            return
        settings = broker.plan.configuration
        least = self._random.randrange(1, settings.expected_replicas + 1)
        edited = msgspec.structs.replace(settings, min_in_sync=least)
        self._world.change_plan(broker, replace(broker.plan, configuration=edited))
        self._kernel.counts.add("min_in_sync edited")
        self._restart_later(broker)

    # --- the network ---

    def _heal_later(self, pairs: list[tuple[str, str]]) -> None:
        net = self._world.net
        for source, target in pairs:
            net.cut(source, target)
        self._kernel.counts.add("cuts")

        def heal() -> None:
            for source, target in pairs:
                net.heal(source, target)

        self._later(50, self._random.choice((300, 1_500, 4_000)), "heal", heal)

    def _cut_pair(self) -> None:
        names = [machine.name for machine in self._world.machines()]
        one, two = self._random.sample(names, 2)
        pairs = [(one, two)]
        if self._kernel.chance(0.6):
            pairs.append((two, one))
        self._heal_later(pairs)

    def _isolate(self) -> None:
        """One host from all, or from the controllers, or from the brokers only."""
        machines = self._world.machines()
        victim = self._random.choice(machines)
        sort = self._random.choice((Machine, ControllerMachine, BrokerMachine))
        others = [machine.name for machine in machines if machine is not victim and isinstance(machine, sort)]
        self._heal_later([pair for other in others for pair in ((victim.name, other), (other, victim.name))])

    def _cut_controllers(self) -> None:
        """R13: no broker reaches them, whatever else happens meanwhile."""
        pairs = cut(self._world, list(self._world.brokers.values()))
        self._later(1_100, 3_500, "heal", lambda: self._heal(pairs))

    def _hide_elections(self) -> None:
        """A slave hears nothing of two elections: its master is deposed, and is master again in a higher epoch (R21)."""
        master = self._master()
        if master is None or master.node is None or not self._world.is_spare(master):
            return
        key, broker_id = master.plan.set_key, master.node.broker_id
        mates = [one for one in self._world.brokers.values() if one.plan.set_key == key and one is not master]
        slave = self._random.choice(mates)
        others = [one.node.broker_id for one in mates if one is not slave and one.node is not None]
        pairs = self._cut_off(slave, list(self._world.controllers.values()))
        self._kernel.counts.add("elections hidden from a slave")
        self._later(1, 20, "away", lambda: self._world.elect(key, self._random.choice(others)))
        self._later(60, 200, "back", lambda: self._world.elect(key, broker_id))
        self._later(700, 1_500, "heal", lambda: self._heal(pairs))

    def _break_connections(self) -> None:
        self._world.net.break_some(self._random.choice((0.1, 0.4, 1.0)))

    def _weather(self) -> None:
        self._world.net.weather = Weather(
            stall_probability=self._random.choice((0.0, 0.02, 0.1)),
            stall_us_max=self._random.choice((20, 300, 1_500)) * MS,
            break_probability=self._random.choice((0.0, 0.002)),
        )

        def calm() -> None:
            self._world.net.weather = Weather()

        self._later(200, 2_000, "calm", calm)

    # --- controllers ---

    def _kill_controller(self) -> None:
        leader = self._world.leader()
        controller = self._any_controller()
        if leader is not None and self._kernel.chance(0.5):
            controller = self._world.controllers[leader.name]
        self._world.kill(controller)
        self._restart_later(controller)

    def _power_controller(self) -> None:
        controller = self._any_controller()
        if self._kernel.chance(0.5) and controller.process.is_alive:
            controller.disk.dies_in_sync = True
            return
        self._world.lose_power(controller)
        self._restart_later(controller)

    def _before_a_cut(self, broker: BrokerMachine) -> None:
        """Now and then the process or the host dies inside of a cut, between any two of its calls (R20)."""
        if self._kernel.now_us < self._until_us and self._kernel.chance(0.4):
            broker.files.dies_in_calls = self._random.randrange(1, 60)
            broker.files.dies_with_power = self._kernel.chance(0.5)

    def _wipe_controller(self) -> None:
        """Its disk is lost, those of a majority are not: it votes again once it has caught up."""
        controller = self._any_controller()
        if amnesia.can_lose(self._world, controller):
            amnesia.wipe_one(self._world, controller)
            self._restart_later(controller)

    def _all_controllers(self) -> None:
        """kill -9, then the plug, at the same instant (S49)."""
        with_power = self._kernel.chance(0.5)
        for controller in self._world.controllers.values():
            self._world.kill(controller)
            if with_power:
                self._world.lose_power(controller)
            self._restart_later(controller)
        self._kernel.counts.add("all controllers lost at once")

    def _forget(self) -> None:
        """All controllers are wiped, or a backup is taken now and put back a while later (R7)."""
        if self._kernel.chance(0.5):
            amnesia.wipe(self._world)
            self._restart_controllers()
            return
        backup = self._world.oracle.state
        if backup is not None:
            self._later(20, self._random.choice((1_000, 5_000)), "restore", lambda: self._restore(backup))

    def _restore(self, backup: FleetState) -> None:
        amnesia.restore(self._world, backup)
        self._restart_controllers()

    def _restart_controllers(self) -> None:
        for controller in self._world.controllers.values():
            self._restart_later(controller)

    def _pause_controller(self) -> None:
        leader = self._world.leader()
        if leader is not None and self._kernel.chance(0.6):
            self._pause(self._world.controllers[leader.name])
        else:
            self._pause(self._any_controller())

    def _wall_clock(self) -> None:
        """S41."""
        host = self._any_controller().host
        host.wall_offset_us += self._random.choice((-60, 60, 3_600)) * SECOND
        self._kernel.counts.add(CLOCKS_SET)

    # --- disks ---

    def _disk_full(self) -> None:
        broker = self._any_broker()
        broker.files.is_full = True
        self._kernel.counts.add("disks full")

        def room() -> None:
            broker.files.is_full = False

        self._later(50, 1_500, "room", room)

    def _controller_disk_full(self) -> None:
        """Its journal takes no entry: it stops itself, and its supervisor tries until there is room."""
        controller = self._any_controller()
        controller.disk.is_full = True
        self._kernel.counts.add("controller disks full")

        def room() -> None:
            controller.disk.is_full = False

        self._later(50, 1_500, "room", room)

    def _slow_disk(self) -> None:
        """Each write and sync takes up to 1.5 s."""
        broker = self._any_broker()
        broker.files.is_slow = True
        self._kernel.counts.add("slow disks")

        def fast() -> None:
            broker.files.is_slow = False

        self._later(100, 3_000, "fast", fast)

    def _failing_sync(self) -> None:
        """EIO, once: the kernel forgets pages, and the next sync says yes."""
        self._any_broker().files.failing_syncs = 1

    def _die_in_a_call(self) -> None:
        """In front of one of its next calls that change a file, whatever that is."""
        broker = self._any_broker()
        if broker.process.is_alive:
            broker.files.dies_in_calls = self._random.randrange(1, 80)
            broker.files.dies_with_power = self._kernel.chance(0.5)

    def _rot(self) -> None:
        """
        One bit of a small file, found when the process starts the next time.
        """
        broker = self._any_broker()
        paths = [path for path in broker.files.paths() if "/" not in path and not path.endswith(".tmp")]
        if not paths or not self._world.is_spare(broker):
            return
        self._world.kill(broker)
        path = self._random.choice(paths)
        if size := (broker.files.folder / path).stat().st_size:
            broker.files.rot(path, self._random.randrange(size))
            broker.is_damaged = broker.disk.was_harmed = True
            self._kernel.counts.add("files rotted")
            self._kernel.note(f"{broker.name} rots in {path}")
        self._restart_later(broker)

    def _rot_segment(self) -> None:
        """One bit of a record that was synced, while its replica stands still and two others hold the record."""
        broker = self._any_broker()
        if broker.disk.rotten or not self._world.is_spare(broker):
            return
        self._world.kill(broker)
        records = broker.disk.records()
        # Often among the newest ones, which a start checks as a tail that may be torn. Not the last one: half of it may
        # be all that its process has written.
        some = records[-self._random.choice((10, len(records))) : -1] if records else ()
        record = self._random.choice(some) if some else None
        if record is not None and broker.files.is_durable(*broker.disk.place_of(record)):
            path, offset = broker.disk.place_of(record)
            broker.files.rot(path, offset)
            broker.disk.rotten.append(record)
            broker.disk.was_harmed = True
            self._kernel.counts.add("segments rotted")
            self._kernel.note(f"{broker.name} rots in {path} at {offset}")
            self._later(1_000, 4_000, "wipe", self._world.operator.replace_rotten)
        self._restart_later(broker)

    def _replace(self) -> None:
        """Another machine under the same name: an empty disk, a new id."""
        broker = self._any_broker()
        if self._world.is_spare(broker):
            self._world.replace(broker)

    def _roll_back(self) -> None:
        """
        An image of a while ago is put back: nothing in its log proves that it is old.

        While the power is off, or on the same boot. If it was taken of the process that is registered, only the births of
        its files give it away; a volume's are the old ones, and only what the set is known to have confirmed does.
        """
        broker = self._any_broker()
        if broker.is_damaged or broker.disk.rotten:
            # Its image would bring the damage back to a disk that was replaced since.
            return
        image = self._images.get(broker.name)
        self._images[broker.name] = broker.files.image()
        if image is not None:
            self._put_back_image(broker, image)

    def _copy_again(self) -> None:
        self._later(*HOT_COPY_MS, "hot copy", self._copy_hot)

    def _copy_hot(self) -> None:
        """A copy is taken of a broker that runs, and put back a moment later, if its set can do without that one."""
        if self._kernel.now_us >= self._until_us:
            return
        self._copy_again()
        broker = self._any_broker()
        if broker.process.is_alive and not broker.is_damaged and not broker.disk.rotten:
            image = broker.files.image()
            self._later(100, 1_500, "put back", lambda: self._put_back_hot(broker, image))

    def _put_back_hot(self, broker: BrokerMachine, image: Image) -> None:
        if not broker.is_damaged and not broker.disk.rotten and self._world.is_spare(broker):
            self._put_back_image(broker, image)

    def _put_back_image(self, broker: BrokerMachine, image: Image) -> None:
        # With the disk of a machine that was thrown away, or of before it asked for its id, it would be another replica,
        # whose id of now is nobody's for ever: ``_replace`` draws that, and tells the operator.
        if _register_code(image) != _register_code(broker.files.image()):
            return
        if self._kernel.chance(0.7):
            if self._is_of_the_registered_life(broker, image):
                self._kernel.counts.add("copies of running brokers put back on the same boot")
            self._world.kill(broker)
            self._kernel.counts.add("disks rolled back on the same boot")
        else:
            self._world.lose_power(broker)
        broker.rolled_back(image)
        self._kernel.counts.add("disks rolled back")
        state = self._world.set_state(broker.plan.set_key)
        if state is not None and broker.disk.end_on_disk() < state.known_confirm and self._kernel.chance(0.5):
            broker.rolled_back_as_volume()
            self._kernel.counts.add("volumes rolled back")
        self._kernel.note(f"{broker.name} rolled back")
        self._restart_later(broker)

    def _is_of_the_registered_life(self, broker: BrokerMachine, image: Image) -> bool:
        files, state = dict(image.files), self._world.set_state(broker.plan.set_key)
        # The id in the image, not the one of now: a machine that was replaced since has another.
        identity = re.search(rb'"brokerId":(\d+)', files.get("identity.json", b""))
        replica = state.replica(BrokerId(int(identity[1]))) if state is not None and identity is not None else None
        if replica is None or replica.incarnation is None:
            return False
        return replica.incarnation.encode() in files.get("lives.json", b"")

    # --- operators and stragglers ---

    def _switchover(self) -> None:
        key = self._random.choice(self._world.keys)
        state = self._world.set_state(key)
        if state is not None and state.sync_state_set:
            designated = self._random.choice((None, *state.sync_state_set))
            self._kernel.counts.add("switchovers asked for")
            self._world.elect(key, designated)

    def _pause_elections(self) -> None:
        key = self._random.choice((None, *self._world.keys))
        self._kernel.counts.add("pauses of elections asked for")
        self._world.operator.pause(key, for_ms=self._random.choice((300, 1_500, 4_000)))

    def _change_settings(self) -> None:
        """Of the values that the file has, up or down: some of them fit no others, and are refused."""
        name = self._random.choice(("heartbeat_interval_ms", "heartbeat_timeout_ms", *SETTINGS_CHANGED))
        factor_percent = self._random.choice((40, 70, 100, 150, 200))
        self._kernel.counts.add("changes of settings asked for")
        value = int(getattr(self._world.timing, name)) * factor_percent // 100
        self._world.operator.change_settings(**{name: value})

    def _transfer_lead(self) -> None:
        """To the follower that the product would choose or, now and then, to one that hangs and falls behind."""
        leader = self._world.leader()
        if leader is None:
            return
        followers = leader.log.followers()
        target = successor_now(leader.service, None)
        hangs = bool(followers) and self._kernel.chance(0.6)
        if hangs:
            target = self._random.choice(followers).name
            self._pause(self._world.controllers[target])
        elif isinstance(target, Refused):
            target = leader.service.settings.name
        name = target

        def hand_over() -> None:
            self._kernel.counts.add("transfers of the lead asked for")
            leader.process.run("transfer", lambda: leader.log.hand_over(name, lambda _how: None))

        # At once, it would have every entry that there is.
        self._later(*((100, 300) if hangs else (1, 2)), "transfer", hand_over)

    def _maintain(self) -> None:
        key = self._random.choice(list(self._world.keys))
        self._kernel.counts.add("maintenances asked for")
        number, for_ms = self._random.randrange(1, 4), self._random.choice((300, 1_500, 4_000))
        self._world.operator.maintain(key, BrokerId(number), for_ms=for_ms)

    def _late_duplicate(self) -> None:
        """An entry that was proposed before is proposed again, now or much later (R1, R14)."""
        payloads = self._world.payloads
        if payloads:
            payload = self._random.choice(payloads[-40:])
            self._kernel.counts.add("late duplicates")
            # The entry of a fleet that was wiped since reaches nobody.
            self._later(
                1,
                self._random.choice((5, 500, 3_000)),
                "duplicate",
                lambda: self._world.propose_again(payload) if payload in self._world.payloads else None,
            )


def _register_code(image: Image) -> bytes:
    found = re.search(rb'"registerCode":"(\w+)"', dict(image.files).get("identity.json", b""))
    return found[1] if found is not None else b""
