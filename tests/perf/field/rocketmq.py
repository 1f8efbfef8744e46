"""RocketMQ: a name server, three controllers of its own, one set of three brokers; the processes of the other comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError
from tests.interop_java import artifacts, asking
from tests.interop_java.admin import BROKERS
from tests.interop_java.fleet import SET, JavaFleet
from tests.perf.field import programs, remoting
from tests.perf.field.system import MEMBERS, READY_S_MAX, Client, Column, Kind, Master, UnavailableError

TUNED_BROKERS: Mapping[str, str] = {
    "brokerHeartbeatInterval": "200",
    "controllerHeartBeatTimeoutMills": "1000",
    "brokerNotActiveTimeoutMillis": "1000",
    "syncBrokerMetadataPeriod": "500",
    "syncControllerMetadataPeriod": "1000",
}
TUNED_CONTROLLERS: Mapping[str, str] = {"scanNotActiveBrokerInterval": "500", "scanInactiveMasterInterval": "500"}
LOOK_S = 12.0


def obtain() -> str:
    """Its version. Raises ``UnavailableError``."""
    try:
        return artifacts.obtain().version
    except artifacts.JavaUnavailableError as error:
        raise UnavailableError(str(error)) from error


class RocketMq:
    """Three brokers, three controllers and a name server of RocketMQ, as a ``System``."""

    def __init__(self, directory: Path, column: Column) -> None:
        """Nothing is started yet."""
        self._java = JavaFleet(directory, artifacts.obtain())
        self._is_tuned = column is Column.TUNED
        self._controllers = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._java.address(name) for name in BROKERS)

    def start(self) -> None:
        namesrv = self._java.start_namesrv()
        self._controllers = self._java.start_controllers(MEMBERS, TUNED_CONTROLLERS if self._is_tuned else {})
        asking.wait_leader(self._controllers, deadline_s=READY_S_MAX)
        settings = TUNED_BROKERS if self._is_tuned else {}
        for name in BROKERS:
            self._java.start_broker(name, controllers=self._controllers, namesrv=namesrv, settings=settings)
        self._java.wait_in_sync(self._controllers, MEMBERS, deadline_s=READY_S_MAX)

    def client(self) -> Client:
        return remoting.Writing(None)

    def master(self) -> Master:
        seen = asking.set_of(self._controllers, SET)
        if seen is None or not seen.master_address:
            raise LauncherError(f"the controllers {self._controllers} know no master: {seen}")
        name = self._java.name_of(seen.master_address)
        return Master(address=seen.master_address, pids=(programs.pid_of(self._java.processes, name),))

    def decider(self) -> tuple[int, ...]:
        leader = asking.wait_leader(self._controllers, deadline_s=READY_S_MAX)
        return (programs.pid_of(self._java.processes, self._java.name_of(leader)),)

    def stop(self) -> None:
        programs.end(self._java.processes)


def _said(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


KIND = Kind(
    name="rocketmq",
    title="RocketMQ",
    acknowledged="every replica in the SyncStateSet has it (allAckInSyncStateSet)",
    decider="the leader of three controllers, processes of their own",
    settings={
        Column.DEFAULT: "controllerHeartBeatTimeoutMills 10000, scanNotActiveBrokerInterval 5000",
        Column.TUNED: _said({**TUNED_BROKERS, **TUNED_CONTROLLERS}),
    },
    obtain=obtain,
    make=RocketMq,
    look_s=LOOK_S,
)
