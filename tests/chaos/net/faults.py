"""
The faults of `make prove PARTS=chaos-net`: what happens to which machines, and how it ends.

Here: one context for each scenario; the fault is there inside the block, and has ended behind it. Not here: load,
verdicts, rounds (``__main__``).

Kill, hang, loss and partition, of a broker, a controller and both, ring and bridge partitions: the scenarios that
RocketMQ's authors published for their controllers. Behind them those of ours.

Rule 1: victims are drawn by the round's own generator; every other broker that is drawn is the master.
Rule 2: nothing is told to the fleet. The client's link to the master is never touched: what it feels is the fleet's. With
the master's plug out, a client waited 3.5 s for TCP to send again, while the master stood idle and was without a fault.
Rule 3: on the field's scale one, more than half or all of the brokers, controllers or both are victims together, for a
minute, with 80 % loss.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, CleanReplicas
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.orders import RaiseLevel
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.deploy.local.machines import Machines
from rollcall_ha.deploy.local.partitions import Cuts, bridge, one_way, ring, two_way
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from rollcall_ha.deploy.local.wire import Quality
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName
from rollcall_ha.node.config import split_address
from rollcall_ha.node.credentials import broker_name, controller_name
from tests.chaos.net.alarms import Happened, victims_of
from tests.chaos.net.verdict import can_serve
from tests.support.knobs import built, fill, preloaded, set_knob
from tests.support.two_versions import NEWER_LEVEL, TwoVersions

LOSS = Quality(loss_share=0.4)
SLOW = Quality(delay_ms=40, jitter_ms=20, overtake_share=0.05)
NARROW = Quality(bandwidth_bytes_per_s=256 * 1024)
SLOW_SYNC_MS = 400
FLAP_DOWN_S, FLAP_UP_S = 0.4, 0.8
CLOCK_JUMP_S = 3_600
SHORT_DAYS = 4 / 86_400
"""Four seconds: a certificate that expires while its owner works."""
MIN_IN_SYNC = 2
HEAL_S = 60.0
KEPT_S = 4.0
"""Longer than a hung master reigns on, 3.7 s (docs/timing.md)."""
FIELD_LOSS = Quality(loss_share=0.8)
FIELD_KEPT_S = 60.0
"""RocketMQ's authors publish faults of a minute, 80 % loss, and a number of victims that is drawn."""


PAUSE_MS = 5.0
"""The stopwatch is as fine as that, and a round's messages can be audited in seconds."""


class NotHere(Exception):
    """This machine cannot do that fault; the message says what is missing."""


