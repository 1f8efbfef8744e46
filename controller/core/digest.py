"""
A hash of the replicated state, made step by step as entries are applied.

Here: ``digest_after``. Not here: comparing controllers by it (``controller.runtime.state_watch``).

Rule 1: the digest after an entry covers the one before, the head of the chain of events, and the whole of each set that
the entry changed. So two controllers with one digest at an index have made the same of every entry since it began; a
set that differs is noticed at the latest with the next entry that changes it.
Rule 2: stored answers are not in it: their hints are words for people, and may differ between builds of one level. All
that was decided is in the chain.
Rule 3: a field that a later level adds to a set has the default ``UNSET``, and keeps it until that level is raised:
it is not encoded then. With another default, a controller with the newer program would differ, and stop, in an upgrade.
``tests/unit/test_feature_levels.py`` holds the fields and defaults of each level.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.core.state import FleetState

DIGEST_BYTES = 16
"""The first ones of a SHA-256. Processors have instructions for it; in software, hashing a set was half of the cost."""

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def digest_after(before: FleetState, after: FleetState, changed: Iterable[SetKey]) -> str:
    """Hex digits of the state ``after`` an entry that changed these sets of ``before``."""
    keys = sorted(changed)
    # An entry without an effect, as a barrier of a reader, costs nothing.
    if not keys and after.chain_head == before.chain_head:
        return before.state_digest
    digest = hashlib.sha256(f"{before.state_digest}|{after.chain_head}|{after.feature_level}".encode())
    for key in keys:
        digest.update(_ENCODER.encode(after.sets[key]))
    return digest.digest()[:DIGEST_BYTES].hex()
