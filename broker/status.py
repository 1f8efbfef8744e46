"""
A running replica as its health address shows it.

Here: which numbers, and what ready means. Not here: HTTP and metrics' text (``broker.health``).
"""

from __future__ import annotations

from broker.core.role import RoleMachine
from broker.handlers.put import PutPath
from broker.health import HealthSnapshot
from broker.log.ports import BrokerLog
from broker.session import Session
from controller.contract.session import BrokerState

READY_STATES = frozenset({BrokerState.MASTER, BrokerState.SLAVE, BrokerState.LEARNER})
"""Registered, and the role is applied; losing the controllers later changes nothing (promise 3)."""


def health_of(
    *,
    machine: RoleMachine,
    log: BrokerLog,
    put: PutPath,
    session: Session,
    lag_bytes: int | None,
    alarm: str,
    blocked: str,
    disk_trouble: str,
) -> HealthSnapshot:
    """
    ``alarm``: a human must look. ``blocked``: the controllers refuse this replica. ``disk_trouble``: its log cannot
    grow. Empty = no.
    """
    role, view = machine.published, machine.view
    alarm = alarm or disk_trouble
    is_ready = role.state in READY_STATES and not disk_trouble
    values: list[tuple[str, str, float]] = [
        ("master_epoch", "masterEpoch of the role.", role.master_epoch),
        ("promised_epoch", "Durable promise.", machine.marks.promised),
        ("entered_epoch", "Newest epoch that this replica was master of.", machine.marks.entered),
        ("log_start_offset", "First byte of the log.", log.min_offset),
        ("log_end_offset", "End of the log.", log.max_offset),
        ("log_flushed_offset", "End of what is on disk.", log.flushed_offset),
        ("confirm_offset", "Everything below is on every required member.", log.confirm_offset),
        ("released_offset", "Highest end acknowledged to a producer.", log.released_offset),
        ("sync_state_set_size", "Members of the last known SyncStateSet.", len(view.sync_state_set) if view else 0),
        ("session_open", "1 if a leading controller answers.", session.is_open),
        ("heartbeats", "Sent since the start.", session.counters.heartbeats),
        ("milestones_dropped", "Not reported for want of a session.", session.counters.milestones_dropped),
        ("messages_appended", "Since the start.", put.counters.appended),
        ("messages_acknowledged", "PUT_OK since the start.", put.counters.released),
        ("messages_unknown", "Failed as outcome unknown since the start.", put.counters.failed_unknown),
        ("messages_refused", "Refused sends since the start.", put.counters.refused),
        ("messages_waiting", "Appended, neither released nor failed.", put.waiting_messages),
        ("alarm", "1 if a human must look.", bool(alarm)),
    ]
    if lag_bytes is not None:
        values.append(("lag_bytes", "Distance to the master's last known end.", lag_bytes))
    return HealthSnapshot(
        state=role.state,
        is_ready=is_ready,
        reason=alarm or (role.reason if is_ready else blocked or role.reason),
        values=tuple((name, text, float(value)) for name, text, value in values),
    )
