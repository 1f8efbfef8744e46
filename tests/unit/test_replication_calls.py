"""Calls between members: every caller is told once, and NOT_SENT only of what was certainly not taken."""

from __future__ import annotations

from collections import deque

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import (
    CALL_BYTES_MAX,
    CALL_MS_MAX,
    CALLS_MAX,
    CallOutcome,
    CallStatus,
    Reply,
)
from rollcall_ha.controller.replication.raft.calls import CallMessage, Calls
from rollcall_ha.controller.replication.raft.messages import PeerRequest, PeerResponse
from tests.support.raft_virtual import OurNode, VirtualGroup

C1, C2, C3 = (ControllerName(name) for name in ("c1", "c2", "c3"))


class Member:
    """A ``Calls`` with its outgoing messages, its clock and its outcomes."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.calls = Calls(lambda: self.now_ns)
        self.sent: deque[tuple[ControllerName, CallMessage]] = deque()
        self.outcomes: list[CallOutcome] = []
        self.has_link = True

    def transmit(self, peer: ControllerName, message: CallMessage) -> bool:
        if self.has_link:
            self.sent.append((peer, message))
        return self.has_link

    def ask(self, peer: ControllerName = C2, request: bytes = b"who") -> None:
        self.calls.ask(peer, request, self.outcomes.append)
        self.calls.carry(self.transmit)

    @property
    def statuses(self) -> list[CallStatus]:
        return [outcome.status for outcome in self.outcomes]


def test_an_answer_reaches_its_caller() -> None:
    one, two = Member(), Member()
    two.calls.answerer = lambda caller, request, reply: reply(caller.encode() + b" asks " + request)
    one.ask()
    _, request = one.sent.popleft()
    assert isinstance(request, PeerRequest)
    two.calls.take_request(C1, request)
    two.calls.carry(two.transmit)
    _, response = two.sent.popleft()
    assert isinstance(response, PeerResponse)
    one.calls.take_response(C2, response)
    one.calls.take_response(C2, response)
    assert one.outcomes == [CallOutcome(status=CallStatus.ANSWERED, response=b"c1 asks who")]


def test_without_a_link_nothing_was_sent() -> None:
    one = Member()
    one.has_link = False
    one.ask()
    one.ask(request=b"x" * (CALL_BYTES_MAX + 1))
    assert one.statuses == [CallStatus.NOT_SENT] * 2


def test_a_link_that_ends_loses_its_calls_and_no_others() -> None:
    """NOT_SENT would be an invitation to send an order again that the peer executes."""
    one = Member()
    one.ask(C2)
    one.ask(C3)
    one.calls.peer_gone(C2)
    assert one.statuses == [CallStatus.LOST]
    one.calls.take_response(C2, PeerResponse(id=1, payload=b"late"))
    one.calls.take_response(C2, PeerResponse(id=2, payload=b"the answer of c3, by c2"))
    assert one.statuses == [CallStatus.LOST]
    one.calls.take_response(C3, PeerResponse(id=2, payload=b"mine"))
    assert one.outcomes[-1].response == b"mine"


def test_a_silent_peer_costs_a_caller_its_limit() -> None:
    one = Member()
    one.ask()
    one.now_ns += CALL_MS_MAX * 1_000_000 - 1
    one.calls.carry(one.transmit)
    assert one.outcomes == []
    one.now_ns += 1
    one.calls.carry(one.transmit)
    assert one.statuses == [CallStatus.LOST]


def test_what_a_member_cannot_take_it_refuses() -> None:
    """Left without an answer, each of them would look as if it may have been executed."""
    two = Member()
    replies: list[Reply] = []
    two.calls.answerer = lambda _caller, _request, reply: replies.append(reply)
    for number in range(CALLS_MAX + 1):
        two.calls.take_request(C1, PeerRequest(id=number, payload=b""))
    two.calls.carry(two.transmit)
    assert len(replies) == CALLS_MAX
    assert list(two.sent) == [(C1, PeerResponse(id=CALLS_MAX, payload=None))]
    replies[0](b"done")
    two.calls.carry(two.transmit)
    two.calls.take_request(C1, PeerRequest(id=99, payload=b""))
    assert len(replies) == CALLS_MAX + 1, "an answered call makes room for another"
    one = Member()
    one.ask()
    one.calls.take_response(C2, PeerResponse(id=1, payload=None))
    assert one.statuses == [CallStatus.NOT_SENT]


def test_an_answer_to_a_call_of_the_last_link_is_not_sent() -> None:
    """On the next link another call may have its number."""
    two = Member()
    replies: list[Reply] = []
    two.calls.answerer = lambda _caller, _request, reply: replies.append(reply)
    two.calls.take_request(C1, PeerRequest(id=1, payload=b""))
    two.calls.peer_gone(C1)
    replies[0](b"late")
    two.calls.carry(two.transmit)
    assert not two.sent


def test_a_member_that_stops_tells_all_its_callers() -> None:
    one = Member()
    one.ask()
    one.calls.ask(C2, b"queued", one.outcomes.append)
    one.calls.close()
    one.ask()
    assert one.statuses == [CallStatus.NOT_SENT, CallStatus.LOST, CallStatus.NOT_SENT]


def test_members_of_a_group_call_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through nodes, ticks and links; a cut link loses, a link that is not there sends nothing."""
    group = VirtualGroup(monkeypatch, OurNode)
    group.elect()
    outcomes: list[CallOutcome] = []
    one, two = group.nodes["c1"], group.nodes["c2"]
    assert isinstance(one, OurNode)
    assert isinstance(two, OurNode)
    two.member.raft.node.transport.calls.answerer = lambda caller, request, reply: reply(request + caller.encode())
    one.member.raft.call(C2, b"I am ", outcomes.append)
    group.run_for(100)
    assert outcomes == [CallOutcome(status=CallStatus.ANSWERED, response=b"I am c1")]
    group.crash("c2")
    one.member.raft.call(C2, b"", outcomes.append)
    group.run_for(100)
    assert outcomes[1].status is CallStatus.NOT_SENT
