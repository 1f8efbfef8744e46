"""
RocketMQ's controller, put together: its codes on a broker port, its brokers as replicas, its pushes.

Here: construction, and what has to be stopped. Not here: any of the parts.
"""

from __future__ import annotations

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.api.rocketmq.controller.admin import AdminCodes
from rollcall_ha.api.rocketmq.controller.alters import AlterCodes
from rollcall_ha.api.rocketmq.controller.handlers import ControllerCodes
from rollcall_ha.api.rocketmq.controller.leader_check import LeaderCheck
from rollcall_ha.api.rocketmq.controller.pushes import RocketmqPushes
from rollcall_ha.api.rocketmq.controller.replicas import RocketmqReplicas
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SetKey
from rollcall_ha.controller.runtime.service import ControllerService


class RocketmqController:
    """The RocketMQ side of one controller."""

    def __init__(self, port: BrokerPortServer, service: ControllerService, *, expected_replicas: int = 1) -> None:
        """Serves on ``port`` from its start on."""
        self._service = service
        self.replicas = RocketmqReplicas(service, expected_replicas=expected_replicas)
        self.pushes = RocketmqPushes(service, self.replicas)
        self._leader = LeaderCheck(service, port.credentials)
        ControllerCodes(service, self.replicas, self._leader).register(port.codes)
        AlterCodes(service, self.replicas).register(port.codes)
        AdminCodes(service, self.replicas).register(port.codes)
        self.replicas.tell = self._tell
        # A closed connection must end its incarnations: what comes on the next one may be a process with an emptied
        # disk.
        port.closed_listeners.append(self.replicas.closed)
        port.announcers.append(self.pushes.announce)

    def _tell(self, key: SetKey, broker_id: BrokerId, epoch: MasterEpoch) -> None:
        """A heartbeat shows an epoch older than ``epoch``: the broker is told of it, once."""
        # Once, though each heartbeat of the second asks: a broker that refuses 1008 would be dialled for ever, and this
        # runs on the loop that counts the heartbeats of all others.
        if self.pushes.needs_telling(key, broker_id, epoch):
            view = self._service.view_of(key)
            if view is not None:
                self.pushes.announce(view)

    async def stop(self) -> None:
        """End what runs; returns when nothing does any more."""
        await self.pushes.stop()
        await self._leader.stop()
