"""
``python -m tests.sim.members``: many lives of the controllers' Raft group whose members change under kills.

From one to three, to five and back to three, in which the sixth takes the place of founders. At each step members are
killed, lose power, their disks or their links, and what is sent arrives late. Here: the life, its operator, its laws.
Not here: the group (``tests.support.raft_virtual``, the product's members on virtual time), the whole fleet
(``tests.sim.seats``).

    --seeds N --first S   lives S .. S+N-1
    --jobs N              processes; 0 = one per core

Law 1: what was acknowledged is there at the end, once and in every member.
Law 2: of two histories one is the beginning of the other.
Law 3: a term has one leader, and it is a voter by its own log.
Law 4: committed members differ from those before by one voter at most, who was a learner before, or by learners; at one
index all have the same.
Law 5: the group gets where the operator wants it.

Exit 0: no law is broken, and nothing that should have happened happened never.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from time import monotonic
from traceback import format_exc
from typing import Any

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication import membership
from rollcall_ha.controller.replication.membership import Membership, Seat, promoted, with_learner, without
from rollcall_ha.controller.replication.ports import ProposalOutcome, ProposalStatus
from rollcall_ha.controller.replication.raft.catch_up import CATCHING_UP_FILE_NAME
from rollcall_ha.controller.replication.raft.messages import ProtocolError
from tests.sim.violation import Violation
from tests.support.raft_seams import Stopped
from tests.support.raft_virtual import OurNode, VirtualGroup
from tests.support.sim_kernel import Counts

ALL = ("c1", "c2", "c3", "c4", "c5", "c6")
GOALS = (("c1", "c2", "c3"), ("c1", "c2", "c3", "c4", "c5"), ("c3", "c5", "c6"))
"""c6 takes the place of members that founded the group."""
STEPS_MAX = 1_500
"""Turns of the operator towards one goal; in the second half nothing is disturbed any more."""

EXPECTED = (
    "controllers added",
    "controllers given a vote",
    "controllers removed",
    "changes refused",
    "changes of unknown outcome",
    "changes that were cut",
    "leads moved to remove their holders",
    "groups of three reached",
    "groups of five reached",
    "killed in the middle of a change",
    "all killed at once",
    "leaders killed",
    "power losses",
    "power losses behind a delivery",
    "disks lost",
    "disks lost that vote again",
    "cuts",
    "terms",
    "snapshots",
    "entries acknowledged",
)
"""Zero of one of these over a run of ``SEEDS_FOR_COUNTS`` lives or more fails it."""
SEEDS_FOR_COUNTS = 100


class MembersJudge:
    """Law 4, of one group; shares no arithmetic with the product."""

    def __init__(self, counts: Counts, founders: Iterable[str]) -> None:
        self._counts = counts
        names = {ControllerName(name): f"{name}:1" for name in founders}
        self._committed: list[tuple[int, Membership]] = [(0, membership.founded(names))]

    @property
    def newest(self) -> Membership:
        """Committed and applied by one of them."""
        return self._committed[-1][1]

    def watch(self, node: Any) -> None:
        """Hear of what this ``RaftNode`` applies."""
        original = node._SyncObj__doApplyCommand

        def applied(command: bytes) -> None:
            if command[:1] == membership.CONFIGURATION:
                self._applied(node.internals.last_applied + 1, membership.decode(command))
            original(command)

        node._SyncObj__doApplyCommand = applied

    def _applied(self, index: int, members: Membership) -> None:
        last_index, last = self._committed[-1]
        if index <= last_index:
            if (index, members) not in self._committed:
                raise Violation(f"members: two sorts of them at entry {index}")
            return
        self._committed.append((index, members))
        before, after = ({seat.name for seat in one.voters} for one in (last, members))
        came, went = sorted(after - before), sorted(before - after)
        if len(came) + len(went) > 1:
            raise Violation(f"members: {came} came and {went} went in one step")
        if not {seat.name for seat in last.learners}.issuperset(came):
            raise Violation(f"members: {came} votes and never was a learner")
        self._counts.add(f"controllers {'given a vote' if came else 'removed' if went else 'added'}")


class Life:
    """A group, its operator, and what both have seen."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        self.random = Random(seed)
        self.counts = Counts()
        self._judge = MembersJudge(self.counts, ALL[:1])
        self.group = VirtualGroup(patch, self._make, ALL, seed=seed, founders=ALL[:1])
        self.group.after_delivery = self._after
        self.group.dies_after = self._dies
        self._leaders: dict[int, str] = {}
        self._acknowledged: list[str] = []
        self._number = 0
        self._is_calm = False
        self._has_stepped = False
        self._wiped: set[str] = set()

    def _make(self, group: VirtualGroup, name: str) -> OurNode:
        node = OurNode(group, name, compaction_entries=15)
        self._judge.watch(node.member.raft.node)
        return node

    # --- laws ---

    def _after(self, _source: str, _target: str, _message: Any) -> None:
        """Law 3."""
        for name, node in self.group.nodes.items():
            if node.is_leader:
                self.counts.add("terms", int(node.term not in self._leaders))
                assert self._leaders.setdefault(node.term, name) == name, f"two leaders in term {node.term}"
                assert self.group.ours(name).member.members.is_voter(name), f"{name} leads a group that it is not in"

    def _dies(self, _target: str) -> bool:
        dies = not self._is_calm and self.random.random() < 0.001
        self.counts.add("power losses behind a delivery", int(dies))
        return dies

    def _agree(self) -> None:
        """Law 2."""
        histories = sorted((node.ids for node in self.group.nodes.values()), key=len)
        for shorter, longer in pairwise(histories):
            assert longer[: len(shorter)] == shorter, "two histories"
        for name in sorted(self._wiped & self.group.nodes.keys()):
            if self.group.ours(name).member.raft.is_voter:
                self._wiped.remove(name)
                self.counts.add("disks lost that vote again")

    # --- the operator ---

    @property
    def _leader(self) -> OurNode | None:
        leader = self.group.leader
        return None if leader is None else self.group.ours(leader.name)

    def _order(self, goal: tuple[str, ...]) -> bool:
        """One order towards ``goal``; True once the group is there, on a majority's disks."""
        leader = self._leader
        if leader is None:
            return False
        members = leader.member.members
        voters = {seat.name for seat in members.voters}
        if voters == set(goal) and not members.learners:
            return leader.member.raft.node.journal.configuration[0] <= leader.commit_index
        missing = [name for name in goal if name not in {seat.name for seat in members.seats}]
        extra = sorted(voters - set(goal))
        if members.learners:
            leader.member.change(partial(promoted, name=members.learners[0].name), self._changed)
        elif missing:
            if missing[0] not in self.group.nodes:
                self.group.start(missing[0])
            seat = Seat(name=missing[0], raft="127.0.0.1:1")
            leader.member.change(partial(with_learner, seat=seat), self._changed)
        elif leader.name in extra:
            self.counts.add("leads moved to remove their holders")
            others = [name for name in goal if name != leader.name]
            leader.member.hand_over(ControllerName(self.random.choice(others)), lambda _how: None)
        elif extra:
            leader.member.change(partial(without, name=extra[0]), self._changed)
        return False

    def _changed(self, outcome: ProposalOutcome) -> None:
        if outcome.status is ProposalStatus.UNKNOWN:
            self.counts.add("changes of unknown outcome")
        elif outcome.status is ProposalStatus.NOT_PROPOSED:
            is_cut = "took its place" in outcome.reason
            self.counts.add("changes that were cut" if is_cut else "changes refused")
            if not is_cut:
                return
        # Not yet applied by all, and for UNKNOWN perhaps never: that is when members are killed.
        self._has_stepped = True

    def _send(self) -> None:
        leader = self._leader
        if leader is not None:
            self._number += 1
            text = f"{self._number}"
            leader.propose(text, lambda told: self._acknowledged.append(text) if told else None)

    # --- faults ---

    def _crash(self, name: str) -> None:
        has_power = self.random.random() >= 0.7
        if self._leader is not None and self._leader.name == name:
            self.counts.add("leaders killed")
        self.counts.add("kills" if has_power else "power losses")
        self.group.crash(name, power=not has_power)

    def _disturb(self) -> None:
        group, random = self.group, self.random
        alive = list(group.nodes)
        if not alive:
            return
        match random.randrange(7):
            case 0:
                group.cut(random.choice(alive))
                self.counts.add("cuts")
            case 1 if len(alive) > 1:
                group.cut(*random.sample(alive, 2))
                self.counts.add("cuts")
            case 2:
                group.heal()
            case 3:
                if self._leader is not None:
                    self._crash(self._leader.name)
            case 4:
                self._lose_disk(random.choice(alive))
            case _:
                some = random.sample(alive, random.choice((1, 1, len(alive))))
                self.counts.add("all killed at once", int(len(some) == len(alive) > 1))
                for name in some:
                    self._crash(name)

    def _lose_disk(self, name: str) -> None:
        """Of one at a time, of three or more: of two voters both are needed, and what both knew is gone with one."""
        leader = self._leader
        others = [one for one in ALL if one != name and self.group.disks[one].exists("journal")]
        is_whole = not any(self.group.disks[one].exists(CATCHING_UP_FILE_NAME) for one in others)
        # The founder's fleet file names it alone: it would not start (``member``).
        if leader is None or name == "c1" or not is_whole or len(leader.member.members.voters) < 3:
            return
        if leader.member.members.is_voter(name):
            self.counts.add("disks lost")
            self._crash(name)
            self.group.wipe(name)
            self._wiped.add(name)
            self.group.start(name)

    def _restart(self, *, share: float) -> None:
        for name in ALL:
            if (
                name not in self.group.nodes
                and self.group.disks[name].exists("journal")
                and self.random.random() < share
            ):
                self.group.start(name)

    # --- life ---

    def _reach(self, goal: tuple[str, ...]) -> None:
        for step in range(STEPS_MAX):
            disturbs = step < STEPS_MAX // 2
            if self.random.random() < 0.6 and self._order(goal):
                return
            self._send()
            # In the middle of each step, and now and then between them.
            if disturbs and ((self._has_stepped and self.random.random() < 0.5) or self.random.random() < 0.05):
                self.counts.add("killed in the middle of a change", int(self._has_stepped))
                self._has_stepped = False
                self._disturb()
            if not disturbs:
                self.group.heal()
            if self.random.random() < 0.5:
                self.group.run_slowly(self.random.randrange(1, 20))
            else:
                self.group.run_for(5 * self.random.randrange(1, 60))
            self._agree()
            self._restart(share=0.3 if disturbs else 1.0)
        leader = self._leader
        raise AssertionError(
            f"the members are {None if leader is None else leader.member.members}, not {goal}, after {STEPS_MAX} steps"
        )

    def live(self) -> None:
        """From the founding to the end. Raises ``AssertionError``: a law is broken."""
        self.group.elect()
        for goal in GOALS:
            self._reach(goal)
            self.counts.add(f"groups of {'three' if len(goal) == 3 else 'five'} reached")
        self._is_calm = True
        self.group.heal()
        self._restart(share=1.0)
        # Those that were removed are switched off, as an operator does.
        for name in ALL:
            if name not in GOALS[-1] and name in self.group.nodes:
                self.group.crash(name)
        self.group.elect()
        # "Unknown" is an answer, too: one that comes back in a higher term ends the lead of that moment.
        assert any(self.group.commit(f"last-{attempt}") for attempt in range(5)), "nothing is committed any more"
        self.group.run_for(3_000)
        self._agree()
        self.counts.add("entries acknowledged", len(self._acknowledged))
        for name in GOALS[-1]:
            ids = self.group.nodes[name].ids
            kept = [text for text in ids if text in set(self._acknowledged)]
            assert sorted(kept) == sorted(self._acknowledged), f"{name} lacks what was acknowledged"
            self.counts.add("snapshots", self.group.ours(name).member.raft.node.store.writes)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one life."""

    seed: int
    counts: Counts
    failure: str | None

    @property
    def again(self) -> str:
        """The command that lives it once more."""
        return f"python -m tests.sim.members --first {self.seed} --seeds 1"


def run(seed: int) -> Outcome:
    """Never raises: a fault of the double names its life, too."""
    failure = None
    with pytest.MonkeyPatch.context() as patch:
        life = Life(patch, seed)
        try:
            life.live()
        except (AssertionError, Violation, ProtocolError, Stopped) as error:
            failure = f"{type(error).__name__}: {error}"
        except Exception:  # noqa: BLE001 (whoever hears of it gets the seed with it)
            failure = format_exc(limit=-3)
    return Outcome(seed, life.counts, failure)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.members", description="members change under kills")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0)
    options = parser.parse_args()
    # What the production code warns of here is what was done to it.
    logging.getLogger().setLevel(logging.CRITICAL)
    started, total, failed = monotonic(), Counts(), 0
    with ProcessPoolExecutor(max_workers=options.jobs or os.cpu_count() or 1) as pool:
        for done, outcome in enumerate(pool.map(run, range(options.first, options.first + options.seeds)), 1):
            total.merge(outcome.counts)
            if outcome.failure is not None:
                failed += 1
                print(f"FAILED {outcome.again}: {outcome.failure}", flush=True)
            if done % SEEDS_FOR_COUNTS == 0:
                print(f"{done} lives, {failed} failed, {monotonic() - started:.0f} s", flush=True)
    width = max(map(len, total.by_name))
    for name, amount in sorted(total.by_name.items()):
        print(f"  {name:<{width}}  {amount:>10,}")
    missing = [name for name in EXPECTED if options.seeds >= SEEDS_FOR_COUNTS and not total[name]]
    for name in missing:
        print(f"FAILED nothing happened: {name} is 0 over {options.seeds} lives")
    result = {"lives": options.seeds, "failed": failed, "zero_counts": len(missing)}
    result |= {name.replace(" ", "_"): total[name] for name in EXPECTED[:3]}
    print(f"RESULT {json.dumps(result)}")
    return int(bool(failed or missing))


if __name__ == "__main__":
    sys.exit(main())
