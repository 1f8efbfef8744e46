"""
What the key of a message of shared topics says: who sent it, what becomes of it, and its number.

Here: the rules, as the Python pair and the audit have them. Not here: the same in Java (``Ledger``, ``LedgerProducer``) and in
Go (``tests/interop_go/ledger.go``).

Rule 1: ``PRODUCER-KIND-RUN-NUMBER``; NUMBER is of one process, twelve hexadecimal digits. Any other key is ``plain``.
Rule 2: KIND is ``plain``, ``again1`` and ``again2`` (refused once, or twice), ``dead`` (refused always), ``late1`` to ``late3`` (its
delay level), or ``shard0`` to ``shard7`` (its sharding key, in the ordered topic).
Rule 3: a body is its key again and again.
"""

from __future__ import annotations

import hashlib

KINDS_EACH = 40
SHARDS = 8
BODY_BYTES = 256
DELAYS_MS = {"late1": 1_000, "late2": 5_000, "late3": 10_000}
PLAIN, DEAD, LATE, AGAIN, SHARD = "plain", "dead", "late", "again", "shard"


def kind_of(key: str) -> str:
    parts = key.split("-")
    return parts[1] if len(parts) == 4 else PLAIN


def producer_of(key: str) -> str:
    return key.partition("-")[0]


def number_of(key: str) -> int:
    return int(key.rpartition("-")[2], 16)


def kind_at(number: int) -> str:
    """Of the message with that number, in the topic that is not ordered."""
    found = {8: "again1", 16: "again2", 24: DEAD, 32: f"late{1 + number // KINDS_EACH % 3}"}
    return found.get(number % KINDS_EACH, PLAIN)


def refusals_of(kind: str) -> int | None:
    """How often a consumer refuses it; None: always."""
    return None if kind == DEAD else int(kind.removeprefix(AGAIN)) if kind.startswith(AGAIN) else 0


def body_of(key: str, size: int = BODY_BYTES) -> bytes:
    return (key.encode() * (size // len(key) + 1))[:size]


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
