"""The controllers as a process knows them at run time: refusals of an order, addresses, and the vote of a new one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ChangeControllers
from rollcall_ha.controller.contract.events import ControllersChangeOrdered
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.controller.replication.membership import Membership, Seat, founded, promoted, with_learner
from rollcall_ha.controller.replication.ports import Follower
from rollcall_ha.controller.runtime.seating import Seating, answer_again, change_of, refusal_of
from rollcall_ha.controller.runtime.service import ControllerService
from tests.support.runtime_controller import NAMES, Group, played, recorded, until

C4 = ControllerName("c4")
SEAT = Seat(name="c4", raft="127.0.0.1:9001", broker="127.0.0.1:9002", rest="127.0.0.1:9003")
ADD = ChangeControllers(
    verb=MembershipVerb.ADD, name=C4, raft=SEAT.raft, broker=SEAT.broker, rest=SEAT.rest, reason="larger"
)
CAUGHT_UP = Follower(name=C4, is_linked=True, answer_age_ms=20, lag_entries=0, is_voter=False)


def _text(service: ControllerService, command: ChangeControllers) -> str:
    refusal = refusal_of(service, command)
    if refusal is None:
        return ""
    assert refusal.code is RefusalCode.MEMBERS_NOT_CHANGED
    return refusal.reason


@played(names=NAMES)
async def test_an_order_is_refused_with_the_reason_before_it_is_on_record(group: Group) -> None:
    service = (await group.elect("c1")).service
    assert _text(service, ADD) == ""
    for name, told in (("c1", "a leader does not remove itself"), ("c9", "c9 is no member; there are c1, c2, c3")):
        gone = ChangeControllers(verb=MembershipVerb.REMOVE, name=ControllerName(name))
        assert told in _text(service, gone)
    assert "c2 is a member already" in _text(service, _add(name=ControllerName("c2")))
    for name in ("", "c/4", " c4", "c" * 256):
        assert "a name has 1 to 255 printable characters" in _text(service, _add(name=ControllerName(name))), name


def _add(**others: Any) -> ChangeControllers:
    fields = {"verb": ADD.verb, "name": ADD.name, "raft": ADD.raft, "broker": ADD.broker, "rest": ADD.rest}
    return ChangeControllers(**(fields | others))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (_add(raft="nonsense"), "'nonsense' is not host:port"),
        (_add(rest="127.0.0.1:99999"), "'127.0.0.1:99999' is not host:port with a port from 1 to 65535"),
        (_add(broker="0.0.0.0:9002"), "c4.broker is '0.0.0.0:9002', which others are told and cannot reach"),
        (_add(raft="127.0.0.1:1001"), "c4.raft is '127.0.0.1:1001', which is an address of c2"),
        (_add(rest="10.0.0.4:9003"), "c4.rest is '10.0.0.4:9003', and links of an insecure fleet stay on loopback"),
        (_add(broker="10.0.0.4:9002"), ""),
    ],
)
@played(names=NAMES)
async def test_an_address_that_cannot_be_dialled_never_gets_into_the_log(
    group: Group, command: ChangeControllers, told: str
) -> None:
    """There it would end the Raft thread of each controller that dials it, again after each restart."""
    text = _text((await group.elect("c1")).service, command)
    assert (told in text) if told else not text


@played(names=NAMES)
async def test_a_repeated_order_is_answered_by_what_is_in_force_and_changes_nothing(group: Group) -> None:
    """Carried out again, a late "add c4" would bring back what was removed since."""
    service = (await group.elect("c1")).service
    lost = await answer_again(service, ADD)
    assert isinstance(lost, Refused)
    assert "on record under this request id, and not in force" in lost.reason
    group.memory.membership = with_learner(group.memory.membership, SEAT)
    done = await answer_again(service, ADD)
    assert not isinstance(done, Refused)
    assert (done.voters, done.learners) == (NAMES, (C4,))
    assert isinstance(await answer_again(service, ChangeControllers(verb=MembershipVerb.REMOVE, name=C4)), Refused)


@played(names=NAMES)
async def test_addresses_are_those_of_the_file_and_else_those_of_the_change(group: Group) -> None:
    """c2's address in the log is of its founding; an operator has corrected it in the file since."""
    service = group["c1"].service
    seating, by_file = Seating(service), dict(service.settings.controllers)
    group.memory.membership = with_learner(group.memory.membership, SEAT)
    seating.look()
    assert service.settings.controllers[ControllerName("c2")] == by_file[ControllerName("c2")]
    told = service.settings.controllers[C4]
    assert (told.raft, told.broker, told.rest) == (SEAT.raft, SEAT.broker, SEAT.rest)
    assert service.states.members == 3, "a learner's state is compared, and no majority of four needed"
    # c1 was taken out: what is left of it goes by the others, and by its own address.
    group.memory.membership = Membership(voters=(SEAT,))
    seating.look()
    assert list(service.settings.controllers) == ["c4", "c1"]
    assert service.settings.own == by_file[ControllerName("c1")]


