"""
One log line per decision of the leader.

Here: which applied events are worth a line, and its keys. Not here: the record itself (``event_journal``).
"""

from __future__ import annotations

from collections.abc import Iterable

from rollcall_ha.controller.contract.events import (
    ElectionFailed,
    EventRecord,
    MasterElected,
    MasterEntered,
    ReplicaSilent,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.node.telemetry import Logger


def log_decisions(logger: Logger, records: Iterable[EventRecord]) -> None:
    """Write them, in order."""
    for record in records:
        event, where = record.event, str(record.set_key)
        if isinstance(event, MasterElected):
            logger.info(
                "master_elected",
                set=where,
                master=event.master,
                epoch=event.master_epoch,
                sync_state_set=event.sync_state_set,
                reason=event.reason,
                index=record.index,
            )
        elif isinstance(event, MasterEntered):
            logger.info("master_entered", set=where, master=event.broker_id, epoch=event.master_epoch)
        elif isinstance(event, ElectionFailed):
            logger.warning("election_failed", set=where, reason=event.reason)
        elif isinstance(event, ReplicaSilent):
            logger.warning("replica_silent", set=where, broker=event.broker_id, cause=event.cause.value)
        elif isinstance(event, WritesStopped):
            logger.warning("writes_stopped", set=where, reason=event.reason.value, detail=event.detail)
        elif isinstance(event, WritesResumed):
            logger.warning("writes_resumed", set=where, stopped_ms=event.stopped_us // 1_000)
