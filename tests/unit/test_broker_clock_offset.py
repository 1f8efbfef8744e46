"""The transit of a push, by the clocks of two processes that share none."""

from __future__ import annotations

from rollcall_ha.broker.core.clock_offset import TRANSIT_US_MAX, ClockOffset


def test_the_shortest_round_trip_is_believed() -> None:
    """A slow answer puts the leader's clock off by half of its delay; a quick one does not."""
    clock = ClockOffset()
    clock.witness(sent_at_us=1_000, leader_clock_us=900_200, answered_at_us=1_400)
    clock.witness(sent_at_us=50_000, leader_clock_us=949_100, answered_at_us=90_000)

    # By the first witness the leader is 899,000 ahead.
    assert clock.transit_us(leader_sent_at_us=1_000_000, arrived_at_us=102_500) == 1_500


def test_what_cannot_be_known_is_not_guessed() -> None:
    """No witness, a leader that does not tell, an arrival before the sending, an absurd delay: 0."""
    clock = ClockOffset()
    assert clock.transit_us(leader_sent_at_us=5, arrived_at_us=10) == 0
    clock.witness(sent_at_us=0, leader_clock_us=0, answered_at_us=10)
    assert clock.transit_us(leader_sent_at_us=5, arrived_at_us=10) == 0
    clock.witness(sent_at_us=0, leader_clock_us=5, answered_at_us=10)

    assert clock.transit_us(leader_sent_at_us=0, arrived_at_us=100) == 0
    assert clock.transit_us(leader_sent_at_us=200, arrived_at_us=100) == 0
    assert clock.transit_us(leader_sent_at_us=1, arrived_at_us=2 + TRANSIT_US_MAX) == 0
