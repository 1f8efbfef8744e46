"""
Topics and groups of consumers: how masters tell them, REST answers them and the CLI prints them; orders about them.

Here: the values and the orders. Not here: the rows of the orders (``orders``), who asks the masters
(``api.rest.masters``), what a master answers (``broker.consuming.lag``).

Rule 1: every row names its set: a master answers with the same value as REST, which joins the rows of many.
Rule 2: a set that was asked is in ``read``, also if it did not answer. Left out, its topics would look deleted.
Rule 3: these orders change no replicated state: the master of each set writes them into its log (adr/0039).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.replies import AnsweredBy
from rollcall_ha.controller.contract.values import Value

NAMES_PAGE_MAX: Final = 500
"""Topics or groups of one set in one answer."""
QUEUES_TOLD_MAX: Final = 512
"""Queues of one set in one answer."""
SETS_ASKED_MAX: Final = 16
"""In one answer; ``next_set`` names the first that was not."""
STUCK_AFTER_MS: Final = 60_000
"""A queue counts as stuck whose group has messages to read there, and has not moved for so long."""


class Permission(StrEnum):
    """What clients may do with a topic; in the order of RocketMQ's ``perm``, whose 4 is read and 2 is write."""

    NONE = "none"
    WRITE = "write"
    READ = "read"
    READ_WRITE = "read-write"


def permission_of(perm: int) -> Permission:
    """The part of RocketMQ's ``perm`` that is about clients."""
    return list(Permission)[perm >> 1 & 3]


class SetRead(Value):
    """One set that was asked."""

    set_key: SetKey
    broker_id: BrokerId | None = None
    """Its master, which was asked; None: it has none."""
    trouble: str = ""
    """Why it did not answer; empty: it did."""
    left_off: int = 0
    """Rows that did not fit into its answer."""


class TopicLine(Value):
    """A topic in one set."""

    topic: str
    set_key: SetKey
    read_queues: int
    write_queues: int
    permission: Permission
    is_own: bool
    """The brokers' own: no order changes it."""


class GroupLine(Value):
    """A group in one set. Its sums are as old as a sweep of its master takes (adr/0039); in ``GroupAnswer`` of now."""

    group: str
    set_key: SetKey
    members: int
    topics: int
    lag: int
    """Messages that are confirmed and behind its offsets; queues without an offset do not count."""
    stuck_queues: int


class TopicQueue(Value):
    set_key: SetKey
    queue_id: int
    min_offset: int
    max_offset: int


class GroupMember(Value):
    """A client at the master of one set, with what it holds there."""

    client_id: str
    set_key: SetKey
    address: str
    """Empty: this master has not heard it yet, its predecessor has."""
    queues: int
    lag: int
    stuck_queues: int


class GroupQueue(TopicQueue):
    topic: str
    offset: int | None
    """Where the group goes on; None: it has never said."""
    lag: int | None
    holder: str
    """The member that pulled here last; empty: none has."""
    still_ms: int | None
    """For how long the offset has stood with messages behind it, as far as this master saw; None: nothing is behind."""
    is_stuck: bool


class Joined(Value):
    """What several sets said, as one answer."""

    read: tuple[SetRead, ...]
    next_set: str | None = None
    """The first that was not asked."""
    next_after: str | None = None
    """Names behind this one are left, in the sets that were asked."""


class TopicPage(Joined, kw_only=True):
    topics: tuple[TopicLine, ...]


class GroupPage(Joined, kw_only=True):
    groups: tuple[GroupLine, ...]


class TopicAnswer(Joined, kw_only=True):
    """One topic; without rows where no set that answered has it."""

    topics: tuple[TopicLine, ...]
    queues: tuple[TopicQueue, ...]
    groups: tuple[GroupLine, ...]
    """Groups that read it, with their lag in this topic, as old as a sweep."""


class GroupSettings(Value):
    """A group's settings, as the brokers of one set keep them by order; RocketMQ's defaults without one."""

    set_key: SetKey
    retries_max: int
    """A message that is refused once more is a dead letter, unless its client says another number."""
    may_consume: bool
    may_broadcast: bool
    is_ordered: bool
    """Kept for clients; brokers do not heed it."""


class GroupAnswer(Joined, kw_only=True):
    """One group; without rows where no set that answered has it."""

    groups: tuple[GroupLine, ...]
    members: tuple[GroupMember, ...]
    queues: tuple[GroupQueue, ...]
    settings: tuple[GroupSettings, ...] = ()
    """Not of brokers that are older than this field."""


# --- orders ----------------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """What became of an order in one set."""

    DONE = "done"
    WOULD = "would-do"
    """It was a dry run, and nothing stands against the order."""
    UNCHANGED = "unchanged"
    ABSENT = "absent"
    """There is nothing there that it is about."""
    REFUSED = "refused"
    """Or not confirmed: ``reason`` says which."""
    NOT_REACHED = "not-reached"
    """The order was certainly not given."""
    UNKNOWN = "unknown"
    """It was given, and no answer came."""


class SetOutcome(Value):
    set_key: SetKey
    outcome: Outcome
    reason: str = ""


class BrokersAnswer(Value):
    """The outcome in each set that was asked."""

    outcomes: tuple[SetOutcome, ...]
    next_set: str | None = None


class BrokerOrder(AnsweredBy[BrokersAnswer]):
    """What orders to the masters share."""

    sets: tuple[SetKey, ...] = ()
    """Only these; empty: every set."""
    from_set: str | None = None
    """Begin with this one, which ``next_set`` named."""
    reason: str = ""


QueueCount = Annotated[int, msgspec.Meta(ge=1, le=256)]


class CreateTopic(BrokerOrder, kw_only=True):
    """Refused in sets that have it."""

    topic: str
    queues: QueueCount = 8
    permission: Permission = Permission.READ_WRITE


class ChangeTopic(BrokerOrder, kw_only=True):
    """What is None stays."""

    topic: str
    queues: QueueCount | None = None
    permission: Permission | None = None


class DeleteTopic(BrokerOrder, kw_only=True):
    topic: str


class ChangeGroup(BrokerOrder, kw_only=True):
    """A setting that is None stays. Names and meanings are those of ``GroupSettings``."""

    group: str
    retries_max: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)] | None = None
    may_consume: bool | None = None
    may_broadcast: bool | None = None
    is_ordered: bool | None = None


class CreateGroup(ChangeGroup, kw_only=True):
    """A setting that is None has RocketMQ's default. Refused in sets that have it."""


class DeleteGroup(BrokerOrder, kw_only=True):
    group: str
    keeps_offsets: bool = False
    """The group goes on where it was if it comes back."""


class ResetGroup(BrokerOrder, kw_only=True):
    group: str
    topic: str
    to_ms: Annotated[int, msgspec.Meta(ge=-1, le=1 << 53)]
    """UTC, ms since 1970: the first message stored then or later; -1: none of those that are there."""
