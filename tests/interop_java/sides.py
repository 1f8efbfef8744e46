"""
The two sides that Java brokers are put before: RocketMQ's own controllers and name server, or Rollcall's.

Here: ``Side``, start, kill and restart of controllers, who leads. Not here: brokers and clients, which are the same
processes on both sides (``tests.interop_java.fleet``).
Rule: whatever is asked of a side is asked over RocketMQ's protocol, so that both are seen through the same eyes.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from tests.interop_java import asking
from tests.interop_java.artifacts import RocketMq
from tests.interop_java.fleet import CLUSTER, LIGHT_JVM, JavaFleet

CONTROLLERS = 3
LEADER_DEADLINE_S = 60.0
START_DEADLINE_S = 90.0


class Side(abc.ABC):
    """Controllers and name service of one kind."""

    name: str
    controllers: str
    """``host:port;host:port;host:port``, as brokers and mqadmin take it."""
    namesrv: str

    @abc.abstractmethod
    def up(self) -> None:
        """Start them; returns when one leads and names are served."""

    @abc.abstractmethod
    def names(self) -> dict[str, str]:
        """Process name -> controller address."""

    @abc.abstractmethod
    def kill(self, name: str) -> None:
        """SIGKILL for a controller."""

    @abc.abstractmethod
    def pid(self, name: str) -> int:
        """Of a controller that runs."""

    @abc.abstractmethod
    def restart(self, name: str) -> None:
        """Start again one that is down; returns when it answers."""

    @abc.abstractmethod
    def restart_all(self) -> None:
        """Stop everything of this side cleanly, name service too, and start it again; returns when one leads."""

    def leader(self) -> str:
        """Process name of the controller that leads, waiting for one."""
        address = asking.wait_leader(self.controllers, deadline_s=LEADER_DEADLINE_S)
        return next(name for name, own in self.names().items() if own == address)


class JavaSide(Side):
    """RocketMQ's own, in the processes of a ``JavaFleet``."""

    name = "rocketmq"

    def __init__(self, java: JavaFleet, prefix: str = "jc") -> None:
        """Nothing is started yet; ``prefix``: of the controllers' names."""
        self._java = java
        self._prefix = prefix

    def up(self, namesrv: str = "") -> None:
        """Three DLedger controllers, and a name server unless there is one already."""
        self.namesrv = namesrv or self._java.start_namesrv()
        self.controllers = self._java.start_controllers(CONTROLLERS, prefix=self._prefix)
        self._java.wait_listening(*self.names())
        if not namesrv:
            self._java.wait_listening("namesrv")
        self.leader()

    def names(self) -> dict[str, str]:
        """``jc0``, ``jc1``, ``jc2``."""
        return {f"{self._prefix}{number}": address for number, address in enumerate(self.controllers.split(";"))}

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._java.kill(name)

    def pid(self, name: str) -> int:
        """Raises ``AssertionError`` if it does not run."""
        pid = self._java.processes.pid(name)
        assert pid is not None, f"{name} runs"
        return pid

    def restart(self, name: str) -> None:
        """As it was."""
        self._java.restart(name)
        self._java.wait_listening(name)

    def restart_all(self) -> None:
        """Name server too."""
        everyone = ("namesrv", *self.names())
        self._java.terminate(*everyone)
        for name in everyone:
            self.restart(name)
        self.leader()


class RollcallSide(Side):
    """Three controllers of ours that serve names too."""

    name = "rollcall"

    def __init__(self, directory: Path, *, is_signed: bool = False, sets: Mapping[str, int] | None = None) -> None:
        """
        Nothing is started yet.

        ``is_signed``: whoever comes has to sign, and to speak TLS. ``sets``: our own brokers, with plain ports.
        """
        self._directory = directory
        self._is_signed = is_signed
        self._sets = dict(sets or {})

    def up(self) -> None:
        """Found a fleet and start it, its own brokers too if it has any."""
        self.found()
        self.start()

    def found(self) -> Fleet:
        """Found it."""
        layout = Layout(
            name=CLUSTER, controllers=CONTROLLERS, sets=self._sets, name_service=True, rocketmq=("127.0.0.1",)
        )
        if self._is_signed:
            layout = replace(layout, rocketmq=(), rocketmq_keys=True, rocketmq_tls="enforcing")
        if self._sets:
            layout = replace(layout, rocketmq=(), is_insecure=True)
        self.fleet = Fleet.create(self._directory, layout)
        self.controllers = ";".join(section.broker for section in self.fleet.file.controllers.values())
        self.namesrv = self.controllers
        return self.fleet

    def start(self) -> None:
        """Start it."""
        self.fleet.up(deadline_s=START_DEADLINE_S)
        self.leader()

    def down(self) -> None:
        """Stop what was founded, if it was."""
        if hasattr(self, "fleet"):
            self.fleet.down()

    def names(self) -> dict[str, str]:
        """``c1``, ``c2``, ``c3``."""
        return {name: section.broker for name, section in self.fleet.file.controllers.items()}

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.fleet.kill(name)

    def pid(self, name: str) -> int:
        """Raises ``AssertionError`` if it does not run."""
        pid = self.fleet.pid(name)
        assert pid is not None, f"{name} runs"
        return pid

    def restart(self, name: str) -> None:
        """As it was."""
        self.fleet.restart(name)
        self.fleet.wait_live([name], deadline_s=START_DEADLINE_S)

    def restart_all(self) -> None:
        """All at once: there is no moment in which one is left."""
        for name in self.fleet.controllers:
            self.fleet.terminate(name)
        for name in self.fleet.controllers:
            self.fleet.restart(name)
        self.fleet.wait_live(self.fleet.controllers, deadline_s=START_DEADLINE_S)
        self.leader()


@contextlib.contextmanager
def rollcall_side(directory: Path) -> Iterator[RollcallSide]:
    """Started; stopped afterwards."""
    side = RollcallSide(directory)
    try:
        side.up()
        yield side
    finally:
        side.down()


@contextlib.contextmanager
def sides(
    directory: Path,
    rocketmq: RocketMq,
    which: str,
    *,
    brokers: RocketMq | None = None,
    jvm: tuple[str, ...] = LIGHT_JVM,
) -> Iterator[tuple[Side, JavaFleet]]:
    """A side that is up, and the launcher of what is put before it; all of it is stopped afterwards."""
    with JavaFleet(directory / "java", rocketmq, brokers=brokers, jvm=jvm) as java:
        if which == JavaSide.name:
            side: Side = JavaSide(java)
            side.up()
            yield side, java
        else:
            with rollcall_side(directory / "rollcall") as ours:
                yield ours, java
