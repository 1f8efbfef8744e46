"""
Which queues of a topic each member of a group reads: RocketMQ's five strategies.

Here: pure functions of queues, members and the own client id. Not here: who the members are, what becomes of a queue
that comes or goes (``consumer``).

Rule 1: members decide alone, each for itself. So all of them, Java's included, must come to the same answer from the
same list: queues in the order of ``in_order``, members as sorted texts.
Rule 2: every queue has exactly one owner, but for queues of machine rooms that nobody named, and for ``config``.
Rule 3: a client that is not in the list has no queue.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rollcall_ha.broker.protocol.consumers import MessageQueue

Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]
"""The queues of one topic, all members, the own client id; both sorted."""
VIRTUAL_NODES: Final = 10


def in_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """As every member sorts them."""
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))


def average(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> list[MessageQueue]:
    """Neighbouring queues, as many for each: RocketMQ's default."""
    if own not in members:
        return []
    at, rest = members.index(own), len(queues) % len(members)
    count = 1 if len(queues) <= len(members) else len(queues) // len(members) + (at < rest)
    start = at * count + (0 if at < rest else rest)
    return list(queues[start : start + count])


def average_by_circle(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> list[MessageQueue]:
    """Dealt out one by one."""
    return list(queues[members.index(own) :: len(members)]) if own in members else []


def machine_room(rooms: Iterable[str]) -> Strategy:
    """Queues of brokers that are named ``ROOM@NAME``, of these rooms only."""
    wanted = frozenset(rooms)

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> list[MessageQueue]:
        if own not in members:
            return []
        parts = ((queue, queue.broker_name.split("@")) for queue in queues)
        kept = [queue for queue, part in parts if len(part) == 2 and part[0] in wanted]
        at, (count, rest) = members.index(own), divmod(len(kept), len(members))
        more = [kept[count * len(members) + at]] if at < rest else []
        return kept[at * count : (at + 1) * count] + more

    return allocate


def machine_room_nearby(
    inner: Strategy, room_of_queue: Callable[[MessageQueue], str], room_of_member: Callable[[str], str]
) -> Strategy:
    """By ``inner``, within the own room; rooms without a member are shared by all members."""

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> list[MessageQueue]:
        if own not in members:
            return []
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(room_of_queue(queue), []).append(queue)
        inhabited: dict[str, list[str]] = {}
        for member in members:
            inhabited.setdefault(room_of_member(member), []).append(member)
        found = []
        for room, of_room in sorted(rooms.items()):
            neighbours = inhabited.get(room, members)
            if own in neighbours:
                found += inner(of_room, neighbours, own)
        return found

    return allocate


def consistent_hash(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> list[MessageQueue]:
    """On a ring of hashes, so that a member that comes or goes moves few queues."""
    # A dictionary: of two nodes with one hash the later one counts, as in Java's ring.
    ring = {_place(f"{member}-{number}"): member for member in members for number in range(VIRTUAL_NODES)}
    places = sorted(ring)

    def owner(queue: MessageQueue) -> str:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[places[bisect_left(places, _place(text)) % len(places)]]

    return [queue for queue in queues if owner(queue) == own] if own in members else []


def config(fixed: Iterable[MessageQueue]) -> Strategy:
    """Those that the member was told, whoever else there is."""
    told = in_order(fixed)
    topics = {queue.topic for queue in told}

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], own: str) -> list[MessageQueue]:  # noqa: ARG001
        # Asked for each topic of the group, its retries included: all queues each time would be doubled.
        asked = {queue.topic for queue in queues} & topics
        return [queue for queue in told if queue.topic in asked]

    return allocate


def _place(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
