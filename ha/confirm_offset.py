"""
The acks of a master's members, and the confirm offset that follows from them.

Here: the ack table of one reign and the minimum over the required set, pure. Not here: which members are required
(``sync_state``).
Rule 1: an ack counts only if it carries this masterEpoch, the generation of the member's current link and the
incarnation that shook hands on it, and says that its promise of this epoch is durable (R2, R12).
Rule 2: a new link resets its member to unknown. An unknown member of the required set freezes confirm; it is never
skipped (W9, S10, S15).
Rule 3: confirm never falls within a reign (D6), and moves only to or beyond the start of the reign's own epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import Frozen


class MemberAck(Frozen):
    """An ack as it came off a link, with its sender."""

    broker_id: BrokerId
    incarnation: Incarnation
    master_epoch: MasterEpoch
    link_generation: int
    offset: LogOffset
    is_promise_durable: bool


class AckFate(StrEnum):
    """Whether an ack counts; every other value than ``COUNTED`` changes nothing."""

    COUNTED = "counted"
    OTHER_EPOCH = "other-epoch"
    OTHER_LINK = "other-link"
    OTHER_INCARNATION = "other-incarnation"
    PROMISE_NOT_DURABLE = "promise-not-durable"


class MemberLink(msgspec.Struct, kw_only=True):
    """The current link of one replica."""

    broker_id: BrokerId
    incarnation: Incarnation
    link_generation: int
    is_learner: bool
    acked: LogOffset | None = None
    """None = unknown: nothing that counts was heard on this link."""


class SlaveAcks:
    """Current links and acks of one reign."""

    def __init__(self, master_epoch: MasterEpoch) -> None:
        """Empty: after a promotion every member is unknown (R2)."""
        self._master_epoch = master_epoch
        self._links: dict[BrokerId, MemberLink] = {}

    @property
    def links(self) -> Mapping[BrokerId, MemberLink]:
        return self._links

    def open_link(
        self, broker_id: BrokerId, incarnation: Incarnation, link_generation: int, *, is_learner: bool
    ) -> bool:
        """The member is unknown until its first ack on this link. False: it is older than the current link."""
        current = self._links.get(broker_id)
        # Two links of one replica may be answered in the other order than they were accepted: the older one would reset
        # what the newer one has acked, and its late acks would count.
        if current is not None and current.link_generation >= link_generation:
            return False
        self._links[broker_id] = MemberLink(
            broker_id=broker_id, incarnation=incarnation, link_generation=link_generation, is_learner=is_learner
        )
        return True

    def close_link(self, broker_id: BrokerId, link_generation: int) -> bool:
        """The link is gone. False: it was not the current one, nothing changed (W10)."""
        current = self._links.get(broker_id)
        # B reconnects, then the end of its old link is noticed: that B is unknown now would be false, and would freeze
        # confirm until its next link.
        if current is None or current.link_generation != link_generation:
            return False
        del self._links[broker_id]
        return True

    def record(self, ack: MemberAck) -> AckFate:
        """Take an ack, if it counts. A lower offset than before on one link is kept out: logs of a link only grow."""
        link = self._links.get(ack.broker_id)
        # Each of the four guards a record that would be lost: v2 of epoch 2, released by an ack of epoch 1 ...
        if ack.master_epoch != self._master_epoch:
            return AckFate.OTHER_EPOCH
        # ... one released by an ack from before the cut that the newer handshake of the same replica made ...
        if link is None or link.link_generation != ack.link_generation:
            return AckFate.OTHER_LINK
        # ... by the ack of a process whose tail a power cut took since ...
        if link.incarnation != ack.incarnation:
            return AckFate.OTHER_INCARNATION
        # ... or by C, which forgets in a crash that it promised 3, and follows the stale master of 2.
        if not ack.is_promise_durable:
            return AckFate.PROMISE_NOT_DURABLE
        if link.acked is None or ack.offset > link.acked:
            link.acked = ack.offset
        return AckFate.COUNTED

    def acked(self, broker_id: BrokerId) -> LogOffset | None:
        """Highest counted ack on the current link; None = unknown."""
        link = self._links.get(broker_id)
        return None if link is None else link.acked


def confirm_candidate(own_end: LogOffset, required_others: Iterable[BrokerId], table: SlaveAcks) -> LogOffset | None:
    """The minimum over the required set; None if a member of it is unknown."""
    lowest = own_end
    for broker_id in required_others:
        acked = table.acked(broker_id)
        # Never skipped: a member that has not acked on its new link may have been cut below what we would release now.
        # It is electable all the same (W9).
        if acked is None:
            return None
        lowest = min(lowest, acked)
    return lowest
