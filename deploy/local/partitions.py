"""
Which machines no longer hear which others: partitions as sets of one-way cuts.

Here: the shapes, and what to change to get from one to the next. Not here: cutting (``machines``).

Rule: a cut has a direction, (source, target): what ``source`` sends does not arrive at ``target``. Both directions of a
TCP connection need the other, so a one-way cut ends new connections both ways, and lets bytes under way still arrive
one way: a master may be heard that hears nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

Cut = tuple[str, str]
"""(source, target)"""
Cuts = frozenset[Cut]
NO_CUTS: Cuts = frozenset()
RING_MACHINES_MIN = 4


def one_way(sources: Iterable[str], targets: Collection[str]) -> Cuts:
    """Nothing that one of ``sources`` sends arrives at one of ``targets``; the other way all goes on."""
    return frozenset((source, target) for source in sources for target in targets if source != target)


def two_way(left: Collection[str], right: Collection[str]) -> Cuts:
    """Two sides that do not hear each other; each is whole in itself."""
    return one_way(left, right) | one_way(right, left)


def alone(names: Collection[str], one: str) -> Cuts:
    """One that hears none of the others, and is heard by none."""
    return two_way([name for name in names if name != one], [one])


def ring(names: Sequence[str]) -> Cuts:
    """
    Each hears its neighbour on either side, in the order of ``names``, and nobody else.

    Raises ``ValueError`` for fewer than ``RING_MACHINES_MIN``: of three machines each has all others as neighbours.
    """
    count = len(names)
    if count < RING_MACHINES_MIN:
        raise ValueError(f"a ring of {count} machines cuts nothing; it takes {RING_MACHINES_MIN}")
    apart = ((one, other) for one in range(count) for other in range(count))
    return frozenset(
        (names[one], names[other]) for one, other in apart if (one - other) % count not in (0, 1, count - 1)
    )


def bridge(left: Collection[str], over: str, right: Collection[str]) -> Cuts:
    """
    Two sides that do not hear each other, and one machine between them that hears both.

    Raises ``ValueError`` if the bridge is on a side, or if a side is empty.
    """
    if over in left or over in right:
        raise ValueError(f"{over} is the bridge, and on a side of it")
    if not left or not right:
        raise ValueError("a bridge has two sides with a machine or more each")
    return two_way(left, right)


def changes(now: Cuts, wanted: Cuts) -> tuple[list[Cut], list[Cut]]:
    """Cuts to end, and cuts to make, in an order that is always the same."""
    return sorted(now - wanted), sorted(wanted - now)
