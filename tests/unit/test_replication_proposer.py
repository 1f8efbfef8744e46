"""Batching, back-pressure, and what every caller is told."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, Barrier, Operation
from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.replies import AnyReply, Done
from rollcall_ha.controller.core.apply import Applied
from rollcall_ha.controller.replication import proposer as proposer_module
from rollcall_ha.controller.replication.async_proposer import AsyncProposer
from rollcall_ha.controller.replication.codec import decode_operations
from rollcall_ha.controller.replication.ports import ProposalOutcome, ProposalStatus
from rollcall_ha.controller.replication.proposer import (
    BUFFER_OPERATIONS_MAX,
    ENTRIES_IN_FLIGHT_MAX,
    Action,
    EntryOutcome,
    EntryOutcomeUnknown,
    Flush,
    Forget,
    NotLeader,
    Overloaded,
    ProposeEntry,
    Proposer,
    ProposerTick,
    Resolve,
    Submit,
)
from tests.support.memory_log import MemoryGroup
from tests.support.raft_ledger import Ledger, LedgerMachine

MS = 1_000_000


def _machine(entry_bytes_max: int = 48_000) -> Proposer:
    return Proposer(propose_timeout_ms=1_000, entry_bytes_max=entry_bytes_max)


def _submit(machine: Proposer, *tickets: int, deadline_ms: int = 1_000, part: str = "{}") -> list[Action]:
    actions: list[Action] = []
    for ticket in tickets:
        submit = Submit(ticket=ticket, request_id=RequestId(f"r{ticket}"), part=part, deadline_ns=deadline_ms * MS)
        actions += machine.handle(submit)
    return actions


def _flush(machine: Proposer) -> list[ProposeEntry]:
    actions = machine.handle(Flush(now_ns=0))
    assert all(isinstance(action, ProposeEntry) for action in actions)
    return cast("list[ProposeEntry]", actions)


def _committed(count: int) -> ProposalOutcome:
    return ProposalOutcome(status=ProposalStatus.COMMITTED, replies=(Done(),) * count, term=1, index=2)


def _results(actions: list[Action]) -> dict[int, AnyReply | Exception]:
    return {action.ticket: action.result for action in actions if isinstance(action, Resolve)}


def test_callers_of_one_turn_share_an_entry() -> None:
    machine = _machine()
    assert _submit(machine, 1, 2, 3) == []
    (propose,) = _flush(machine)
    assert propose.payload == "[{},{},{}]"
    actions = machine.handle(EntryOutcome(entry=propose.entry, outcome=_committed(3), now_ns=0))
    assert _results(actions) == {1: Done(), 2: Done(), 3: Done()}
    assert machine.is_idle


def test_what_comes_while_two_entries_are_out_shares_the_next_one() -> None:
    machine = _machine()
    out: list[ProposeEntry] = []
    for ticket in range(6):
        _submit(machine, ticket)
        out += _flush(machine)
    assert len(out) == ENTRIES_IN_FLIGHT_MAX
    actions = machine.handle(EntryOutcome(entry=out[0].entry, outcome=_committed(1), now_ns=0))
    (following,) = [action for action in actions if isinstance(action, ProposeEntry)]
    assert following.payload == "[{},{},{},{}]"


def test_an_entry_is_never_longer_than_allowed() -> None:
    machine = _machine(entry_bytes_max=100)
    _submit(machine, *range(8), part="x" * 30)
    assert [len(propose.payload) for propose in _flush(machine)] == [94, 94]
    assert isinstance(_results(_submit(machine, 99, part="x" * 99))[99], Overloaded)


def test_a_barrier_takes_the_next_entry_whatever_waits() -> None:
    """Behind a thousand elections a linearizable read was answered by 503."""
    machine = _machine(entry_bytes_max=100)
    out: list[ProposeEntry] = []
    for ticket in range(ENTRIES_IN_FLIGHT_MAX):
        _submit(machine, ticket, part="x" * 90)
        out += _flush(machine)
    _submit(machine, *range(10, 20), part="y" * 97)
    machine.handle(
        Submit(ticket=99, request_id=RequestId("r99"), part="barrier", deadline_ns=1_000 * MS, is_barrier=True)
    )

    actions = machine.handle(EntryOutcome(entry=out[0].entry, outcome=_committed(1), now_ns=0))

    (following,) = [action for action in actions if isinstance(action, ProposeEntry)]
    assert following.payload == "[barrier]"


def test_too_many_waiting_operations_are_refused_at_once() -> None:
    machine = _machine()
    _submit(machine, *range(BUFFER_OPERATIONS_MAX))
    assert isinstance(_results(_submit(machine, -1))[-1], Overloaded)


def test_the_deadline_says_what_is_known() -> None:
    """In the buffer: certainly not executed. In flight: unknown, with the id to retry."""
    machine = _machine()
    for ticket in (1, 2):
        _submit(machine, ticket)
        _flush(machine)
    _submit(machine, 3)
    results = _results(machine.handle(ProposerTick(now_ns=1_000 * MS)))
    unknown = results[1]
    assert isinstance(unknown, EntryOutcomeUnknown)
    assert unknown.request_id == "r1"
    assert isinstance(results[3], Overloaded)
    assert _results(machine.handle(EntryOutcome(entry=1, outcome=_committed(1), now_ns=0))) == {}


def test_an_entry_whose_answer_never_comes_frees_its_place() -> None:
    """A lost callback must not stop the proposer for ever."""
    machine = _machine()
    for ticket in (1, 2):
        _submit(machine, ticket)
        _flush(machine)
    machine.handle(ProposerTick(now_ns=1_000 * MS))
    _submit(machine, 3, deadline_ms=9_000)
    assert _flush(machine) == []
    actions = machine.handle(ProposerTick(now_ns=(1_000 + proposer_module.ENTRY_DEADLINE_SLACK_MS) * MS))
    assert [action.payload for action in actions if isinstance(action, ProposeEntry)] == ["[{}]"]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (ProposalOutcome(status=ProposalStatus.NOT_PROPOSED), NotLeader),
        (ProposalOutcome(status=ProposalStatus.UNKNOWN), EntryOutcomeUnknown),
        (_committed(0), EntryOutcomeUnknown),
    ],
)
def test_outcomes_become_errors(outcome: ProposalOutcome, expected: type[Exception]) -> None:
    machine = _machine()
    _submit(machine, 1)
    (propose,) = _flush(machine)
    results = _results(machine.handle(EntryOutcome(entry=propose.entry, outcome=outcome, now_ns=0)))
    assert isinstance(results[1], expected)


def test_a_caller_that_left_is_not_answered() -> None:
    machine = _machine()
    _submit(machine, 1, 2)
    (propose,) = _flush(machine)
    _submit(machine, 3)
    machine.handle(Forget(ticket=1))
    machine.handle(Forget(ticket=3))
    actions = machine.handle(EntryOutcome(entry=propose.entry, outcome=_committed(2), now_ns=0))
    assert _results(actions) == {2: Done()}
    assert machine.is_idle


# --- the asyncio shell ---


class _CountingMachine(LedgerMachine):
    """Replies ``Done`` per operation."""

    def apply(self, state: Ledger, payload: str, *, term: int, index: int) -> Applied[Ledger]:
        operations = decode_operations(payload)
        assert isinstance(operations, tuple)
        shared = [*state.ids, *(operation.request_id for operation in operations)]
        return Applied(state=Ledger(shared, len(shared)), replies=(Done(),) * len(operations), records=())


def _operation(name: str) -> Operation:
    return Operation(
        version=FEATURE_LEVEL, request_id=RequestId(name), stamped_at_ms=1, requested_by="admin:a", command=Barrier()
    )


def _group(*, applies_at_once: bool = True) -> MemoryGroup[Ledger]:
    group: MemoryGroup[Ledger] = MemoryGroup(_CountingMachine, applies_at_once=applies_at_once)
    for member in group.members.values():
        member.start()
    return group


def test_submitting_tasks_share_entries() -> None:
    async def main() -> None:
        group = _group()
        group.elect(ControllerName("c1"))
        log = group.members[ControllerName("c1")]
        proposer = AsyncProposer(log, propose_timeout_ms=1_000)
        replies = await asyncio.gather(*(proposer.submit(_operation(f"r{number}")) for number in range(50)))
        assert replies == [Done()] * 50
        assert log.published.index == 1

    asyncio.run(main())


def test_who_does_not_lead_says_who_does() -> None:
    async def main() -> None:
        group: MemoryGroup[Ledger] = MemoryGroup(_CountingMachine, (ControllerName("c1"), ControllerName("c2")))
        group.elect(ControllerName("c2"))
        proposer = AsyncProposer(group.members[ControllerName("c1")], propose_timeout_ms=1_000)
        with pytest.raises(NotLeader) as refusal:
            await proposer.submit(_operation("r"))
        assert refusal.value.leader == "c2"

    asyncio.run(main())


def test_no_answer_in_time_is_unknown() -> None:
    async def main() -> None:
        group = _group(applies_at_once=False)
        group.elect(ControllerName("c1"))
        proposer = AsyncProposer(group.members[ControllerName("c1")], propose_timeout_ms=60)
        with pytest.raises(EntryOutcomeUnknown, match="r7"):
            await proposer.submit(_operation("r7"))
        assert group.pump() == 1

    asyncio.run(main())


def test_a_closed_loop_does_not_disturb_the_log() -> None:
    """The callback runs on the log's thread: raising there made the stock library apply the entry twice."""
    group = _group(applies_at_once=False)
    group.elect(ControllerName("c1"))

    async def main() -> None:
        proposer = AsyncProposer(group.members[ControllerName("c1")], propose_timeout_ms=1_000)
        task = asyncio.ensure_future(proposer.submit(_operation("r")))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(main())
    assert group.pump() == 1
