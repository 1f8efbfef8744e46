"""A master's SyncStateSet under lost, late and repeated messages, against a controller that applies R1."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import AlterVerdict
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.sync_state import ConfirmMoved, ProposeAlter, ReignStart, SyncOutput, SyncState
from tests.support.set_views import shown

EPOCH = MasterEpoch(3)
FLEET = FleetIncarnation("fleet-1")
MASTER = BrokerId(1)
TIMING = structs.replace(
    PRESETS[Preset.FAST],
    catch_up_timeout_ms=400,
    survivors_wait_ms=200,
    session_rpc_timeout_ms=100,
    stall_ms=10_000,
)


@dataclass(frozen=True)
class Answer:
    """The stored verdict. ``is_own``: on the alter that was delivered; else on another content or a higher seq."""

    verdict: AlterVerdict
    is_own: bool = True


@dataclass
class Controller:
    """The set as apply keeps it: one stored verdict per (masterEpoch, seq), compare-and-set on SyncStateSetEpoch."""

    members: tuple[BrokerId, ...]
    version: int = 1
    stored: Answer | None = None
    content: ProposeAlter | None = None
    is_over: bool = False
    seen: dict[int, ProposeAlter] = field(default_factory=dict)

    def forge(self, number: int) -> None:
        """A stranger's alter in the master's name: accepted with {master}, or refused."""
        seq = (self.stored.verdict.seq if self.stored is not None else 0) + 1 + 100 * (number // 2)
        self._decide(seq, (MASTER,) if number % 2 else None, None)

    def apply(self, alter: ProposeAlter) -> Answer | None:
        assert self.seen.setdefault(alter.seq, alter) == alter, "a seq is bound to one content (R1)"
        if self.is_over:
            return None
        if self.stored is not None and alter.seq <= self.stored.verdict.seq:
            return self.stored if alter == self.content else replace(self.stored, is_own=False)
        is_accepted = alter.sync_state_set_epoch == self.version
        return self._decide(alter.seq, alter.new_set if is_accepted else None, alter)

    def _decide(self, seq: int, members: tuple[BrokerId, ...] | None, content: ProposeAlter | None) -> Answer:
        if members is not None:
            self.members, self.version = members, self.version + 1
        self.content = content
        verdict = AlterVerdict(
            master_epoch=EPOCH,
            seq=seq,
            is_accepted=members is not None,
            refusal=None,
            sync_state_set=self.members,
            sync_state_set_epoch=SyncStateSetEpoch(self.version),
        )
        self.stored = Answer(verdict)
        return self.stored


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "link", "unlink", "ack", "deliver", "answer", "push", "tick", "end", "forge"]),
        st.integers(0, 7),
    ),
    max_size=80,
)


class World:
    """Three replicas, one reign; ``requests`` and ``answers`` stay deliverable for ever."""

    def __init__(self, members: tuple[int, ...], min_in_sync: int = 1) -> None:
        chosen = tuple(map(BrokerId, members))
        self.controller = Controller(chosen)
        self.now_ms = self.end = self.generation = self.highest = 0
        self.links: dict[BrokerId, int] = {}
        self.requests: list[ProposeAlter] = []
        self.answers: list[Answer] = []
        self.truth: dict[BrokerId, int] = {}
        reign = ReignStart(
            broker_id=MASTER,
            incarnation=Incarnation("i1"),
            fleet_incarnation=FLEET,
            master_epoch=EPOCH,
            start_offset=LogOffset(0),
            confirm_offset=LogOffset(0),
            sync_state_set=chosen,
            sync_state_set_epoch=SyncStateSetEpoch(1),
            min_in_sync=min_in_sync,
            flush=FlushMode.ASYNC,
            timing=TIMING,
        )
        self.state = SyncState(reign, log_end=LogOffset(0), now_ms=0)

    def take(self, outputs: list[SyncOutput]) -> None:
        for output in outputs:
            if isinstance(output, ProposeAlter):
                self.requests.append(output)
                assert (
                    set(output.new_set) >= set(self.state.local_set)
                    or len(output.new_set) >= self.state.reign.min_in_sync
                ), "R22: a set that cannot acknowledge is not proposed"
            elif isinstance(output, ConfirmMoved):
                assert output.offset > self.highest, "confirm never falls (D6)"
                self.highest = output.offset

    def do(self, what: str, number: int) -> None:
        state, member = self.state, BrokerId(2 + number % 2)
        self.now_ms += 30
        match what:
            case "write":
                self.end += 1 + number
                self.take(state.log_extended(LogOffset(self.end)))
            case "link":
                self.generation += 1
                self.links[member] = self.generation
                self.truth[member] = min(self.truth.get(member, 0), self.end)
                self.take(state.link_opened(member, Incarnation(f"i{member}"), self.generation, is_learner=False))
            case "unlink" if member in self.links:
                self.take(state.link_closed(member, self.links.pop(member), self.now_ms))
            case "ack" if member in self.links:
                self.truth[member] = min(self.end, self.truth[member] + number)
                ack = MemberAck(
                    broker_id=member,
                    incarnation=Incarnation(f"i{member}"),
                    master_epoch=EPOCH,
                    link_generation=self.links[member],
                    offset=LogOffset(self.truth[member]),
                    is_promise_durable=True,
                )
                self.take(state.ack(ack, self.now_ms))
            case "deliver" if self.requests:
                answer = self.controller.apply(self.requests[number % len(self.requests)])
                if answer is not None:
                    self.answers.append(answer)
            case "answer" if self.answers:
                self.hear(self.answers[number % len(self.answers)])
            case "push":
                view = shown(
                    fleet_incarnation=FLEET,
                    master_epoch=MasterEpoch(EPOCH + self.controller.is_over),
                    master=MASTER,
                    master_incarnation=Incarnation("i1"),
                    sync_state_set=self.controller.members,
                    sync_state_set_epoch=SyncStateSetEpoch(self.controller.version),
                )
                self.take(state.authoritative_state(view, self.now_ms))
            case "tick":
                self.now_ms += 100 * number
                self.take(state.tick(self.now_ms))
            case "end" if number == 7:
                self.controller.is_over = True
            case "forge":
                self.controller.forge(number)

    def hear(self, answer: Answer) -> None:
        hear = self.state.verdict if answer.is_own else self.state.overtaken
        self.take(hear(answer.verdict, self.now_ms))

    def check(self) -> None:
        assert set(self.controller.members) <= set(self.state.required_set), "D7: committed within required"
        for member in self.controller.members:
            if member != MASTER:
                assert self.highest <= self.truth.get(member, 0), "D8: what is confirmed is on every committed member"
        assert self.state.confirm_offset == self.highest


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.sampled_from([(1,), (1, 2), (1, 2, 3)]), st.sampled_from([1, 2]), steps)
def test_the_committed_set_stays_within_the_required_set(
    members: tuple[int, ...], min_in_sync: int, script: list[tuple[str, int]]
) -> None:
    """
    D6, D7, D8, R1 and R22 under every interleaving of writes, links, acks, lost, repeated and forged alters and answers.

    In the end what is outstanding is decided, whatever was forged before.
    """
    world = World(members, min_in_sync)
    for what, number in script:
        world.do(what, number)
        world.check()
    outstanding = world.state.outstanding
    if outstanding is not None and not world.controller.is_over:
        answer = world.controller.apply(outstanding)
        assert answer is not None
        world.hear(answer)
        world.check()
        assert world.state.outstanding != outstanding, "repeated for ever (R1)"
