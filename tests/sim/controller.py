"""
One life of a controller in the simulation: the product's service, broker port and RocketMQ codes on a simulated loop.

Here: their settings, clocks and draws, and orders of an operator. Not here: any rule, any shell:
``controller.runtime.service``, ``api.broker_port`` and ``api.rocketmq.controller`` run as they are, on a
``ReplicatedLog`` of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.api.rocketmq.access.judging import AccessRules, RocketmqAccess
from rollcall_ha.api.rocketmq.controller.assembly import RocketmqController
from rollcall_ha.controller.contract.commands import OperatorCommand
from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation, Incarnation, RequestId, SetKey
from rollcall_ha.controller.contract.replies import AlterDecided, AnyReply, SetView
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.controller.replication.ports import AppliedEntry, ReplicatedLog
from rollcall_ha.controller.replication.proposer import ProposeError
from rollcall_ha.controller.runtime.metrics import ControllerMetrics
from rollcall_ha.controller.runtime.ports import NoAuthority, Ports, request_ids
from rollcall_ha.controller.runtime.seating import Seating
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.settings import ControllerAddresses, ServiceSettings
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame
from tests.sim.violation import Violation
from tests.support.sim_kernel import Process
from tests.support.sim_loop import SimLoop
from tests.support.sim_net import SimNet

NS_PER_US = 1_000


class _NoJournal:
    """The record of events: the oracle has it from the log itself."""

    synced_index = 0

    def append(self, entry: AppliedEntry[FleetState]) -> None:
        """Everything is synced."""
        self.synced_index = entry.index


class ControllerNode:
    """See the module. Made anew for each life of the process."""

    def __init__(
        self,
        *,
        name: ControllerName,
        process: Process,
        net: SimNet,
        log: ReplicatedLog[FleetState],
        timing: Timing,
        fleet_incarnation: FleetIncarnation,
        addresses: dict[ControllerName, str],
        rocketmq_replicas: int,
        on_applied: Callable[[ControllerNode, AppliedEntry[FleetState]], None],
        on_violation: Callable[[Violation], None],
        loses_alter_answer: Callable[[], bool],
        keeps_seats: bool,
    ) -> None:
        """Subscribes; ``start`` begins. ``keeps_seats``: the controllers of its fleet change."""
        self.name = name
        self.process = process
        self.log = log
        self._keeps_seats = keeps_seats
        kernel, host = process.kernel, process.host
        process.life = self
        self._own_address = addresses[name]
        self._on_violation = on_violation
        self.loop = SimLoop(process, net, address=net.address_of(host.name), on_fault=self._fault)
        log.subscribe(lambda entry: on_applied(self, entry))
        journal: Any = _NoJournal()
        self.service = ControllerService(
            settings=ServiceSettings(
                name=name,
                fleet_name="sim",
                fleet_incarnation=fleet_incarnation,
                timing_name="fast",
                timing=timing,
                controllers={
                    one: ControllerAddresses(raft=f"{one}:raft", broker=address, rest=f"{one}:rest")
                    for one, address in addresses.items()
                },
            ),
            log=log,
            journal=journal,
            metrics=ControllerMetrics(CollectorRegistry()),
            ports=Ports(
                monotonic_ns=lambda: host.monotonic_us() * NS_PER_US,
                wall_ms=host.wall_ms,
                draw_epoch_jump=lambda: kernel.random.randrange(16),
                new_request_id=request_ids(kernel.hex_digits(24)),
                draw_incarnation=lambda: Incarnation(kernel.hex_digits()),
            ),
        )
        self.port = BrokerPortServer(
            self.service, access=RocketmqAccess(AccessRules(is_insecure=True, takes_plain=True))
        )
        self.rocketmq = RocketmqController(self.port, self.service, expected_replicas=rocketmq_replicas)
        self._lose_answers(net, loses_alter_answer)

    # --- life ---

    def start(self) -> None:
        """In the order of ``api.server``: the port, the service, the log."""
        self.loop.create_task(self._main())

    async def _main(self) -> None:
        await self.port.start(self._own_address)
        self.service.start(self.port)
        self.log.start()
        if self._keeps_seats:
            self.loop.create_task(Seating(self.service).keep())

    def _lose_answers(self, net: SimNet, is_lost: Callable[[], bool]) -> None:
        """Answers to alters pass here: a place to lose them, with the connection that should have carried them."""
        port: Any = self.port
        answer = port._answer

        def answered(connection: RemotingConnection, frame: Frame, reply: AnyReply) -> None:
            transport: Any = connection._transport
            if isinstance(reply, AlterDecided) and transport is not None and is_lost():
                net.break_connection(transport._stream.end)
            answer(connection, frame, reply)

        port._answer = answered

    def _fault(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._on_violation(Violation(f"{self.name}: {context.get('message')}: {type(error).__name__}: {error}"))

    # --- what others look at ---

    @property
    def has_authority(self) -> bool:
        """By R5."""
        return self.service.authority().is_held

    def view(self, key: SetKey) -> SetView | None:
        return view_of(self.log.published.state, key)

    def order(self, command: OperatorCommand, *, done: Callable[[object], None]) -> None:
        """As an operator's, by REST: with the evidence of this moment. ``done`` hears the reply or the error."""
        evidence = self.service.evidence_for(command)
        request_id = RequestId(self.process.kernel.hex_digits(16))

        async def submit() -> None:
            reply: AnyReply | Exception
            try:
                reply = await self.service.submit(
                    command, request_id=request_id, requested_by="admin:sim", evidence=evidence
                )
            except (NoAuthority, ProposeError) as error:
                reply = error
            done(reply)

        self.loop.create_task(submit())
