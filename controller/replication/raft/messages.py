"""
The messages between members, and their bytes.

Here: messages, frames, and everything that can be judged about a message without a log. Not here: links
(``transport``), the effect of a message (``repairs``).

Frame: length u32 | header length u32 | header (JSON, one of the types below) | raw bytes that the header counts (big
endian).
Rule 1: fixed types and keys; an unknown one, a number out of range, a length that does not add up is a
``ProtocolError``, and the link is closed.
Rule 2: nothing is unpickled, ever (stock PySyncObj unpickles every frame): a command is one type byte and ASCII text.
Rule 3: appends carry the term and the time at which they were sent, answers echo both (R5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated

import msgspec

from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.replication.codec import ENTRY_BYTES_MAX
from rollcall_ha.controller.replication.membership import CONFIGURATION, decode
from rollcall_ha.controller.replication.raft.journal import NO_OP, Entry
from rollcall_ha.controller.replication.raft.snapshot import Piece

PROTOCOL_VERSION = 1
FRAME_BYTES_MAX = 8 * 1024 * 1024
PLEDGES_SINCE = 2
"""From this feature level on answers tell pledges (R5)."""
REGULAR = b"\x00"
"""Type byte of a command that carries operations."""

_FRAME = struct.Struct(">II")
FRAME_HEADER_BYTES = _FRAME.size
_Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class ProtocolError(ValueError):
    """A peer sent something that it must not send; the message names it. Its link is closed."""


class _Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all messages."""


class Hello(_Wire, frozen=True, kw_only=True, tag="hello"):
    """First frame in both directions, after the handshake."""

    version: _Natural
    name: _Name


class Ping(_Wire, frozen=True, kw_only=True, tag="ping"):
    """Keeps a link alive that nobody uses: followers do not talk to each other until they must."""


class RequestVote(_Wire, frozen=True, kw_only=True, tag="request-vote"):
    term: _Natural
    last_index: _Natural
    last_term: _Natural


class Vote(_Wire, frozen=True, kw_only=True, tag="vote"):
    term: _Natural


class TimeoutNow(_Wire, frozen=True, kw_only=True, tag="timeout-now"):
    """A leader of ``term`` asks its follower to stand for election at once."""

    term: _Natural


class _AppendFields(_Wire, frozen=True, kw_only=True):
    """The fields that an append has on the wire and in memory."""

    term: _Natural
    sent_ns: _Natural
    confirmed_ns: _Natural
    """Newest send time that a majority of voters, the leader included, has answered in this term; 0 = none yet."""
    commit_index: _Natural
    last_index: _Natural
    """Where the leader's log ends."""
    previous_index: _Natural
    previous_term: _Natural


class Append(_AppendFields, frozen=True, kw_only=True, tag="append"):
    """Entries after ``previous_index``, or none: a heartbeat."""

    entries: tuple[Entry, ...] = ()


class SnapshotPiece(_Wire, frozen=True, kw_only=True, tag="snapshot"):
    """A part of the leader's snapshot; without ``piece`` only a heartbeat to a follower that waits for one."""

    term: _Natural
    sent_ns: _Natural
    piece: Piece | None = None


class Answer(_Wire, frozen=True, kw_only=True, omit_defaults=True, tag="answer"):
    """To an append or a piece; echoes its term and send time (R5)."""

    term: _Natural
    sent_ns: _Natural
    next_index: _Natural
    is_success: bool
    """Everything before ``next_index`` is durable here and equal to the leader's."""
    is_reset: bool
    """Nothing could be compared: go on at ``next_index``."""
    is_voter: bool
    """False: a member that has lost its memory; counts for nothing yet."""
    pledged_ms: _Natural = 0
    """
    For so long from what it answers on the sender votes for nobody; 0, which is not written: the shortest election
    timeout. Below ``PLEDGES_SINCE`` none is told: an older program would close the link.
    """


class StateDigests(_Wire, frozen=True, kw_only=True, tag="state-digests"):
    """The states that the sender has made of its newest entries: (index, digest), oldest first. No part of Raft."""

    digests: tuple[tuple[_Natural, Annotated[str, msgspec.Meta(max_length=64)]], ...]


class PeerRequest(_Wire, frozen=True, kw_only=True, tag="peer-request"):
    """A call of the sender's program to the receiver's. No part of Raft."""

    id: _Natural
    """Chosen by the caller; once per link at a time."""
    payload: bytes


class PeerResponse(_Wire, frozen=True, kw_only=True, tag="peer-response"):
    """The answer to the ``PeerRequest`` of that id; None: it was not taken."""

    id: _Natural
    payload: bytes | None


Message = (
    StateDigests
    | PeerRequest
    | PeerResponse
    | Hello
    | Ping
    | RequestVote
    | Vote
    | TimeoutNow
    | Append
    | SnapshotPiece
    | Answer
)


class _AppendHeader(_AppendFields, frozen=True, kw_only=True, tag="append"):
    """``Append`` with lengths and terms in place of entries."""

    sizes: tuple[tuple[_Natural, _Natural], ...] = ()


class _PieceHeader(_Wire, frozen=True, kw_only=True, tag="snapshot"):
    """``SnapshotPiece`` with a length in place of bytes."""

    term: _Natural
    sent_ns: _Natural
    size: tuple[_Natural, bool, bool] | None = None


class _RequestHeader(_Wire, frozen=True, kw_only=True, tag="peer-request"):
    """``PeerRequest`` with a length in place of bytes."""

    id: _Natural
    size: _Natural


