"""
Which replica was heard when: the leader's soft state, as a machine without clock or sockets.

Here: sessions by (replica, incarnation, ordinal), silence, probes, links, the grace, stamps of detection, evidence, and
the refusal for a broker whose session is not the current one. Not here: elections (``election_duty``), sockets
(``api.broker_port``), the effect of liveness (``controller.core``). All times are nanoseconds of one monotonic clock.

Rule 1 (S33): a fact belongs to one (replica, incarnation, ordinal) and one connection; the late close of a connection
that the session has left means nothing.
Rule 2 (S39, S41, S42): after taking the lead, and after a gap between two ticks above ``stall_ms`` (a standstill, or no
majority), nobody is found silent for one full timeout. Wall clocks are never read.
Rule 3 (R13): session closed, probe refused and the link closed as seen by an electable member make a master dead at
once; RocketMQ brokers report no links: there it is session closed and probe refused twice. A probe answered by another
incarnation makes any replica replaced at once. The grace does not delay these.
Rule 4: whether a replica is alive or silent is replicated state: this machine proposes a change, and believes the
applied state.
Rule 5: evidence calls a replica ready only while it is heard. When a whole set falls silent, its members are found one
after the other: without this rule each would be elected in turn, and the set would shrink to the last one found.
Rule 6: a stamp is never better than its reading. A sign that is read after the loop stood still came at some time since
the loop was last seen to run, and a sign of life counts from there.
Rule 7 (R7): a broker that knows a later masterEpoch than this leader must register again, because a registration
reports what the broker knows.
Rule 8 (R28): a replica whose connection was closed because its certificate is revoked is gone at once: nothing is asked
of it, and it does not come back on this session.
Rule 9 (R13): a master that is found silent when nobody of its set is heard, or less than half of the fleet, may be
there: this leader's own network is as likely. It is awaited once a member tells of its bytes (``own_network``).
"""

from __future__ import annotations

from collections.abc import Iterable

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import MarkAlive, MarkSilent
from rollcall_ha.controller.contract.ids import BrokerId, ReplicaKind, SessionOrdinal, SetKey
from rollcall_ha.controller.contract.replies import MemberView, Refused, SetView
from rollcall_ha.controller.contract.session import Heartbeat, LinkReport, ProbeAnswer
from rollcall_ha.controller.contract.timing import NS_PER_MS, NS_PER_US, Timing
from rollcall_ha.controller.contract.values import (
    EventRef,
    Evidence,
    Positions,
    ReplicaEvidence,
    SilenceCause,
    made_from,
)
from rollcall_ha.controller.contract.views import MissedMasters
from rollcall_ha.controller.core.actions import Action, ProposeCommand, SendProbe
from rollcall_ha.controller.core.detection import Stamps
from rollcall_ha.controller.core.registration import too_high
from rollcall_ha.controller.core.views import ViewOf
from rollcall_ha.controller.runtime import own_network
from rollcall_ha.controller.runtime.confirms import Confirms, in_reign
from rollcall_ha.controller.runtime.fencing import fenced, knows_more, not_registered
from rollcall_ha.controller.runtime.session_state import (
    ConnectionId,
    LinkSeen,
    ProbeOutcome,
    ReplicaKey,
    ReplicaSession,
    rocketmq_timeout_ms,
)

PROBES_MAX = 5
"""Probes after one close; a replica that answers or is unreachable is then left to the timeout."""

ROCKETMQ_HEARTBEAT_INTERVAL_MS = 1_000
ROCKETMQ_REFUSALS = 2
"""Refused probes after which a RocketMQ master is dead at once."""

ROCKETMQ_PROBE_PAUSE_MS = 30
ROCKETMQ_REFUSAL_PAUSE_MS = 10
"""A dying JVM closes its connections before its port: ``PROBES_MAX`` outlast that. Refused once, its port is closed."""

SILENCE_IN_FLIGHT_MAX = 2_000
"""Proposals of silence without an outcome: more wait for the next tick, so that elections get through."""

AGE_US_MAX = 30 * 24 * 3_600_000_000
"""A month: the most that a member can say of how long ago it heard its master, or lost it."""

LOOP_GAP_MS_MAX = 60
"""Between two ``breathe`` but one: above this the loop stood still (Rule 6)."""

RETRY_PAUSE_MS = 50
"""Between two proposals about one replica whose first one failed or was lost."""


