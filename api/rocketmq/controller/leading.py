"""
What a leader answers, and what everybody else says instead.

Here: decorators of handlers. Not here: who leads (``controller.runtime.authority``).

Rule 1: without authority the answer is 2007, at once. Nobody waits here for a leader.
Rule 2: an outcome that is unknown, and a full buffer, are "busy": brokers ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Protocol, TypeVar

from rollcall_ha.api.broker_port.code_table import Request
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown, NotLeader, Overloaded
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.remoting.codes import SystemCode

NOT_LEADER_REMARK = "The controller is not in leader state"


class LeaderHandlers(Protocol):
    """A group of handlers."""

    service: ControllerService


Codes = TypeVar("Codes", bound=LeaderHandlers)


def for_leader(
    work: Callable[[Codes, Request], Awaitable[None]],
) -> Callable[[Codes, Request], Coroutine[Any, Any, None]]:
    """An order: run with authority only; what keeps it from an outcome is answered here."""

    @wraps(work)
    async def answered(codes: Codes, request: Request) -> None:
        try:
            codes.service.require_authority()
            await work(codes, request)
        except (NoAuthority, NotLeader):
            request.answer(RefusalCode.NOT_LEADER, remark=NOT_LEADER_REMARK)
        except (Overloaded, EntryOutcomeUnknown) as error:
            request.answer(SystemCode.SYSTEM_BUSY, remark=str(error))
        except ValueError as error:
            request.answer(RefusalCode.INVALID_REQUEST, remark=str(error))

    return answered


def at_once(work: Callable[[Codes, Request], None]) -> Callable[[Codes, Request], None]:
    """A read: answered in the turn in which it comes, with authority only."""

    @wraps(work)
    def answered(codes: Codes, request: Request) -> None:
        try:
            codes.service.require_authority()
        except NoAuthority:
            request.answer(RefusalCode.NOT_LEADER, remark=NOT_LEADER_REMARK)
        else:
            work(codes, request)

    return answered
