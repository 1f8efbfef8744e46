"""Shapes of partitions, and the cuts that make them."""

from __future__ import annotations

from itertools import permutations

import pytest

from rollcall_ha.deploy.local.partitions import (
    NO_CUTS,
    Cuts,
    alone,
    bridge,
    changes,
    one_way,
    ring,
    two_way,
)

SIX = ("c1", "c2", "c3", "b1", "b2", "b3")


def heard(cuts: Cuts, listener: str) -> set[str]:
    """Whom a machine of ``SIX`` still hears."""
    return {name for name in SIX if name != listener and (name, listener) not in cuts}


def test_a_one_way_cut_leaves_the_other_direction() -> None:
    cuts = one_way(["c1"], ["c2", "c3"])

    assert cuts == {("c1", "c2"), ("c1", "c3")}
    assert heard(cuts, "c1") == {"c2", "c3", "b1", "b2", "b3"}


def test_a_machine_is_never_cut_from_itself() -> None:
    assert ("c1", "c1") not in one_way(SIX, SIX)


def test_two_sides_hear_themselves_only() -> None:
    left, right = SIX[:2], SIX[2:]
    cuts = two_way(left, right)

    assert heard(cuts, "c1") == {"c2"}
    assert heard(cuts, "b3") == {"c3", "b1", "b2"}
    assert len(cuts) == 2 * len(left) * len(right)


def test_one_that_is_alone_is_cut_both_ways_from_all_others() -> None:
    cuts = alone(SIX, "c2")

    assert heard(cuts, "c2") == set()
    assert heard(cuts, "c1") == set(SIX) - {"c1", "c2"}


def test_in_a_ring_each_hears_its_two_neighbours() -> None:
    cuts = ring(SIX)

    assert {name: heard(cuts, name) for name in SIX} == {
        name: {SIX[at - 1], SIX[(at + 1) % len(SIX)]} for at, name in enumerate(SIX)
    }
    assert all((target, source) in cuts for source, target in cuts)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_ring_that_would_cut_nothing_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"a ring of {count} machines cuts nothing; it takes 4"):
        ring(SIX[:count])


def test_two_sides_meet_on_the_bridge_only() -> None:
    cuts = bridge(SIX[:2], "c3", SIX[3:])

    assert heard(cuts, "c3") == set(SIX) - {"c3"}
    assert heard(cuts, "c1") == {"c2", "c3"}
    assert heard(cuts, "b1") == {"c3", "b2", "b3"}


def test_a_bridge_on_a_side_or_without_one_is_refused() -> None:
    with pytest.raises(ValueError, match="c1 is the bridge, and on a side of it"):
        bridge(["c1", "c2"], "c1", ["c3"])
    with pytest.raises(ValueError, match="two sides"):
        bridge([], "c1", ["c3"])


def test_from_any_shape_to_any_other_only_the_difference_is_changed() -> None:
    shapes = (NO_CUTS, ring(SIX), alone(SIX, "b1"), bridge(SIX[:2], "c3", SIX[3:]), one_way(["c1"], ["c2"]))
    for now, wanted in permutations(shapes, 2):
        ended, made = changes(now, wanted)

        assert (now - set(ended)) | set(made) == wanted
        assert not set(ended) & wanted
        assert not set(made) & now
