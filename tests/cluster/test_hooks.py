"""``make prove PARTS=hooks-proof`` in short: real failovers, told to a receiver that fails, hangs and is killed, as the hooks are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perf.hooks_proof import run

pytestmark = pytest.mark.cluster


def test_each_failover_arrives_in_order_though_receiver_and_hooks_are_killed(tmp_path: Path) -> None:
    """Three waves of ten, one with hooks; the latencies of so few say nothing, so nothing is said of them."""
    found = run(tmp_path / "fleet", waves=2, sets=10)
    assert found["failovers"] == 30
    assert (found["hooks_killed"], found["receiver_killed"]) == (2, 1)
    assert found["fails"] == 0, found
