"""
Laws of a group whose members change, from one to three, to five and back to three, while members are killed at every step.

The life and its laws are ``tests.sim.members``, which has a command for many seeds.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.members import run

LIVES = 12
"""Of those that are the same each time: a third."""


@pytest.mark.slow
@settings(max_examples=LIVES // 3 if settings().derandomize else LIVES, deadline=None)
@given(st.integers(0, 2**32))
def test_members_change_under_kills_and_nothing_acknowledged_is_lost(seed: int) -> None:
    outcome = run(seed)
    assert outcome.failure is None, f"{outcome.again}: {outcome.failure}"
