"""
Messages that wait at a producer, and which of them leave together: frames under limits.

Here: packs, who is told of each message in them, and which packs may leave; pure. Not here: numbers, links and answers
(``producer``), bytes of a frame (``broker.protocol.send``).

Rule 1: a message is in one pack, until it is told of or taken out; packs of a queue leave in the order of their
messages.
Rule 2: with nothing of its queue under way a pack leaves at once: nobody waits for neighbours that may not come. What
gathers meanwhile leaves when it is full, when nothing is under way any more, or after ``PackLimits.delay_ms``.
Rule 3: a pack has one topic and one queue, and says the same of all its messages but body and properties. A message
that a batch cannot carry, or that was sent so (``may_pack``), is alone in its pack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from rollcall_ha.broker.protocol.send import BATCH_ITEM_BYTES
from rollcall_ha.broker.protocol.topics import RETRY_PREFIX

PACK_MESSAGES_MAX: Final = 1_024
"""More ids than this do not fit into one answer (``ANSWER_LIMITS``)."""
PACK_BYTES_MAX: Final = 256 * 1024
PACK_DELAY_MS: Final = 5
PROPERTIES_BYTES_MAX: Final = 16 * 1024
"""Of a packed message: the producer's number and the broker's own come to it, and a record has room for 32,767."""
_NEVER_PACKED: Final = re.compile(rb"(?:\A|\x02)(?:DELAY|TIMER_[A-Z_]+|TRAN_MSG|PGROUP|POP_CK|WAIT)\x01")
"""Properties of a message that a batch cannot carry, or that a broker reads once for all of a batch."""

Key = tuple[str, int | None]
"""Topic and queue id; None: any queue, one for the whole pack."""


class PackLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one frame; ``ValueError`` for others than are possible."""

    messages_max: int = PACK_MESSAGES_MAX
    """1: nothing is packed."""
    bytes_max: int = PACK_BYTES_MAX
    """A larger message is alone in its frame."""
    delay_ms: int = PACK_DELAY_MS
    """How long a message waits for neighbours at most, while a frame of its queue is under way."""

    def __post_init__(self) -> None:
        for name, value, lowest, highest in (
            ("messages_max", self.messages_max, 1, PACK_MESSAGES_MAX),
            ("bytes_max", self.bytes_max, 1, 1024 * 1024),
            ("delay_ms", self.delay_ms, 0, 60_000),
        ):
            if not lowest <= value <= highest:
                raise ValueError(f"{name} of a pack is {value}; {lowest} to {highest} are possible")


class Call:
    """Messages that were handed over together: what became of each."""

    __slots__ = ("is_given_up", "left", "on_told", "outcomes", "until_s")

    def __init__(self, count: int, until_s: float, on_told: Callable[[], object]) -> None:
        """``on_told`` runs once, when all ``count`` messages are told of; ``until_s`` is its owner's."""
        self.outcomes: list[Any] = [None] * count
        self.left = count
        self.on_told = on_told
        self.is_given_up = False
        """Told "unknown" while its messages were under way: what they hear later is nobody's."""
        self.until_s = until_s
        """When it is given up, on the loop's clock."""

    def tell(self, first: int, outcomes: Sequence[Any]) -> None:
        """Of messages ``first`` and on."""
        if self.is_given_up:
            return
        self.outcomes[first : first + len(outcomes)] = outcomes
        self.left -= len(outcomes)
        if not self.left:
            self.on_told()


class Part(msgspec.Struct, gc=False):
    """Neighbours in a pack that one call sent."""

    call: Call
    first: int
    """Of the call's messages."""
    count: int


class Pack(msgspec.Struct, eq=False):
    """Messages of one frame."""

    key: Key
    handed_at_us: int
    """CLOCK_MONOTONIC when the oldest was handed over."""
    born_at_ms: int
    bodies: list[bytes]
    properties: list[bytes]
    parts: list[Part]
    size_bytes: int
    """Of its messages, as the body of a batch has them."""
    is_closed: bool = False
    """Takes no more, and leaves at once."""
    queue_id: int = 0
    sequence: int = 0
    """Of the first; set, as the next ones, by who sends it."""
    attempts: int = 0
    opaque: int = 0

    @property
    def is_given_up(self) -> bool:
        """Nobody waits for any of it."""
        return all(part.call.is_given_up for part in self.parts)


