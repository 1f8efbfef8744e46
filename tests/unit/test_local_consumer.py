"""The counts of the demo's consumer: what is missing is seen without the producer's ledger."""

from __future__ import annotations

import msgspec

from rollcall_ha.broker.protocol.consumers import MessageQueue
from rollcall_ha.deploy.local.consumer import Books, ReadCounts
from tests.unit.test_client_progress import message


def test_a_gap_is_missing_and_a_lower_offset_was_given_twice() -> None:
    books = Books()
    books.note(message(offset) for offset in (0, 1, 1, 2, 5, 4))
    assert books.counts == ReadCounts(consumed=4, twice=2, missing=2)
    books.note([msgspec.structs.replace(message(0), queue=MessageQueue("b", 1, "T"))])
    assert books.counts.consumed == 5
