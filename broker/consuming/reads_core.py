"""
Which replica of its set a consumer reads from: the verdicts.

Here: whether a slave gives messages, and which replica the answer to a pull names for the next one. Not here: pulls
(``pulls``), where the facts come from (``room``).

Rule 1: a slave gives what is confirmed there, and only while ``slave_reads`` is on, as a member of the SyncStateSet:
one that was removed falls behind, and its readers would hear that there is nothing.
Rule 2: only a reader far behind is sent to a slave, as in RocketMQ: what it wants is in nobody's memory, and the master
has better things to do for its disk. Offsets and resets are the master's alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from rollcall_ha.controller.contract.values import Frozen

MASTER: Final = 0
"""The id by which clients address it, whatever its own is."""


class Place(Frozen):
    """A replica in its set, by its role and the newest word of the controllers."""

    broker_id: int = 0
    """0: it has none yet."""
    is_slave: bool = False
    is_member: bool = False
    """Whether the SyncStateSet has it."""
    has_confirm: bool = False
    """Whether it knows of anything in its log that it is confirmed."""


def gives_as_slave(place: Place, *, is_on: bool) -> bool:
    """Whether consumers may read here from a replica that is not the master (rule 1)."""
    return is_on and place.is_slave and place.is_member and place.has_confirm


def next_reader(place: Place, in_sync: Collection[int], *, is_on: bool, is_far: bool, wished: int) -> int:
    """
    Broker id for the next pull (rule 2). ``in_sync``: linked members by the master's own word, empty at a slave;
    ``wished``: of the group's settings.
    """
    if not is_on or not is_far:
        return MASTER
    # A slave names itself: of another one it may have heard long ago.
    slaves = {place.broker_id} if gives_as_slave(place, is_on=is_on) else set(in_sync) - {place.broker_id}
    # RocketMQ names the wished one, be it there or not: its reader would dial a dead one until the route is newer.
    return wished if wished in slaves else min(slaves, default=MASTER)
