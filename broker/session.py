"""
The session's shell: remoting connections to controllers, driven by ``broker.core.session``.

Here: dialling, sending, decoding, one timer; the batch of milestones. Not here: any decision about sessions.
Rule 1: pushes reach the owner in the turn in which they arrive.
Rule 2: ``ask`` returns an answer or raises ``SessionUnavailable`` within ``session_rpc_timeout_ms``.
Rule 3: at most ``MILESTONES_MAX`` milestones wait; beyond that the oldest are dropped and counted: a record for
people, no part of any decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.core.clock_offset import ClockOffset
from rollcall_ha.broker.core.durable import Identity
from rollcall_ha.broker.core.registration import Blocked, Ended, Opened, PersistIdentity
from rollcall_ha.broker.core.session import (
    Ask,
    Beat,
    BeginAnew,
    Dial,
    FindLeader,
    Hang,
    SessionAction,
    SessionMachine,
    TellLost,
    TellView,
)
from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.revocations import RevokedPeers
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import RecordMilestones, RegisterReplica
from rollcall_ha.controller.contract.ids import SessionOrdinal, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Refused, Registered, SetView
from rollcall_ha.controller.contract.session import (
    SESSION_COMMANDS,
    Heartbeat,
    HeartbeatAck,
    LeaderHint,
    LinkReport,
    RevokedSerials,
    RoleNotice,
    SettingsTold,
)
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import Milestone, Value
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError, split_address
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError, RemotingTimeout, connect
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import CloseCause, cause_of
from rollcall_ha.node.remoting.names import addresses_of
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tasks import Tasks
from rollcall_ha.node.tls import Credentials

MILESTONES_MAX = 256
MILESTONES_PER_BATCH_MAX = 32

_decode_reply: Callable[[bytes], AnyReply] = msgspec.json.Decoder(AnyReply).decode
_decode_hint = msgspec.json.Decoder(LeaderHint).decode
_decode_beat = msgspec.json.Decoder(HeartbeatAck).decode
_decode_revoked = msgspec.json.Decoder(RevokedSerials).decode
_decode_settings = msgspec.json.Decoder(SettingsTold).decode
_decode_notice = msgspec.json.Decoder(RoleNotice).decode
_encode = msgspec.json.encode
_CODES: dict[Any, RequestCode] = {command: code for code, command in SESSION_COMMANDS.items()}


class SessionUnavailable(Exception):
    """No leader answered: the outcome is unknown if the request had been sent."""


class ControllerNotLeading(Exception):
    """The controller that was asked does not lead; the hint says who might."""

    def __init__(self, hint: LeaderHint) -> None:
        """``hint`` is the controller's own word."""
        super().__init__(f"{hint.controller} does not lead")
        self.hint = hint


class SessionOwner(Protocol):
    """The broker, as its session sees it. Called on the loop, must not block."""

    def heartbeat(self, ordinal: SessionOrdinal) -> Heartbeat:
        """The heartbeat of this moment."""
        ...

    def session_opened(self, registered: Registered) -> None: ...

    def session_lost(self, reason: str) -> None: ...

    def view_arrived(self, view: SetView, transit_us: int) -> None:
        """``transit_us``: how long a push was under way; 0 = not known, or not a push."""
        ...

    def registration_blocked(self, refusal: Refused) -> None: ...

    def incarnation_ended(self, refusal: Refused) -> None: ...

    def begin_anew(self) -> None: ...

    async def persist_identity(self, identity: Identity) -> None:
        """Durable on return. Raises ``OSError``; the process ends then."""
        ...

    def failed(self, error: BaseException) -> None:
        """A fault of our own inside a task of the session: the process ends."""
        ...


class SessionCounters(msgspec.Struct):
    heartbeats: int = 0
    milestones_dropped: int = 0


