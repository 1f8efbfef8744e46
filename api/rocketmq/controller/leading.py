"""
Decorators of handlers that only a leader with authority may run: every other controller answers 2007, at once.

Not here: which controller leads (``controller.runtime.authority``).
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
    """An order: run with authority only; an order without an outcome is answered here."""

    @wraps(work)
    async def answered(codes: Codes, request: Request) -> None:
        try:
            # BEFORE the work, although submitting checks it too: handlers read state first, and a follower's state may
            # be minutes old. From it, broker 1 would learn that it is still master of epoch 3 while 2 reigns in 4.
            codes.service.require_authority()
            await work(codes, request)
        except (NoAuthority, NotLeader):
            # No waiting for a leader: Java closes the connection, and with it all its calls, after 3 s of silence.
            request.answer(RefusalCode.NOT_LEADER, remark=NOT_LEADER_REMARK)
        except (Overloaded, EntryOutcomeUnknown) as error:
            # "Busy", not a refusal: of a refused 1001 the broker drops the proposal, and this one may commit yet (R1).
            request.answer(SystemCode.SYSTEM_BUSY, remark=str(error))
        except ValueError as error:
            # A name or number that no value of ours takes. Unanswered, the broker would wait and close the link.
            request.answer(RefusalCode.INVALID_REQUEST, remark=str(error))

    return answered


def at_once(work: Callable[[Codes, Request], None]) -> Callable[[Codes, Request], None]:
    """A read: answered in the turn in which it comes, with authority only; a read that waits costs the connection."""

    @wraps(work)
    def answered(codes: Codes, request: Request) -> None:
        try:
            codes.service.require_authority()
        except NoAuthority:
            request.answer(RefusalCode.NOT_LEADER, remark=NOT_LEADER_REMARK)
        else:
            work(codes, request)

    return answered
