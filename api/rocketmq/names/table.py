"""
What brokers have told a name service: who they are, and their topics. Soft state of one controller, and pure.

Here: registrations with their timeouts, the queues of every topic, settings by namespace and key, and what the
controllers have committed about a set (``CommittedSet``). Not here: answers (``answers``), codes (``machine``), clocks,
sockets and files (``name_service``): the time comes with every call, in milliseconds of a clock that never goes back.

Rule 1: the master of a set is the one that the controllers have committed. Only of a set that they do not know a
broker's claim to be id 0 counts, and then the claim with the higher stateVersion (masterEpoch) wins.
Rule 2: topics are taken from the master, or from the lowest id that is there, and only when their version has changed.
Rule 3: a registration ends with its timeout, or ``KEPT_AFTER_CLOSE_MS`` after its connection. In between it is shown
only if the controllers say that the broker lives. (RocketMQ ends it with its connection.)
Rule 4: every table that peers fill has a limit; a newcomer above it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from rollcall_ha.api.rocketmq.names.beans import DataVersion, QueueData, TopicConfig, TopicTable
from rollcall_ha.controller.contract.values import Frozen, made_from
from rollcall_ha.controller.runtime.session_state import ConnectionId

BROKERS_MAX = 20_000
TOPICS_MAX = 100_000
TOPIC_NAME_BYTES_MAX = 255
KEYS_MAX = 10_000
VALUE_BYTES_MAX = 64 * 1024
TIMEOUT_MS = 120_000
"""A registration whose broker has been silent for so long ends."""
TIMEOUT_MS_MAX = 3_600_000
KEPT_AFTER_CLOSE_MS = 35_000
"""A broker registers every 30 s (``registerNameServerPeriod``); a broken connection alone is no reason to forget it."""
MASTER_ID = 0


class NamesRefused(Exception):
    """The request is not followed; the message is the remark of the answer."""


class RegisteredBroker(Frozen):
    """One broker as it registered last."""

    cluster: str
    name: str
    address: str
    ha_address: str
    claimed_id: int
    """The role id that it says it has: 0 = master."""
    version: DataVersion
    acts_as_master: bool | None = None
    """``enableActingMaster``; None = a broker before 5.0."""
    zone: str | None = None
    timeout_ms: int = TIMEOUT_MS
    seen_ms: int = 0
    connection: ConnectionId | None = None
    """None = closed at ``closed_ms``, or read from the file."""
    taken: DataVersion | None = None
    """Version of its topics that the table took; None = none of them yet."""
    closed_ms: int = 0

    def is_over(self, now_ms: int) -> bool:
        """Whether it ends (rule 3)."""
        if self.connection is None and now_ms - self.closed_ms > KEPT_AFTER_CLOSE_MS:
            return True
        return now_ms - self.seen_ms > self.timeout_ms


class CommittedSet(Frozen):
    """What the controllers have committed about one set."""

    cluster: str
    master: str | None
    """Address of the master, if there is one; it may be silent."""
    ids: Mapping[str, int]
    """Broker id by address."""
    alive: frozenset[str]
    """Addresses of replicas that count as alive."""


CommittedOf = Callable[[str], CommittedSet | None]
"""What the controllers say about the set of this brokerName; None = they do not know it."""


class SavedTable(Frozen):
    """The table as it is written to a file."""

    brokers: tuple[RegisteredBroker, ...]
    queues: dict[str, tuple[QueueData, ...]]
    mappings: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    keys: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class NameTable(msgspec.Struct):
    """See the module. Not for several threads."""

    committed_of: CommittedOf
    queues: dict[str, dict[str, QueueData]] = msgspec.field(default_factory=dict)
    """Topic -> brokerName -> its queues."""
    mappings: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Topic -> brokerName -> static queue mapping, as the broker wrote it."""
    keys: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Namespace -> key -> value."""
    changes: int = 0
    """Counts what should survive a restart: the shell writes the file when it has moved."""
    _sets: dict[str, dict[str, RegisteredBroker]] = msgspec.field(default_factory=dict)
    """brokerName -> address -> registration."""
    _by_connection: dict[ConnectionId, set[tuple[str, str]]] = msgspec.field(default_factory=dict)
    """Who has ever registered on a connection that is still open."""
    _brokers: int = 0

    # --- who is there ------------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> int:
        return self._brokers

    def names(self) -> Iterator[str]:
        """Every brokerName with at least one registration."""
        return iter(self._sets)

    def registration(self, name: str, address: str) -> RegisteredBroker | None:
        """What ``address`` registered last in this set."""
        return self._sets.get(name, {}).get(address)

    def by_role(self, name: str) -> dict[int, RegisteredBroker]:
        """The brokers of one set that are shown, by role id in rising order; 0 is the master (rules 1 and 3)."""
        registered = self._sets.get(name)
        if not registered:
            return {}
        committed = self.committed_of(name)
        found: dict[int, RegisteredBroker] = {}
        # In rising order of masterEpoch, the highest last: of two brokers that both claim id 0, the master of epoch 4
        # stays.
        for entry in sorted(registered.values(), key=lambda entry: entry.version.state_version):
            role = _role(entry, committed)
            if role is not None and _is_shown(entry, committed):
                found[role] = entry
        return dict(sorted(found.items()))

    # --- what brokers say --------------------------------------------------------------------------------------------

    def register(self, entry: RegisteredBroker, topics: TopicTable, *, is_whole: bool = False) -> bool:
        """
        A 103. False: it came from a master of the past and changes nothing.

        ``is_whole``: its set has no topics but these.

        Raises ``NamesRefused``.
        """
        registered = self._sets.get(entry.name, {})
        before = registered.get(entry.address)
        committed = self.committed_of(entry.name)
        self._validate(entry, topics, registered)
        # A master of the past, of a set that only brokers speak of: it changes nothing, its topics included, or
        # producers would be sent to a broker that has been replaced.
        if committed is None and not self._displace(entry, registered):
            return False
        if before is None:
            self._brokers += 1
        entry = replace(entry, taken=before.taken if before is not None else None)
        self._put(entry)
        if before is None or not _is_same(before, entry):
            self.changes += 1
        # Not at each 103, every 30 s: write permission that an operator has wiped (205) would come back by itself.
        if entry.taken != entry.version and self.is_source(entry):
            self._take_topics(entry.name, topics, is_whole=is_whole)
            self._put(replace(entry, taken=entry.version))
        return True

    def _put(self, entry: RegisteredBroker) -> None:
        self._sets.setdefault(entry.name, {})[entry.address] = entry
        if entry.connection is not None:
            self._by_connection.setdefault(entry.connection, set()).add((entry.name, entry.address))

    def _validate(
        self, entry: RegisteredBroker, topics: TopicTable, registered: Mapping[str, RegisteredBroker]
    ) -> None:
        if entry.address not in registered and self._brokers >= BROKERS_MAX:
            raise NamesRefused(f"{self._brokers} brokers are registered, at most {BROKERS_MAX} can be")
        is_id_known = any(other.claimed_id == entry.claimed_id for other in registered.values())
        # One topic alone is an addition to a table that never came: taken for all of it, the set would lose its others.
        if len(topics.topic_config_table) == 1 and entry.address not in registered and not is_id_known:
            raise NamesRefused("register broker failed")

    def _displace(self, entry: RegisteredBroker, registered: dict[str, RegisteredBroker]) -> bool:
        """Rule 1 for a set that the controllers do not know: one id, one address; the newer master keeps it."""
        others = (other for other in registered.values() if other.address != entry.address)
        holder = next((other for other in others if other.claimed_id == entry.claimed_id), None)
        if holder is None:
            return True
        if holder.version.state_version > entry.version.state_version:
            return False
        self._remove(holder)
        return True

    def is_source(self, entry: RegisteredBroker) -> bool:
        """Whether the topics of its set are taken from it (rule 2)."""
        roles = self.by_role(entry.name)
        mine = next((role for role, other in roles.items() if other.address == entry.address), None)
        if mine is None or mine == MASTER_ID:
            return mine is not None
        return entry.acts_as_master is not None and mine == min(roles)

    def _take_topics(self, name: str, topics: TopicTable, *, is_whole: bool) -> None:
        # Left out, not refused: the set would be in no route for the name of one topic.
        taken = {
            topic: config
            for topic, config in topics.topic_config_table.items()
            if len(topic.encode()) <= TOPIC_NAME_BYTES_MAX
        }
        added = taken.keys() - self.queues.keys()
        if len(self.queues) + len(added) > TOPICS_MAX:
            raise NamesRefused(f"{len(self.queues)} topics are known and {len(added)} more came; at most {TOPICS_MAX}")
        for topic, config in taken.items():
            self.queues.setdefault(topic, {})[name] = _queues_of(name, config)
        if is_whole:
            gone = [topic for topic, by_name in self.queues.items() if name in by_name]
            self._forget_queues([topic for topic in gone if topic not in topics.topic_config_table], {name})
        for topic, mapping in topics.topic_queue_mapping_info_map.items():
            self.mappings.setdefault(topic, {})[name] = mapping
        self.changes += 1

    def touch(self, name: str, address: str, *, now_ms: int, connection: ConnectionId) -> None:
        """A 904 or a 322: the broker lives."""
        entry = self.registration(name, address)
        # With its connection: a broker that has dialled again is to be closed by that one, not by the end of the old
        # one.
        if entry is not None:
            self._put(replace(entry, seen_ms=now_ms, connection=connection))

    def unregister(self, name: str, address: str) -> None:
        entry = self.registration(name, address)
        if entry is not None:
            self._remove(entry)
            self._forget_if_empty(name)

    def closed(self, connection: ConnectionId, *, now_ms: int) -> None:
        """The connection on which brokers registered is gone (rule 3)."""
        for name, address in sorted(self._by_connection.pop(connection, ())):
            entry = self.registration(name, address)
            # The broker has a newer connection: the end of the old one must not take it out of the routes.
            if entry is None or entry.connection != connection:
                continue
            if self.committed_of(name) is None:
                self._remove(entry)
                self._forget_if_empty(name)
            else:
                # Kept: after a broken link Java registers again within 30 s, not sooner. Forgotten, a master that
                # serves would be in no route for so long.
                self._put(replace(entry, connection=None, closed_ms=now_ms))

    def expire(self, *, now_ms: int) -> int:
        """End what is over (rule 3); how many."""
        over = [entry for registered in self._sets.values() for entry in registered.values() if entry.is_over(now_ms)]
        for entry in over:
            self._remove(entry)
            self._forget_if_empty(entry.name)
        return len(over)

    def _remove(self, entry: RegisteredBroker) -> None:
        del self._sets[entry.name][entry.address]
        self._brokers -= 1
        self.changes += 1

    def _forget_if_empty(self, name: str) -> None:
        """A set without brokers goes, and its queues with it."""
        if self._sets.get(name):
            return
        if self._sets.pop(name, None) is not None:
            self._forget_queues(tuple(self.queues), {name})

    # --- what operators say ------------------------------------------------------------------------------------------

    def add_queues(self, topic: str, queues: Iterable[QueueData]) -> None:
        """A 217: queues of broker sets that are known."""
        for queue in queues:
            if queue.broker_name in self._sets and (topic in self.queues or len(self.queues) < TOPICS_MAX):
                self.queues.setdefault(topic, {})[queue.broker_name] = queue
        self.changes += 1

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """A 216: everywhere, or in one cluster."""
        self._forget_queues(
            (topic,), None if not cluster else {name for name in self._sets if self.cluster_of(name) == cluster}
        )

    def _forget_queues(self, topics: Iterable[str], names: set[str] | None) -> None:
        for topic in topics:
            # Both: a mapping that is left over would make clients look for logical queues of a topic that is gone.
            for table in (self.queues, self.mappings):
                by_name = table.get(topic)
                if by_name is None:
                    continue
                for name in tuple(by_name) if names is None else names & by_name.keys():
                    del by_name[name]
                if not by_name:
                    del table[topic]
        self.changes += 1

    def set_permission(self, name: str, *, add: int = 0, remove: int = 0) -> int:
        """A 205 or 327: change the permission of every topic of one set; how many topics it has."""
        count = 0
        for by_name in self.queues.values():
            queue = by_name.get(name)
            if queue is not None:
                by_name[name] = replace(queue, perm=(queue.perm | add) & ~remove)
                count += 1
        self.changes += 1
        return count

    def put_key(self, namespace: str, key: str, value: str) -> None:
        """A 100. Raises ``NamesRefused``."""
        total = sum(len(table) for table in self.keys.values())
        if total >= KEYS_MAX and key not in self.keys.get(namespace, {}):
            raise NamesRefused(f"{total} keys are stored, at most {KEYS_MAX} can be")
        if len(namespace.encode()) + len(key.encode()) + len(value.encode()) > VALUE_BYTES_MAX:
            raise NamesRefused(f"namespace, key and value have more than {VALUE_BYTES_MAX} bytes")
        self.keys.setdefault(namespace, {})[key] = value
        self.changes += 1

    def delete_key(self, namespace: str, key: str) -> None:
        """A 102; what is not there is no error."""
        if self.keys.get(namespace, {}).pop(key, None) is not None:
            self.changes += 1

    # --- all of it ---------------------------------------------------------------------------------------------------

    def cluster_of(self, name: str) -> str | None:
        """The committed cluster of the set, else that of its newest registration."""
        committed = self.committed_of(name)
        if committed is not None:
            return committed.cluster
        newest = max(self._sets.get(name, {}).values(), key=lambda entry: entry.seen_ms, default=None)
        return None if newest is None else newest.cluster

    def saved(self) -> SavedTable:
        """Everything that should survive a restart."""
        return SavedTable(
            brokers=tuple(entry for registered in self._sets.values() for entry in registered.values()),
            queues={topic: tuple(by_name.values()) for topic, by_name in self.queues.items()},
            mappings={topic: dict(by_name) for topic, by_name in self.mappings.items()},
            keys={namespace: dict(table) for namespace, table in self.keys.items()},
        )

    def restore(self, saved: SavedTable, *, now_ms: int) -> None:
        """Start from a saved table: its brokers count as closed now, so only those that controllers hear are shown."""
        for entry in saved.brokers[:BROKERS_MAX]:
            self._sets.setdefault(entry.name, {})[entry.address] = replace(
                entry, connection=None, seen_ms=now_ms, closed_ms=now_ms
            )
        self._brokers = sum(len(registered) for registered in self._sets.values())
        self.queues.update(
            {topic: {queue.broker_name: queue for queue in found} for topic, found in saved.queues.items()}
        )
        self.mappings.update({topic: dict(by_name) for topic, by_name in saved.mappings.items()})
        self.keys.update({namespace: dict(table) for namespace, table in saved.keys.items()})


def _role(entry: RegisteredBroker, committed: CommittedSet | None) -> int | None:
    if committed is None:
        return entry.claimed_id
    if entry.address == committed.master:
        return MASTER_ID
    known = committed.ids.get(entry.address)
    if known is not None:
        return known
    # Not registered with the controllers yet: it may be a slave, and cannot be the master. Shown as 0, it would take
    # messages that no controller lets it keep.
    return entry.claimed_id if entry.claimed_id != MASTER_ID else None


def _is_shown(entry: RegisteredBroker, committed: CommittedSet | None) -> bool:
    return entry.connection is not None or (committed is not None and entry.address in committed.alive)


def _is_same(before: RegisteredBroker, after: RegisteredBroker) -> bool:
    """Whether nothing but the time and the connection differs."""
    return replace(before, seen_ms=after.seen_ms, connection=after.connection, closed_ms=after.closed_ms) == after


def _queues_of(name: str, config: TopicConfig) -> QueueData:
    return made_from(config, QueueData, broker_name=name)