class _ResponseHeader(_Wire, frozen=True, kw_only=True, tag="peer-response"):
    """``PeerResponse`` with a length in place of bytes."""

    id: _Natural
    size: _Natural | None


_encoder = msgspec.json.Encoder()
_Header = (
    _RequestHeader
    | _ResponseHeader
    | StateDigests
    | Hello
    | Ping
    | RequestVote
    | Vote
    | TimeoutNow
    | _AppendHeader
    | _PieceHeader
    | Answer
)
_decoder: msgspec.json.Decoder[_Header] = msgspec.json.Decoder(_Header)


def encode_message(message: Message) -> bytes:
    blobs: tuple[bytes, ...] = ()
    header: msgspec.Struct = message
    if isinstance(message, Append):
        blobs = tuple(command for command, _, _ in message.entries)
        header = made_from(
            message, _AppendHeader, sizes=tuple((len(command), term) for command, _, term in message.entries)
        )
    elif isinstance(message, SnapshotPiece):
        header = _PieceHeader(term=message.term, sent_ns=message.sent_ns)
        if message.piece is not None:
            data, is_first, is_last = message.piece
            blobs = (data,)
            header = _PieceHeader(term=message.term, sent_ns=message.sent_ns, size=(len(data), is_first, is_last))
    elif isinstance(message, PeerRequest):
        blobs = (message.payload,)
        header = _RequestHeader(id=message.id, size=len(message.payload))
    elif isinstance(message, PeerResponse):
        blobs = () if message.payload is None else (message.payload,)
        header = _ResponseHeader(id=message.id, size=None if message.payload is None else len(message.payload))
    head = _encoder.encode(header)
    length = 4 + len(head) + sum(map(len, blobs))
    return b"".join((_FRAME.pack(length, len(head)), head, *blobs))


def frame_length(buffer: bytes | bytearray, offset: int) -> int | None:
    """Bytes of the frame that begins at ``offset``; None if its length is not there yet. Raises ``ProtocolError``."""
    if len(buffer) - offset < 4:
        return None
    length = int.from_bytes(buffer[offset : offset + 4], "big")
    # Before a byte of it is buffered: stock PySyncObj trusts this number up to 2 GiB.
    if not 4 < length <= FRAME_BYTES_MAX:
        raise ProtocolError(f"frame of {length} bytes; allowed are 5 to {FRAME_BYTES_MAX}")
    return 4 + length


def decode_message(frame: bytes) -> Message:
    """Inverse of ``encode_message``. Raises ``ProtocolError``."""
    if len(frame) < FRAME_HEADER_BYTES:
        raise ProtocolError(f"frame of {len(frame)} bytes")
    _, header_length = _FRAME.unpack_from(frame)
    body = FRAME_HEADER_BYTES + header_length
    try:
        header: _Header = _decoder.decode(frame[FRAME_HEADER_BYTES:body])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"header cannot be read: {error}") from error
    if isinstance(header, _AppendHeader):
        return _append_of(header, frame, body)
    if isinstance(header, _PieceHeader):
        return _piece_of(header, frame, body)
    if isinstance(header, _RequestHeader | _ResponseHeader):
        return _call_of(header, frame, body)
    if body != len(frame):
        raise ProtocolError(f"{len(frame) - body} bytes after a message that has none")
    return header


def _append_of(header: _AppendHeader, frame: bytes, body: int) -> Append:
    if sum(size for size, _ in header.sizes) != len(frame) - body:
        raise ProtocolError("lengths of entries do not add up to the frame")
    return made_from(header, Append, entries=tuple(_entries_of(header, frame, body)))


def _entries_of(header: _AppendHeader, frame: bytes, offset: int) -> Iterator[Entry]:
    index, newest_term = header.previous_index, header.previous_term
    for size, term in header.sizes:
        command = frame[offset : offset + size]
        index += 1
        # Terms never fall along a log, and no entry has a later term than its leader. Rule 8 of ``repairs`` and the
        # library's vote both compare terms: one entry of term 1,000,000 would win every election from now on.
        if not newest_term <= term <= header.term:
            raise ProtocolError(f"entry {index} of term {term} after one of term {newest_term} in term {header.term}")
        # Appended, it could never be read when it is applied, and would stop this node (R15).
        if not is_command(command):
            raise ProtocolError(f"entry {index} is neither a no-op nor ASCII text of at most {ENTRY_BYTES_MAX} bytes")
        newest_term = term
        offset += size
        yield command, index, term


def is_command(command: bytes) -> bool:
    """Whether an entry may hold this."""
    if command[:1] == CONFIGURATION:
        try:
            decode(command)
        except ValueError:
            return False
        return command.isascii()
    return command == NO_OP or (command[:1] == REGULAR and len(command) <= ENTRY_BYTES_MAX + 1 and command.isascii())


def _piece_of(header: _PieceHeader, frame: bytes, body: int) -> SnapshotPiece:
    if (header.size[0] if header.size is not None else 0) != len(frame) - body:
        raise ProtocolError("length of a snapshot piece does not fit the frame")
    piece = None if header.size is None else (frame[body:], header.size[1], header.size[2])
    return SnapshotPiece(term=header.term, sent_ns=header.sent_ns, piece=piece)


def _call_of(header: _RequestHeader | _ResponseHeader, frame: bytes, body: int) -> PeerRequest | PeerResponse:
    if (header.size or 0) != len(frame) - body:
        raise ProtocolError("length of a call does not fit the frame")
    payload = frame[body:]
    if isinstance(header, _RequestHeader):
        return PeerRequest(id=header.id, payload=payload)
    return PeerResponse(id=header.id, payload=None if header.size is None else payload)
