"""A state machine that only remembers: each entry is a JSON list of ids, the state is every id in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.controller.contract.replies import AnyReply
from rollcall_ha.controller.core.apply import Applied
from rollcall_ha.controller.replication.ports import UnsoundStateError


@dataclass(frozen=True, slots=True)
class Ledger:
    """The first ``length`` ids of a list that states share; appending past the newest state never changes an older one."""

    shared: list[str]
    length: int

    @property
    def ids(self) -> list[str]:
        """A copy."""
        return self.shared[: self.length]


class LedgerMachine:
    """
    Replies to each id with its position.

    ``poison`` in an entry raises, which a real machine never does; ``fault`` breaks an invariant at once, ``unsound``
    in the snapshot that is taken of it.
    """

    def initial(self) -> Ledger:
        """Nothing."""
        return Ledger([], 0)

    def feature_level(self, _state: Ledger) -> int:
        return FEATURE_LEVEL

    def apply(self, state: Ledger, payload: str, *, term: int, index: int) -> Applied[Ledger]:
        """Remember the ids."""
        ids = cast("list[str]", json.loads(payload))
        if "poison" in ids:
            raise RuntimeError("poison")
        if "too new" in ids:
            return Applied(state=state, replies=(), records=(), stop_reason=f"entry {index} is above this node")
        if "fault" in ids:
            return Applied(state=state, replies=(), records=(), stop_reason=f"entry {index} breaks C2", is_fault=True)
        shared = state.shared if len(state.shared) == state.length else state.ids
        shared.extend(ids)
        replies = tuple(cast("AnyReply", state.length + offset) for offset in range(len(ids)))
        return Applied(state=Ledger(shared, state.length + len(ids)), replies=replies, records=())

    def encode(self, state: Ledger) -> Iterator[bytes]:
        """1,000 ids an item."""
        for begin in range(0, state.length, 1000):
            yield json.dumps(state.shared[begin : min(begin + 1000, state.length)]).encode()

    def decode(self, items: Iterable[bytes]) -> Ledger:
        """Inverse."""
        ids: list[Any] = []
        for item in items:
            ids.extend(json.loads(item))
        if "unsound" in ids:
            raise UnsoundStateError("the snapshot breaks C2")
        return Ledger(ids, len(ids))
