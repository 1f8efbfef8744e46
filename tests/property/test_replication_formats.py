"""Laws of the formats: bytes that come from a torn disk or a hostile peer give an answer, never a surprise."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.replication.codec import AboveFeatureLevel, Undecodable, decode_operations
from rollcall_ha.controller.replication.ports import ProposalOutcome, ProposalStatus
from rollcall_ha.controller.replication.proposer import (
    Action,
    EntryOutcome,
    Flush,
    ProposeEntry,
    Proposer,
    ProposerTick,
    Resolve,
    Submit,
)
from rollcall_ha.controller.replication.raft.journal import (
    JOURNAL_FILE_NAME,
    DurableJournal,
    Entry,
    JournalDamagedError,
)
from rollcall_ha.controller.replication.raft.messages import ProtocolError, decode_message, encode_message, is_command
from rollcall_ha.controller.replication.raft.snapshot import SnapshotDamagedError, decode_snapshot, encode_snapshot
from tests.support.raft_seams import raise_stopped
from tests.support.sim_disk import SimDisk
from tests.support.sim_kernel import Kernel

FEW = settings(max_examples=60, deadline=None)
ENTRY = (b"\x00e", 5, 1)


@pytest.mark.slow
@FEW
@given(st.text(max_size=200))
def test_decoding_operations_is_total(payload: str) -> None:
    assert isinstance(decode_operations(payload), tuple | Undecodable | AboveFeatureLevel)


@FEW
@given(st.binary(max_size=300))
def test_a_frame_is_a_message_or_an_error(frame: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert decode_message(encode_message(decode_message(frame)))


@FEW
@given(st.binary(max_size=20))
def test_a_command_is_ascii_or_nothing(command: bytes) -> None:
    assert is_command(command) <= command.isascii()


@FEW
@given(st.lists(st.binary(max_size=400), max_size=20), st.data())
def test_any_flipped_bit_of_a_snapshot_is_found(items: list[bytes], data: st.DataObject) -> None:
    raw = encode_snapshot(ENTRY, (b"\x00f", 6, 1), items)
    assert list(decode_snapshot(raw).items) == items
    at = data.draw(st.integers(0, len(raw) - 1))
    broken = raw[:at] + bytes([raw[at] ^ (1 << data.draw(st.integers(0, 7)))]) + raw[at + 1 :]
    try:
        decode_snapshot(broken)
    except SnapshotDamagedError:
        return
    raise AssertionError(f"bit at {at} went unnoticed")


@FEW
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 2**32))
def test_a_power_loss_leaves_a_state_between_the_last_sync_and_now(steps: list[int], seed: int) -> None:
    """What was synced is there; what was not is there as a whole or not at all."""
    disk = SimDisk(Kernel(seed), "c1")
    journal = DurableJournal(disk, raise_stopped)
    synced: tuple[list[Entry], int, str | None] = (journal[:], 0, None)
    for step in steps:
        match step:
            case 0 | 1:
                journal.add(b"\x00" + b"x" * (step * 700), journal.last_index + 1, journal.getCurrentTerm())
            case 2:
                journal.deleteEntriesFrom(max(1, len(journal) - 2))
            case 3:
                journal.setCurrentTerm(journal.getCurrentTerm() + 1, "c2")
            case _:
                journal.sync()
                synced = (journal[:], journal.getCurrentTerm(), journal.getVotedForNodeId())
    disk.lose_power()
    again = DurableJournal(disk, raise_stopped)
    assert (again[:], again.getCurrentTerm(), again.getVotedForNodeId()) == synced


@FEW
@given(st.integers(2, 12), st.data())
def test_damage_behind_a_sync_is_never_taken_for_a_torn_tail(batches: int, data: st.DataObject) -> None:
    """A bit that flips in a journal loses nothing silently: refused, or the very same entries."""
    disk = SimDisk(Kernel(1), "c1")
    journal = DurableJournal(disk, raise_stopped)
    for number in range(batches):
        journal.add(b"\x00entry", 2 + number, 1)
        journal.sync()
    raw = bytearray(disk.read(JOURNAL_FILE_NAME))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    disk.replace(JOURNAL_FILE_NAME, bytes(raw))
    with contextlib.suppress(JournalDamagedError):
        DurableJournal(disk, raise_stopped)
        raise AssertionError("a flipped bit went unnoticed")


@FEW
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=80))
def test_every_caller_is_answered_exactly_once(steps: list[tuple[int, int]]) -> None:
    """Whatever the log does, and also if it never answers."""
    machine = Proposer(propose_timeout_ms=100, entry_bytes_max=60)
    now_ns = tickets = 0
    out: list[int] = []
    answered: list[int] = []

    def take(actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, ProposeEntry):
                assert len(action.payload) <= 60
                out.append(action.entry)
            elif isinstance(action, Resolve):
                answered.append(action.ticket)

    for kind, amount in steps:
        if kind == 0:
            tickets += 1
            submit = Submit(
                ticket=tickets,
                request_id=RequestId("r"),
                part="x" * amount,
                deadline_ns=now_ns + 100_000_000,
            )
            take(machine.handle(submit))
        elif kind == 1:
            take(machine.handle(Flush(now_ns=now_ns)))
        elif kind == 2 and out:
            status = [ProposalStatus.UNKNOWN, ProposalStatus.NOT_PROPOSED][amount % 2]
            entry = out.pop(amount % len(out))
            take(machine.handle(EntryOutcome(entry=entry, outcome=ProposalOutcome(status=status), now_ns=now_ns)))
        elif kind == 3:
            now_ns += amount * 1_000_000
            take(machine.handle(ProposerTick(now_ns=now_ns)))
    for _ in range(3):
        now_ns += 1_000_000_000
        take(machine.handle(ProposerTick(now_ns=now_ns)))
    assert sorted(answered) == list(range(1, tickets + 1))
    assert machine.is_idle
