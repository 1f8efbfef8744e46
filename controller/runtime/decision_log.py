"""
One log line per decision of the leader.

Here: which applied events are worth a line, and its keys. Not here: the record itself (``event_journal``), which has
ids; who reads a log looks for a machine, and is told its name (``labels``, rule 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rollcall_ha.controller.contract.events import (
    ElectionFailed,
    EventRecord,
    MasterElected,
    MasterEntered,
    ReplicaSilent,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.controller.contract.labels import in_words, label, labels, names_of
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.node.telemetry import Logger

_TOLD: Final = (MasterElected, MasterEntered, ElectionFailed, ReplicaSilent, WritesStopped, WritesResumed)


def log_decisions(logger: Logger, records: Iterable[EventRecord], state: FleetState) -> None:
    """Write them, in order; ``state`` is the one behind them."""
    for record in records:
        event, where = record.event, str(record.set_key)
        if not isinstance(event, _TOLD):
            continue
        found = None if record.set_key is None else state.sets.get(record.set_key)
        names = {} if found is None else names_of(found.replicas)
        if isinstance(event, MasterElected):
            logger.info(
                "master_elected",
                set=where,
                master=label(event.master, names),
                epoch=event.master_epoch,
                sync_state_set=labels(event.sync_state_set, names),
                reason=in_words(event.reason, names),
                index=record.index,
            )
        elif isinstance(event, MasterEntered):
            logger.info("master_entered", set=where, master=label(event.broker_id, names), epoch=event.master_epoch)
        elif isinstance(event, ElectionFailed):
            logger.warning("election_failed", set=where, reason=in_words(event.reason, names))
        elif isinstance(event, ReplicaSilent):
            logger.warning("replica_silent", set=where, broker=label(event.broker_id, names), cause=event.cause.value)
        elif isinstance(event, WritesStopped):
            logger.warning("writes_stopped", set=where, reason=event.reason.value, detail=in_words(event.detail, names))
        elif isinstance(event, WritesResumed):
            logger.warning("writes_resumed", set=where, stopped_ms=event.stopped_us // 1_000)
