"""How far a replica that lags is from its master's end: bytes, speed, and the time that is left."""

from __future__ import annotations

import pytest

from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.controller.contract.views import CatchUp
from rollcall_ha.controller.runtime.catch_up import LogGrowth, catch_up_of
from rollcall_ha.controller.runtime.views import set_status
from tests.support.runtime_world import World, set_key

KEY = set_key()
NS = 1_000_000_000
MB = 1_000_000


def grown(*ends: int, step_s: float = 0.5) -> LogGrowth:
    growth = LogGrowth()
    for number, end in enumerate(ends):
        growth.note(LogOffset(end), int(number * step_s * NS))
    return growth


def test_a_speed_needs_a_second() -> None:
    assert grown().bytes_per_s is None
    assert grown(0, MB).bytes_per_s is None
    assert grown(0, MB, 2 * MB).bytes_per_s == 2 * MB


def test_a_speed_is_that_of_the_last_seconds() -> None:
    """An hour at 10 MB/s, then a stop: shown as 9 MB/s, it would look as if all were well."""
    ends = [number * 5 * MB for number in range(7_200)]
    assert grown(*ends).bytes_per_s == 10 * MB
    assert grown(*ends, *[ends[-1]] * 21).bytes_per_s == 0


def test_a_cut_is_no_growth() -> None:
    """From 900 back to 0, and up again."""
    assert grown(900 * MB, 900 * MB, 0, MB, 2 * MB).bytes_per_s == 2 * MB


@pytest.mark.parametrize(
    ("own", "master", "expected"),
    [
        (grown(0, 10 * MB, 20 * MB), grown(*[500 * MB] * 3), CatchUp(left_bytes=100 * MB, bytes_per_s=20 * MB, left_s=5)),
        (grown(0, 10 * MB, 20 * MB), grown(0, 5 * MB, 10 * MB), CatchUp(left_bytes=100 * MB, bytes_per_s=20 * MB, left_s=10)),
        (grown(0, MB, 2 * MB), grown(0, MB, 2 * MB), CatchUp(left_bytes=100 * MB, bytes_per_s=2 * MB, left_s=None)),
        (grown(5, 5, 5), grown(*[500 * MB] * 3), CatchUp(left_bytes=100 * MB, bytes_per_s=0, left_s=None)),
        (grown(0, 10 * MB, 20 * MB), grown(1), CatchUp(left_bytes=100 * MB, bytes_per_s=20 * MB, left_s=None)),
        (grown(0), grown(*[500 * MB] * 3), CatchUp(left_bytes=100 * MB, bytes_per_s=None, left_s=None)),
    ],
)  # fmt: skip
def test_the_estimate_counts_what_the_master_goes_on_writing(
    own: LogGrowth, master: LogGrowth, expected: CatchUp
) -> None:
    assert catch_up_of(100 * MB, own, master) == expected


def test_a_little_lag_is_no_matter() -> None:
    assert catch_up_of(1_000, grown(0, 1, 2), grown(0, 1, 2)) is None


def shown(world: World) -> dict[int, CatchUp | None]:
    status = set_status(world.the_view(KEY), world.duties.sessions, last_election_ms=None, now_ns=world.now_ns)
    return {replica.broker_id: replica.catch_up for replica in status.replicas}


def test_where_a_log_begins_is_shown_and_never_beyond_its_end() -> None:
    world = World()
    world.take()
    _, learner, other = world.serving_set()
    learner.end, learner.begin = LogOffset(5_000), LogOffset(3_000)
    other.end, other.begin = LogOffset(5_000), LogOffset(1 << 70)
    world.pass_ms(500, learner, other)
    status = set_status(world.the_view(KEY), world.duties.sessions, last_election_ms=None, now_ns=world.now_ns)
    begins = {replica.broker_id: replica.min_offset for replica in status.replicas}
    assert begins[learner.broker_id] == 3_000
    assert begins[other.broker_id] == 5_000


def test_a_slave_that_is_not_in_sync_has_an_estimate_and_a_member_none() -> None:
    world = World()
    world.take()
    master, member, _ = world.serving_set()
    master.end = member.end = LogOffset(1_000 * MB)
    late = world.register(KEY, 4)
    for _ in range(20):
        late.end = LogOffset(late.end + 10 * MB)
        world.pass_ms(500, master, member, late, step_ms=500)
    left = master.end - late.end
    seen = shown(world)
    assert seen[master.broker_id] is seen[member.broker_id] is None
    assert seen[late.broker_id] == CatchUp(left_bytes=left, bytes_per_s=20 * MB, left_s=left // (20 * MB))
    world.pass_ms(5_000, master, member)
    assert shown(world)[late.broker_id] is None, "silent: nothing is caught up with"