@pytest.mark.parametrize(
    ("follower", "is_promoted"),
    [
        (CAUGHT_UP, True),
        (replace(CAUGHT_UP, answer_age_ms=None), False),
        (replace(CAUGHT_UP, lag_entries=1), False),
        (replace(CAUGHT_UP, name=ControllerName("c3")), False),
    ],
)
@played(names=NAMES)
async def test_the_leader_gives_a_vote_on_record_when_the_new_one_has_caught_up(
    group: Group, monkeypatch: pytest.MonkeyPatch, follower: Follower, is_promoted: bool
) -> None:
    """Before that, each look would be an event, for as long as a large state is copied."""
    leader = await group.elect("c1")
    group.memory.membership = with_learner(group.memory.membership, SEAT)
    monkeypatch.setattr(leader.log, "followers", lambda: (follower,))
    await Seating(leader.service).promote(C4)
    assert group.memory.membership.is_voter("c4") is is_promoted
    await recorded(leader)
    page = (await leader.http.get("/v1/events", params={"limit": "100"})).json()["events"]
    ordered = [one for one in page if one["event"]["kind"] == "controllers-change-ordered"]
    assert [(one["event"]["verb"], one["requestedBy"]) for one in ordered] == (
        [("promote", "controller:c1")] if is_promoted else []
    )


@played(names=NAMES)
async def test_only_the_leader_promotes_and_every_controller_follows_the_log(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await group.elect("c1")
    for one in group.members.values():
        monkeypatch.setattr(one.log, "followers", lambda: (CAUGHT_UP,))
    keeping = [asyncio.create_task(Seating(one.service).keep()) for one in group.members.values()]
    try:
        group.memory.membership = with_learner(group.memory.membership, SEAT)
        await until(lambda: group.memory.membership.is_voter("c4"))
        await until(lambda: all(C4 in one.service.settings.controllers for one in group.members.values()))
    finally:
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
    await recorded(leader)
    page = (await leader.http.get("/v1/events", params={"limit": "100"})).json()["events"]
    assert [one["requestedBy"] for one in page if one["event"]["kind"] == "controllers-change-ordered"] == [
        "controller:c1"
    ]


def test_each_verb_is_its_step_of_the_members() -> None:
    three = founded({ControllerName(name): f"{name}:1" for name in ("c1", "c2", "c3")})
    four = change_of(ADD)(three)
    assert four == with_learner(three, SEAT)
    promote = change_of(ChangeControllers(verb=MembershipVerb.PROMOTE, name=C4))
    assert promote(four) == promoted(four, "c4")
    assert change_of(ChangeControllers(verb=MembershipVerb.REMOVE, name=C4))(four) == three
    assert set(ControllersChangeOrdered.__struct_fields__) == set(ChangeControllers.__struct_fields__)
