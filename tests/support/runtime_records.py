"""Chained event records for tests of the journal."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from rollcall_ha.controller.contract.events import EventRecord, LeadershipTaken, chain_of
from rollcall_ha.controller.contract.ids import (
    BrokerName,
    ClusterName,
    ControllerName,
    FleetIncarnation,
    RequestId,
    SetKey,
)
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.replication.ports import AppliedEntry

SET_A = SetKey(ClusterName("demo"), BrokerName("broker-a"))
SET_B = SetKey(ClusterName("demo"), BrokerName("broker-b"))


class History:
    """Entries as a log would apply them, with a correct chain. The state of an entry is its chain head."""

    def __init__(self) -> None:
        self.chain = ""
        self.index = 0
        self.entries: list[AppliedEntry[str]] = []

    def entry(self, *keys: SetKey | None) -> AppliedEntry[str]:
        """The next entry, with one event per key."""
        self.index += 1
        records = []
        for ordinal, key in enumerate(keys):
            record = EventRecord(
                version=1,
                fleet_incarnation=FleetIncarnation("f" * 32),
                term=1,
                index=self.index,
                ordinal=ordinal,
                stamped_at_ms=1,
                set_key=key,
                request_id=RequestId(f"r{self.index}"),
                requested_by="test",
                event=LeadershipTaken(controller=ControllerName("c1"), term=self.index),
            )
            self.chain = chain_of(self.chain, record)
            records.append(msgspec.structs.replace(record, chain=self.chain))
        entry = AppliedEntry(term=1, index=self.index, state=self.chain, replies=(), records=tuple(records))
        self.entries.append(entry)
        return entry

    def snapshot(self) -> AppliedEntry[str]:
        """What a listener hears when a snapshot at the present index was installed."""
        return AppliedEntry(term=1, index=self.index, state=self.chain, replies=(), records=(), is_snapshot=True)

    def refs(self) -> list[EventRef]:
        """Names of all events so far."""
        return [record.ref for entry in self.entries for record in entry.records]


def fails(reason: str) -> NoReturn:
    """What a journal tells when it cannot go on."""
    raise AssertionError(reason)
