"""
Groups of consumers: who is a member, and what the group subscribes to.

Here: the table that heartbeats make, and what it tells with the help of what is remembered. Not here: how that is
remembered (``offsets_core``), frames and links (``groups``).

Rule 1: a member is a link, as in RocketMQ; a link may be a member of several groups. It is one until it unregisters,
closes, or says nothing for ``SILENT_MS_MAX``. The others hear of each of these; RocketMQ keeps silent about the last.
Rule 2: a group subscribes to what any member does, not to what the last heartbeat said: two programs of one group with
different topics would take them from each other every 30 s.
Rule 3: the newest word about a topic counts, by the time in its version: that is ms from Java and ns from Go, which
compared as numbers would shut Java out of a mixed group for ever. A member replaces its own word by any, and that of a
link that is gone; the version does not fall by it: pulls of members that have said the newer one would be refused.
Rule 4: a group's members and subscriptions are remembered in the log. A new master tells them of those that it has not
heard, for ``TAKEOVER_GRACE_MS``. Without that a client that missed itself in a list, or got an empty one, would give up
all its queues, and one whose subscription is not known would get nothing, for the 30 s until its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.consuming.offsets_core import GROUPS_MAX
from rollcall_ha.broker.protocol.consumers import Facts, Subscription

SILENT_MS_MAX: Final = 120_000
TAKEOVER_GRACE_MS: Final = 60_000
"""Two heartbeats of a client."""
CLIENTS_PER_GROUP_MAX: Final = 1_000
MEMBERS_MAX: Final = 20_000
"""The members of all groups together, as links."""
TOPICS_PER_GROUP_MAX: Final = 128
TEXT_CHARS_MAX: Final = 16 * 1024 * 1024
"""Subscriptions of all groups."""
BROADCASTING: Final = "BROADCASTING"
NO_FACTS: Final = Facts()
Link = TypeVar("Link", bound=Hashable)


class News(IntEnum):
    """A heartbeat's news of one group."""

    NONE = 0
    FACTS = 1
    """The group says something else of itself."""
    MEMBERS = 2
    """Its members must hear: there is another one, or another topic."""


class Member(msgspec.Struct):
    """One link in one group."""

    client_id: str
    language: str
    version: int
    heard_ms: int
    topics: frozenset[str] = frozenset()


class _Group(msgspec.Struct):
    facts: Facts
    """As the last heartbeat said; without subscriptions and members."""
    members: dict[Hashable, Member] = {}
    words: dict[str, tuple[Subscription, Hashable]] = {}
    """By topic, with the link whose word it is."""


