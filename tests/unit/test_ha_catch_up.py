"""How fast slaves that lag far behind are copied to: turns, budgets, and way for the sends of the members in sync."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.controller.contract.settings import KEYS
from rollcall_ha.ha.catch_up import (
    BURST_MS,
    BUSY_PAUSE_MS,
    COPY_BEGINS_BYTES,
    COPY_ENDS_BYTES,
    PIECE_BYTES,
    TURN_STUCK_MS,
    WHOLE,
    CatchUpLimits,
    CatchUpPacer,
    Grant,
)

FAR = 100 * COPY_BEGINS_BYTES
BYTES_PER_S_MIN = KEYS["catch_up_bytes_per_s_max"].least


class Copier:
    """A pacer, links, and the time."""

    def __init__(self, limits: CatchUpLimits | None = None) -> None:
        self.now_ms = 0
        self.lags: dict[int, int] = {}
        self.pacer = CatchUpPacer(limits or CatchUpLimits(), 0)

    def ask(self, link: int, *, is_required: bool = False, is_busy: bool = False) -> Grant:
        return self.pacer.grant(
            link, lag_bytes=self.lags[link], is_required=is_required, is_busy=is_busy, now_ms=self.now_ms
        )

    def send(self, link: int, *, is_busy: bool = False) -> int:
        """Bytes that went."""
        grant = self.ask(link, is_busy=is_busy)
        if grant.wait_ms:
            return 0
        count = self.lags[link] if grant.bytes_max is None else min(grant.bytes_max, self.lags[link])
        self.pacer.sent(link, count, self.now_ms)
        self.lags[link] -= count
        return count

    def run(self, ms: int, *links: int, is_busy: bool = False, turns_per_ms: int = 8) -> dict[int, int]:
        """Every link asks ``turns_per_ms`` times in each millisecond; bytes that went, by link."""
        sent = dict.fromkeys(links, 0)
        for _ in range(ms):
            self.now_ms += 1
            for _ in range(turns_per_ms):
                for link in links:
                    sent[link] += self.send(link, is_busy=is_busy)
        return sent


def test_the_slowest_rate_that_can_be_set_sends_a_piece_each_second() -> None:
    assert BYTES_PER_S_MIN == PIECE_BYTES


def test_a_slave_that_follows_is_never_slowed_down() -> None:
    """Less than ``COPY_BEGINS_BYTES`` behind: its batches go as they come."""
    copier = Copier(CatchUpLimits(link_bytes_per_s_max=BYTES_PER_S_MIN))
    copier.lags[1] = COPY_BEGINS_BYTES
    assert copier.ask(1, is_busy=True) == WHOLE
    assert not copier.pacer.copies


def test_a_member_whose_acks_sends_wait_for_is_never_slowed_down_whatever_it_lacks() -> None:
    """A survivor that lags far behind after an election: paced, each send of the set would wait for it."""
    copier = Copier(CatchUpLimits(link_bytes_per_s_max=BYTES_PER_S_MIN))
    copier.lags[1] = FAR
    assert copier.ask(1, is_required=True, is_busy=True) == WHOLE
    copier.send(1)
    assert copier.pacer.copies
    assert copier.ask(1, is_required=True) == WHOLE
    assert not copier.pacer.copies, "it has become a member in the middle of its copy"


def test_a_copy_goes_on_until_it_is_near() -> None:
    copier = Copier()
    copier.lags[1] = COPY_BEGINS_BYTES + 1
    copier.send(1)
    copier.lags[1] = COPY_ENDS_BYTES + 1
    assert copier.ask(1).bytes_max == PIECE_BYTES
    copier.lags[1] = COPY_ENDS_BYTES
    assert copier.ask(1) == WHOLE


@given(
    rate=st.integers(min_value=BYTES_PER_S_MIN, max_value=1 << 30),
    steps_ms=st.lists(st.integers(min_value=-50, max_value=400), max_size=60),
)
def test_no_more_than_the_rate_and_one_burst(rate: int, steps_ms: list[int]) -> None:
    """Whatever the clock does between two looks, also if it falls."""
    copier = Copier(CatchUpLimits(link_bytes_per_s_max=rate))
    copier.lags[1] = FAR * 1_000
    sent = passed_ms = 0
    for step_ms in steps_ms:
        copier.now_ms += step_ms
        passed_ms += max(0, step_ms)
        while count := copier.send(1):
            sent += count
        wait_ms = copier.ask(1).wait_ms
        assert wait_ms * rate <= PIECE_BYTES * 1_000 + rate, "never longer than one piece takes"
    assert sent <= rate * (passed_ms + BURST_MS) / 1_000 + PIECE_BYTES


def test_the_rate_is_reached() -> None:
    copier = Copier(CatchUpLimits(link_bytes_per_s_max=50_000_000))
    copier.lags[1] = FAR
    sent = copier.run(2_000, 1)[1]
    assert 0.99 * 100_000_000 <= sent <= 100_000_000 + 5_000_000 + PIECE_BYTES


def test_all_links_together_keep_to_the_limit_of_the_node() -> None:
    copier = Copier(CatchUpLimits(node_bytes_per_s_max=50_000_000, copies_max=3))
    copier.lags |= {1: FAR, 2: FAR, 3: FAR}
    sent = copier.run(2_000, 1, 2, 3)
    assert 0.99 * 100_000_000 <= sum(sent.values()) <= 100_000_000 + 5_000_000 + PIECE_BYTES


def test_one_copy_at_a_time_in_the_order_in_which_they_began() -> None:
    copier = Copier()
    copier.lags |= {7: 2 * COPY_BEGINS_BYTES, 8: 2 * COPY_BEGINS_BYTES, 9: 2 * COPY_BEGINS_BYTES}
    done: list[int] = []
    while len(done) < 3:
        copier.now_ms += 1
        for link in (7, 8, 9):
            before = copier.lags[link]
            copier.send(link)
            assert sum(one.has_turn for one in copier.pacer.copies) <= 1
            if 0 == copier.lags[link] < before:
                done.append(link)
    assert done == [7, 8, 9]


def test_a_link_that_ends_gives_its_turn_to_the_next() -> None:
    copier = Copier()
    copier.lags |= {1: FAR, 2: FAR}
    assert copier.send(1)
    assert copier.send(2) == 0
    copier.pacer.ended(1)
    assert copier.send(2)


def test_a_copy_that_comes_no_nearer_kept_every_other_slave_waiting_for_good() -> None:
    """Its disk hangs, or its master takes more than the limit lets through."""
    copier = Copier()
    copier.lags |= {1: FAR, 2: FAR}
    copier.send(1)
    copier.send(2)
    copier.now_ms += TURN_STUCK_MS - 1
    assert copier.send(2) == 0
    copier.now_ms += 1
    assert copier.send(2) == PIECE_BYTES
    assert copier.send(1) == 0, "it waits behind the one that goes on"


def test_a_copy_that_is_alone_keeps_its_turn_however_slow() -> None:
    copier = Copier()
    copier.lags[1] = FAR
    copier.send(1)
    copier.now_ms += 10 * TURN_STUCK_MS
    assert copier.send(1) == PIECE_BYTES


def test_while_sends_wait_a_copy_leaves_the_loop_to_them() -> None:
    copier = Copier()
    copier.lags[1] = FAR
    busy = copier.run(100, 1, is_busy=True)[1]
    assert busy == 100 // BUSY_PAUSE_MS * PIECE_BYTES, "one piece, then a pause"
    assert copier.run(100, 1)[1] == 8 * busy, "without sends it takes what it can get"


def test_a_clock_that_fell_back_does_not_stop_a_busy_copy() -> None:
    copier = Copier()
    copier.now_ms, copier.lags[1] = 3_600_000, FAR
    copier.send(1)
    copier.now_ms = 0
    assert copier.ask(1, is_busy=True).wait_ms <= BUSY_PAUSE_MS


@pytest.mark.slow
def test_other_limits_count_for_a_copy_that_is_under_way() -> None:
    """An operator who finds a copy too fast would else have to wait for its end."""
    copier = Copier()
    copier.lags |= {1: 10 * FAR, 2: 10 * FAR}
    copier.run(100, 1, 2)
    limits = CatchUpLimits(link_bytes_per_s_max=BYTES_PER_S_MIN, copies_max=2)
    copier.pacer.limit(limits, copier.now_ms)
    slow = copier.run(10_000, 1, 2)
    for link in (1, 2):
        assert slow[link] <= 11 * BYTES_PER_S_MIN, "ten seconds, and what the budget held"
        assert slow[link] >= 9 * BYTES_PER_S_MIN
    copier.pacer.limit(CatchUpLimits(), copier.now_ms)
    assert copier.run(100, 1, 2)[1] > 10 * slow[1]
