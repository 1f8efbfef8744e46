"""
The two sets of three brokers behind three controllers of ours that the same clients are put before: ours, or RocketMQ's.

Here: who is master, faults, what their controllers and their logs say. Not here: clients and order of faults (``clients``).

Rule 1: whatever is done or asked is done and asked at both, so that what differs is the brokers'.
Rule 2: RocketMQ's are configured as it takes to serve the clients and to keep what is acknowledged: SQL92, all acks
(``fleet.BROKER_SETTINGS``). Our controllers find a hanging one as soon as one of ours.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.interop_java import asking
from tests.interop_java.admin import BROKERS
from tests.interop_java.artifacts import RocketMq
from tests.interop_java.fleet import SET, JavaFleet
from tests.interop_java.groups import Log
from tests.interop_java.sides import RollcallSide, rollcall_side

MADE_DEADLINE_S = 120.0
HANGS_MS = 3_000
"""The silence of a broker of ours, by the preset ``normal``, behind which it is dead."""


class Brokers(abc.ABC):
    """A set, up, and its controllers."""

    label: str
    is_ours: bool
    names: str
    """``host:port;host:port``, where clients ask for routes."""
    replicas: tuple[str, ...]
    fleet: Fleet
    """The controllers, and brokers of ours."""
    healed_deadline_s: float
    resumed_deadline_s: float

    @abc.abstractmethod
    def master(self) -> str:
        """Name of the one that the controllers call master, waiting for one. Raises ``DeadlineError``."""

    @abc.abstractmethod
    def address(self, name: str) -> str:
        """host:port at which a broker serves clients."""

    @abc.abstractmethod
    def epoch(self) -> int:
        """The set's masterEpoch, waiting for a leader. Raises ``DeadlineError``."""

    @abc.abstractmethod
    def kill(self, name: str) -> None:
        """SIGKILL for a broker or controller."""

    @abc.abstractmethod
    def hang(self, name: str, *, is_hanging: bool) -> None:
        """SIGSTOP or SIGCONT for a broker."""

    @abc.abstractmethod
    def start_dead(self) -> None:
        """Start whoever does not run."""

    @abc.abstractmethod
    def wait_whole(self) -> None:
        """Return when a controller leads and all replicas are in sync. Raises ``DeadlineError``."""

    @abc.abstractmethod
    def wait_made(self, topics: Sequence[str], queues: int) -> None:
        """Return when each replica, and whoever is asked for routes, knows new topics. Raises ``DeadlineError``."""

    @abc.abstractmethod
    def read_log(self, log: Log) -> bool:
        """Read on in the master's log; whether to its end."""

    def wait_elected(self, epoch: int) -> None:
        """Return when there is a master in a later epoch. Raises ``DeadlineError``."""
        wait_until(
            lambda: self.epoch() > epoch, deadline_s=self.healed_deadline_s, what=f"a master behind epoch {epoch}"
        )
        self.master()


class OurBrokers(Brokers):
    """Rollcall's: they tell routes themselves."""

    label, is_ours = "Rollcall's brokers", True
    healed_deadline_s, resumed_deadline_s = 120.0, 120.0

    def __init__(self, fleet: Fleet) -> None:
        """``fleet`` has started, and its set serves."""
        self.fleet, self.replicas = fleet, fleet.brokers
        self.names = ";".join(map(self.address, fleet.brokers))
        self._key = fleet.set_key(SET)

    def master(self) -> str:
        self._seen(lambda status: status.view.master is not None, "to have a master")
        return self.fleet.master(self._key)

    def _seen(self, condition: Callable[[SetStatus], bool], what: str) -> SetStatus:
        return self.fleet.wait_set(self._key, condition, what=what, deadline_s=self.healed_deadline_s)

    def address(self, name: str) -> str:
        return self.fleet.file.broker(name).listen

    def epoch(self) -> int:
        return self._seen(lambda _: True, "to be known").view.master_epoch

    def kill(self, name: str) -> None:
        self.fleet.kill(name)

    def hang(self, name: str, *, is_hanging: bool) -> None:
        (self.fleet.stop if is_hanging else self.fleet.cont)(name)

    def start_dead(self) -> None:
        for name in (*self.fleet.controllers, *self.fleet.brokers):
            if self.fleet.pid(name) is None:
                self.fleet.restart(name)

    def wait_whole(self) -> None:
        self.fleet.leader(deadline_s=self.healed_deadline_s)
        self.fleet.wait_redundant(self._key, deadline_s=self.healed_deadline_s)

    def wait_made(self, topics: Sequence[str], queues: int) -> None:
        """At once: they are in the log."""

    def read_log(self, log: Log) -> bool:
        return log.read(self.fleet.data(self.master()))


