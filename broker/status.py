"""
The state of a running replica in its own words: for controllers, for probes, for clients, for its health address.

Here: which numbers, and what ready means. Not here: HTTP and metrics' text (``broker.health``), when they are sent
(``broker.session``, ``broker.handlers.listen``).
Rule: everything is read when it is asked for; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.consuming.reads_core import Place
from rollcall_ha.broker.consuming.room import ConsumerRoom
from rollcall_ha.broker.core.balancing import ReplicaFacts
from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.following import Following
from rollcall_ha.broker.handlers.ports import GateState
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.health import HealthSnapshot
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.protocol.routes import RouteBroker, RouteState
from rollcall_ha.broker.retention.shell import Retention
from rollcall_ha.broker.session import ControllerSession
from rollcall_ha.broker.write_stops import WriteStops
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SessionOrdinal, SyncStateSetEpoch
from rollcall_ha.controller.contract.session import BrokerState, Heartbeat, ProbeAnswer
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import EPOCHS_TOLD_MAX, Positions
from rollcall_ha.epoch.model import NO_EPOCH, LogOffset
from rollcall_ha.ha.catch_up import CatchUpPacer
from rollcall_ha.node.telemetry import get_logger

_log = get_logger("status")

ROOM_BYTES_MIN = 4_096
"""A log that cannot grow and has less room than this takes no ordinary message."""

READY_STATES = frozenset({BrokerState.MASTER, BrokerState.SLAVE, BrokerState.LEARNER})
"""Registered, and the role is applied; losing the controllers later changes nothing (promise 3)."""


def is_ready_in(state: BrokerState, *, has_full_disk: bool, is_stopped: bool) -> bool:
    """Whether /readyz says 200: the replica does what its role asks of it, now."""
    # A master whose disk is full takes what its last segment has room for; that its writes have stopped is told apart.
    # Not ready before that, it would contradict the set, which serves. A slave with a full disk cannot follow.
    return state in READY_STATES and not is_stopped and (state is BrokerState.MASTER or not has_full_disk)


class ReplicaReporter:
    """One per process. Implements ``broker.handlers.ports.OwnWord``."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        incarnation: Incarnation,
        machine: RoleMachine,
        log: CommitLog,
        broker_id: Callable[[], BrokerId | None],
        lag_bytes: Callable[[], int | None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """
        ``broker_id``: None before the controllers gave one. ``lag_bytes``: behind the followed master.

        ``is_stopped``: whether a master's writes are.
        """
        self.alarm = ""
        """Why a human must look; empty = nobody must."""
        self.blocked = ""
        """Why the controllers refuse this replica; empty = they do not."""
        self._config = config
        self._incarnation = incarnation
        self._machine = machine
        self._log = log
        self._broker_id = broker_id
        self._lag_bytes = lag_bytes
        self._is_stopped = is_stopped
        self._told_disk_trouble = ""

    @property
    def positions(self) -> Positions:
        """The log of this replica by its own word: whole records only."""
        log = self._log
        # A copy that is to begin at 32768, where the master's log begins, has no byte yet. Called an end, that place
        # would be records of nobody's epoch, which the controllers refuse.
        end = LogOffset(0) if not log.history and log.max_offset == log.min_offset else log.whole_offset
        confirm = min(log.confirm_offset, end)
        confirmed = log.history.find_by_offset(LogOffset(confirm - 1)) if confirm > 0 else None
        later = () if confirmed is None else (one.epoch for one in log.history.entries if one.epoch >= confirmed.epoch)
        return Positions(
            last_epoch=log.history.last_epoch,
            max_offset=end,
            confirm_offset=confirm,
            released=log.released_offset,
            confirm_epochs=UNSET if confirmed is None else tuple(later)[:-1][-EPOCHS_TOLD_MAX:],
        )

    @property
    def place(self) -> Place:
        """Where this replica is in its set, for those who may read from slaves."""
        log, view, broker_id = self._log, self._machine.view, self._broker_id()
        return Place(
            broker_id=broker_id or 0,
            is_slave=self._machine.published.state is BrokerState.SLAVE,
            is_member=view is not None and broker_id in view.sync_state_set,
            has_confirm=log.confirm_offset > log.min_offset,
        )

    @property
    def probe(self) -> ProbeAnswer:
        """The answer to a leader that asks which incarnation listens here (R13)."""
        return ProbeAnswer(
            set_key=self._config.set_key,
            broker_id=self._broker_id(),
            incarnation=self._incarnation,
            state=self._machine.published.state,
        )

    @property
    def route(self) -> RouteState:
        """This replica's knowledge of its set; a master that has not entered is no master yet."""
        view, role = self._machine.view, self._machine.published
        members = view.members if view is not None else ()
        is_known = view is not None and view.master_epoch >= role.master_epoch
        epoch, master = (view.master_epoch, view.master) if is_known and view is not None else (role.master_epoch, None)
        is_ours = master is not None and master == self._broker_id()
        if (role.state is not BrokerState.MASTER) if is_ours else (view is None or not view.has_entered):
            # A producer that is sent to a winner which is still entering is refused, and comes back after a pause:
            # later than one that waits for the next route.
            master = None
        # Cut off from the controllers alone, it would send each client that asks it first to itself, 600 refusals in a
        # minute, while its slaves have another master. On a peer's word alone it names itself while it serves.
        if is_ours and self._machine.is_doubted and self._is_stopped():
            master = None
        return RouteState(
            cluster=self._config.set_key.cluster,
            broker_name=self._config.set_key.name,
            master_epoch=epoch,
            master=master,
            replicas=tuple(RouteBroker(broker_id=one.broker_id, address=one.description.address) for one in members),
        )

    def heartbeat(self, ordinal: SessionOrdinal) -> Heartbeat:
        """What the session of this ordinal sends now."""
        broker_id = self._broker_id()
        assert broker_id is not None, "a session has an id"
        view = self._machine.view
        return Heartbeat(
            set_key=self._config.set_key,
            broker_id=broker_id,
            incarnation=self._incarnation,
            session_ordinal=ordinal,
            state=self._machine.published.state,
            is_ready=self._machine.is_ready,
            positions=self.positions,
            known_master_epoch=view.master_epoch if view is not None else NO_EPOCH,
            known_set_epoch=view.sync_state_set_epoch if view is not None else SyncStateSetEpoch(-1),
            lag_bytes=self._lag_bytes(),
            min_offset=self._log.min_offset,
            seen_index=self._machine.seen_index,
        )

    def tell_disk_trouble(self) -> None:
        """One log line when it begins, one when it is over."""
        trouble = self._disk_trouble()
        if trouble == self._told_disk_trouble:
            return
        if trouble:
            _log.error("disk_trouble", reason=trouble)
        else:
            _log.info("disk_trouble_over")
        self._told_disk_trouble = trouble

    def _disk_trouble(self) -> str:
        error = self._log.disk_error
        if error is None:
            return ""
        return f"the log cannot grow ({error}); free space in {self._config.directory}, it goes on by itself then"

    def append_trouble(self, put: PutPath) -> str:
        """Why sends are refused for want of disk; empty = they are not. A full disk takes what the last segment has."""
        is_refused = put.disk_refused_us > put.released_us or self._log.room_bytes < ROOM_BYTES_MIN
        return put.full_disk or (self._disk_trouble() if is_refused else "")

    def facts(
        self, *, gate: GateState, session: ControllerSession, writes: WriteStops, following: Following, timing: Timing
    ) -> ReplicaFacts:
        """This moment's facts by which ``balancing`` answers load balancers; each name has its unit."""
        role, view, stop = self._machine.published, self._machine.view, writes.stop
        return ReplicaFacts(
            state=role.state,
            reason=self.alarm or self.blocked or role.reason,
            master_epoch=role.master_epoch,
            takes_sends=gate.is_serving,
            is_min_in_sync=gate.is_min_in_sync,
            stopped="" if stop is None else f"{stop.reason}: {stop.detail}",
            has_full_disk=bool(self._disk_trouble()),
            lag_bytes=self._lag_bytes(),
            heard_age_us=following.heard_age_us(role.master_epoch),
            heard_age_ms_max=timing.heartbeat_timeout_ms,
            has_session=session.is_open,
            broker_id=self._broker_id(),
            sync_state_set=view.sync_state_set if view is not None else (),
        )

    def health(
        self,
        *,
        put: PutPath,
        session: ControllerSession,
        writes: WriteStops,
        pacer: CatchUpPacer | None,
        facts: ReplicaFacts,
        room: ConsumerRoom,
        retention: Retention,
    ) -> HealthSnapshot:
        """For the health address."""
        role, trouble, stop = self._machine.published, self._disk_trouble(), writes.stop
        stopped = "" if stop is None else f"writes are stopped: {stop.reason}: {stop.detail}"
        alarm = self.alarm or trouble or put.full_disk
        is_ready = is_ready_in(role.state, has_full_disk=bool(trouble), is_stopped=bool(stopped))
        values = [
            *self._values(put, session),
            *_copy_values(pacer),
            *room.values,
            *retention.values,
            ("write_stops_total", "Stops of writes that began.", writes.watch.stops),
            ("writes_stopped_seconds_total", "In stops of writes, the present one included.", writes.stopped_us / 1e6),
            ("write_stops_dropped_total", "Not reported for want of a session.", writes.reports.dropped),
            ("write_stops_untold", "Whose beginning or end no controller has taken yet.", writes.reports.untold),
            ("alarm", "1 if a human must look.", bool(alarm)),
        ]
        lag_bytes = self._lag_bytes()
        if lag_bytes is not None:
            values.append(("lag_bytes", "Distance to the master's last known end.", lag_bytes))
        return HealthSnapshot(
            state=role.state,
            is_ready=is_ready,
            reason=alarm or (role.reason if is_ready else self.blocked or stopped or role.reason),
            stopped=None if stop is None else stop.reason,
            facts=facts,
            lags=room.lags.series,
            waits=put.waits,
            retention=retention.report,
            values=tuple((name, text, float(value)) for name, text, value in values),
        )

    def _values(self, put: PutPath, session: ControllerSession) -> list[tuple[str, str, float]]:
        log, machine = self._log, self._machine
        role, view = machine.published, machine.view
        return [
            ("master_epoch", "masterEpoch of the role.", role.master_epoch),
            ("promised_epoch", "Durable promise.", machine.marks.promised),
            ("entered_epoch", "Newest epoch that this replica was master of.", machine.marks.entered),
            ("log_start_offset", "First byte of the log.", log.min_offset),
            ("log_end_offset", "End of the log.", log.max_offset),
            ("log_flushed_offset", "End of what is on disk.", log.flushed_offset),
            ("confirm_offset", "Everything below is on every required member.", log.confirm_offset),
            ("released_offset", "Highest end acknowledged to a producer.", log.released_offset),
            ("sync_state_set_size", "Members of the last known SyncStateSet.", len(view.sync_state_set) if view else 0),
            (
                "settings_version",
                "Of the controllers' settings in force here; 0 = the file's.",
                session.settings_version,
            ),
            ("session_open", "1 if a leading controller answers.", session.is_open),
            ("heartbeats_total", "Sent since the start.", session.counters.heartbeats),
            ("milestones_dropped_total", "Not reported for want of a session.", session.counters.milestones_dropped),
            ("messages_appended_total", "Since the start.", put.counters.appended),
            ("messages_acknowledged_total", "PUT_OK since the start.", put.counters.released),
            ("messages_unknown_total", "Failed as outcome unknown since the start.", put.counters.failed_unknown),
            ("messages_timed_out_total", "Of these, unacknowledged for ack_timeout_ms.", put.counters.timed_out),
            ("messages_refused_total", "Refused sends since the start.", put.counters.refused),
            ("messages_waiting", "Appended, neither released nor failed.", put.waiting_messages),
            ("dead_letters_sent_total", "Sent to retry topics once too often.", put.counters.dead_letters),
        ]


def _copy_values(pacer: CatchUpPacer | None) -> list[tuple[str, str, float]]:
    copies = () if pacer is None else pacer.copies
    under_way = [one for one in copies if one.has_turn]
    return [
        ("copies_under_way", "Slaves far behind that are copied to.", len(under_way)),
        ("copies_waiting", "Slaves far behind that wait for their turn.", len(copies) - len(under_way)),
        ("copies_left_bytes", "What the slaves far behind still lack.", sum(one.lag_bytes for one in copies)),
        ("copied_bytes_total", "To slaves far behind, since the start.", 0 if pacer is None else pacer.copied_bytes),
    ]
