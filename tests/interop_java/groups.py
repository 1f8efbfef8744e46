"""
Several producers and groups that share topics: what each wrote down, what the log holds, and whether it fits.

Here: books of groups, the log's records of those topics, the judgement. Not here: programs and faults (``clients``), what keys say
(``keys``), ledgers (``books``).

Rule 1: what was acknowledged is taken by each group of its topic; if the group buries it (``dead``), it is in its ``%DLQ%`` topic.
Rule 2: a message that a group took twice lies at two places of the log, or was given again after a fault. Else it is not
explained, and that fails.
Rule 3: a delayed message is in its topic as often as it was put aside, which is once if its producer numbers its messages, and
not before its time by the clock of the brokers.
Rule 4: of one sharding key, first deliveries of what was acknowledged come in the order of sending.
Rule 5: a count of zero of anything that there should be fails.
"""

from __future__ import annotations

import bisect
import itertools
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollcall_ha.broker.protocol import delays
from rollcall_ha.broker.protocol.properties import decode_properties
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.protocol.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rollcall_ha.deploy.local import audit, ledger
from tests.interop_java.books import CONSUMED_FILE_NAME, Books, Growing
from tests.interop_java.keys import (
    AGAIN,
    DEAD,
    DELAYS_MS,
    LATE,
    SHARD,
    SHARDS,
    body_of,
    digest_of,
    kind_of,
    number_of,
    producer_of,
)

NUMBERED = "python"
"""Its messages are numbered (R18): in the log once, whatever happens between."""
COMMIT_NS = 60_000_000_000
"""A message may be given again if a fault struck so long before it was given first, or since."""
LATE_MS = 1_000
"""So long behind its time a delayed message is counted as late; that is no failure: nobody delivers while there is no master."""
SCHEDULE_TOPIC = delays.SCHEDULE_TOPIC.decode()
PROMISED = (
    "lost", "changed", "misplaced", "delayed_early", "delayed_doubled", "numbered_doubled", "out_of_order", "unexplained",
)  # fmt: skip
"""Counts that are 0 at our brokers."""
Place = tuple[str, int, int]
"""Topic, queue id, offset in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A place that a group took from once more."""

    key: str
    first_ns: int
    again_ns: int


class Group:
    """A group, by its ``consumed.tsv``."""

    def __init__(self, directory: Path, topic: str, *, refuses: bool, buries: bool) -> None:
        """The file need not be there yet."""
        self.name, self.topic, self.refuses, self.buries = directory.name, topic, refuses, buries
        self.owed: set[str] = set()
        """Acknowledged and not taken."""
        self.taken: dict[str, list[Place]] = {}
        """Different places from which a key was taken."""
        self.deliveries = self.refused = self.changed = 0
        self.stamps: list[int] = []
        """When each delivery came, CLOCK_MONOTONIC in ns, rising."""
        self.again: list[Again] = []
        self.firsts: dict[tuple[str, str], list[str]] = defaultdict(list)
        """By producer and sharding key: keys in the order of their first delivery."""
        self._at: dict[Place, int] = {}
        self._file = Growing(directory / CONSUMED_FILE_NAME)

    def read(self, acked: Iterable[str]) -> None:
        """What is new; ``acked``: keys of its topic that were acknowledged meanwhile."""
        self.owed.update(key for key in acked if key not in self.taken)
        for raw in self._file.lines():
            key, body, at_ns, topic, queue_id, offset, _, taken = raw.decode().split("\t")
            self.deliveries += 1
            bisect.insort(self.stamps, int(at_ns))
            self.changed += body != digest_of(body_of(key))
            if taken == "1":
                self._take(key, (sys.intern(topic), int(queue_id), int(offset)), int(at_ns))
            else:
                self.refused += 1

    def _take(self, key: str, place: Place, at_ns: int) -> None:
        self.owed.discard(key)
        kind = kind_of(key)
        if key not in self.taken and kind.startswith(SHARD):
            self.firsts[producer_of(key), kind].append(key)
        if (first_ns := self._at.setdefault(place, at_ns)) != at_ns:
            self.again.append(Again(key=key, first_ns=first_ns, again_ns=at_ns))
        else:
            self.taken.setdefault(key, []).append(place)