class JavaBrokers(Brokers):
    """RocketMQ's: our controllers tell their routes."""

    is_ours = False
    healed_deadline_s, resumed_deadline_s = 300.0, 240.0
    """A broker of Java's takes up to a minute to start on a busy machine."""

    def __init__(self, side: RollcallSide, java: JavaFleet) -> None:
        """The controllers are up; no broker is started yet."""
        self.label = f"RocketMQ {java.rocketmq.version}'s brokers"
        self.fleet, self.names, self.replicas = side.fleet, side.namesrv, BROKERS
        self._side, self._java = side, java

    def up(self) -> None:
        """Start three. Raises ``LauncherError``."""
        done = self.fleet.run_command("config", "apply", f"rocketmq_heartbeat_timeout_ms={HANGS_MS}")
        if done.returncode != 0:
            raise LauncherError(f"config apply: {done.stderr or done.stdout}")
        for name in self.replicas:
            settings = {"enablePropertyFilter": "true"}
            self._java.start_broker(
                name, controllers=self._side.controllers, namesrv=self._side.namesrv, settings=settings
            )
            self._java.wait_serving(name)
        self.wait_whole()
        self._java.wait_route(self.names, members=len(self.replicas))

    def _seen(self, members: int) -> asking.SetSeen:
        return self._java.wait_in_sync(self._side.controllers, members, deadline_s=self.healed_deadline_s)

    def master(self) -> str:
        return self._java.name_of(self._seen(1).master_address or "")

    def address(self, name: str) -> str:
        return self._java.address(name)

    def epoch(self) -> int:
        return self._seen(0).master_epoch

    def kill(self, name: str) -> None:
        (self._java if name in self.replicas else self.fleet).kill(name)

    def hang(self, name: str, *, is_hanging: bool) -> None:
        (self._java.stop if is_hanging else self._java.cont)(name)

    def start_dead(self) -> None:
        for name in self.fleet.controllers:
            if self.fleet.pid(name) is None:
                self.fleet.restart(name)
        for name in self.replicas:
            if self._java.processes.pid(name) is None:
                self._java.restart(name)

    def wait_whole(self) -> None:
        self.fleet.wait_live(self.fleet.controllers, deadline_s=self.healed_deadline_s)
        self._seen(len(self.replicas))

    def wait_made(self, topics: Sequence[str], queues: int) -> None:
        """
        Slaves copy topics every 10 s. One that is elected before makes them anew, with four queues: then half of the queues
        are read by nobody, and the order of sharding keys is gone, which is not what is looked at here.
        """
        places = [(name, topic) for name in self.replicas for topic in topics]

        def is_made() -> bool:
            told = [
                asking.ask(self.address(name), ClientCode.GET_TOPIC_CONFIG, {"topic": topic}) for name, topic in places
            ]
            counts = [0 if one is None or one.code else asking.loads(one.body).get("writeQueueNums") for one in told]
            is_routed = all(asking.has_route(name, topic) for name in self.names.split(";") for topic in topics)
            return is_routed and set(counts) == {queues}

        wait_until(is_made, deadline_s=MADE_DEADLINE_S, what=f"{', '.join(topics)} to be known everywhere")

    def read_log(self, log: Log) -> bool:
        """All of it, as its master tells its end: RocketMQ writes down seldom what is confirmed."""
        master = self.master()
        return log.read(self._java.data(master) / "store", asking.log_end_of(self.address(master)))


@contextmanager
def our_brokers(directory: Path, rocketmq: RocketMq) -> Iterator[tuple[Brokers, JavaFleet]]:
    """Three controllers and three brokers of ours with plain ports, up, and the launcher of RocketMQ's clients."""
    with (
        Fleet.create(directory / "rollcall", Layout(name="ours", is_insecure=True)) as fleet,
        JavaFleet(directory / "java", rocketmq) as java,
    ):
        fleet.up()
        yield OurBrokers(fleet), java


@contextmanager
def java_brokers(directory: Path, rocketmq: RocketMq) -> Iterator[tuple[Brokers, JavaFleet]]:
    """The same of RocketMQ's brokers behind controllers of ours."""
    with JavaFleet(directory / "java", rocketmq) as java, rollcall_side(directory / "rollcall") as side:
        brokers = JavaBrokers(side, java)
        brokers.up()
        yield brokers, java
