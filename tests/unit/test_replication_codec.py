"""Entries: ASCII, bounded, and never an exception out of decoding."""

from __future__ import annotations

import pytest

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, ApplyBrokerId, Barrier, Operation
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, RegisterCode, RequestId, SetKey
from rollcall_ha.controller.replication.codec import (
    ENTRY_BYTES_MAX,
    AboveFeatureLevel,
    Undecodable,
    decode_operations,
    encode_operation,
    encode_operations,
)


def _operation(text: str, version: int = FEATURE_LEVEL) -> Operation:
    return Operation(
        version=version,
        request_id=RequestId(text),
        stamped_at_ms=1,
        requested_by="admin:a",
        command=ApplyBrokerId(
            set_key=SetKey(ClusterName(text), BrokerName("b")), register_code=RegisterCode("r"), address="h:1"
        ),
    )


@pytest.mark.parametrize("text", ["plain", "Zürich", "名前", "a\u2028b", "😀", 'quote"back\\slash\x00'])
def test_any_text_travels_as_ascii(text: str) -> None:
    payload = encode_operations([_operation(text), _operation("other")])
    assert payload.isascii()
    assert decode_operations(payload) == (_operation(text), _operation("other"))


def test_text_that_is_no_unicode_is_refused_before_it_is_proposed() -> None:
    with pytest.raises(ValueError, match="not valid Unicode"):
        encode_operation(_operation("\ud800"))


@pytest.mark.parametrize(
    "payload",
    ["", "[", "null", "{}", "[1]", '[{"version":1}]', '[{"version":1,"command":{"command":"Nonsense"}}]', "[" * 9_000],
)
def test_rubbish_is_a_value(payload: str) -> None:
    """R15: the same no-op everywhere."""
    assert isinstance(decode_operations(payload), Undecodable)


def test_an_entry_that_is_too_long_is_rubbish() -> None:
    assert isinstance(decode_operations("[" + " " * ENTRY_BYTES_MAX + "]"), Undecodable)


@pytest.mark.parametrize("command", ['{"command":"FromTheFuture","x":1}', '{"command":"Barrier"}'])
def test_newer_operations_are_not_taken_for_rubbish(command: str) -> None:
    """R15: a node that took them for a no-op would diverge from one that knows them."""
    payload = (
        f'[{{"version":{FEATURE_LEVEL + 1},"requestId":"r","stampedAtMs":1,"requestedBy":"x","command":{command}}}]'
    )
    assert decode_operations(payload) == AboveFeatureLevel(needed=FEATURE_LEVEL + 1)


def test_unknown_fields_are_ignored() -> None:
    payload = (
        '[{"version":1,"requestId":"r","stampedAtMs":1,"requestedBy":"x","new":1,"command":{"command":"Barrier"}}]'
    )
    operation = Operation(version=1, request_id=RequestId("r"), stamped_at_ms=1, requested_by="x", command=Barrier())
    assert decode_operations(payload) == (operation,)
