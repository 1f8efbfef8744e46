"""
Moving the lead to another controller: by an operator's order, because this process is to stop, or because its clock is
behind or it comes late.

Here: which controller takes over, and waiting for it. Not here: how Raft does it (``replication.raft.handover``), the
order on record (``core.fleet``).

Rule 1: who can take over is judged on the leader's memory. It is the leader that has every entry to give, and Raft's
vote refuses a successor that lacks one: a wrong judgement costs an election timeout, never an entry.
Rule 2: an order is carried out by the leader that took it, once. Repeated under its request id, it is answered with the
leader of that moment and moves nothing.
Rule 3: a leader that refuses certificates of this fleet as not yet valid hands the lead over, at most once within
``LEAVING_PAUSE_MS_MIN``: between two whose clocks are behind it moves there and back, and stays. So does one that comes
late for ``LATE_MS_MIN``, to a controller that comes half as late.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.replies import LeadershipTransferred, Refused
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.replication.async_calls import outcome_of
from rollcall_ha.controller.replication.ports import Follower, HandoverEnd
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.telemetry import get_logger

LAG_ENTRIES_MAX = 200
"""Entries that a successor may lack when the order comes: under load some are always under way."""
LEAVING_PAUSE_MS_MIN = 600_000
LATE_MS_MIN = 30_000
"""A disk that hung, or a neighbour's short work, is over by then."""
LATE_GAP_MS_MAX = 10_000
"""Between two looks that find it late without an end of the lateness."""
LEADER_NAMED_MS_MAX = 300
"""From the own end as leader to the answer; with what the handover takes, less than a relayed request may take."""


def successor(
    own: ControllerName,
    wanted: ControllerName | None,
    followers: Sequence[Follower],
    *,
    answer_age_ms_max: int,
) -> ControllerName | Refused:
    """
    The controller that takes over: ``wanted`` or, None, one that comes less late, with the fewest entries to come.

    ``answer_age_ms_max``: one that has not answered for longer may be gone.
    """
    if wanted == own:
        return _refused(f"{own} leads already", wanted, own)
    if wanted is not None and all(one.name != wanted for one in followers):
        known = ", ".join(sorted(one.name for one in followers)) or "nobody"
        return _refused(f"there is no controller {wanted!r} beside {own}: there is {known}", wanted, own)
    faults = {
        one.name: fault
        for one in followers
        if (fault := _fault(one, answer_age_ms_max=answer_age_ms_max)) and wanted in (None, one.name)
    }
    able = [one for one in followers if one.name not in faults and wanted in (None, one.name)]
    if able:
        return min(able, key=lambda one: (not one.is_earlier, one.lag_entries, one.name)).name
    why = "; ".join(f"{name} {fault}" for name, fault in sorted(faults.items())) or "it is the only controller"
    return _refused(f"nobody can take over from {own}: {why}", wanted, own)


def _fault(follower: Follower, *, answer_age_ms_max: int) -> str:
    """The reason that it cannot take over; empty: it can."""
    # Asked, it would not stand (``is_electable``), and the lead be given up for nobody.
    if not follower.is_voter:
        return "is being added, and does not vote yet"
    if not follower.is_linked:
        return "is not linked"
    # A member without memory answers as no voter: asked, it would not stand, and the lead be given up for nobody.
    if follower.answer_age_ms is None:
        return "has not answered in this term as a voter: it may be catching up"
    if follower.answer_age_ms > answer_age_ms_max:
        return f"answered last {follower.answer_age_ms} ms ago, at most {answer_age_ms_max} are allowed"
    if follower.lag_entries > LAG_ENTRIES_MAX:
        return f"lacks {follower.lag_entries} entries, at most {LAG_ENTRIES_MAX} are allowed"
    return ""


def _refused(reason: str, wanted: ControllerName | None, own: ControllerName | None) -> Refused:
    return Refused(
        code=RefusalCode.NO_SUCCESSOR,
        reason=reason,
        hint="see each controller, and how far it is, with: rollcall controllers",
        requested=wanted,
        current=own,
    )


