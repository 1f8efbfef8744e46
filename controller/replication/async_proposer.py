"""
The asyncio shell of ``proposer``: one future per caller, one wake-up of the loop per entry.

Rule: replies come from the log's thread by one ``on_loop`` per entry, never one per operation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rollcall_ha.controller.contract.commands import Barrier, Operation
from rollcall_ha.controller.contract.replies import AnyReply
from rollcall_ha.controller.replication.async_calls import on_loop
from rollcall_ha.controller.replication.codec import encode_operation
from rollcall_ha.controller.replication.ports import ProposalOutcome, RaftRole, ReplicatedLog
from rollcall_ha.controller.replication.proposer import (
    Action,
    EntryOutcome,
    Flush,
    Forget,
    NotLeader,
    ProposeEntry,
    ProposeError,
    Proposer,
    ProposerTick,
    Submit,
)

TICK_SECONDS = 0.05
"""How late a deadline may be noticed."""


class AsyncProposer:
    """Gathers the operations of all tasks of one event loop."""

    def __init__(
        self, log: ReplicatedLog[Any], *, propose_timeout_ms: int, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Use it within a running loop; ``propose_timeout_ms`` is the caller's deadline and the log's."""
        self._now_ns = now_ns
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._timeout_ns = propose_timeout_ms * 1_000_000
        self._machine = Proposer(propose_timeout_ms=propose_timeout_ms)
        self._futures: dict[int, asyncio.Future[AnyReply]] = {}
        self._next_ticket = 0
        self._is_flush_due = False
        self._timer: asyncio.TimerHandle | None = None

    async def submit(self, operation: Operation) -> AnyReply:
        """
        Commit one operation and return the reply that apply computed.

        Raises:
            NotLeader: certainly not executed; this controller does not lead.
            Overloaded: certainly not executed; too much is waiting, or the operation is too long.
            EntryOutcomeUnknown: may be executed later; retry with the same request id.
            ValueError: a text in the operation is not valid Unicode.
        """
        # Refused before it shares an entry with others: the reason names role and term, and nothing was proposed for
        # certain.
        leadership = self._log.leadership
        if leadership.role is not RaftRole.LEADER:
            raise NotLeader(f"this controller is {leadership.role.value} in term {leadership.term}", leadership.leader)
        self._next_ticket += 1
        ticket = self._next_ticket
        future: asyncio.Future[AnyReply] = self._loop.create_future()
        # Encoded BEFORE the future is kept: text that is not Unicode raises here, and would leave it behind.
        part = encode_operation(operation)
        self._futures[ticket] = future
        deadline_ns = self._now_ns() + self._timeout_ns
        self._do(
            self._machine.handle(
                Submit(
                    ticket=ticket,
                    request_id=operation.request_id,
                    part=part,
                    deadline_ns=deadline_ns,
                    is_barrier=isinstance(operation.command, Barrier),
                )
            )
        )
        if not self._is_flush_due:
            self._is_flush_due = True
            # With the next turn: all that is submitted in this one shares an entry, a master's silence and its
            # successor's election among it.
            self._loop.call_soon(self._flush)
        try:
            return await future
        except asyncio.CancelledError:
            self._machine.handle(Forget(ticket=ticket))
            raise
        finally:
            self._futures.pop(ticket, None)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._do(self._machine.handle(Flush(now_ns=self._now_ns())))
        if self._timer is None and not self._machine.is_idle:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._machine.handle(ProposerTick(now_ns=self._now_ns())))
        if not self._machine.is_idle:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, ProposeEntry):
                self._propose(action)
                continue
            future = self._futures.get(action.ticket)
            if future is None or future.done():
                continue  # its caller was cancelled
            if isinstance(action.result, ProposeError):
                if isinstance(action.result, NotLeader) and action.result.leader is None:
                    action.result.leader = self._log.leadership.leader
                future.set_exception(action.result)
            else:
                future.set_result(action.result)

    def _propose(self, action: ProposeEntry) -> None:
        self._log.propose(action.payload, partial(on_loop, self._loop, self._on_outcome, action.entry))

    def _on_outcome(self, entry: int, outcome: ProposalOutcome) -> None:
        self._do(self._machine.handle(EntryOutcome(entry=entry, outcome=outcome, now_ns=self._now_ns())))
