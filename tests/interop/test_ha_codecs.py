"""The first bytes of HA links of docs/wire.md and of real Java processes are recognised."""

from __future__ import annotations

from rollcall_ha.ha.sniff import Protocol, sniff

AUTOSWITCH = {
    "slave handshake, id 2": "00000001000000000000000000000002",
    "slave report after one record": "0000000200000000000018dd",
}
CLASSIC = {"slave report of an empty log": "0000000000000000", "slave report at 1130": "000000000000046a"}


def test_the_first_bytes_tell_the_protocol() -> None:
    """Ours has a magic; a Java slave of each kind is told apart by the int32 that it begins with."""
    assert sniff(b"RCHA") is Protocol.NATIVE
    assert {sniff(bytes.fromhex(raw)[:4]) for raw in AUTOSWITCH.values()} == {Protocol.AUTOSWITCH}
    assert {sniff(bytes.fromhex(raw)[:4]) for raw in CLASSIC.values()} == {Protocol.CLASSIC}
