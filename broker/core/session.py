"""
The session with the leading controller, as a step machine: where to dial, when to give up, when to beat. Sans-IO, pure.

Here: ``SessionMachine``. Not here: getting an id and registering (``registration``, driven from here), sockets
(``broker.session``), the meaning of a view (``role``).

========  =======================================  ==========================================================
state     waits for                                leaves on
========  =======================================  ==========================================================
paused    the end of the pause                     tick -> dialling
dialling  the connection                           dialled -> finding; failed -> paused
finding   the leader's name                         this one -> joining; another -> dialling; nobody -> paused
joining   id and registration                      opened -> open; refused -> stays, asks again after a pause
open      nothing; beats                           closed, failed or overtaken -> paused or dialling
over      nothing: stopped, or the process begins anew
========  =======================================  ==========================================================

Rule 1: one heartbeat is in flight. The next one leaves an interval after the last one left, or at once when the answer
took longer than that, or when a peer shows a higher masterEpoch (R21), but ``reconnect_delay_ms`` behind the last one.
Rule 2: a hint is dialled at once, but at most ``HINTS_MAX`` times in a row: two controllers that point at each other
get a pause.
Rule 3: an address that cannot be reached costs no pause while there is another that was not tried since the last one:
of three controllers the dead one is tried first, because the session was with it. Pauses double from
``reconnect_delay_ms`` to ``reconnect_delay_ms_max``; they, and the hints, start anew with an answered heartbeat: a
session that opens and breaks at once is no better than none. One that hangs is tried last: its kernel takes the call,
and nobody answers for ``session_rpc_timeout_ms``.
Rule 4: addresses that a controller told are kept besides those of the fleet file, never instead of them.
Rule 5: an input of an earlier connection changes nothing (S33): inputs carry the connection's number.
Rule 6 (R3): a process whose incarnation has ended asks on, once per longest pause. It begins anew when it has heard for
``VACATED_MS_MIN`` that the one in its place is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from rollcall_ha.broker.core.durable import Identity
from rollcall_ha.broker.core.registration import (
    Blocked,
    Ended,
    Opened,
    PersistIdentity,
    Registration,
    RegistrationAction,
)
from rollcall_ha.controller.contract.commands import ApplyBrokerId, RegisterReplica
from rollcall_ha.controller.contract.ids import SessionOrdinal
from rollcall_ha.controller.contract.replies import AnyReply, Refused, SetView
from rollcall_ha.controller.contract.session import HeartbeatAck, LeaderHint
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import Frozen, Positions, StoredView

HINTS_MAX = 3
VACATED_MS_MIN = 30_000
"""
For so long the process that took this one's id has to be gone: a start by its supervisor takes less, and comes first.
"""
ADDRESSES_MAX = 64
"""Those of the fleet file and told ones together; more of them are ignored."""


class SessionState(StrEnum):
    """Rows of the table above."""

    PAUSED = "paused"
    DIALLING = "dialling"
    FINDING = "finding"
    JOINING = "joining"
    OPEN = "open"
    OVER = "over"


class Dial(Frozen):
    """Connect within ``session_dial_timeout_ms``; answer with ``dialled`` or ``lost``."""

    connection: int
    address: str


class FindLeader(Frozen):
    """Ask FIND_LEADER; answer with ``hinted`` or ``lost``."""

    connection: int


class Ask(Frozen):
    """Send the command; answer with ``replied``, ``hinted`` (NOT_LEADER) or ``lost``."""

    connection: int
    command: ApplyBrokerId | RegisterReplica


class Beat(Frozen):
    """Send a heartbeat; answer with ``beat_answered``, ``hinted`` or ``lost``."""

    connection: int
    session_ordinal: SessionOrdinal


class Hang(Frozen):
    """Close the connection, if it is open."""

    connection: int
    reason: str


class TellLost(Frozen):
    """Tells the role machine that there is no session for now."""

    reason: str


class TellView(Frozen):
    """Hands an authoritative state to the role machine."""

    view: SetView


class BeginAnew(Frozen):
    """End this start of the process, and begin another one on the same directory (rule 6)."""


SessionAction = (
    Dial | FindLeader | Ask | PersistIdentity | Beat | Hang | Opened | TellLost | TellView | Blocked | Ended | BeginAnew
)
"""Those of the registration go through as they are."""


class SessionMachine:
    """One replica's sessions, one after another, for the life of one process."""

    def __init__(
        self,
        *,
        addresses: tuple[str, ...],
        registration: Registration,
        timing: Timing,
        holdings: Callable[[], tuple[Positions, StoredView | None]],
    ) -> None:
        """``addresses``: broker ports of the fleet file. ``holdings``: log positions and stored view by now."""
        if not addresses:
            raise ValueError("a session needs the broker port of at least one controller")
        self._own_addresses = addresses
        self._told_addresses: tuple[str, ...] = ()
        self._registration = registration
        self._timing = timing
        self._holdings = holdings
        self._next_index = 0
        self._hints = 0
        self._failures = 0
        self._untried = 0
        self._beat_sent_at_ms = 0
        self._is_beat_in_flight = False
        self._due_ms: int | None = None
        self._early_view: SetView | None = None
        self._vacated_since_ms: int | None = None
        self.state = SessionState.PAUSED
        self.connection = 0
        """Number of the newest connection; an input with a lower one is late."""
        self.address: str | None = None
        """Address that it is dialled to."""
        self.session_ordinal: SessionOrdinal | None = None
        """The number of the open session."""

    @property
    def next_due_ms(self) -> int | None:
        """When ``tick`` is needed; None = not at all."""
        return self._due_ms

    @property
    def controllers(self) -> tuple[str, ...]:
        """Broker ports of all controllers, by their own word if one has told it: the fleet file may have one name."""
        return self._told_addresses or self._own_addresses

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that may be dialled, in order."""
        told = tuple(one for one in self._told_addresses if one not in self._own_addresses)
        return (*self._own_addresses, *told)[:ADDRESSES_MAX]

    # --- inputs ------------------------------------------------------------------------------------------------------

    def start(self) -> list[SessionAction]:
        """The log is recovered: begin."""
        self._untried = len(self.addresses) - 1
        return self._dial_next()

    def retime(self, timing: Timing, now_ms: int) -> list[SessionAction]:
        """Other durations are in force: the next heartbeat leaves an interval of theirs after the last one."""
        self._timing = timing
        # Left as it was, a pause of 10 s would end when a leader that waits for 3 s has long found us silent.
        if self.state is SessionState.OPEN and not self._is_beat_in_flight:
            self._due_ms = max(now_ms, self._beat_sent_at_ms + timing.heartbeat_interval_ms)
        return self.tick(now_ms)

    def stop(self, reason: str) -> list[SessionAction]:
        """No session any more."""
        self.state = SessionState.OVER
        self._due_ms = None
        self.session_ordinal = None
        return [Hang(connection=self.connection, reason=reason)]

    def dialled(self, connection: int) -> list[SessionAction]:
        """The connection is open."""
        # Rule 5: connection 3, given up for 4, may still open. Its session would register us a second time and end that
        # of 4.
        if connection != self.connection or self.state is not SessionState.DIALLING:
            return []
        self.state = SessionState.FINDING
        return [FindLeader(connection=connection)]

    def lost(self, connection: int, reason: str, now_ms: int, *, is_silent: bool = False) -> list[SessionAction]:
        """The connection could not be opened, or closed; ``is_silent``: it is open, and there was no answer in time."""
        if connection != self.connection or self.state in (SessionState.PAUSED, SessionState.OVER):
            return []
        if is_silent and self.address in self.addresses:
            # The leader hung. Asked first, it takes another 2 s, and the next leader gives us 3 s from its election on:
            # a master that served all the time would be found silent (rule 3).
            self._next_index = (self.addresses.index(self.address) + 1) % len(self.addresses)
        was_dialling, leave = self.state is SessionState.DIALLING, self._leave(reason)
        if was_dialling and self._untried > 0:
            self._untried -= 1
            return [*leave, *self._dial_next()]
        return [*leave, *self._pause(now_ms)]

    def hinted(self, connection: int, hint: LeaderHint, now_ms: int) -> list[SessionAction]:
        """The leader's name, as an answer to ``FindLeader`` or with NOT_LEADER."""
        if connection != self.connection or self.state in (SessionState.PAUSED, SessionState.OVER):
            return []
        is_leader = hint.leader is not None and hint.leader == hint.controller
        if is_leader and self.state is SessionState.FINDING:
            self.state = SessionState.JOINING
            self._registration.disconnected()
            return self._translate(self._registration.connected(*self._holdings()), now_ms)
        leave = self._leave(f"{hint.controller} does not lead, it names {hint.leader or 'nobody'}")
        # Two controllers that name each other, or one that names itself without leading, would have us dial in a circle
        # without a pause (rule 2).
        address = hint.leader_broker_address
        if address is None or address == self.address or self._hints >= HINTS_MAX:
            return [*leave, *self._pause(now_ms)]
        self._hints += 1
        return [*leave, self._dial(address)]

    def replied(self, connection: int, reply: AnyReply, now_ms: int) -> list[SessionAction]:
        """The answer to ``Ask``."""
        if connection != self.connection or self.state is not SessionState.JOINING:
            return []
        return self._translate(self._registration.answered(reply), now_ms)

    def persisted(self, identity: Identity, now_ms: int) -> list[SessionAction]:
        """``PersistIdentity`` is done; the connection may have ended meanwhile."""
        return self._translate(self._registration.persisted(identity, *self._holdings()), now_ms)

    def beat_answered(self, connection: int, ack: HeartbeatAck, now_ms: int) -> list[SessionAction]:
        """The answer to ``Beat``."""
        if connection != self.connection or self.state is not SessionState.OPEN:
            return []
        self._is_beat_in_flight = False
        # Here, not when the session opens: one that opens and breaks at once, again and again, must end up in long
        # pauses.
        self._failures = self._hints = 0
        self._due_ms = max(now_ms, self._beat_sent_at_ms + self._timing.heartbeat_interval_ms)
        self._told_addresses = ack.controllers
        return [] if ack.view is None else [TellView(view=ack.view)]

    def refused(self, connection: int, refusal: Refused, now_ms: int) -> list[SessionAction]:
        """A heartbeat was refused: the session named in it is not the current one any more."""
        if connection != self.connection or self.state is not SessionState.OPEN:
            return []
        return [*self._leave(f"the session was refused: {refusal.reason}"), *self._pause(now_ms)]

    def noticed(self, connection: int, view: SetView) -> list[SessionAction]:
        """A push. One that overtakes the answer to the registration waits for it."""
        # The role machine takes views of a registered replica only. Dropped here, a push of our election that overtakes
        # the answer would be missing until the next heartbeat, and the winner would enter that much later.
        if connection == self.connection and self.state is SessionState.JOINING:
            self._early_view = view
        if connection != self.connection or self.state is not SessionState.OPEN:
            return []
        return [TellView(view=view)]

    def look_up(self, now_ms: int) -> list[SessionAction]:
        """A peer shows a masterEpoch that we have not heard of: ask the controllers for their view (R21)."""
        # Without the pause a peer that claims it a thousand times a second would have us ask as often.
        if self.state is SessionState.OPEN and not self._is_beat_in_flight:
            self._due_ms = max(now_ms, self._beat_sent_at_ms + self._timing.reconnect_delay_ms)
        return self.tick(now_ms)

    def tick(self, now_ms: int) -> list[SessionAction]:
        if self._due_ms is None or now_ms < self._due_ms:
            return []
        self._due_ms = None
        if self.state is SessionState.PAUSED:
            self._untried = len(self.addresses) - 1
            return self._dial_next()
        if self.state is SessionState.JOINING:
            return self._translate(self._registration.connected(*self._holdings()), now_ms)
        if self.state is SessionState.OPEN and not self._is_beat_in_flight and self.session_ordinal is not None:
            return self._beat(now_ms, self.session_ordinal)
        return []

    # --- inside ------------------------------------------------------------------------------------------------------

    def _dial_next(self) -> list[SessionAction]:
        addresses = self.addresses
        address = addresses[self._next_index % len(addresses)]
        self._next_index = (self._next_index + 1) % len(addresses)
        self._hints = 0
        return [self._dial(address)]

    def _dial(self, address: str) -> Dial:
        self.connection += 1
        self._early_view = None
        self.address = address
        self.state = SessionState.DIALLING
        self._due_ms = None
        return Dial(connection=self.connection, address=address)

    def _leave(self, reason: str) -> list[SessionAction]:
        was_open = self.state is SessionState.OPEN
        self._registration.disconnected()
        self.session_ordinal = None
        self._is_beat_in_flight = False
        self.state = SessionState.PAUSED
        hang = Hang(connection=self.connection, reason=reason)
        return [hang, TellLost(reason=reason)] if was_open else [hang]

    def _pause(self, now_ms: int) -> list[SessionAction]:
        timing = self._timing
        pause_ms = min(timing.reconnect_delay_ms << min(self._failures, 16), timing.reconnect_delay_ms_max)
        self._failures += 1
        self._due_ms = now_ms + pause_ms
        return []

    def _beat(self, now_ms: int, session_ordinal: SessionOrdinal) -> list[SessionAction]:
        self._beat_sent_at_ms = now_ms
        self._is_beat_in_flight = True
        return [Beat(connection=self.connection, session_ordinal=session_ordinal)]

    def _translate(self, actions: list[RegistrationAction], now_ms: int) -> list[SessionAction]:
        translated: list[SessionAction] = []
        for action in actions:
            if isinstance(action, ApplyBrokerId | RegisterReplica):
                translated.append(Ask(connection=self.connection, command=action))
            elif isinstance(action, Opened):
                translated += self._open(action, now_ms)
            elif isinstance(action, Ended) and self._is_vacated_long(action.refusal, now_ms):
                translated += [*self.stop("this process begins anew"), BeginAnew()]
            else:
                if isinstance(action, Blocked | Ended):
                    # On the same connection, after the longest pause: a refusal is not mended by dialling.
                    self._due_ms = now_ms + self._timing.reconnect_delay_ms_max
                translated.append(action)
        return translated

    def _is_vacated_long(self, refusal: Refused, now_ms: int) -> bool:
        if refusal.registered is None:
            self._vacated_since_ms = None
            return False
        if self._vacated_since_ms is None:
            self._vacated_since_ms = now_ms
        # At once, each stop and start of the one in its place would cost that one its proof, and its membership (R3).
        return now_ms - self._vacated_since_ms >= VACATED_MS_MIN

    def _open(self, opened: Opened, now_ms: int) -> list[SessionAction]:
        self.state = SessionState.OPEN
        self.session_ordinal = opened.registered.session_ordinal
        # Stay with this controller: after a lost connection it is asked first.
        if self.address in self.addresses:
            self._next_index = self.addresses.index(self.address)
        early = [] if self._early_view is None else [TellView(view=self._early_view)]
        self._early_view = None
        return [opened, *early, *self._beat(now_ms, self.session_ordinal)]
