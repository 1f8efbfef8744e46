"""Frames between members: what is sent is read, everything else closes the link."""

from __future__ import annotations

import json
import pickle
import struct

import pytest

from rollcall_ha.controller.replication.codec import ENTRY_BYTES_MAX
from rollcall_ha.controller.replication.raft.messages import (
    FRAME_BYTES_MAX,
    Answer,
    Append,
    Hello,
    Message,
    PeerRequest,
    PeerResponse,
    Ping,
    ProtocolError,
    RequestVote,
    SnapshotPiece,
    TimeoutNow,
    Vote,
    decode_message,
    encode_message,
    frame_length,
)

APPEND = Append(
    term=3,
    sent_ns=5,
    confirmed_ns=4,
    commit_index=2,
    last_index=9,
    previous_index=2,
    previous_term=1,
    entries=((b"\x00[]", 3, 1), (b"\x01", 4, 3)),
)


@pytest.mark.parametrize(
    "message",
    [
        Hello(version=1, name="c1"),
        Ping(),
        RequestVote(term=1, last_index=2, last_term=1),
        Vote(term=1),
        TimeoutNow(term=3),
        PeerRequest(id=1, payload=b"\x00\xff"),
        PeerRequest(id=2, payload=b""),
        PeerResponse(id=1, payload=b"{}"),
        PeerResponse(id=1, payload=b""),
        PeerResponse(id=1, payload=None),
        APPEND,
        SnapshotPiece(term=1, sent_ns=2),
        SnapshotPiece(term=1, sent_ns=2, piece=(b"\xff" * 10, True, False)),
        SnapshotPiece(term=1, sent_ns=2, piece=(b"", False, True)),
        Answer(term=1, sent_ns=2, next_index=3, is_success=True, is_reset=False, is_voter=True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_sent_is_read(message: Message) -> None:
    frame = encode_message(message)
    assert frame_length(frame, 0) == len(frame)
    assert decode_message(frame) == message


def _frame(header: object, body: bytes = b"") -> bytes:
    head = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


GOOD_APPEND = {
    "type": "append", "term": 3, "sent_ns": 1, "confirmed_ns": 0, "commit_index": 0, "last_index": 9,
    "previous_index": 2, "previous_term": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x00\x00\x05",
        _frame([]),
        _frame({"type": "apply_command", "command": 3}, b"abc"),
        _frame({"type": "vote"}),
        _frame({"type": "vote", "term": "1"}),
        _frame({"type": "vote", "term": -1}),
        _frame({"type": "vote", "term": 1 << 63}),
        _frame({"type": "vote", "term": 1.5}),
        _frame({"type": "vote", "term": True}),
        _frame({"type": "vote", "term": 1, "more": 1}),
        _frame({"type": "vote", "term": 1}, b"rest"),
        _frame({**GOOD_APPEND, "sizes": [[5, 1]]}, b"\x00abc"),
        _frame({**GOOD_APPEND, "sizes": [[3, 1]]}, b"\x00abc"),
        _frame({**GOOD_APPEND, "sizes": [[1, 0]]}, b"\x01"),
        _frame({**GOOD_APPEND, "sizes": [[1, 4]]}, b"\x01"),
        _frame({**GOOD_APPEND, "sizes": [[2, 1]]}, b"\x02x"),
        _frame({**GOOD_APPEND, "sizes": [[3, 1]]}, b"\x00\xff\xff"),
        _frame({**GOOD_APPEND, "sizes": [[ENTRY_BYTES_MAX + 2, 1]]}, b"\x00" + b"x" * (ENTRY_BYTES_MAX + 1)),
        _frame({"type": "snapshot", "term": 1, "sent_ns": 1, "size": [4, True, False]}, b"abc"),
        pickle.dumps({"type": "append_entries"}),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_everything_else_is_an_error(frame: bytes) -> None:
    """S61: also a pickle, which nobody unpickles."""
    with pytest.raises(ProtocolError):
        decode_message(frame)


@pytest.mark.parametrize("length", [0, 4, FRAME_BYTES_MAX + 1, 0xFFFFFFFF])
def test_a_length_is_judged_before_anything_is_buffered(length: int) -> None:
    """The stock library trusts 2 GiB."""
    with pytest.raises(ProtocolError, match="frame of"):
        frame_length(length.to_bytes(4, "big"), 0)


def test_a_length_that_is_not_there_yet() -> None:
    assert frame_length(b"\x00\x00\x00", 0) is None