def some(draw: random.Random, names: Sequence[str]) -> list[str]:
    """Victims of the field's scale: one, more than half, or all, in an order that is drawn (rule 3)."""
    return draw.sample(list(names), draw.choice((1, len(names) // 2 + 1, len(names))))


@dataclass(slots=True, kw_only=True)
class Stage:
    """A fleet on machines, and the draws of one round."""

    fleet: TwoVersions
    machines: Machines
    key: SetKey
    draw: random.Random
    tools: Path
    """Folder of the libraries and files that move clocks and slow disks."""
    kept_s: Callable[[str], float] = lambda _: KEPT_S
    """How long a fault lasts at least, by its name."""
    is_of_the_field: bool = False
    """Victims, losses and lengths as RocketMQ's authors have them: rule 3."""
    pause_ms: float = PAUSE_MS
    """Each of two senders waits so long behind an answer."""
    hit: list[str] = field(default_factory=list)
    """Whom this fault was about."""
    log: list[Happened] = field(default_factory=list)
    """Each fault so far, oldest first."""

    def nodes(self) -> tuple[str, ...]:
        return (*self.fleet.controllers, *self.fleet.brokers)

    def sites(self) -> list[str]:
        """Machines of controllers, then of brokers."""
        return [self.fleet.machine(name) for name in self.nodes()]

    def brokers(self) -> tuple[str, ...]:
        return self._drawn(self.fleet.brokers, self.fleet.master(self.key), "master", is_one=not self.is_of_the_field)

    def controllers(self) -> tuple[str, ...]:
        return self._drawn(self.fleet.controllers, self.fleet.leader(), "leader", is_one=not self.is_of_the_field)

    def both(self) -> tuple[str, ...]:
        return (*self.brokers(), *self.controllers())

    def broker(self) -> str:
        return self._drawn(self.fleet.brokers, self.fleet.master(self.key), "master", is_one=True)[0]

    def controller(self) -> str:
        return self._drawn(self.fleet.controllers, self.fleet.leader(), "leader", is_one=True)[0]

    def _drawn(self, names: Sequence[str], first: str, role: str, *, is_one: bool) -> tuple[str, ...]:
        """Some of ``names``, or one: in half of all cases ``first`` (rule 1)."""
        if not is_one:
            drawn = some(self.draw, names)
        else:
            drawn = [first if self.draw.random() < 0.5 else self.draw.choice(names)]
        self.hit.extend(f"{name} ({role})" if name == first else name for name in drawn)
        return tuple(drawn)


Victims = Callable[[Stage], tuple[str, ...]]
Fault = Callable[[Stage], AbstractContextManager[None]]

VICTIMS: dict[str, Victims] = {
    "broker": Stage.brokers,
    "controller": Stage.controllers,
    "both": Stage.both,
}


def could_serve(stage: Stage, scenario: str) -> bool:
    """By whom a fault of the field's scale has hit; victims of a partition are a side of their own."""
    hit = victims_of(", ".join(stage.hit), stage.nodes())
    sides = [set(stage.nodes()) - hit, *([set(hit)] if scenario.startswith("partition") else [])]
    counts = [
        tuple(len(side & set(names)) for names in (stage.fleet.brokers, stage.fleet.controllers)) for side in sides
    ]
    return can_serve(
        [(brokers, controllers) for brokers, controllers in counts],
        brokers=len(stage.fleet.brokers), controllers=len(stage.fleet.controllers), min_in_sync=MIN_IN_SYNC,
    )  # fmt: skip


def killed(victims: Victims) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        names = victims(stage)
        for name in names:
            stage.fleet.processes.signal(name, signal.SIGKILL)
        yield
        for name in names:
            stage.fleet.processes.wait_gone(name, deadline_s=5)
            restart(stage, name)

    return fault


def hung(victims: Victims) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        names = victims(stage)
        for name in names:
            stage.fleet.stop(name)
        try:
            yield
        finally:
            for name in names:
                stage.fleet.cont(name)

    return fault


def lossy(victims: Victims) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        with bad_wires(stage, victims(stage), FIELD_LOSS if stage.is_of_the_field else LOSS):
            yield

    return fault


@contextmanager
def bad_wires(stage: Stage, names: tuple[str, ...], quality: Quality) -> Iterator[None]:
    """Both ways, between the machines of ``names`` and every other one of the fleet."""
    for site in map(stage.fleet.machine, names):
        for other in stage.sites():
            if other != site:
                stage.machines.impair(site, other, quality, seed=stage.draw.getrandbits(32))
                stage.machines.impair(other, site, quality, seed=stage.draw.getrandbits(32))
    try:
        yield
    finally:
        stage.machines.heal()


def spoiled(quality: Quality) -> Fault:
    """The wires of a broker."""
    return lambda stage: bad_wires(stage, (stage.broker(),), quality)


def cut_off(victims: Victims) -> Fault:
    """The victims, together, from all others of the fleet."""

    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        names = [stage.fleet.machine(name) for name in victims(stage)]
        with cut(stage, two_way(names, [site for site in stage.sites() if site not in names])):
            yield

    return fault


@contextmanager
def cut(stage: Stage, cuts: Cuts) -> Iterator[None]:
    stage.machines.impose(cuts)
    try:
        yield
    finally:
        stage.machines.heal()


def one_sided(choose: Callable[[Stage], str], *, hears: bool) -> Fault:
    """One node that hears the others and is not heard, or the other way round."""

    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        name = choose(stage)
        stage.hit.append(name)
        site = stage.fleet.machine(name)
        others = [other for other in stage.sites() if other != site]
        with cut(stage, one_way([site], others) if hears else one_way(others, [site])):
            yield

    return fault


def leader_of(stage: Stage) -> str:
    return stage.fleet.leader()


def master_of(stage: Stage) -> str:
    return stage.fleet.master(stage.key)


@contextmanager
def controllers_from_brokers(stage: Stage) -> Iterator[None]:
    """Brokers go on without controllers: nothing may be felt."""
    stage.hit.append("all")
    count = len(stage.fleet.controllers)
    with cut(stage, two_way(stage.sites()[:count], stage.sites()[count:])):
        yield


@contextmanager
def in_a_ring(stage: Stage) -> Iterator[None]:
    """Each hears two neighbours, in an order that is drawn."""
    order = list(stage.nodes())
    stage.draw.shuffle(order)
    stage.hit.append("-".join(order))
    with cut(stage, ring([stage.fleet.machine(name) for name in order])):
        yield


@contextmanager
def over_a_bridge(stage: Stage) -> Iterator[None]:
    """Two halves, and one machine that hears both."""
    order = list(stage.nodes())
    stage.draw.shuffle(order)
    stage.hit.append(f"over {order[0]}")
    half = 1 + len(order) // 2
    there = [stage.fleet.machine(name) for name in order]
    with cut(stage, bridge(there[1:half], there[0], there[half:])):
        yield


@contextmanager
def flapping_plug(stage: Stage) -> Iterator[None]:
    """Out and in, of a node that the client sends nothing to: of the master it would be the client's link too (rule 2)."""
    master = stage.fleet.master(stage.key)
    name = stage.draw.choice([name for name in stage.nodes() if name != master])
    stage.hit.append(f"{name}{' (controller)' if name in stage.fleet.controllers else ''}")
    with stage.machines.flapping(stage.fleet.machine(name), down_s=FLAP_DOWN_S, up_s=FLAP_UP_S):
        yield
    stage.machines.heal()


@contextmanager
def flapping_wires(stage: Stage) -> Iterator[None]:
    """Of a broker, to all others of the fleet."""
    site = stage.fleet.machine(stage.broker())
    others = [other for other in stage.sites() if other != site]
    with stage.machines.flapping(site, down_s=FLAP_DOWN_S, up_s=FLAP_UP_S, others=others):
        yield
    stage.machines.heal()


# --- disks and clocks ------------------------------------------------------------------------------------------------


@contextmanager
def disk_full(stage: Stage) -> Iterator[None]:
    """Of the master."""
    name = stage.fleet.master(stage.key)
    disk = stage.machines.disk(stage.fleet.machine(name))
    if not os.path.ismount(disk):
        raise NotHere("a disk of its own for each broker needs a mount namespace (unshare)")
    stage.hit.append(f"{name} (master)")
    filler = stage.fleet.data(name) / "filler"
    fill(filler)
    try:
        # It takes what its last segments have room for.
        stopped = Condition.WRITES_STOPPED
        what = "to have its writes stopped by a full disk"
        stage.fleet.wait_set(stage.key, lambda found: found.view.condition is stopped, what=what, deadline_s=HEAL_S)
        yield
    finally:
        filler.unlink(missing_ok=True)


@contextmanager
def slow_sync(stage: Stage) -> Iterator[None]:
    """Every sync of one broker takes 400 ms longer."""
    file = knob(stage, stage.broker(), "sync")
    set_knob(file, SLOW_SYNC_MS)
    try:
        yield
    finally:
        set_knob(file, 0)


@contextmanager
def wiped(stage: Stage) -> Iterator[None]:
    """A broker dies with everything that it had, and comes back as a new replica."""
    name = stage.broker()
    status = stage.fleet.wait_set(stage.key, lambda _: True, what="to be known")
    address = stage.fleet.file.broker(name).listen
    old = [one.broker_id for one in status.replicas if one.address == address]
    stage.fleet.processes.signal(name, signal.SIGKILL)
    stage.fleet.processes.wait_gone(name, deadline_s=5)
    shutil.rmtree(stage.fleet.data(name))
    yield
    restart(stage, name)
    # Its old id is dead for good: an operator forgets it.
    stage.fleet.wait_set(
        stage.key,
        lambda found: any(one.address == address and one.broker_id not in old for one in found.replicas),
        what=f"{name} to come back as another replica", deadline_s=HEAL_S,
    )  # fmt: skip
    stage.fleet.wait_set(
        stage.key, lambda found: not set(old) & set(found.view.sync_state_set), what="the old id to leave", deadline_s=HEAL_S
    )  # fmt: skip
    wait_until(lambda: _cleaned(stage, old), deadline_s=HEAL_S, what="the old id to be cleaned")


def _cleaned(stage: Stage, old: list[BrokerId]) -> bool:
    from rollcall_ha.client.errors import ClientError

    with suppress(ClientError):
        stage.fleet.client().order(CleanReplicas(set_key=stage.key, broker_ids=tuple(old), reason="its disk is gone"))
    status = stage.fleet.set_status(stage.key)
    return status is not None and not any(one.broker_id in old for one in status.replicas)


def clock_of(choose: Callable[[Stage], str], jump_s: int) -> Fault:
    """The wall clock of one node jumps, and comes back."""

    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        name = choose(stage)
        stage.hit.append(name)
        file = knob(stage, name, "clock")
        set_knob(file, jump_s)
        try:
            yield
        finally:
            set_knob(file, 0)

    return fault


def knob(stage: Stage, name: str, kind: str) -> Path:
    """Raises ``NotHere``: no compiler had made the libraries."""
    if not (stage.tools / "clock.so").exists():
        raise NotHere("moving clocks and slowing disks needs a C compiler")
    return stage.tools / f"{kind}-{name}"


def make_tools(tools: Path, names: tuple[str, ...]) -> None:
    """Libraries and files; nothing where there is no compiler."""
    tools.mkdir(parents=True, exist_ok=True)
    for name in names:
        for kind in ("sync", "clock"):
            set_knob(tools / f"{kind}-{name}", 0)
    here = Path(__file__).parent
    built(here.parents[1] / "truth" / "clock.c", tools / "clock.so")
    built(here / "disk.c", tools / "disk.so")


@contextmanager
def tooled(tools: Path, name: str) -> Iterator[None]:
    """What is started inside the block has a clock that can be moved and a disk that can be slow."""
    libraries = [tools / "clock.so", tools / "disk.so"]
    if not libraries[0].exists():
        yield
        return
    with preloaded(libraries, WALL_CLOCK_FILE=tools / f"clock-{name}", SLOW_SYNC_FILE=tools / f"sync-{name}"):
        yield


def restart(stage: Stage, name: str) -> None:
    """A node that is down."""
    with tooled(stage.tools, name):
        stage.fleet.restart(name)


# --- certificates ----------------------------------------------------------------------------------------------------


def _authority(stage: Stage) -> Authority:
    folder = stage.fleet.directory / "authority"
    return Authority.load(folder / "ca.pem", folder / "ca.key")


def _name(stage: Stage, name: str) -> CertifiedName:
    file = stage.fleet.file
    if name in file.controllers:
        return controller_name(file, name)
    return broker_name(file, name, file.broker(name))


def give(stage: Stage, name: str, *, days: float = 90) -> None:
    """A new certificate onto the disk of a node, which goes on running."""
    file = stage.fleet.file
    assert file.tls is not None
    folder = stage.machines.disk(stage.fleet.machine(name)) / file.tls.directory
    host, _ = split_address(file.controllers[name].rest if name in file.controllers else file.broker(name).health)
    issued = _authority(stage).issue(_name(stage, name), hosts=[host], days=days)
    issued.write(folder / f"{name}.pem", folder / f"{name}.key")


@contextmanager
def certificate_expires(stage: Stage) -> Iterator[None]:
    """Of a broker, while it works; then it is given another one."""
    name = stage.broker()
    give(stage, name, days=SHORT_DAYS)
    time.sleep(SHORT_DAYS * 86_400)  # until it has expired: a length of time is the fault
    try:
        yield
    finally:
        give(stage, name)


@contextmanager
def certificates_renewed(stage: Stage) -> Iterator[None]:
    """Of every node, under load."""
    stage.hit.append("all")
    for name in stage.nodes():
        give(stage, name)
    yield


@contextmanager
def rolling_restart(stage: Stage) -> Iterator[None]:
    """Every node in turn."""
    stage.hit.append("all")
    restart_in_turn(stage)
    yield


@contextmanager
def rolling_upgrade(stage: Stage) -> Iterator[None]:
    """
    From this program to the newer one, as docs/controllers.md has it; then the fleet's level is raised.

    Raises ``NotHere``: it was done. There is no way back, so it is the first fault of a round.
    """
    if stage.fleet.newer:
        raise NotHere("the fleet of this round was upgraded before")
    stage.hit.append(f"all, to level {NEWER_LEVEL}")
    stage.fleet.newer = frozenset((*stage.fleet.controllers, *stage.fleet.brokers))
    restart_in_turn(stage)
    levels = [fleet_level(stage)]
    stage.fleet.client().order(RaiseLevel(reason="all upgraded"))
    levels.append(fleet_level(stage))
    if levels != [FEATURE_LEVEL, NEWER_LEVEL]:
        raise LauncherError(f"the fleet's level went from {levels[0]} to {levels[1]}")
    yield


def fleet_level(stage: Stage) -> int:
    """In force, by the word of the leader."""
    reached = stage.fleet.client().survey()
    leader = next(one.status.controller for one in reached if one.status and one.status.controller.has_authority)
    return leader.fleet_level


def restart_in_turn(stage: Stage) -> None:
    """
    In the order of docs/controllers.md: controllers, the leading one last, then brokers, the master last.

    The next node when controllers and set are whole again. Out of order each next leader would be the next to go: for two
    seconds on end Prometheus found none.
    """
    last = {stage.fleet.leader(deadline_s=HEAL_S), stage.fleet.master(stage.key)}
    for names in (stage.fleet.controllers, stage.fleet.brokers):
        for name in sorted(names, key=last.__contains__):
            stage.fleet.terminate(name)
            restart(stage, name)
            stage.fleet.wait_live([name])
            wait_same_index(stage)
            stage.fleet.wait_redundant(stage.key, deadline_s=HEAL_S)


def wait_same_index(stage: Stage) -> None:
    """Return when one controller leads, and each answers and has applied the same entries. Raises ``DeadlineError``."""

    def is_same() -> bool:
        answers = [one.status.controller for one in stage.fleet.client().survey() if one.status is not None]
        indexes = {one.applied_index for one in answers}
        return (
            len(answers) == len(stage.fleet.controllers)
            and len(indexes) == 1
            and any(one.has_authority for one in answers)
        )

    wait_until(is_same, deadline_s=HEAL_S, what="the controllers to have applied the same entries")


def _faults() -> Iterator[tuple[str, Fault]]:
    for kind, make in (("kill", killed), ("hang", hung), ("loss", lossy), ("partition", cut_off)):
        for whom, victims in VICTIMS.items():
            yield f"{kind} {whom}", make(victims)
    yield "ring partition", in_a_ring
    yield "bridge partition", over_a_bridge
    yield "controllers from brokers", controllers_from_brokers
    for whom, choose in (("leader", leader_of), ("master", master_of)):
        yield f"{whom} is not heard", one_sided(choose, hears=True)
        yield f"{whom} hears nobody", one_sided(choose, hears=False)
    yield "slow wires", spoiled(SLOW)
    yield "narrow wires", spoiled(NARROW)
    yield "flapping plug", flapping_plug
    yield "flapping wires", flapping_wires
    yield "disk full", disk_full
    yield "slow sync", slow_sync
    yield DESTROYS, wiped
    for way, jump_s in (("forward", CLOCK_JUMP_S), ("back", -CLOCK_JUMP_S)):
        yield f"clock {way}, leader", clock_of(leader_of, jump_s)
        yield f"clock {way}, master", clock_of(master_of, jump_s)
    yield "certificate expires", certificate_expires
    yield "certificates renewed", certificates_renewed
    yield "rolling restart", rolling_restart
    yield UPGRADE, rolling_upgrade


FIELD = tuple(f"{kind} {whom}" for kind in ("kill", "hang", "loss", "partition") for whom in VICTIMS)
"""The twelve that have such a scale."""
UPGRADE = "rolling upgrade"
"""The first fault of its round."""
DESTROYS = "wiped broker"
"""A replica's files are gone behind it: what they show has to be read before."""
FAULTS: dict[str, Fault] = dict(_faults())
