"""
The controllers as this one knows them at run time, and bringing a new one to its vote.

Here: addresses of members that no fleet file names, the promotion of a learner by the leader, an operator's change. Not
here: which change may follow (``replication.membership``), what it means for votes (``replication.raft.node``).

Rule 1: names are those of the log; addresses those of the fleet file where it has the name, else those that came with
the change: an address that an operator has corrected in the file wins.
Rule 2: a step is on record before it is in the log: an order without effect is seen, a change without one never.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ChangeControllers
from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.names import name_complaint
from rollcall_ha.controller.contract.replies import ControllersChanged, Refused
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.controller.replication.async_calls import outcome_of
from rollcall_ha.controller.replication.membership import (
    Change,
    ChangeRefused,
    Membership,
    Seat,
    promoted,
    with_learner,
    without,
)
from rollcall_ha.controller.replication.ports import ProposalStatus
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown, ProposeError
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.settings import ControllerAddresses, ServiceSettings
from rollcall_ha.node.config import ConfigError, is_loopback, refuse_unreachable, split_address
from rollcall_ha.node.telemetry import get_logger

LOOK_SECONDS = 0.1
PROMOTION_PAUSE_SECONDS = 0.5
"""Between two attempts to promote a learner that may still be catching up."""


def change_of(command: ChangeControllers) -> Change:
    """The step of the members that a command asks for."""
    if command.verb is MembershipVerb.ADD:
        seat = Seat(name=command.name, raft=command.raft, broker=command.broker, rest=command.rest)
        return partial(with_learner, seat=seat)
    return partial(promoted if command.verb is MembershipVerb.PROMOTE else without, name=command.name)


def refusal_of(service: ControllerService, command: ChangeControllers) -> Refused | None:
    """The refusal that this leader has for a change now; None: it would be tried."""
    own = service.settings.name
    if command.verb is MembershipVerb.REMOVE and command.name == own:
        reason = f"{own} leads, and a leader does not remove itself"
        return _refused(reason, command, "have another one lead first: rollcall controllers transfer")
    if command.verb is MembershipVerb.ADD and (complaint := name_complaint("the name of a controller", command.name)):
        return _refused(complaint, command, "give the name that its certificate has")
    if complaint := _complaint_of_addresses(service.settings, command):
        return _refused(complaint, command, "give the addresses of its fleet file: --raft, --broker, --rest")
    try:
        change_of(command)(service.log.members)
    except ChangeRefused as error:
        return _refused(str(error), command, "see the members with: rollcall controllers")
    return None


def _complaint_of_addresses(settings: ServiceSettings, command: ChangeControllers) -> str:
    """The reason that the addresses of a new controller are not taken; empty: they are, or none is asked for."""
    if command.verb is not MembershipVerb.ADD:
        return ""
    for key in ("raft", "broker", "rest"):
        address: str = getattr(command, key)
        try:
            # In the log, a text that is no address would end the Raft thread of each controller that dials it.
            refuse_unreachable(f"{command.name}.{key}", address)
        except ConfigError as error:
            return str(error)
        if settings.is_insecure and key != "broker" and not is_loopback(split_address(address)[0]):
            return f"{command.name}.{key} is {address!r}, and links of an insecure fleet stay on loopback"
        for name, where in settings.controllers.items():
            if name != command.name and address in (where.raft, where.broker, where.rest):
                return f"{command.name}.{key} is {address!r}, which is an address of {name}"
    return ""


async def answer_again(service: ControllerService, command: ChangeControllers) -> ControllersChanged | Refused:
    """
    The answer to an order that is on record already: carried out again, it might undo a later one.

    Raises ``NoAuthority``.
    """
    # The log's newest members may yet be cut: "done" is said of those only that a majority has.
    await service.read_barrier()
    members = service.log.members
    is_there = members.is_voter(command.name) or members.is_learner(command.name)
    if is_there is (command.verb is MembershipVerb.ADD):
        return told(members)
    return _refused("it is on record under this request id, and not in force", command, "order it under a new one")


async def carry_out_change(
    service: ControllerService, command: ChangeControllers, request_id: RequestId
) -> ControllersChanged | Refused:
    """Have the step in the log; returns when a majority has it. Raises ``EntryOutcomeUnknown``."""
    outcome = await outcome_of(partial(service.log.change, change_of(command)))
    if outcome.status is ProposalStatus.NOT_PROPOSED:
        return _refused(outcome.reason, command, "try again when the change before it is done: rollcall controllers")
    if outcome.status is ProposalStatus.UNKNOWN:
        raise EntryOutcomeUnknown(request_id, outcome.reason)
    return told(service.log.members)


def told(members: Membership) -> ControllersChanged:
    """Members as callers see them."""
    return ControllersChanged(
        voters=tuple(ControllerName(seat.name) for seat in members.voters),
        learners=tuple(ControllerName(seat.name) for seat in members.learners),
    )


def _refused(reason: str, command: ChangeControllers, hint: str) -> Refused:
    return Refused(code=RefusalCode.MEMBERS_NOT_CHANGED, reason=reason, hint=hint, requested=command.name)


class Seating:
    """Seats and unseats the members of one controller."""

    def __init__(self, service: ControllerService) -> None:
        self._service = service
        self._own = service.settings.own
        self._by_file = dict(service.settings.controllers)
        self._seen: Membership | None = None
        self._logger = get_logger("controller")

    async def keep(self) -> None:
        """Follow the log's members, and as the leader promote learners, until cancelled."""
        while True:
            self.look()
            learners = self._service.log.members.learners
            if learners and self._service.authority().is_held:
                await self.promote(ControllerName(learners[0].name))
                await asyncio.sleep(PROMOTION_PAUSE_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Tell the rest of this process who the members are (rule 1)."""
        members = self._service.log.members
        if members == self._seen:
            return
        self._seen = members
        found = {
            ControllerName(seat.name): ControllerAddresses(raft=seat.raft, broker=seat.broker, rest=seat.rest)
            for seat in members.seats
        }
        name = self._service.settings.name
        # Everything of this process holds this dictionary: brokers hear of the members with their next heartbeat.
        kept = self._service.settings.controllers
        kept.clear()
        kept.update({one: self._by_file.get(one, where) for one, where in found.items()} | {name: self._own})
        self._service.states.members = len(members.voters)
        self._logger.info("members", voters=[one.name for one in members.voters], learners=len(members.learners))

    async def promote(self, name: ControllerName) -> None:
        """Give a learner its vote, once it has caught up."""
        service = self._service
        ready = next((one for one in service.log.followers() if one.name == name), None)
        # Asked without a look, each attempt would be an event, for as long as it copies a state of hundreds of MB.
        if ready is None or ready.answer_age_ms is None or ready.lag_entries > 0:
            return
        command = ChangeControllers(verb=MembershipVerb.PROMOTE, name=name)
        with contextlib.suppress(ProposeError, NoAuthority):
            request_id = service.ports.new_request_id()
            reply = await service.submit(
                command, request_id=request_id, requested_by=f"controller:{service.settings.name}"
            )
            if not isinstance(reply, Refused):
                await carry_out_change(service, command, request_id)
