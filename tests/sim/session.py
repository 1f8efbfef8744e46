"""
The session of one simulated broker with whoever leads: sockets and timers around ``SessionMachine``.

Here: what ``broker.session`` does with remoting. Not here: any rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rollcall_ha.broker.core.durable import Identity
from rollcall_ha.broker.core.registration import Registration
from rollcall_ha.broker.core.role_io import IncarnationEnded, SessionLost
from rollcall_ha.broker.core.session import Ask as AskAction
from rollcall_ha.broker.core.session import (
    Beat,
    Dial,
    Hang,
    Persist,
    SessionAction,
    SessionMachine,
    SessionState,
    TellBlocked,
    TellLost,
    TellOpened,
    TellView,
)
from rollcall_ha.broker.core.session import FindLeader as FindLeaderAction
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SessionOrdinal
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.session import HeartbeatAck, LeaderHint, LinkReport, RoleNotice
from tests.sim.wire import Answer, Ask, FindLeader, OneWay
from tests.support.sim_kernel import MS, Timer
from tests.support.sim_net import End

if TYPE_CHECKING:
    from tests.sim.broker import BrokerNode


class BrokerSession:
    """Sockets and timers around ``SessionMachine``."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._timing = node.plan.timing
        self._machine: SessionMachine | None = None
        self._ends: dict[int, End] = {}
        self._waiting: dict[int, tuple[int, object, Callable[[object], None]]] = {}
        self._numbers = 0
        self._timer: Timer | None = None

    @property
    def is_open(self) -> bool:
        """A registered session."""
        return self._machine is not None and self._machine.state is SessionState.OPEN

    @property
    def ordinal(self) -> SessionOrdinal | None:
        """Of the open session."""
        return self._machine.session_ordinal if self._machine is not None else None

    def start(self, registration: Registration) -> None:
        """Begin to look for a controller that leads."""
        node = self._node
        self._machine = SessionMachine(
            addresses=node.plan.controllers,
            registration=registration,
            timing=self._timing,
            holdings=lambda: (node.positions(), node.stored_view()),
        )
        self._do(self._machine.start())

    def _do(self, actions: list[SessionAction]) -> None:
        for action in actions:
            if isinstance(action, Dial):
                self._dial(action)
            elif isinstance(action, FindLeaderAction):
                self._ask(action.connection, FindLeader(), lambda _body: None)
            elif isinstance(action, AskAction):
                self._ask(action.connection, action.question.command, self._replied)
            elif isinstance(action, Persist):
                self._persist(action.identity)
            elif isinstance(action, Beat):
                beat = self._node.heartbeat(action.session_ordinal)
                self._ask(action.connection, beat, self._beat_answered)
            elif isinstance(action, Hang):
                self._hang(action.connection)
            elif isinstance(action, TellOpened):
                self._node.counts.add("sessions opened")
                self._node.registered(action.registered)
            elif isinstance(action, TellLost):
                self._node.tell(SessionLost())
            elif isinstance(action, TellView):
                self._node.view_arrived(action.view)
            elif isinstance(action, TellBlocked):
                self._node.counts.add("registrations blocked")
                self._node.kernel.note(f"{self._node.plan.name} blocked: {action.refusal.reason}")
            else:
                self._node.tell(IncarnationEnded(reason=action.refusal.reason))
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        machine = self._machine
        if machine is not None and machine.next_due_ms is not None:
            delay_us = machine.next_due_ms * MS - self._node.now_us()
            self._timer = self._node.process.after(delay_us, "session", self._tick)

    def _tick(self) -> None:
        if self._machine is not None:
            self._do(self._machine.tick(self._node.now_ms()))

    def _dial(self, dial: Dial) -> None:
        node, connection = self._node, dial.connection

        def opened(end: End) -> None:
            if self._machine is None or self._machine.connection != connection:
                end.close()
                return
            self._ends[connection] = end
            end.on_message = lambda message: self._message(connection, message)
            end.on_closed = lambda: self._lost(connection, "closed")
            self._do(self._machine.dialled(connection))

        host = dial.address.partition(":")[0]
        node.net.connect(node.process, dial.address, host, opened, lambda: self._lost(connection, "refused"))
        timeout_us = self._timing.session_rpc_timeout_ms * MS
        node.process.after(
            timeout_us, "dial timeout", lambda: None if connection in self._ends else self._lost(connection, "timeout")
        )

    def _lost(self, connection: int, reason: str) -> None:
        assert self._machine is not None
        self._hang(connection)
        self._do(self._machine.lost(connection, reason, self._node.now_ms()))

    def _hang(self, connection: int) -> None:
        """Close; who waits for an answer will never know."""
        end = self._ends.pop(connection, None)
        if end is not None:
            end.close()
        for number in [number for number, waiting in self._waiting.items() if waiting[0] == connection]:
            _connection, body, done = self._waiting.pop(number)
            if isinstance(body, AlterSyncStateSet):
                self._node.counts.add("alters with lost answers")
            done(None)

    def _persist(self, identity: Identity) -> None:
        assert self._machine is not None
        node = self._node
        try:
            node.files.identity.store(identity)
        except OSError:
            # The real shell tries again; so does this one.
            node.process.after(50 * MS, "identity", lambda: self._persist(identity))
            return
        if identity.broker_id is not None:
            node.identified(identity.broker_id)
        self._do(self._machine.persisted(identity, node.now_ms()))

    def _replied(self, body: object) -> None:
        assert self._machine is not None
        if body is not None:
            self._do(self._machine.replied(self._machine.connection, body, self._node.now_ms()))  # type: ignore[arg-type]

    def _beat_answered(self, body: object) -> None:
        assert self._machine is not None
        connection, now_ms = self._machine.connection, self._node.now_ms()
        if isinstance(body, HeartbeatAck):
            self._do(self._machine.beat_answered(connection, body, now_ms))
        elif isinstance(body, Refused):
            self._do(self._machine.refused(connection, body, now_ms))

    def ask(self, body: object, done: Callable[[object], None]) -> None:
        """On the open session. ``done`` exactly once: the reply, or None if the outcome is unknown."""
        if not self.is_open or self._machine is None:
            self._node.process.after(0, "no session", lambda: done(None))
            return
        self._ask(self._machine.connection, body, done)

    def _ask(self, connection: int, body: object, done: Callable[[object], None]) -> None:
        end = self._ends.get(connection)
        if end is None:
            self._node.process.after(0, "no connection", lambda: done(None))
            return
        self._numbers += 1
        number = self._numbers
        self._waiting[number] = (connection, body, done)
        # A fresh id for every try: nothing may rest on the window of request ids (R1).
        end.send(Ask(number, body, self._node.kernel.hex_digits(16)))
        timeout_us = self._timing.session_rpc_timeout_ms * MS
        self._node.process.after(
            timeout_us, "rpc timeout", lambda: self._lost(connection, "timeout") if number in self._waiting else None
        )

    def _message(self, connection: int, message: object) -> None:
        machine = self._machine
        assert machine is not None
        if isinstance(message, OneWay) and isinstance(message.body, RoleNotice):
            self._do(machine.noticed(connection, message.body.view))
        elif isinstance(message, Answer) and message.number in self._waiting:
            _connection, _body, done = self._waiting.pop(message.number)
            if isinstance(message.body, LeaderHint):
                done(None)
                self._do(machine.hinted(connection, message.body, self._node.now_ms()))
            elif message.body is None and machine.state is SessionState.JOINING:
                done(None)
                self._lost(connection, "outcome unknown")
            else:
                done(message.body)

    def look_up(self) -> None:
        """Ask soon what the controllers know of the set."""
        if self._machine is not None:
            self._do(self._machine.look_up(self._node.now_ms()))

    def link_report(self, master: BrokerId, master_epoch: MasterEpoch, *, is_open: bool) -> None:
        """One-way; dropped without a session."""
        node, ordinal = self._node, self.ordinal
        if self._machine is None or ordinal is None or node.broker_id is None:
            return
        end = self._ends.get(self._machine.connection)
        if end is None:
            return
        report = LinkReport(
            set_key=node.plan.set_key,
            broker_id=node.broker_id,
            incarnation=node.incarnation,
            session_ordinal=ordinal,
            master=master,
            master_epoch=master_epoch,
            is_open=is_open,
        )
        end.send(OneWay(report))
