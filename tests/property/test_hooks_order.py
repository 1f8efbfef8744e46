"""
Whatever fails and whenever the process is killed: each event is delivered at least once, and in order per set.

The real desk and the real store, with a model of the receiver, a clock that is moved, and kills between any two steps: a
killed process has not committed what it was about to, and its successor opens the same file.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.hooks.desk import DELIVERED, Desk, Outcome
from rollcall_ha.hooks.settings import HookSection, Limits
from rollcall_ha.hooks.store import Store, Waiting
from tests.unit.test_hooks_deliveries import CURSOR, hook, index_of, notice

HOOKS = ("pager", "vip")
SETS = ("a", "b", "c")
LIMITS = Limits(first_pause_ms=10, pause_ms_max=200, tries_max=10_000, age_s_max=86_400)
FAILED = Outcome(is_delivered=False, reason="HTTP 500")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from(SETS)),
        st.tuples(st.just("take"), st.integers(0, 300)),
        # Of what is out: which one, and whether its receiver takes it, refuses it, or takes it and its answer is lost.
        st.tuples(st.just("end"), st.integers(0, 7), st.sampled_from(["taken", "refused", "lost"])),
        st.tuples(st.just("kill"), st.booleans()),
    ),
    max_size=60,
)


class World:
    """One file, the processes that follow each other on it, and what receivers have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hooks: tuple[HookSection, ...] = tuple(hook(name, at_a_time=2) for name in HOOKS)
        self.now_ms = 1_000_000
        self.events = 0
        self.expected: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.received: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.start()

    def start(self) -> None:
        self.store = Store.open(self.folder)
        self.desk = Desk(self.store, self.hooks, LIMITS, draw=lambda: 0.5, now_ms=self.now_ms)
        self.out: list[Waiting] = []

    def event(self, of_set: str) -> None:
        self.events += 1
        letters = [(name, notice(self.events, of_set)) for name in HOOKS]
        self.store.take(CURSOR, {}, letters, now_ms=self.now_ms)
        for name in HOOKS:
            self.expected[name, f"c/{of_set}"].append(self.events)

    def take(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.desk.look(self.now_ms)
        self.out += self.desk.take(self.now_ms)
        lanes = [(one.hook, one.lane) for one in self.out]
        assert len(lanes) == len(set(lanes)), "two deliveries of one set are out"

    def end(self, which: int, how: str) -> None:
        if not self.out:
            return
        one = self.out.pop(which % len(self.out))
        if how != "refused":
            self.received[one.hook, one.lane].append(index_of(one))
        self.desk.settle([(one, DELIVERED if how == "taken" else FAILED)], self.now_ms)

    def kill(self, has_received: bool) -> None:
        """What was out may have arrived; nothing of it is known afterwards."""
        if has_received:
            for one in self.out:
                self.received[one.hook, one.lane].append(index_of(one))
        self.store.close()
        self.start()

    def finish(self) -> None:
        """Everything is taken from now on."""
        for _ in range(10 * self.events + 10):
            self.take(LIMITS.pause_ms_max + 1)
            while self.out:
                self.end(0, "taken")
        assert not any(self.desk.waiting.values())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_each_event_arrives_at_least_once_and_in_order_per_set(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name, *values in steps:
            getattr(world, str(name))(*values)
        world.finish()
        world.store.close()
        assert world.received.keys() == world.expected.keys()
        for lane, numbers in world.expected.items():
            received = world.received[lane]
            assert list(dict.fromkeys(received)) == numbers, "missing, or first seen out of order"
            # A repetition is always of the newest one: nothing older comes behind what was received after it.
            assert received == sorted(received)