class ControllerSession:
    """Keeps one session open; ``start`` after recovery, ``stop`` once."""

    def __init__(
        self,
        *,
        machine: SessionMachine,
        owner: SessionOwner,
        set_key: SetKey,
        timing: Timing,
        now_us: Callable[[], int],
        held_since_us: int,
        credentials: Credentials | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        revoked: RevokedPeers | None = None,
        settings: LiveSettings | None = None,
    ) -> None:
        """
        Nothing is dialled yet; ``now_us`` is the monotonic clock.

        ``held_since_us``: when this process had its data directory alone.
        """
        self.counters = SessionCounters()
        self._machine = machine
        self._owner = owner
        self._set_key = set_key
        self._timing = timing
        self._now_us = now_us
        self._held_since_us = held_since_us
        self._answered_at_us = 0
        self._credentials = credentials
        self._wall_ms = wall_ms
        self._revoked = revoked
        self._settings = settings
        self._dials = 0
        self._stop_judging: Callable[[], None] = lambda: None
        self._link: RemotingConnection | None = None
        self._link_number = 0
        self._shown = ""
        """Serial number of the certificate that we showed on ``_link``."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks(self._failed)
        """In the order in which they began."""
        self._milestones: deque[tuple[Milestone, int]] = deque(maxlen=MILESTONES_MAX)
        """Each with the microsecond of ``now_us`` at which it was reached."""
        self._is_reporting = False
        self._clock = ClockOffset()
        self._transit_us = 0
        """How long the push that is being handled was under way."""

    @property
    def controllers(self) -> tuple[str, ...]:
        """As ``SessionMachine.controllers``."""
        return self._machine.controllers

    @property
    def is_open(self) -> bool:
        """Registered with a controller that led when it last answered."""
        return self._machine.session_ordinal is not None

    @property
    def ordinal(self) -> SessionOrdinal | None:
        """The number of the open session; None = there is none."""
        return self._machine.session_ordinal

    @property
    def controller(self) -> str | None:
        """host:port of the controller of the open session."""
        return self._machine.address if self.is_open else None

    @property
    def settings_version(self) -> int:
        """The version by which the process works; 0 = its file's."""
        return 0 if self._settings is None else self._settings.version

    def start(self) -> None:
        """Begin to dial; on the running loop."""
        if self._credentials is not None:
            self._stop_judging = self._credentials.on_change(asyncio.get_running_loop(), self._judge_again)
        self._do(self._machine.start())

    async def stop(self, reason: str) -> None:
        """Hang up; returns when nothing of it runs any more."""
        self._do(self._machine.stop(reason))
        self._stop_judging()
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()

    async def ask(self, command: Value) -> AnyReply:
        """
        Ask on the open session.

        Raises ``SessionUnavailable``: no session, no answer in time, or the controller does not lead any more.
        """
        link, number = self._link, self._link_number
        if link is None or not self.is_open:
            raise SessionUnavailable("no session is open")
        try:
            return _decode_reply(await self._exchange(link, _CODES[type(command)], command))
        except ControllerNotLeading as error:
            self._do(self._machine.hinted(number, error.hint, self._now_ms()))
            raise SessionUnavailable(str(error)) from error
        except (RemotingError, msgspec.MsgspecError) as error:
            raise SessionUnavailable(str(error)) from error

    def report(self, milestone: Milestone, *, reached_at_us: int) -> None:
        """
        Send it with the next batch, which leaves in the next turn of the loop if a session is open.

        ``reached_at_us``: on the clock ``now_us``.
        """
        if len(self._milestones) == MILESTONES_MAX:
            self.counters.milestones_dropped += 1
        self._milestones.append((milestone, reached_at_us))
        self._report_soon()

    def report_link(self, report: LinkReport) -> None:
        """One-way (R13); lost without a session, and repeated by the role machine when one opens."""
        if self._link is not None and self.is_open:
            self._link.send_one_way(RequestCode.SESSION_LINKS, body=_encode(report))

    def retime(self, timing: Timing) -> None:
        """Other durations are in force (``live_settings``)."""
        self._timing = timing
        self._do(self._machine.retime(timing, self._now_ms()))

    def look_up(self) -> None:
        """Ask soon what the controllers know of the set (R21)."""
        self._do(self._machine.look_up(self._now_ms()))

    # --- FrameHandler of one connection, through _Link ---------------------------------------------------------------

    def pushed(self, number: int, frames: Sequence[Frame]) -> None:
        """One-ways of the controller, newest last."""
        for frame in frames:
            try:
                if frame.code == RequestCode.SESSION_REVOKED:
                    self._take_revoked(_decode_revoked(frame.body))
                    continue
                if frame.code == RequestCode.SESSION_SETTINGS:
                    self._take_settings(_decode_settings(frame.body))
                    continue
                if frame.code != RequestCode.SESSION_NOTICE:
                    continue
                notice = _decode_notice(frame.body)
            except msgspec.MsgspecError as error:
                self._lost(number, f"a notice that cannot be read: {error}")
                return
            self._transit_us = self._clock.transit_us(leader_sent_at_us=notice.sent_at_us, arrived_at_us=self._now_us())
            self._do(self._machine.noticed(number, notice.view))
            self._transit_us = 0

    def closed(self, link: RemotingConnection, number: int, reason: str) -> None:
        """A connection is gone."""
        # The end of connection 3 must not take 4 with it, which was dialled meanwhile; nor that of a stranger at the
        # first address of a name the link to the second one.
        if link is self._link:
            self._link = None
            self._do(self._machine.lost(number, reason, self._now_ms()))

    # --- doing -------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _do(self, actions: list[SessionAction]) -> None:
        for action in actions:
            if isinstance(action, Beat):
                self._tasks.begin(self._beat(action))
            elif isinstance(action, Dial):
                self._tasks.begin(self._dial(action))
            elif isinstance(action, FindLeader):
                self._tasks.begin(self._find_leader(action.connection))
            elif isinstance(action, Ask):
                self._tasks.begin(self._question(action))
            elif isinstance(action, PersistIdentity):
                self._tasks.begin(self._persist(action.identity))
            elif isinstance(action, Hang):
                self._hang(action)
            else:
                self._tell(action)
        self._arm()

    def _tell(self, action: Opened | TellLost | TellView | Blocked | Ended | BeginAnew) -> None:
        if isinstance(action, TellView):
            self._owner.view_arrived(action.view, self._transit_us)
        elif isinstance(action, Opened):
            self._owner.session_opened(action.registered)
            self._report_soon()
        elif isinstance(action, TellLost):
            self._owner.session_lost(action.reason)
        elif isinstance(action, Blocked):
            self._owner.registration_blocked(action.refusal)
        elif isinstance(action, Ended):
            self._owner.incarnation_ended(action.refusal)
        else:
            self._owner.begin_anew()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._machine.next_due_ms
        if due_ms is not None:
            # One millisecond late rather than early: an early tick would do nothing and be the last one.
            self._timer = asyncio.get_running_loop().call_at((due_ms + 1) / 1000, self._tick)

    def _tick(self) -> None:
        self._do(self._machine.tick(self._now_ms()))

    def _hang(self, action: Hang) -> None:
        if self._link is not None and self._link_number == action.connection:
            link, self._link = self._link, None
            link.close(action.reason)

    def _lost(self, number: int, reason: str, *, is_silent: bool = False) -> None:
        self._do(self._machine.lost(number, reason, self._now_ms(), is_silent=is_silent))

    def _failed(self, error: BaseException) -> None:
        self._owner.failed(error)

    def _judge_again(self) -> None:
        """
        After each change of certificates, and with each heartbeat: end a link that could not be made now, or was made
        with a certificate that we have renewed. The machine dials again within ``reconnect_delay_ms``.
        """
        link, credentials = self._link, self._credentials
        if link is None or credentials is None or link.certificate is None or link.close_cause is not None:
            return
        if (ended := credentials.no_longer(link.certificate, self._wall_ms())) is not None:
            link.close(str(ended), cause_of(ended))
        elif self._shown != credentials.own.serial:
            # Kept, the link would end when our old certificate does: in the middle of a night, for all brokers at once.
            link.close("our certificate was renewed", CloseCause.HANDLER)

    async def _dial(self, action: Dial) -> None:
        shown = "" if self._credentials is None else self._credentials.own.serial
        try:
            link = await self._dial_any(action)
        except (OSError, TimeoutError, RemotingError, ConfigError) as error:
            # Also an address that is none, of a controller whose place names no broker port: the process ended by it.
            self._lost(action.connection, f"{action.address}: {error or 'no connection in time'}")
            return
        if action.connection != self._machine.connection:
            # The machine has given this connection up: registered on it, its session would end that of the newer one.
            link.close("another controller was dialled meanwhile")
            return
        self._link, self._link_number, self._shown = link, action.connection, shown
        self._clock = ClockOffset()
        self._do(self._machine.dialled(action.connection))

    async def _dial_any(self, action: Dial) -> RemotingConnection:
        """A link to the first address of the name that answers. Raises what the last one failed by."""
        limit_ms, handler, expected = self._timing.session_dial_timeout_ms, _Link(self, action.connection), None
        if self._credentials is not None:
            # A broker that took over a controller's address would else grant ids and make masters.
            expected = ExpectedPeer(credentials=self._credentials, kinds=frozenset({PeerKind.CONTROLLER}))
        self._dials += 1
        # One name for all controllers: the machine that is down may be the first of its addresses, for ever.
        *others, last = await addresses_of(action.address, first=self._dials, timeout_ms=limit_ms)
        for address in others:
            with contextlib.suppress(OSError, TimeoutError, RemotingError):
                return await connect(*split_address(address), handler, timeout_ms=limit_ms, expected=expected)
        return await connect(*split_address(last), handler, timeout_ms=limit_ms, expected=expected)

    async def _find_leader(self, number: int) -> None:
        async def find(link: RemotingConnection) -> None:
            hint = _decode_hint(await self._exchange(link, RequestCode.FIND_LEADER, None))
            self._do(self._machine.hinted(number, hint, self._now_ms()))

        await self._on_link(number, find)

    async def _question(self, action: Ask) -> None:
        command = action.command
        if isinstance(command, RegisterReplica):
            command = replace(command, held_us=self._now_us() - self._held_since_us)

        async def put(link: RemotingConnection) -> None:
            reply = _decode_reply(await self._exchange(link, _CODES[type(command)], command))
            self._answered_at_us = self._now_us()
            self._do(self._machine.replied(action.connection, reply, self._now_ms()))

        await self._on_link(action.connection, put)

    async def _beat(self, action: Beat) -> None:
        self._judge_again()

        async def beat(link: RemotingConnection) -> None:
            self.counters.heartbeats += 1
            heartbeat = self._owner.heartbeat(action.session_ordinal)
            if self._revoked is not None:
                heartbeat = replace(heartbeat, known_revocations=self._revoked.known)
            if self._settings is not None:
                heartbeat = replace(heartbeat, known_settings=self._settings.version)
            sent_at_us = self._now_us()
            heartbeat = replace(heartbeat, answered_age_us=sent_at_us - self._answered_at_us)
            ack = _decode_beat(await self._exchange(link, RequestCode.SESSION_HEARTBEAT, heartbeat))
            self._answered_at_us = self._now_us()
            self._clock.witness(
                sent_at_us=sent_at_us, leader_clock_us=ack.leader_clock_us, answered_at_us=self._answered_at_us
            )
            self._take_revoked(ack.revoked)
            self._take_settings(ack.settings)
            self._do(self._machine.beat_answered(action.connection, ack, self._now_ms()))

        await self._on_link(action.connection, beat)

    def _take_revoked(self, told: RevokedSerials | None) -> None:
        if told is not None and self._revoked is not None:
            self._revoked.take(told)

    def _take_settings(self, told: SettingsTold | None) -> None:
        if self._settings is None:
            return
        if told is not None:
            self._settings.take(told)
        # An answer without settings says that those in force here are the right ones.
        self._settings.is_known = True

    async def _persist(self, identity: Identity) -> None:
        await self._owner.persist_identity(identity)
        self._do(self._machine.persisted(identity, self._now_ms()))

    async def _on_link(self, number: int, work: Callable[[RemotingConnection], Coroutine[Any, Any, None]]) -> None:
        """Run an exchange of connection ``number``; an error of the peer becomes an input of the machine."""
        link = self._link
        if link is None or number != self._link_number:
            return
        try:
            await work(link)
        except ControllerNotLeading as error:
            self._do(self._machine.hinted(number, error.hint, self._now_ms()))
        except _RefusedBeat as error:
            self._do(self._machine.refused(number, error.refusal, self._now_ms()))
        except (RemotingError, msgspec.MsgspecError) as error:
            self._lost(number, str(error), is_silent=isinstance(error, RemotingTimeout))

    async def _exchange(self, link: RemotingConnection, code: RequestCode, message: Value | None) -> bytes:
        """One request; returns the answer's body. A refusal of a heartbeat is raised, it has no ``HeartbeatAck``."""
        body = b"" if message is None else _encode(message)
        frame = await link.request(code, body=body, timeout_ms=self._timing.session_rpc_timeout_ms)
        if frame.code == RefusalCode.NOT_LEADER:
            raise ControllerNotLeading(_decode_hint(frame.body))
        if frame.code != 0 and code in (RequestCode.SESSION_HEARTBEAT, RequestCode.FIND_LEADER):
            reply = _decode_reply(frame.body)
            if isinstance(reply, Refused):
                raise _RefusedBeat(reply)
        return frame.body

    # --- milestones --------------------------------------------------------------------------------------------------

    def _report_soon(self) -> None:
        if self._milestones and not self._is_reporting and self.is_open:
            self._is_reporting = True
            self._tasks.begin(self._report_batches())

    async def _report_batches(self) -> None:
        try:
            # One turn, so that the milestones of one role change leave together.
            await asyncio.sleep(0)
            while self._milestones and self.is_open:
                batch = tuple(self._milestones)[:MILESTONES_PER_BATCH_MAX]
                # SERVING waits here for PROMISED to be committed. Without its age an outage of 20 ms was one of 60 ms
                # on record.
                sent_at_us = self._now_us()
                aged = tuple(replace(one, age_us=max(0, sent_at_us - at_us)) for one, at_us in batch)
                await self.ask(RecordMilestones(set_key=self._set_key, milestones=aged))
                for waiting in batch:
                    # While the batch was under way, a full queue may have dropped its oldest: taken off unseen, newer
                    # ones would go that were never sent.
                    if self._milestones and self._milestones[0] is waiting:
                        self._milestones.popleft()
        except SessionUnavailable:
            pass  # kept; sent again when a session opens
        finally:
            self._is_reporting = False


class _RefusedBeat(Exception):
    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class _Link:
    """Gives one connection its number."""

    def __init__(self, session: ControllerSession, number: int) -> None:
        self._session = session
        self._number = number

    def connected(self, connection: RemotingConnection) -> None:
        """Told by ``connect`` as well."""

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """Controllers ask nothing; their pushes are one-way."""
        del connection
        self._session.pushed(self._number, frames)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Also after our own ``close``; the machine knows late ones by their number."""
        self._session.closed(connection, self._number, reason)