class Packer:
    """Packs that wait to be sent. How many messages and bytes wait is limited by ``places``."""

    def __init__(self, limits: PackLimits) -> None:
        self._limits = limits
        self._packs: dict[Key, list[Pack]] = {}
        """By rising age within a key; only the last one of each may be open."""

    def __bool__(self) -> bool:
        """True while a pack waits."""
        return bool(self._packs)

    def add(
        self,
        key: Key,
        bodies: Sequence[bytes],
        properties: bytes,
        call: Call,
        *,
        now_us: int,
        now_ms: int,
        may_pack: bool,
    ) -> None:
        """All messages of ``call``, in order; now is CLOCK_MONOTONIC and UTC."""
        limits = self._limits
        messages_max = limits.messages_max if may_pack and _may_pack(key[0], properties) else 1
        packs = self._packs.setdefault(key, [])
        pack = packs[-1] if packs else None
        own_bytes = BATCH_ITEM_BYTES + len(properties)
        at = 0
        while at < len(bodies):
            size_bytes = own_bytes + len(bodies[at])
            is_fit = pack is not None and not pack.is_closed and pack.size_bytes + size_bytes <= limits.bytes_max
            if pack is None or not is_fit or messages_max == 1:
                if pack is not None:
                    pack.is_closed = True
                pack = Pack(key, now_us, now_ms, [], [], [], 0)
                packs.append(pack)
            end = min(len(bodies), at + messages_max - len(pack.bodies))
            since, total_bytes, bytes_max = at, pack.size_bytes + size_bytes, limits.bytes_max
            at += 1
            while at < end and (more_bytes := total_bytes + own_bytes + len(bodies[at])) <= bytes_max:
                total_bytes = more_bytes
                at += 1
            pack.size_bytes = total_bytes
            pack.bodies += bodies[since:at]
            pack.properties += [properties] * (at - since)
            pack.parts.append(Part(call, since, at - since))
            pack.is_closed = len(pack.bodies) >= messages_max or pack.size_bytes >= limits.bytes_max

    def take(self, under_way: Callable[[], Collection[Key]], now_us: int) -> list[Pack]:
        """The packs that leave now (rule 2); ``under_way`` is asked at most once, for the keys of frames unanswered."""
        leaving: list[Pack] = []
        busy: Collection[Key] | None = None
        for key, packs in list(self._packs.items()):
            last = packs[-1]
            if not last.is_closed and now_us - last.handed_at_us < self._limits.delay_ms * 1_000:
                busy = under_way() if busy is None else busy
                # Behind what leaves just now it would wait for that, as it did for the frame before.
                if len(packs) > 1 or key in busy:
                    leaving += packs[:-1]
                    self._packs[key] = packs[-1:]
                    continue
            leaving += packs
            del self._packs[key]
        return leaving

    def due_us(self) -> int | None:
        """When the oldest open pack leaves whatever is under way; None: nothing waits."""
        # All of a key but the last are closed, and left at the last ``take``.
        oldest_us = min((packs[-1].handed_at_us for packs in self._packs.values()), default=None)
        return None if oldest_us is None else oldest_us + self._limits.delay_ms * 1_000

    def all(self) -> list[Pack]:
        """The packs that wait, in no order between keys; they stay."""
        return [pack for packs in self._packs.values() for pack in packs]

    def forget(self, calls: Collection[Call]) -> list[tuple[Part, int]]:
        """Take waiting messages of ``calls`` out: each part of them, with its bytes."""
        taken = [each for pack in self.all() for each in take_out(pack, calls)]
        for key, packs in list(self._packs.items()):
            if left := [pack for pack in packs if pack.bodies]:
                self._packs[key] = left
            else:
                del self._packs[key]
        return taken


def take_out(pack: Pack, calls: Collection[Call]) -> list[tuple[Part, int]]:
    """Messages of ``calls`` out of a pack that was never written: each part, with its bytes."""
    taken: list[tuple[Part, int]] = []
    kept: list[Part] = []
    at = 0
    for part in pack.parts:
        if part.call not in calls:
            kept.append(part)
            at += part.count
            continue
        size_bytes = bytes_of(pack, at, part.count)
        taken.append((part, size_bytes))
        pack.size_bytes -= size_bytes
        del pack.bodies[at : at + part.count], pack.properties[at : at + part.count]
    pack.parts = kept
    return taken


def bytes_of(pack: Pack, at: int, count: int) -> int:
    """Of ``count`` messages of a pack, as ``Pack.size_bytes`` counts them."""
    parts = (*pack.bodies[at : at + count], *pack.properties[at : at + count])
    return count * BATCH_ITEM_BYTES + sum(map(len, parts))


def one_by_one(pack: Pack) -> list[Pack]:
    """Its messages, each alone in its pack, with the number that it had."""
    singles: list[Pack] = []
    for part in pack.parts:
        for number in range(part.first, part.first + part.count):
            at = len(singles)
            single = Pack(
                pack.key,
                pack.handed_at_us,
                pack.born_at_ms,
                pack.bodies[at : at + 1],
                pack.properties[at : at + 1],
                [Part(part.call, number, 1)],
                bytes_of(pack, at, 1),
                is_closed=True,
                queue_id=pack.queue_id,
                sequence=pack.sequence + at,
            )
            singles.append(single)
    return singles


def _may_pack(topic: str, properties: bytes) -> bool:
    # RocketMQ's broker refuses the whole batch for one of them, and stores a transaction's message as an ordinary one.
    is_small = len(properties) <= PROPERTIES_BYTES_MAX
    return is_small and not topic.startswith(RETRY_PREFIX) and _NEVER_PACKED.search(properties) is None
