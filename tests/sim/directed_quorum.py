"""
Directed cases of the controllers' quorum, for the mutants of ``mutations_quorum``: see ``directed``.

The product's members on links that the case moves: who hears what, and when, is all that it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.messages import Append, TimeoutNow
from rollcall_ha.controller.runtime.authority import judge_authority
from tests.sim.violation import Violation, must
from tests.support.raft_seams import Stopped
from tests.support.raft_virtual import NAMES, TIMING, OurNode, VirtualGroup

FIVE = ("c1", "c2", "c3", "c4", "c5")


@contextmanager
def _group(names: tuple[str, ...] = NAMES, **options: Any) -> Iterator[VirtualGroup]:
    with pytest.MonkeyPatch.context() as patch:
        yield VirtualGroup(patch, partial(OurNode, **options), names)


def heartbeat_over_a_full_link() -> None:
    """
    c1 and c2 of five hold three entries that nobody else has. The others elect and commit; the link to c2 is full, so
    that c2 hears heartbeats without entries, which say how far the others have committed.
    """
    with _group(FIVE) as group:
        must(group.commit("first"), "an entry commits")
        old = group.elect()
        follower = group.ours(next(name for name in FIVE if name != old.name))
        majority = [name for name in FIVE if name not in (old.name, follower.name)]
        for cut_off in (old.name, follower.name):
            group.cut(cut_off, *majority)
        for number in range(3):
            old.propose(f"dead-{number}", lambda _outcome: None)
        group.run_for(100)
        is_ahead = follower.last_index == old.last_index >= follower.commit_index + 3
        must(is_ahead, "the follower holds what no majority has")
        group.crash(old.name)
        group.run_for(5_000, lambda: any(group.nodes[name].is_leader for name in majority))
        for number in range(6):
            must(group.commit(f"living-{number}"), "the majority commits")
        leader = group.elect()
        transport: Any = group.ours(leader.name).member.raft.node.transport
        transport.pending_bytes = lambda peer: 2**40 if peer.name == follower.name else 0
        group.heal()
        try:
            group.run_for(200)
        except Stopped as stopped:
            raise Violation(f"Raft: {follower.name} stops: {stopped}") from stopped
        theirs = group.ours(leader.name).ids
        must(
            follower.ids == theirs[: len(follower.ids)],
            f"Raft: {follower.name} applied {follower.ids}, committed was {theirs}",
        )


def cut_below_a_snapshot() -> None:
    """A late member installs a snapshot; right behind it a leader with another history replaces its last entry."""
    with _group(compaction_entries=10) as group:
        leader = group.elect()
        late = next(name for name in NAMES if name != leader.name)
        group.crash(late)
        for number in range(40):
            must(group.commit(f"id-{number}"), "an entry commits")
        leader = group.elect()
        node = group.ours(group.start(late).name)
        installed: list[int] = []
        listeners = node.member.raft.node.listeners
        listeners.append(lambda entry: installed.append(entry.index) if entry.is_snapshot else None)
        stops: list[FailStop | None] = []

        def replaced(_source: str, target: str, _message: Any) -> None:
            if target == late and installed and not stops:
                stops.append(
                    _stop_of(node, leader.name, _another_history(node, leader.term, installed[0], group.now_ns))
                )

        group.after_delivery = replaced
        group.run_for(3_000, lambda: bool(stops))
        must(installed, "a snapshot is installed")
        must(stops == [FailStop.DIVERGED], f"Raft: what came with a snapshot was replaced: {stops}")


def _another_history(node: OurNode, term: int, index: int, now_ns: int) -> Append:
    """The entry ``index`` in another term than the one that it was committed in."""
    return Append(
        term=term,
        sent_ns=now_ns + 1,
        confirmed_ns=0,
        commit_index=index,
        last_index=index,
        previous_index=index - 1,
        previous_term=node.entry_at(index - 1)[2],
        entries=((b"\0", index, term + 1),),
    )


def _stop_of(node: OurNode, leader: str, append: Append) -> FailStop | None:
    try:
        node.receive(leader, append)
    except Stopped as stopped:
        return stopped.code
    return None


def answers_in_the_socket_of_a_paused_leader() -> None:
    """c1 leads, is paused with answers in its socket, and the others elect: c1 goes on and reads what they said before."""
    with _group() as group:
        must(group.commit("first"), "an entry commits")
        old = group.elect()
        others = [name for name in NAMES if name != old.name]
        # What it had sent arrives and is answered; from then on it neither ticks nor reads.
        group.now_ns += TIMING.raft_append_period_ms * 1_000_000
        old.tick()
        for name in others:
            while group.deliver_one(old.name, name):
                pass
        must(all(group.queues[name, old.name] for name in others), "answers lie in its socket")
        for _ in range(2_000):
            group.now_ns += 5_000_000
            for name in others:
                group.nodes[name].tick()
            for source, target in ((others[0], others[1]), (others[1], others[0])):
                while group.deliver_one(source, target):
                    pass
            if any(group.nodes[name].is_leader for name in others):
                break
        must(any(group.nodes[name].is_leader for name in others), "the others elect")
        for name in others:
            group.deliver_one(name, old.name)
        old.tick()
        must(not _has_authority(group, old.name), "R5: a leader that was paused has authority beside its successor")


def successor_beside_an_asking_leader() -> None:
    """
    R5: a leader has its successor elected while its followers have heard of it just now, and knows nothing of it.

    Its links break behind the message: it sees neither the candidate nor the new leader.
    """
    with _group() as group:
        must(group.commit("first"), "an entry commits")
        old = group.elect()
        target, other = (name for name in NAMES if name != old.name)
        _hand_over(group, old.name, target)
        for name in (target, other):
            while group.deliver_one(old.name, name):
                pass
        group.cut(old.name)
        for _ in range(40):
            for name in (target, other):
                group.nodes[name].tick()
            for source, to in ((target, other), (other, target)):
                while group.deliver_one(source, to):
                    pass
        must(group.nodes[target].is_leader, "the successor leads")
        old.tick()
        must(not _has_authority(group, old.name), "R5: a leader that has asked its successor has authority beside it")


def message_to_a_successor_on_a_slow_link() -> None:
    """R5: the successor hears of it when the leader has long waited in vain."""
    with _group() as group:
        must(group.commit("first"), "an entry commits")
        old = group.elect()
        target, other = (name for name in NAMES if name != old.name)
        _hand_over(group, old.name, target)
        asked_in = old.term
        for _ in range(400):
            group.now_ns += 5_000_000
            old.tick()
            while group.deliver_one(old.name, other) or group.deliver_one(other, old.name):
                pass
            if not old.is_leader:
                break
        must(
            not (old.is_leader and old.term == asked_in), "R5: a leader that has asked a successor takes its lead back"
        )


def _hand_over(group: VirtualGroup, leader: str, target: str) -> None:
    """Until the message is under way, and nothing of it has arrived."""
    asked: list[object] = []
    group.on_send = lambda _source, message: asked.append(message) if isinstance(message, TimeoutNow) else None
    group.ours(leader).member.hand_over(ControllerName(target), lambda _how: None)
    for _ in range(20):
        group.ours(leader).tick()
        if asked:
            return
    raise Violation("Raft: no successor is asked though it has every entry")


def _has_authority(group: VirtualGroup, name: str) -> bool:
    leadership = group.ours(name).member.leadership
    return judge_authority(
        leadership,
        taken_term=leadership.term,
        now_ns=group.now_ns,
        election_timeout_ms_min=TIMING.raft_election_timeout_ms_min,
    ).is_held


QUORUM_CASES: dict[str, Callable[[], None]] = {
    "heartbeat-over-a-full-link": heartbeat_over_a_full_link,
    "cut-below-a-snapshot": cut_below_a_snapshot,
    "answers-in-the-socket-of-a-paused-leader": answers_in_the_socket_of_a_paused_leader,
    "successor-beside-an-asking-leader": successor_beside_an_asking_leader,
    "message-to-a-successor-on-a-slow-link": message_to_a_successor_on_a_slow_link,
}
"""By name, as ``directed.CASES``."""