class Sessions:
    """The machine. Every handler returns actions; none raises."""

    def __init__(self, *, timing: Timing, view_of: ViewOf) -> None:
        """``view_of`` reads replicated state as of the newest applied entry; cheap, called often."""
        self._timing = timing
        self._rocketmq_timeout_ms_max = 0
        self._view_of = view_of
        self._sessions: dict[ReplicaKey, ReplicaSession] = {}
        self._tracked: dict[SetKey, set[BrokerId]] = {}
        # Alive replicas in the order of their last heartbeat: those that are due stand at the front, and a scan costs
        # what it finds. One order per timeout in use: the fleet's, and those that RocketMQ brokers ask for.
        self._by_due: dict[int, dict[ReplicaKey, ReplicaSession]] = {}
        self._suspects: dict[ReplicaKey, ReplicaSession] = {}
        self._by_connection: dict[ConnectionId, dict[ReplicaKey, ReplicaSession]] = {}
        self._grace_from_ns: int | None = None
        self._last_tick_ns: int | None = None
        self._breaths_ns: tuple[int, int] | None = None
        self._reigning: dict[SetKey, ReplicaKey] = {}
        self._ended: dict[SetKey, Stamps] = {}
        self.confirms = Confirms()
        self._in_flight = 0
        self.graces = 0
        """How often everybody got one full timeout; a metric."""

    # --- leadership --------------------------------------------------------------------------------------------------

    def arm(self, keys: Iterable[SetKey], now_ns: int) -> None:
        """Begin to lead: know every registered replica and give everybody one full timeout (Rule 2)."""
        self.disarm()
        for key in keys:
            self.track(key, now_ns)
        own_network.inherited(self._sessions.values(), now_ns)
        self._start_grace(now_ns)
        self._last_tick_ns = now_ns

    def disarm(self) -> None:
        """Cease to lead: soft state means nothing any more."""
        self._sessions.clear()
        self._tracked.clear()
        self._by_due.clear()
        self._suspects.clear()
        self._by_connection.clear()
        self._in_flight = 0
        self._last_tick_ns = None
        self._reigning.clear()
        self._ended.clear()
        self.confirms.clear()

    def breathe(self, now_ns: int) -> None:
        """The loop runs: to be called often, by a timer (Rule 6)."""
        # The last but one is kept: on the first turn after a standstill a loop may run its timers before it reads.
        self._breaths_ns = (now_ns if self._breaths_ns is None else self._breaths_ns[1], now_ns)

    def _since_ns(self, now_ns: int) -> int:
        """The earliest moment at which a sign that is read now can have come (Rule 6)."""
        before_ns = now_ns if self._breaths_ns is None else self._breaths_ns[0]
        return now_ns if now_ns - before_ns <= LOOP_GAP_MS_MAX * NS_PER_MS else before_ns

    def _start_grace(self, now_ns: int) -> None:
        self._grace_from_ns = now_ns
        self.graces += 1

    def retime(self, timing: Timing, rocketmq_ms_max: int, now_ns: int) -> None:
        """Other durations are in force; ``rocketmq_ms_max``: the longest of a RocketMQ broker, 0 = as it asks."""
        shorter_ms = max(0, self._timing.heartbeat_timeout_ms - timing.heartbeat_timeout_ms)
        self._timing, self._rocketmq_timeout_ms_max = timing, rocketmq_ms_max
        in_order = [session for order in self._by_due.values() for session in order.values()]
        self._by_due.clear()
        for session in self._sessions.values():
            is_ours = session.kind is not ReplicaKind.ROCKETMQ
            session.timeout_ms = self._timeout_ms(session.kind, None if is_ours else session.timeout_ms)
            session.interval_ns = self._interval_ms(session.kind) * NS_PER_MS
            session.stall_ns = timing.stall_ms * NS_PER_MS
        for session in sorted(in_order, key=lambda session: session.due_from_ns):
            self._join_due(session)
        # A broker hears of its shorter interval a moment later than we of the shorter timeout: counted at once, each
        # of them would be found silent between two heartbeats of before.
        self._start_grace(now_ns + shorter_ms * NS_PER_MS)

    def track(self, key: SetKey, now_ns: int) -> None:
        """Take over the replicas of ``key`` from replicated state, now that an entry has changed the set."""
        view = self._view_of(key)
        members = view.members if view is not None else ()
        for member in members:
            self._track_member(key, member, now_ns)
        known = {member.broker_id for member in members}
        # Cleaned, from a set that may go on serving. With its session left, its heartbeats would count for nothing
        # instead of being refused, and its silence be proposed, and refused by apply, ten times a second for ever.
        for broker_id in self._tracked.get(key, set()) - known:
            self._forget((key, broker_id))
        self._tracked[key] = known
        if view is not None and view.master is not None:
            self._reigning[key] = (key, view.master)
            self._ended.pop(key, None)
        elif not known:
            # Cleaned. Under the same name a set may begin anew, and its first election is no end of an outage.
            self._reigning.pop(key, None)
            self._ended.pop(key, None)
            self.confirms.forget(key)

    def _track_member(self, key: SetKey, member: MemberView, now_ns: int) -> None:
        replica = (key, member.broker_id)
        session = self._sessions.get(replica)
        if session is None or session.ordinal != member.session_ordinal or session.incarnation != member.incarnation:
            session = self._replace(replica, session, member, now_ns)
        session.address = member.description.address
        if member.is_alive and not session.is_alive:
            # Alive again by an applied entry: its silence counts from now. From its last heartbeat it would be due at
            # the next tick, and be marked silent and alive in turn for ever.
            session.cause = None
            session.due_from_ns = now_ns
            # Not sooner: its heartbeat comes 20 ms after its silence was applied, and the election would be proposed
            # before it is alive again.
            session.missed_ns = session.witnessed_ns = None
        session.is_alive = member.is_alive
        if not session.is_alive:
            self._leave_due(session)
            self._suspects.pop(replica, None)
        # A suspect stays one: back in the order it would be found again, and its silence be proposed twice.
        elif replica not in self._suspects and replica not in self._by_due.get(session.timeout_ms, {}):
            self._join_due(session)

    def _join_due(self, session: ReplicaSession) -> None:
        """At the end of its order: nobody was heard later."""
        self._by_due.setdefault(session.timeout_ms, {})[session.key] = session

    def _leave_due(self, session: ReplicaSession) -> None:
        order = self._by_due.get(session.timeout_ms)
        if order is not None:
            order.pop(session.key, None)
            if not order:
                del self._by_due[session.timeout_ms]

    def _replace(
        self, replica: ReplicaKey, old: ReplicaSession | None, member: MemberView, now_ns: int
    ) -> ReplicaSession:
        """A further session of a replica begins empty (Rule 1)."""
        if old is not None:
            # With it goes its connection: broker 1 restarts within a second, and the close of its first connection
            # comes after its second registration. Still bound, that close would start the probes against the new
            # process.
            self._forget(replica)
        session = ReplicaSession(
            set_key=replica[0],
            broker_id=member.broker_id,
            incarnation=member.incarnation,
            ordinal=member.session_ordinal,
            address=member.description.address,
            kind=member.description.kind,
            timeout_ms=self._timeout_ms(member.description.kind),
            is_alive=member.is_alive,
            due_from_ns=now_ns,
            interval_ns=self._interval_ms(member.description.kind) * NS_PER_MS,
            stall_ns=self._timing.stall_ms * NS_PER_MS,
        )
        # The same process, on a further session: its word about its log is still true. Another incarnation may have
        # lost its tail: with the old positions it would be evidence for 5,000 bytes that a power loss has taken (R3).
        if old is not None and old.incarnation == member.incarnation:
            session.state, session.is_ready, session.positions = old.state, old.is_ready, old.positions
            session.heard_ns, session.links, session.growth = old.heard_ns, old.links, old.growth
            own_network.returned(old, now_ns)
            session.back_ns = old.back_ns
            session.alive_ns, session.told_ns = old.alive_ns, old.told_ns
            session.confirmed_before, session.timeout_ms = old.confirmed_before, old.timeout_ms
            if not member.is_alive:
                session.missed_ns, session.witnessed_ns = old.missed_ns, old.witnessed_ns
        elif old is not None and self._reigning.get(replica[0]) == replica:
            del self._reigning[replica[0]]
            # With its session would go the time at which it was seen to end: an outage would begin when the next
            # process of the master has started.
            self._ended[replica[0]] = old.ended(now_ns)
        self._sessions[replica] = session
        return session

    def _forget(self, replica: ReplicaKey) -> None:
        session = self._sessions.pop(replica, None)
        self._suspects.pop(replica, None)
        if session is not None:
            self._leave_due(session)
            self._bind(session, None)
            if session.in_flight:
                self._in_flight -= 1

    def _interval_ms(self, kind: ReplicaKind) -> int:
        interval_ms = self._timing.heartbeat_interval_ms
        return max(interval_ms, ROCKETMQ_HEARTBEAT_INTERVAL_MS) if kind is ReplicaKind.ROCKETMQ else interval_ms

    def _timeout_ms(self, kind: ReplicaKind, asked_ms: int | None = None) -> int:
        if kind is not ReplicaKind.ROCKETMQ:
            return self._timing.heartbeat_timeout_ms
        return rocketmq_timeout_ms(asked_ms, self._rocketmq_timeout_ms_max)

    # --- what brokers say --------------------------------------------------------------------------------------------

    def open(
        self,
        replica: ReplicaKey,
        ordinal: SessionOrdinal,
        positions: Positions,
        connection: ConnectionId | None,
        now_ns: int,
    ) -> None:
        """A registration was answered on ``connection``: the session lives there from now on."""
        session = self._sessions.get(replica)
        if session is None or session.ordinal != ordinal:
            return  # a further registration was applied since: this connection is the older one's
        # Not over those of a heartbeat, which is newer: the answer may have waited for its turn on the loop.
        if session.positions is None:
            session.positions = positions
        self.confirms.answered(self._view_of(replica[0]), session)
        session.answered_ns = now_ns
        self._heard(session, connection, now_ns)

    def heartbeat(self, beat: Heartbeat, connection: ConnectionId | None, now_ns: int) -> Refused | list[Action]:
        """Count the replica as heard; a refusal if the session it names is not the current one."""
        session = self._sessions.get((beat.set_key, beat.broker_id))
        refusal = fenced(session, beat.incarnation, beat.session_ordinal)
        if session is None or refusal is not None:
            return refusal or not_registered(beat.set_key, beat.broker_id)
        # Rule 7. These controllers came back from a backup of epoch 5 while the broker serves in 7: counted as heard,
        # it would keep epoch 5 looking alive, and the leader would grant epochs 6 and 7 a second time.
        view = self._view_of(beat.set_key)
        if view is not None and beat.known_master_epoch > view.master_epoch and view.condition.has_master:
            return knows_more(beat, view)
        master = self._sessions.get((beat.set_key, view.master)) if view is not None and view.master else None
        # As a registration is: a forged epoch of 2**70 would be in the evidence, and the floor of a first election.
        if complaint := too_high(beat.positions):
            hint = "correct the broker's directory; nothing of this heartbeat counts"
            return Refused(code=RefusalCode.INVALID_ARGUMENT, reason=complaint, hint=hint)
        session.state = beat.state
        session.known_master_epoch = beat.known_master_epoch
        session.is_ready = beat.is_ready
        session.positions = beat.positions
        self.confirms.heard(view, session, beat)
        session.lag_bytes, session.min_offset = beat.lag_bytes, beat.min_offset
        session.known_settings = beat.known_settings
        session.growth.note(beat.positions.max_offset, now_ns)
        own_network.returned(session, now_ns)
        session.heard_ns = now_ns
        if view is not None and beat.known_master_epoch == view.master_epoch:
            self._hear_of(master, beat.master_heard_age_us, now_ns)
        if beat.timeout_ms is not None and session.kind is ReplicaKind.ROCKETMQ:
            # Left BEFORE the timeout changes, which names the order: it would stay in the old one and be found due
            # there.
            self._leave_due(session)
            session.timeout_ms = self._timeout_ms(session.kind, beat.timeout_ms)
        late_ns = session.late_ns(beat.answered_age_us, self._since_ns(now_ns))
        self._heard(session, connection, now_ns, late_ns)
        session.answered_ns = now_ns
        # Its slaves' acks ended 0.4 s before its last heartbeat: by the heartbeat, 3.5 s without an ack were
        # an outage of 3.1 s at most. A stop as old as ``stall_ms`` is told by itself.
        session.told_ns = self._since_ns(now_ns) - late_ns - min(_bounded_ns(beat.waiting_us or 0), session.stall_ns)
        # One proposal at a time: a leader that has just taken over hears 3,000 heartbeats a second of replicas that are
        # marked silent, and each of them would else become an entry.
        if session.is_alive or session.in_flight or session.retry_at_ns > now_ns:
            # Its word about the link may have come before the one that it is ready, and have borne no witness (R13).
            is_witness = master is not None and master is not session and session.broker_id in master.links
            return self._judge(master, now_ns) if master is not None and is_witness else []
        session.in_flight = True
        self._in_flight += 1
        return [ProposeCommand(command=made_from(beat, MarkAlive))]

    def _heard(self, session: ReplicaSession, connection: ConnectionId | None, now_ns: int, late_ns: int = 0) -> None:
        if connection is not None and session.connection != connection:
            self._bind(session, connection)
        session.due_from_ns = now_ns
        session.told_ns = self._since_ns(now_ns) - late_ns
        self._hear_of(session, late_ns // NS_PER_US, now_ns)
        # A sign of life takes back every sign of death: a refused probe of yesterday and a closed session of today are
        # not "dead at once" (R13).
        session.closed_ns = session.refused_ns = session.link_closed_ns = session.link_ended_ns = None
        session.probes = session.refusals = 0
        if not session.is_alive:
            return
        session.cause = None
        self._suspects.pop(session.key, None)
        self._leave_due(session)
        self._join_due(session)

    def _hear_of(self, session: ReplicaSession | None, age_us: int | None, now_ns: int) -> None:
        """A sign of life of this replica: its own, or bytes that a member had from it as master."""
        if session is None or age_us is None:
            return
        alive_ns = self._since_ns(now_ns) - _bounded_ns(age_us)
        if session.alive_ns is None or alive_ns > session.alive_ns:
            session.alive_ns = alive_ns
            own_network.witnessed(session, now_ns)

    def _bind(self, session: ReplicaSession, connection: ConnectionId | None) -> None:
        if session.connection is not None:
            shared = self._by_connection.get(session.connection)
            if shared is not None:
                shared.pop(session.key, None)
                if not shared:
                    del self._by_connection[session.connection]
        session.connection = connection
        if connection is not None:
            self._by_connection.setdefault(connection, {})[session.key] = session

    def link(self, report: LinkReport, now_ns: int) -> Refused | list[Action]:
        """A member says whether its link to the master is open (R13)."""
        reporter = self._sessions.get((report.set_key, report.broker_id))
        if reporter is None:
            return []  # noted all the same, a million reports under made-up ids would fill the leader's memory
        # R13 asks for an electable member's own word. A report of broker 2's last process, delivered late, would bear
        # witness for a link that its present process has open.
        refusal = fenced(reporter, report.incarnation, report.session_ordinal)
        if refusal is not None:
            return refusal
        master = self._sessions.get((report.set_key, report.master))
        if master is None:
            return []
        self._see_link(master, report, now_ns)
        # A link may close because its slave restarts. While the master's session is open this says nothing of the
        # master.
        if report.is_open or master.connection is not None:
            return []
        return self._judge(master, now_ns) + self._maybe_probe(master)

    def _see_link(self, master: ReplicaSession, report: LinkReport, now_ns: int) -> None:
        is_end_seen = not report.is_open and report.closed_age_us is not None
        since_ns = now_ns - _bounded_ns(report.closed_age_us or 0)
        master.links[report.broker_id] = LinkSeen(
            master_epoch=report.master_epoch, is_open=report.is_open, since_ns=since_ns, is_end_seen=is_end_seen
        )
        view = self._view_of(report.set_key)
        if view is not None and (view.master, view.master_epoch) == (report.master, report.master_epoch):
            self._hear_of(master, report.heard_age_us, now_ns)

    def said_goodbye(self, key: SetKey, broker_id: BrokerId, now_ns: int) -> None:
        """An applied entry says that it stops: the sign of its end, if there was none before."""
        session = self._sessions.get((key, broker_id))
        if session is not None and session.cause is None:
            session.cause, session.detected_ns = SilenceCause.GOODBYE, now_ns

    def close(self, connection: ConnectionId, now_ns: int, *, is_revoked: bool = False) -> list[Action]:
        """A connection ended; only sessions that still live on it notice (Rule 1). ``is_revoked``: Rule 8."""
        actions: list[Action] = []
        # By connection, not by replica: the close of a connection that a replica has left means nothing (Rule 1).
        for session in tuple(self._by_connection.get(connection, {}).values()):
            self._bind(session, None)
            session.closed_ns, session.closed_after_ns = now_ns, self._since_ns(now_ns)
            # Refusals count from this close: an earlier one says nothing about the process that was connected since.
            session.refused_ns = None
            session.probes = session.refusals = 0
            # Rule 8. Whoever has its key would answer the probe, and send heartbeats on the next link if it could: by
            # silence alone a master that nobody believes any more would reign until its timeout.
            if is_revoked and session.is_alive:
                actions += self._detect(session, SilenceCause.REVOKED, now_ns)
            else:
                actions += self._maybe_probe(session)
        return actions

    # --- probes ------------------------------------------------------------------------------------------------------

    def _maybe_probe(self, session: ReplicaSession, *, after_ms: int = 0) -> list[Action]:
        # Bounded: a listen port behind a firewall that drops would be probed for ever; the timeout decides about it.
        if session.is_probing or not session.is_alive or session.in_flight or session.probes >= PROBES_MAX:
            return []
        session.is_probing = True
        session.probes += 1
        return [
            SendProbe(
                set_key=session.set_key,
                broker_id=session.broker_id,
                incarnation=session.incarnation,
                session_ordinal=session.ordinal,
                address=session.address,
                kind=session.kind,
                after_ms=after_ms,
            )
        ]

    def probed(self, probe: SendProbe, outcome: ProbeOutcome, answer: ProbeAnswer | None, now_ns: int) -> list[Action]:
        """The result of a probe. It counts only for the session that the probe was sent for (Rule 1)."""
        session = self._sessions.get((probe.set_key, probe.broker_id))
        if session is None or (session.incarnation, session.ordinal) != (probe.incarnation, probe.session_ordinal):
            return []
        session.is_probing = False
        # It came back while the probe was under way: a connection outweighs a refusal that is older.
        if session.connection is not None or not session.is_alive:
            return []
        is_java = session.kind is ReplicaKind.ROCKETMQ
        if outcome is ProbeOutcome.REFUSED:
            session.refused_ns = session.refused_ns or now_ns
            session.refusals += 1
            if is_java and session.refusals < ROCKETMQ_REFUSALS:
                return self._maybe_probe(session, after_ms=ROCKETMQ_REFUSAL_PAUSE_MS)
            return self._judge(session, now_ns)
        if outcome is ProbeOutcome.NO_ANSWER:
            # Proves nothing: a paused machine, a full queue and a dropped packet look the same.
            return self._maybe_probe(session, after_ms=ROCKETMQ_PROBE_PAUSE_MS if is_java else 0)
        # Another broker may listen on that address by now: only an answer for this replica names its incarnation.
        is_ours = answer is not None and (answer.set_key, answer.broker_id) == session.key
        if answer is not None and is_ours and answer.incarnation != session.incarnation:
            return self._detect(session, SilenceCause.REPLACED, now_ns)
        return []

    def _judge(self, session: ReplicaSession, now_ns: int) -> list[Action]:
        """Dead at once, if all three facts are there (R13). Of a slave nothing hangs on haste: it waits its timeout."""
        if session.refused_ns is None or session.connection is not None or not session.is_alive:
            return []
        view = self._view_of(session.set_key)
        if view is None or view.master != session.broker_id:
            return []
        if session.kind is ReplicaKind.ROCKETMQ:
            return self._detect(session, SilenceCause.DEAD_AT_ONCE, now_ns)
        # A firewall and a moved address refuse, too, while the master goes on acking to its slaves. A
        # member that sees its link to the master closed rules that out; of this epoch only: a link that broke while 4
        # reigned says nothing about the master of 5.
        seen = [
            link
            for member in view.members
            if self._is_electable(view, member) and (link := session.links.get(member.broker_id)) is not None
            if link.master_epoch == view.master_epoch and not link.is_open
        ]
        if not seen:
            return []
        session.link_closed_ns = min(link.since_ns for link in seen)
        session.link_ended_ns = min((link.since_ns for link in seen if link.is_end_seen), default=None)
        return self._detect(session, SilenceCause.DEAD_AT_ONCE, now_ns)

    def _is_electable(self, view: SetView, member: MemberView) -> bool:
        # The witness must be able to take over, and be heard itself: a slave that is cut off from everybody sees all of
        # its links closed.
        session = self._sessions.get((view.set_key, member.broker_id))
        return (
            member.broker_id != view.master
            and member.broker_id in view.sync_state_set
            and member.is_alive
            and not member.is_suspect
            and not member.description.is_learner
            and session is not None
            and session.is_ready
            and session.connection is not None
        )

    # --- silence -----------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> list[Action]:
        """Find silent replicas. A late tick is our own stall and starts the grace instead (Rule 2)."""
        last_ns, self._last_tick_ns = self._last_tick_ns, now_ns
        # The loop stood still for 3 s (a pause of the machine, a suspended container): heartbeats of that time wait in
        # the sockets. Without the grace this tick would find all replicas silent and depose every master (S39).
        if last_ns is not None and now_ns - last_ns > self._timing.stall_ms * NS_PER_MS:
            self._start_grace(now_ns)
        actions: list[Action] = []
        due = [session for timeout_ms in self._by_due for session in self._due(timeout_ms, now_ns)]
        if due:
            own_network.suspected(due, self._sessions, self._tracked, now_ns)
        for session in due:
            actions += self._detect(session, SilenceCause.TIMEOUT, now_ns)
        for session in tuple(self._suspects.values()):
            actions += self._propose_silence(session, now_ns)
        return actions

    def _due(self, timeout_ms: int, now_ns: int) -> list[ReplicaSession]:
        """The replicas that were silent for ``timeout_ms``; none as long as the grace of that length lasts."""
        due_before_ns = now_ns - timeout_ms * NS_PER_MS
        if self._grace_from_ns is not None and self._grace_from_ns > due_before_ns:
            return []
        due = []
        for session in self._by_due[timeout_ms].values():
            if session.due_from_ns > due_before_ns:
                break  # the order is by this time: all that follow were heard later
            due.append(session)
        return due

    def _detect(self, session: ReplicaSession, cause: SilenceCause, now_ns: int) -> list[Action]:
        # The first sign is the one on record: a timeout that follows a refused probe is the same fault, noticed later.
        if session.cause is None:
            session.cause = cause
            session.detected_ns = now_ns
        self._leave_due(session)
        self._suspects[session.key] = session
        return self._propose_silence(session, now_ns)

    def _propose_silence(self, session: ReplicaSession, now_ns: int) -> list[Action]:
        stamps = session.stamps()
        is_waiting = session.in_flight or session.retry_at_ns > now_ns or self._in_flight >= SILENCE_IN_FLIGHT_MAX
        if stamps is None or is_waiting:
            return []  # it stays a suspect: ``tick`` comes back to it
        session.in_flight = True
        self._in_flight += 1
        return [
            ProposeCommand(
                command=MarkSilent(
                    set_key=session.set_key,
                    broker_id=session.broker_id,
                    incarnation=session.incarnation,
                    session_ordinal=session.ordinal,
                    cause=stamps.cause,
                    detection=stamps.ages(now_ns),
                )
            )
        ]

    def proposed(self, command: MarkSilent | MarkAlive, now_ns: int) -> None:
        """A proposal is no longer under way; if nothing came of it, a later tick or heartbeat tries again."""
        session = self._sessions.get((command.set_key, command.broker_id))
        if session is None or session.ordinal != command.session_ordinal or not session.in_flight:
            return  # an older session's: counting it down here would let more than the limit into flight
        session.in_flight = False
        self._in_flight -= 1
        session.retry_at_ns = now_ns + RETRY_PAUSE_MS * NS_PER_MS

    # --- what others read --------------------------------------------------------------------------------------------

    def stamps_of_lost(self, key: SetKey, master: BrokerId | None) -> Stamps | None:
        """How the set lost its master, as far as this leader saw it; ``master`` None: its process was replaced."""
        if master is None:
            return self._ended.get(key)
        session = self._sessions.get((key, master))
        return session.stamps() if session is not None else None

    def awaits_master(self, view: SetView, now_ns: int) -> bool:
        """Whether its master may be there, by a member's word, and is to be heard before another one is elected."""
        master = self._sessions.get((view.set_key, view.master)) if view.master is not None else None
        return master is not None and own_network.is_awaited(master, now_ns)

    def misses_master(self, key: SetKey, now_ns: int) -> bool:
        """Whether its master fell silent together with all others, so that nobody is elected now (Rule 9)."""
        master = self._sessions.get(self._reigning[key]) if key in self._reigning else None
        members = (self._sessions.get((key, one)) for one in self._tracked.get(key, ()))
        of_set = (one for one in members if one is not None)
        return master is not None and own_network.is_missed(master, of_set, now_ns)

    def missed_masters(self, now_ns: int) -> MissedMasters | None:
        """Masters of sets of which ``misses_master`` is true; None: there is none, or this controller does not lead."""
        missed = [self._sessions[master] for key, master in self._reigning.items() if self.misses_master(key, now_ns)]
        return own_network.told(missed, now_ns)

    def has_heard(self, key: SetKey, broker_id: BrokerId) -> bool:
        """Whether the replica told its positions."""
        session = self._sessions.get((key, broker_id))
        return session is not None and session.positions is not None

    def get(self, key: SetKey, broker_id: BrokerId) -> ReplicaSession | None:
        """The session of one replica; None if this controller does not lead or never heard of it."""
        return self._sessions.get((key, broker_id))

    def heard_within_ms(self, now_ns: int) -> int | None:
        """How long ago, at most, any replica that counts as alive was heard; None = one was never heard here."""
        alive = [session.told_ns for session in self._sessions.values() if session.is_alive]
        heard = [told_ns for told_ns in alive if told_ns is not None]
        if not heard or len(heard) < len(alive):
            return None
        return max(0, now_ns - min(heard)) // NS_PER_MS + 1

    def connections_of(self, view: SetView) -> list[ConnectionId]:
        """The connections on which our own replicas of a set can be reached by a push."""
        sessions = (self._sessions.get((view.set_key, member.broker_id)) for member in view.members)
        found = (s.connection for s in sessions if s is not None and s.kind is ReplicaKind.NATIVE)
        return sorted({connection for connection in found if connection is not None})

    @property
    def open_count(self) -> int:
        """Sessions on a connection."""
        return sum(len(sessions) for sessions in self._by_connection.values())

    def is_heard_ready(self, session: ReplicaSession, now_ns: int) -> bool:
        """Whether it said lately that it is ready."""
        # Rule 5. Racks 1 and 2 lose power together. Replicated state calls broker 2 alive until its timeout: without
        # the age it would be elected, found silent, and the set be down to broker 3.
        return session.is_ready and session.is_fresh(session.heard_ns, now_ns)

    def evidence(
        self, view: SetView, *, now_ns: int, triggered_by: EventRef | None, stamps: Stamps | None, draw: int
    ) -> Evidence:
        """Soft facts about every replica that this leader has heard, and the state they were taken against (R14)."""
        lost = self._sessions.get((view.set_key, view.master)) if view.master is not None else None
        if stamps is not None and lost is not None:
            stamps = lost.lived_on(stamps, now_ns)
        return Evidence(
            read_at_index=view.index,
            master_epoch=view.master_epoch,
            sync_state_set_epoch=view.sync_state_set_epoch,
            replicas=tuple(
                seen for member in view.members if (seen := self._replica_evidence(view, member, now_ns)) is not None
            ),
            triggered_by=triggered_by,
            detection=stamps.ages(now_ns) if stamps is not None else None,
            epoch_jump_draw=draw,
            confirmed=self.confirms.told(view),
        )

    def _replica_evidence(self, view: SetView, member: MemberView, now_ns: int) -> ReplicaEvidence | None:
        session = self._sessions.get((view.set_key, member.broker_id))
        if session is None or session.positions is None:
            # Not heard by this leader: zeros in its place would rank it as an empty log (R3).
            return None
        positions, heard_ns = session.positions, session.heard_ns
        return ReplicaEvidence(
            broker_id=member.broker_id,
            incarnation=member.incarnation,
            session_ordinal=member.session_ordinal,
            heartbeat_age_ms=None if heard_ns is None else (now_ns - heard_ns) // NS_PER_MS,
            is_ready=self.is_heard_ready(session, now_ns),
            last_epoch=positions.last_epoch,
            max_offset=positions.max_offset,
            confirm_offset=positions.confirm_offset,
            released=positions.released,
            confirmed_before=in_reign(session.confirmed_before, view),
        )


def _bounded_ns(age_us: int) -> int:
    """A peer's word about its own clock. Unbounded, 2**70 would be on record as the length of an outage."""
    return min(max(0, age_us), AGE_US_MAX) * NS_PER_US
