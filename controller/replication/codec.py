"""
Operations as the text of a Raft entry, and back.

Here: one JSON array of operations per entry, ASCII only. Not here: the effect of operations (``controller.core``),
snapshots (``machine``).
Rule 1: entries are ASCII ``str``. msgspec writes them; an operation with other characters is escaped by ``json``.
Rule 2 (R15): decoding never raises: bytes that cannot be decoded are a value that says so, and the node stops at it.
Rule 3 (R15): an entry that needs a higher feature level than this code has is told apart from rubbish, even if its
command is unknown here: the remedy is another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, Operation
from rollcall_ha.controller.contract.values import Frozen

ENTRY_BYTES_MAX = 48_000
"""Longest entry: PySyncObj sends a longer one in pieces of a pickle, which our transport refuses."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[Operation, ...])


class _VersionOnly(msgspec.Struct, frozen=True):
    """The one field that every operation of every version has."""

    version: int


_versions = msgspec.json.Decoder(tuple[_VersionOnly, ...])


class Undecodable(Frozen):
    """The entry is no list of operations that this program knows: this node must stop."""

    reason: str


class AboveFeatureLevel(Frozen):
    """The entry needs newer code: this node must stop."""

    needed: int
    supported: int = FEATURE_LEVEL


def encode_operation(operation: Operation) -> str:
    """
    One operation as ASCII JSON, to be joined by ``join_operations``.

    Raises ``ValueError`` if a text in it is not valid Unicode.
    """
    try:
        raw = _encoder.encode(operation)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"operation {operation.request_id!r} holds text that is not valid Unicode: {error.reason}"
        ) from error
    if raw.isascii():
        return raw.decode("ascii")
    return json.dumps(msgspec.to_builtins(operation), ensure_ascii=True, separators=(",", ":"))


def join_operations(parts: Iterable[str]) -> str:
    """Encoded operations as one entry, in order."""
    return "[" + ",".join(parts) + "]"


def encode_operations(operations: Iterable[Operation]) -> str:
    """Operations as one entry. Raises ``ValueError`` as ``encode_operation`` does."""
    return join_operations(encode_operation(operation) for operation in operations)


def decode_operations(payload: str) -> tuple[Operation, ...] | Undecodable | AboveFeatureLevel:
    """Inverse of ``encode_operations``. Total."""
    if len(payload) > ENTRY_BYTES_MAX:
        return Undecodable(reason=f"entry has {len(payload)} characters, at most {ENTRY_BYTES_MAX} are allowed")
    try:
        # The versions FIRST: a command of a later release is unknown to the decoder below, and would pass for rubbish.
        needed = max((item.version for item in _versions.decode(payload)), default=0)
        if needed > FEATURE_LEVEL:
            return AboveFeatureLevel(needed=needed)
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        # RecursionError comes of nesting, at the same depth on every node, not of a small stack: no reason to stop.
        return Undecodable(reason=str(error))