def successor_now(service: ControllerService, wanted: ControllerName | None) -> ControllerName | Refused:
    """The controller that would take over from this one, which leads."""
    return successor(
        service.settings.name,
        wanted,
        service.log.followers(),
        # An answer lies for one late turn, and counts until the next one.
        answer_age_ms_max=service.settings.timing.raft_election_timeout_ms_min + 2 * service.log.leadership.late_ms,
    )


async def carry_out(
    service: ControllerService, target: ControllerName, request_id: RequestId
) -> LeadershipTransferred | Refused:
    """
    Do what was ordered; returns when a leader is known.

    Raises ``EntryOutcomeUnknown``: this controller leads no more, and it does not know yet which one does.
    """
    if await _hand_over(service, target) is HandoverEnd.NOT_CAUGHT_UP:
        return _refused(f"{target} did not have every entry in time; {service.settings.name} leads on", target, None)
    return await leader_known(service, request_id)


async def leader_known(service: ControllerService, request_id: RequestId) -> LeadershipTransferred:
    """The leader of this moment. Raises ``EntryOutcomeUnknown``: none is known in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEADER_NAMED_MS_MAX / 1000):
            await service.leader_hint_soon()
    hint = service.leader_hint()
    if hint.leader is None:
        raise EntryOutcomeUnknown(request_id, "the lead was given up, and who has it now is not known yet")
    return LeadershipTransferred(leader=hint.leader, term=hint.term)


async def step_aside(service: ControllerService, to: ControllerName | None = None) -> bool:
    """Have another controller lead at once, if one can; False: this one leads on. Never raises."""
    if not service.authority().is_held:
        return False
    target = successor_now(service, to)
    if isinstance(target, Refused):
        return False
    how = await _hand_over(service, target)
    get_logger("controller").info("lead_handed_over", target=target, end=how.value)
    return how is not HandoverEnd.NOT_CAUGHT_UP


class Leaving:
    """Hands the lead over because of this controller's clock or lateness (rule 3). On the loop."""

    def __init__(self, service: ControllerService) -> None:
        self._service = service
        self._left_ns: int | None = None
        self._late_since_ns = self._late_at_ns = 0
        self._leaving: asyncio.Task[None] | None = None

    def clock_behind(self) -> None:
        """A certificate that the fleet's authority has signed was refused here as not yet valid."""
        # A leader that stays keeps each broker out that starts, and whoever has new files, until its clock is set.
        meaning = "the clock here is behind, or that of the machine that signs is ahead: another controller is to lead"
        self._begin("certificates_not_yet_valid", meaning)

    def late(self) -> None:
        """It leads, and comes late."""
        now_ns = self._service.now_ns()
        if now_ns - self._late_at_ns > LATE_GAP_MS_MAX * NS_PER_MS:
            self._late_since_ns = now_ns
        self._late_at_ns = now_ns
        is_long = now_ns - self._late_since_ns >= LATE_MS_MIN * NS_PER_MS
        # Where all are late, as on one starved machine, no move would help.
        followers = self._service.log.followers() if is_long else ()
        earlier = [one.name for one in followers if one.is_earlier and one.is_linked]
        if earlier:
            meaning = "too little CPU here, or a slow disk: a controller that is less late is to lead"
            self._begin("leads_late", meaning, to=earlier[0])

    def _begin(self, what: str, meaning: str, to: ControllerName | None = None) -> None:
        now_ns = self._service.now_ns()
        is_paused = self._left_ns is not None and now_ns - self._left_ns < LEAVING_PAUSE_MS_MIN * NS_PER_MS
        if is_paused or not self._service.authority().is_held:
            return
        self._left_ns = now_ns
        get_logger("controller").warning(what, meaning=meaning)
        self._leaving = asyncio.get_running_loop().create_task(self._leave(to))

    async def _leave(self, to: ControllerName | None) -> None:
        if not await step_aside(self._service, to):
            self._left_ns = None
            # Not with the next look: nothing is proposed while it is tried.
            self._late_since_ns = self._service.now_ns()


async def _hand_over(service: ControllerService, target: ControllerName) -> HandoverEnd:
    return await outcome_of(partial(service.log.hand_over, target))
