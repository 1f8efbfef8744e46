"""RocketMQ's epochFileCheckpoint, byte for byte: the example of docs/wire.md and a file of a Java broker."""

from __future__ import annotations

import zlib

import pytest

from rollcall_ha.epoch.codec import EpochFileCorrupt, decode_history, encode_history
from rollcall_ha.epoch.history import EpochHistory
from tests.support.ha_logs import history

EXAMPLE = bytes.fromhex("320a3134393130383930300a312d300a322d3630300a")
CAPTURE = bytes.fromhex(
    "360a36393132373635380a312d300a322d363137310a342d363336350a352d363735330a362d363934370a372d373134310a"
)


@pytest.mark.parametrize(
    ("data", "epochs"),
    [
        (EXAMPLE, history((1, 0), (2, 600))),
        (CAPTURE, history((1, 0), (2, 6171), (4, 6365), (5, 6753), (6, 6947), (7, 7141))),
    ],
)
def test_epoch_files_of_the_reference_read_and_write_the_same(data: bytes, epochs: EpochHistory) -> None:
    assert decode_history(data) == epochs
    assert encode_history(epochs) == data


def test_the_crc_of_the_reference_s_own_comment() -> None:
    assert zlib.crc32(b"7-7000\n8-8000\n") & 0x7FFFFFFF == 773307083
    assert encode_history(history((7, 7000), (8, 8000))).splitlines()[1] == b"773307083"


def test_a_stored_crc_of_0_is_not_compared() -> None:
    """As in the reference; a torn file is found by its count all the same."""
    assert decode_history(b"1\n0\n3-30\n") == history((3, 30))
    with pytest.raises(EpochFileCorrupt, match="announces 2"):
        decode_history(b"2\n0\n3-30\n")


def test_an_empty_list_has_an_encoding() -> None:
    assert encode_history(EpochHistory()) == b"0\n0\n"
    assert decode_history(b"0\n0\n") == EpochHistory()