class Log:
    """The confirmed records of topics that are looked at, read as they grow, from whichever replica is master."""

    def __init__(self) -> None:
        self.places: dict[str, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
        """By topic, by key."""
        self.put_aside: Counter[str] = Counter()
        """By key: records that wait for the way into the topic that they were sent to."""
        self.over_due_ms: list[tuple[int, str]] = []
        """Of each delivery of a delayed message: how long behind its time it was stored; and its key."""
        self._at = 0

    def read(self, replica: Path, until: int | None = None) -> bool:
        """
        What is new; whether that is all that the log has. ``until``: its end, if that is not what its checkpoint confirms.

        Raises ``audit.Unreadable``, ``RecordError``.
        """
        until = audit.read_confirm(replica) if until is None else until
        for base, path in audit.segments(replica):
            size_bytes = path.stat().st_size
            if base + size_bytes <= self._at:
                continue
            with path.open("rb") as file:
                file.seek(self._at - base)
                view = memoryview(file.read())
            at = 0
            while at + 8 <= len(view):
                size, magic = map(int, struct.unpack_from(">II", view, at))
                if self._at >= until:
                    return magic == 0
                if magic == audit.MAGIC_BLANK:
                    self._at = base + size_bytes
                    break
                self._take(RecordView(view, at))
                at += size
                self._at += size
        return True

    def _take(self, record: RecordView) -> None:
        properties = decode_properties(record.properties)
        key, topic = properties.get("KEYS", ""), record.topic.decode()
        kind = kind_of(key)
        self.places[topic][key].append((sys.intern(topic), record.queue_id, record.queue_offset))
        if topic == SCHEDULE_TOPIC and not properties.get("REAL_TOPIC", "").startswith("%"):
            self.put_aside[key] += 1
        if kind.startswith(LATE) and topic != SCHEDULE_TOPIC and not topic.startswith("%"):
            self.over_due_ms.append((record.stored_at_ms - record.born_at_ms - DELAYS_MS[kind], key))


@dataclass
class Shared:
    """All producers and groups of one run."""

    producers: Mapping[str, Books]
    topics: Mapping[bool, str]
    """Whether it is the ordered one -> its name."""
    groups: Sequence[Group]
    log: Log = field(default_factory=Log)
    _known: Counter[str] = field(default_factory=Counter)

    def read(self) -> None:
        """What is new in all books."""
        fresh: dict[str, list[str]] = {topic: [] for topic in self.topics.values()}
        for name, books in self.producers.items():
            keys = list(itertools.islice(books.acked, self._known[name], None))
            self._known[name] += len(keys)
            for key in keys:
                fresh[self.topic_of(key)].append(key)
        for group in self.groups:
            group.read(fresh[group.topic])

    def topic_of(self, key: str) -> str:
        return self.topics[kind_of(key).startswith(SHARD)]

    def owed(self) -> dict[str, set[str]]:
        """By group: what it has to take, or to bury, and has not."""
        self.read()
        return {group.name: found for group in self.groups if (found := self._owed(group))}

    def owed_soon(self) -> list[tuple[Group, set[str]]]:
        """What each group has to take, of messages that neither wait for a time nor come twice."""
        self.read()
        slow = (AGAIN, DEAD, LATE)
        return [(group, {key for key in group.owed if not kind_of(key).startswith(slow)}) for group in self.groups]

    def owed_but_dead(self) -> bool:
        """Whether something is missing that is not in a log at last."""
        self.read()
        return any(not (group.buries and kind_of(key) == DEAD) for group in self.groups for key in group.owed)

    def _owed(self, group: Group) -> set[str]:
        buried = self.log.places.get(DEAD_LETTER_PREFIX + group.name, {})
        return {key for key in group.owed if key not in buried}

    # --- judgement ---------------------------------------------------------------------------------------------------

    def counts(self, faults_ns: Sequence[int]) -> dict[str, int]:
        """What is told, by name; the log must be read to its end."""
        self.read()
        acked = [key for books in self.producers.values() for key in books.acked]
        plain = [group for group in self.groups if group.refuses]
        late = [key for key in acked if kind_of(key).startswith(LATE)]
        twice = Counter[str]()
        for group in self.groups:
            twice += self._twice(group, faults_ns)
        put_aside, own = self.log.put_aside, self.log.places[self.topics[False]]
        over_due = [over_ms for over_ms, _ in self.log.over_due_ms]
        owed = {group: self._owed(group) for group in self.groups}
        return {
            "producers": len(self.producers),
            "groups": len(self.groups),
            "acked": len(acked),
            "deliveries": sum(group.deliveries for group in self.groups),
            "lost": sum(map(len, owed.values())),
            "unburied": sum(group.buries and kind_of(key) == DEAD for group, keys in owed.items() for key in keys),
            "changed": sum(group.changed for group in self.groups),
            "misplaced": self._misplaced(),
            "refused": sum(group.refused for group in plain),
            "retried": sum(kind_of(key).startswith(AGAIN) for group in plain for key in group.taken),
            "dead_lettered": sum(len(self.log.places[DEAD_LETTER_PREFIX + group.name]) for group in plain),
            "delayed": len(late),
            "delayed_early": sum(over_ms < 0 for over_ms in over_due),
            "delayed_late": sum(over_ms > LATE_MS for over_ms in over_due),
            "delayed_late_ms_max": max(over_due, default=0),
            "delayed_doubled": sum(len(own[key]) > put_aside[key] for key in late),
            "numbered_doubled": self._numbered_doubled(acked),
            "ordered_keys": sum(len(group.firsts) for group in self.groups),
            "ordered": sum(len(keys) for group in self.groups for keys in group.firsts.values()),
            "out_of_order": sum(map(self._out_of_order, self.groups)),
            **{
                name: twice[name]
                for name in ("duplicates", "sent_twice", "given_back_twice", "given_again", "unexplained")
            },
        }

    def absent(self) -> list[str]:
        """What there should have been, and was not."""
        found: list[str] = []
        for group in self.groups:
            kinds = {kind_of(key).rstrip("0123456789") for key in group.taken}
            wanted = {SHARD} if group.topic == self.topics[True] else {"plain", AGAIN, LATE}
            found += [f"{group.name} took nothing of the kind {kind}" for kind in sorted(wanted - kinds)]
            shards = {(producer, f"{SHARD}{number}") for producer in self.producers for number in range(SHARDS)}
            if wanted == {SHARD} and group.firsts.keys() != shards:
                found.append(f"{group.name} saw {len(group.firsts)} sharding keys instead of {len(shards)}")
            if group.buries and not self.log.places[DEAD_LETTER_PREFIX + group.name]:
                found.append(f"{group.name} has no dead letter")
        for name, books in self.producers.items():
            missing = {DEAD, LATE, AGAIN, SHARD, "plain"} - {kind_of(key).rstrip("0123456789") for key in books.acked}
            found += [f"{name} sent nothing of the kind {kind}" for kind in sorted(missing)]
        return found

    def _twice(self, group: Group, faults_ns: Sequence[int]) -> Counter[str]:
        """The second deliveries of a group, by what explains them (rule 2)."""
        found: Counter[str] = Counter()
        for again in group.again:
            is_fault = any(again.first_ns - COMMIT_NS <= fault <= again.again_ns for fault in faults_ns)
            found["given_again" if is_fault else "unexplained"] += 1
        retry = RETRY_PREFIX + group.name
        for key, places in group.taken.items():
            in_log = {*self.log.places[group.topic].get(key, ()), *self.log.places[retry].get(key, ())}
            found["unexplained"] += sum(place not in in_log for place in places)
            if len(places) > 1:
                is_sent = all(place[0] == group.topic for place in places)
                found["sent_twice" if is_sent else "given_back_twice"] += len(places) - 1
        found["duplicates"] = sum(found[name] for name in ("given_again", "sent_twice", "given_back_twice"))
        return found

    def _misplaced(self) -> int:
        """Acknowledged messages that are not where their producers were told; one that is delayed is elsewhere."""
        return sum(
            line.queue_offset is not None
            and not kind_of(line.key).startswith(LATE)
            and (line.topic, line.queue_id, line.queue_offset) not in self.log.places[line.topic].get(line.key, ())
            for books in self.producers.values()
            for line in ledger.read(books.directory)
        )

    def _numbered_doubled(self, acked: Iterable[str]) -> int:
        places, put_aside = self.log.places, self.log.put_aside
        own = (key for key in acked if producer_of(key) == NUMBERED)
        return sum(max(len(places[self.topic_of(key)].get(key, ())), put_aside[key]) > 1 for key in own)

    def _out_of_order(self, group: Group) -> int:
        found = 0
        for (producer, _), keys in group.firsts.items():
            acked = self.producers[producer].acked
            numbers = [number_of(key) for key in keys if key in acked]
            found += sum(later < sooner for sooner, later in itertools.pairwise(numbers))
        return found