class GroupTable(Generic[Link]):
    """All groups that were heard. Driven by one thread: the loop of the broker."""

    def __init__(self) -> None:
        """The table of a process that has heard no heartbeat yet."""
        self.left: dict[str, set[str]] | None = None
        """During the grace of a new master: client ids that left, which are remembered no more."""
        self._groups: dict[str, _Group] = {}
        self._of_link: dict[Hashable, set[str]] = {}
        self._members = self._chars = 0

    @property
    def names(self) -> list[str]:
        """Groups that have members."""
        return list(self._groups)

    def members(self, group: str) -> dict[Link, Member]:
        """By link, in the order in which they came."""
        known = self._groups.get(group)
        return {} if known is None else known.members  # type: ignore[return-value]

    # --- changes -----------------------------------------------------------------------------------------------------

    def hear(
        self, link: Link, group: str, member: Member, facts: Facts, *, has_subscriptions: bool = True
    ) -> News | str:
        """
        A heartbeat of one member: its news, or why it was not taken.

        Not ``has_subscriptions``: they are as they were.
        """
        known = self._groups.get(group)
        old = None if known is None else known.members.get(link)
        if old is not None:
            # The member is there, even if its words are refused: one that counts as silent loses its queues.
            old.heard_ms = member.heard_ms
            if not has_subscriptions:
                return News.NONE
        if refusal := self._refusal(group, known, link, facts):
            return refusal
        if known is None:
            known = self._groups[group] = _Group(facts)
        before, topics = (known.facts, dict(known.words)), set(known.words)
        known.facts = replace(facts, subscriptions={}, members=())
        known.members[link] = member
        self._of_link.setdefault(link, set()).add(group)
        self._members += old is None
        for topic, word in facts.subscriptions.items():
            self._subscribe(known, link, topic, word)
        # The texts of the table, not those of this heartbeat: 20,000 members would keep 20,000 copies.
        member.topics = frozenset(topic for topic in known.words if topic in facts.subscriptions)
        if old is not None and old.topics != member.topics:
            self._drop_unwanted(known)
        if old is None or old.client_id != member.client_id or topics != known.words.keys():
            return News.MEMBERS
        return News.NONE if before == (known.facts, known.words) else News.FACTS

    def _refusal(self, group: str, known: _Group | None, link: Hashable, facts: Facts) -> str:
        if known is None and len(self._groups) >= GROUPS_MAX:
            return f"{len(self._groups)} groups have members; {GROUPS_MAX} can"
        known = known or _Group(NO_FACTS)
        topics = len(known.words.keys() | facts.subscriptions.keys())
        if topics > TOPICS_PER_GROUP_MAX:
            return f"group {group} subscribes to {topics} topics; {TOPICS_PER_GROUP_MAX} are possible"
        growth = sum(_growth(known, link, topic, word) for topic, word in facts.subscriptions.items())
        if growth > 0 and self._chars + growth > TEXT_CHARS_MAX:
            return f"all subscriptions together have {self._chars} characters; {TEXT_CHARS_MAX} are possible"
        if link in known.members:
            return ""
        if len(known.members) >= CLIENTS_PER_GROUP_MAX:
            return f"group {group} has {len(known.members)} members; {CLIENTS_PER_GROUP_MAX} are possible"
        if self._members >= MEMBERS_MAX:
            return f"all groups together have {self._members} members; {MEMBERS_MAX} are possible"
        return ""

    def _subscribe(self, known: _Group, link: Hashable, topic: str, word: Subscription) -> None:
        """The word of one member on one of its topics (rule 3)."""
        if not _counts(known, link, topic, word):
            return
        self._chars += _growth(known, link, topic, word)
        old = known.words.get(topic)
        if old is not None:
            word = replace(word, version=max(word.version, old[0].version, key=version_ms))
        known.words[topic] = word, link

    def leave(self, link: Link, group: str) -> bool:
        """The link is no member any more; whether it was one, which the others must hear."""
        known = self._groups.get(group)
        member = None if known is None else known.members.pop(link, None)
        if known is None or member is None:
            return False
        self._members -= 1
        of_link = self._of_link[link]
        of_link.discard(group)
        if not of_link:
            del self._of_link[link]
        self._drop_unwanted(known)
        if not known.members:
            del self._groups[group]
        if self.left is not None:
            left = self.left.setdefault(group, set())
            if len(left) < CLIENTS_PER_GROUP_MAX:
                left.add(member.client_id)
        return True

    def close(self, link: Link) -> list[str]:
        """The link is closed: the groups that it leaves."""
        return [group for group in sorted(self._of_link.get(link, ())) if self.leave(link, group)]

    def expire(self, now_ms: int) -> list[str]:
        """Members that were silent for too long leave: their groups."""
        before_ms = now_ms - SILENT_MS_MAX
        silent = [
            (link, group)
            for group, known in self._groups.items()
            for link, member in known.members.items()
            if member.heard_ms < before_ms
        ]
        return [group for link, group in silent if self.leave(link, group)]  # type: ignore[arg-type]

    def _drop_unwanted(self, known: _Group) -> None:
        """Topics that no member wants any more."""
        wanted = frozenset[str]().union(*{member.topics for member in known.members.values()})
        for topic in known.words.keys() - wanted:
            self._chars -= len(topic) + len(known.words.pop(topic)[0].text)

    # --- what is told ------------------------------------------------------------------------------------------------

    def subscription(self, group: str, topic: str, remembered: Facts) -> Subscription | None:
        """The group's subscription to the topic (rule 4); None: it has none."""
        known = self._groups.get(group)
        word = None if known is None else known.words.get(topic)
        return word[0] if word is not None else remembered.subscriptions.get(topic)

    def facts(self, group: str, remembered: Facts) -> Facts:
        """All that is said of the group, with what is ``remembered`` of members that were not heard."""
        known = self._groups.get(group)
        heard = set() if known is None else {member.client_id for member in known.members.values()}
        unheard = set(remembered.members) - heard - (self.left or {}).get(group, set())
        subscriptions = dict(remembered.subscriptions) if unheard else {}
        if known is not None:
            subscriptions.update((topic, word) for topic, (word, _) in known.words.items())
        base = (remembered if unheard else NO_FACTS) if known is None else known.facts
        return replace(base, subscriptions=subscriptions, members=tuple(sorted(heard | unheard)))


def _counts(known: _Group, link: Hashable, topic: str, word: Subscription) -> bool:
    """Whether a member's word becomes that of its group (rule 3)."""
    old = known.words.get(topic)
    if old is None or old[1] == link or old[1] not in known.members:
        return True
    return version_ms(word.version) > version_ms(old[0].version)


def _growth(known: _Group, link: Hashable, topic: str, word: Subscription) -> int:
    """So many characters more the group's subscriptions have by the word, perhaps below 0."""
    old = known.words.get(topic)
    if old is None:
        return len(topic) + len(word.text)
    return len(word.text) - len(old[0].text) if _counts(known, link, topic, word) else 0


def version_ms(version: int) -> int:
    """The time in a subscription's version: ms, or ns (rule 3)."""
    return version // 1_000_000 if version >= 10**16 else version
