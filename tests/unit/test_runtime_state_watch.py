"""Controllers compare what they have made of the same entries (R15, C8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import Barrier
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import Published
from rollcall_ha.controller.runtime.state_watch import judge_states
from tests.support.core_builders import SET_A, Fleet
from tests.support.runtime_controller import running_group, until

C2, C3 = ControllerName("c2"), ControllerName("c3")


def test_a_controller_that_differs_from_a_majority_that_agrees_must_stop() -> None:
    found = judge_states({7: "mine", 8: "mine too"}, {C2: {7: "theirs"}, C3: {6: "old", 7: "theirs"}}, members=3)

    assert found.differing == (C2, C3)
    assert "the state after entry 7 is mine here and theirs on c2, c3" in found.stop_reason


def test_nobody_stops_where_no_majority_agrees_against_it() -> None:
    """One of three differs from us, or each has a state of its own, or nothing can be compared."""
    assert judge_states({7: "a"}, {C2: {7: "a"}, C3: {7: "b"}}, members=3).stop_reason == ""
    assert judge_states({7: "a"}, {C2: {7: "a"}, C3: {7: "b"}}, members=3).differing == (C3,)
    each_its_own = judge_states({7: "a"}, {C2: {7: "b"}, C3: {7: "c"}}, members=3)
    assert (each_its_own.differing, each_its_own.stop_reason) == ((C2, C3), "")
    assert judge_states({7: "a"}, {C2: {6: "b"}, C3: {}}, members=3) == judge_states({}, {}, members=3)


def test_the_digest_follows_every_change_and_nothing_else() -> None:
    """Equal logs give equal digests, also past a snapshot (C8); a barrier changes nothing."""
    one, two = Fleet().serving(), Fleet().serving()
    assert one.state.state_digest == two.state.state_digest != ""
    before = one.state.state_digest
    one.do(Barrier())
    assert one.state.state_digest == before
    one.silence(3)
    assert one.state.state_digest != before
    assert Fleet(is_initialised=False).state.state_digest == ""


def test_a_set_that_was_changed_behind_the_log_is_noticed_with_its_next_entry() -> None:
    """A bit that flips in memory: both controllers apply the same entry, and their digests part."""
    good, bad = Fleet().serving(), Fleet().serving()
    wrong = msgspec.structs.replace(bad.set, known_confirm=99)
    bad.state = msgspec.structs.replace(bad.state, sets={SET_A: wrong})
    good.silence(3)
    bad.silence(3)

    assert good.state.chain_head == bad.state.chain_head
    assert good.state.state_digest != bad.state.state_digest


@pytest.mark.slow
def test_a_diverged_controller_stops_and_the_others_say_so(tmp_path: Path) -> None:
    """The follower whose state is another ends with the reason; status of the rest names it."""

    async def scenario() -> None:
        async with running_group(tmp_path) as group:
            leader = await group.elect("c1")
            bad = group["c3"]
            reasons: list[str] = []
            bad.service.ports = replace(bad.service.ports, diverged=reasons.append)
            log = group.memory.members[ControllerName("c3")]
            # An entry that is being applied would put the state back.
            await until(lambda: log.published.index == group.memory.members[ControllerName("c1")].published.index)
            published = log.published
            state = msgspec.structs.replace(published.state, chain_head="0" * 64)
            log._published = Published(state=state, term=published.term, index=published.index)
            group.memory.elect(ControllerName("c1"))
            await until(lambda: leader.service.states.differing == (C3,))
            await until(lambda: reasons)
            assert "which are a majority: this one is wrong" in reasons[0]
            assert leader.queries.controller().differing == (C3,)

    asyncio.run(scenario())
