"""The in-memory log keeps the promises of the port."""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.codec import ENTRY_BYTES_MAX
from rollcall_ha.controller.replication.ports import AppliedEntry, ProposalOutcome, ProposalStatus, RaftRole
from tests.support.memory_log import MemoryGroup
from tests.support.raft_ledger import Ledger, LedgerMachine

C1, C2 = ControllerName("c1"), ControllerName("c2")


def _group() -> MemoryGroup[Ledger]:
    group: MemoryGroup[Ledger] = MemoryGroup(LedgerMachine, (C1, C2), clock_ns=lambda: 77)
    group.members[C1].start()
    return group


def test_entries_are_applied_in_order_by_everybody_when_pumped() -> None:
    group = _group()
    group.elect(C1)
    heard: list[AppliedEntry[Ledger]] = []
    outcomes: list[ProposalOutcome] = []
    group.members[C2].subscribe(heard.append)
    group.members[C1].propose('["a"]', outcomes.append)
    group.members[C1].propose('["b"]', outcomes.append)
    assert outcomes == []
    assert group.pump() == 2
    assert [(outcome.status, outcome.term, outcome.index) for outcome in outcomes] == [
        (ProposalStatus.COMMITTED, 1, 1),
        (ProposalStatus.COMMITTED, 1, 2),
    ]
    assert heard == []
    group.members[C2].start()
    assert [entry.index for entry in heard] == [1, 2]
    assert group.members[C2].published.state.ids == ["a", "b"]


def test_only_the_leader_proposes() -> None:
    group = _group()
    outcomes: list[ProposalOutcome] = []
    group.members[C1].propose("[]", outcomes.append)
    group.elect(C1)
    group.members[C1].propose(" " * (ENTRY_BYTES_MAX + 1), outcomes.append)
    assert [outcome.status for outcome in outcomes] == [ProposalStatus.NOT_PROPOSED] * 2


def test_a_new_term_loses_what_waits() -> None:
    group = _group()
    group.elect(C1)
    outcomes: list[ProposalOutcome] = []
    group.members[C1].propose('["a"]', outcomes.append)
    group.elect(C2)
    assert outcomes[0].status is ProposalStatus.UNKNOWN
    assert group.pump() == 0
    assert group.members[C1].leadership.leader == C2


def test_authority_stands_still_when_the_leader_is_cut_off() -> None:
    group = _group()
    group.elect(C1)
    assert group.members[C1].leadership.majority_asked_at_ns == 77
    assert group.members[C1].leadership.role is RaftRole.LEADER
    assert group.members[C2].leadership.majority_asked_at_ns is None
    group.cut_off_leader()
    group.members[C1].propose('["a"]', lambda _: None)
    assert group.pump() == 0


def test_a_member_that_must_stop_applies_nothing_more() -> None:
    group = _group()
    group.elect(C1)
    outcomes: list[ProposalOutcome] = []
    group.members[C1].propose('["too new"]', outcomes.append)
    group.members[C1].propose('["next"]', outcomes.append)
    group.pump()
    assert group.members[C1].stop_reason is not None
    assert [outcome.status for outcome in outcomes] == [ProposalStatus.UNKNOWN] * 2
    assert group.members[C1].published.state.ids == []
