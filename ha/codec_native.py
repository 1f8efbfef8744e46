"""
Bytes of the native HA protocol.

    offset  size
    0       4     magic "RCHA"
    4       1     version, 1
    5       1     kind
    6       2     0
    8       4     payload length n
    12      4     body length
    16      n     payload, by kind; integers are big-endian, strings are one length byte and UTF-8
    16 + n  4     CRC-32 of everything before it

After the CRC follow body-length raw log bytes (transfers only). They go by sendfile and carry their records' own CRCs.

Rule 1: only ``HaProtocolError`` and its children are raised on a peer's bytes.
Rule 2: nothing is reserved for an announced length above the limits.
Rule 3: every frame has one encoding: decoded and encoded again it is the same bytes.
"""

from __future__ import annotations

import struct
import zlib

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SetKey,
)
from rollcall_ha.epoch.history import EpochHistory, EpochOrderError
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.ha.errors import ErrorCode, FrameCorrupt, FrameTooLarge, VersionUnknown
from rollcall_ha.ha.frames import Ack, Handshake, HandshakeReply, LinkError, NativeFrame, Transfer

MAGIC = b"RCHA"
VERSION = 1
PREFIX_BYTES = 16
CRC_BYTES = 4
PAYLOAD_BYTES_MAX = 1024 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024
STRING_BYTES_MAX = 255
HISTORY_ENTRIES_MAX = 60_000
"""A longer history is sent without its oldest entries; the newest ones decide."""

EPOCH_MAX = 2**31 - 1
"""RocketMQ's wire has 31 bits, and controllers issue no more."""
NUMBER_MAX = 2**62
"""The bound of offsets and counters: sums of two of them have 63 bits."""

_PREFIX = struct.Struct(">4sBBHII")
_CRC = struct.Struct(">I")
_TRANSFER = struct.Struct(">6q")
_ACK = struct.Struct(">4qB")
_HANDSHAKE = struct.Struct(">6qB")
_REPLY = struct.Struct(">7qI")
_ENTRY = struct.Struct(">2q")
_ERROR = struct.Struct(">H2q")

_KIND_HANDSHAKE, _KIND_REPLY, _KIND_TRANSFER, _KIND_ACK, _KIND_ERROR = 1, 2, 3, 4, 5
_NO_ENTRY = -1


def encode(frame: NativeFrame) -> bytes:
    """
    Header bytes of a frame; a transfer's body goes behind them.

    Raises ``FrameTooLarge`` if a string or the body is above its limit: an error of the caller.
    """
    match frame:
        case Transfer():
            entry = frame.entry
            epoch, start = (entry.epoch, entry.start_offset) if entry else (_NO_ENTRY, 0)
            if not 0 <= frame.body_length <= BODY_BYTES_MAX:
                raise FrameTooLarge(f"body of {frame.body_length} bytes, the limit is {BODY_BYTES_MAX}")
            payload = _TRANSFER.pack(
                frame.master_epoch, frame.link_generation, epoch, start, frame.offset, frame.confirm_offset
            )
            return _framed(_KIND_TRANSFER, payload, frame.body_length)
        case Ack():
            payload = _ACK.pack(
                frame.master_epoch, frame.link_generation, frame.offset, frame.log_end, frame.is_promise_durable
            )
            return _framed(_KIND_ACK, payload + _string(frame.incarnation))
        case Handshake():
            return _framed(_KIND_HANDSHAKE, _handshake_payload(frame))
        case HandshakeReply():
            return _framed(_KIND_REPLY, _reply_payload(frame))
        case LinkError():
            payload = _ERROR.pack(frame.code, frame.master_epoch, frame.broker_id) + _string(frame.incarnation)
            return _framed(_KIND_ERROR, payload + _text(frame.expected) + _text(frame.actual))


class NativeDecoder:
    """
    Cuts a link's bytes, in pieces of any size, into frames; never holds more than one frame's header.

    After a frame with a body, ``body_left`` counts down: the bytes are not collected here, their place is the log.
    """

    def __init__(self) -> None:
        self._header = bytearray()
        self._size = PREFIX_BYTES
        self.body_left = 0
        """Bytes of the current body that are still to come."""

    @property
    def header_wanted(self) -> int:
        """Bytes up to the next boundary: a reader that takes at most so many never gets a byte of a body."""
        return self._size - len(self._header)

    @property
    def held_bytes(self) -> int:
        """The part of a header that has come, while it is not whole."""
        return len(self._header)

    def body_taken(self, length: int) -> None:
        """``length`` body bytes went straight to their place."""
        if not 0 < length <= self.body_left:
            raise ValueError(f"took {length} bytes of a body that has {self.body_left} left")
        self.body_left -= length

    def feed(self, data: memoryview) -> tuple[NativeFrame | None, int]:
        """
        Take header bytes from the front of ``data``; return a finished frame, if any, and how many bytes were taken.

        Raises:
            HaProtocolError: this link cannot go on.
        """
        if self.body_left:
            raise ValueError(f"{self.body_left} body bytes come first")
        taken = 0
        while taken < len(data):
            piece = data[taken : taken + self.header_wanted]
            self._header += piece
            taken += len(piece)
            if self.header_wanted:
                break
            if len(self._header) == PREFIX_BYTES:
                # Judged before one more byte is kept: a prefix that announces 4 GiB ends the link here.
                self._size = self._header_size(bytes(self._header))
                continue
            header = bytes(self._header)
            self._header.clear()
            self._size = PREFIX_BYTES
            frame, self.body_left = self._parse(header)
            return frame, taken
        return None, taken

    def _header_size(self, header: bytes) -> int:
        magic, version, kind, zero, payload_bytes, body_bytes = _PREFIX.unpack(header)
        # One lost byte of a body shifts all that follows: without the magic, log bytes would be read as acks.
        if magic != MAGIC:
            raise FrameCorrupt(f"magic is {magic.hex()}, expected {MAGIC.hex()}")
        if version != VERSION:
            raise VersionUnknown(f"version {version}, this program speaks {VERSION}")
        if not _KIND_HANDSHAKE <= kind <= _KIND_ERROR or zero != 0:
            raise VersionUnknown(f"kind {kind} with reserved {zero}, version {VERSION} has kinds 1 to {_KIND_ERROR}")
        if payload_bytes > PAYLOAD_BYTES_MAX:
            raise FrameTooLarge(f"payload of {payload_bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}")
        # Only transfers have bodies: announced behind an ack, a body would leave the reader waiting, and the link deaf.
        if body_bytes > (BODY_BYTES_MAX if kind == _KIND_TRANSFER else 0):
            raise FrameTooLarge(f"kind {kind} with a body of {body_bytes} bytes, the limit is {BODY_BYTES_MAX}")
        return PREFIX_BYTES + int(payload_bytes) + CRC_BYTES

    def _parse(self, header: bytes) -> tuple[NativeFrame, int]:
        end = len(header) - CRC_BYTES
        (stored,) = _CRC.unpack_from(header, end)
        crc = zlib.crc32(memoryview(header)[:end])
        # A flipped bit in an ack's offset is an offset: it would confirm bytes that the slave does not have.
        if crc != stored:
            raise FrameCorrupt(f"CRC of the header is {crc:08x}, stored is {stored:08x}")
        _, _, kind, _, _, body_bytes = _PREFIX.unpack_from(header)
        reader = _Reader(header, PREFIX_BYTES, end)
        frame = _parse(kind, reader, body_bytes)
        reader.finish()
        return frame, body_bytes


# --- encoding --------------------------------------------------------------------------------------------------------


def _framed(kind: int, payload: bytes, body_length: int = 0) -> bytes:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise FrameTooLarge(f"payload of {len(payload)} bytes, the limit is {PAYLOAD_BYTES_MAX}")
    header = _PREFIX.pack(MAGIC, VERSION, kind, 0, len(payload), body_length) + payload
    return header + _CRC.pack(zlib.crc32(header))


def _string(value: str) -> bytes:
    raw = value.encode()
    if len(raw) > STRING_BYTES_MAX:
        raise FrameTooLarge(f"string of {len(raw)} bytes, the limit is {STRING_BYTES_MAX}: {value[:40]!r}")
    return bytes((len(raw),)) + raw


def _text(value: str) -> bytes:
    """Words for a human: cut rather than refused."""
    raw = value.encode(errors="replace")[:STRING_BYTES_MAX]
    return _string(raw.decode(errors="ignore"))


def _handshake_payload(frame: Handshake) -> bytes:
    numbers = _HANDSHAKE.pack(
        frame.master_epoch,
        frame.broker_id,
        frame.expected_master,
        frame.last_epoch,
        frame.max_offset,
        frame.segment_bytes,
        frame.is_learner,
    )
    names = (frame.set_key.cluster, frame.set_key.name, frame.fleet_incarnation)
    return numbers + b"".join(map(_string, (*names, frame.incarnation, frame.expected_master_incarnation)))


def _reply_payload(frame: HandshakeReply) -> bytes:
    entries = frame.history.entries[-HISTORY_ENTRIES_MAX:]
    numbers = _REPLY.pack(
        frame.master_epoch,
        frame.broker_id,
        frame.link_generation,
        frame.min_offset,
        frame.max_offset,
        frame.confirm_offset,
        frame.unclean_epoch,
        len(entries),
    )
    listed = b"".join(_ENTRY.pack(entry.epoch, entry.start_offset) for entry in entries)
    names = (frame.set_key.cluster, frame.set_key.name, frame.fleet_incarnation, frame.incarnation)
    return numbers + listed + b"".join(map(_string, names))


# --- decoding --------------------------------------------------------------------------------------------------------


class _Reader:
    """Walks one payload; running out of bytes is ``FrameCorrupt``."""

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self._data = data
        self._position = position
        self._end = end

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack_from(self._data, self._advance(layout.size))

    def string(self) -> str:
        length = self._data[self._advance(1)]
        start = self._advance(length)
        try:
            return self._data[start : start + length].decode()
        except UnicodeDecodeError as error:
            raise FrameCorrupt(f"a string is not UTF-8: {error.reason}") from None

    def finish(self) -> None:
        if self._position != self._end:
            raise FrameCorrupt(f"{self._end - self._position} bytes behind the payload's last field")

    def _advance(self, length: int) -> int:
        start = self._position
        if start + length > self._end:
            raise FrameCorrupt(f"payload ends {start + length - self._end} bytes too early")
        self._position = start + length
        return start


def _parse(kind: int, reader: _Reader, body_length: int) -> NativeFrame:
    match kind:
        case 1:
            return _parse_handshake(reader)
        case 2:
            return _parse_reply(reader)
        case 3:
            return _parse_transfer(reader, body_length)
        case 4:
            epoch, generation, offset, log_end, durable = reader.numbers(_ACK)
            return Ack(
                master_epoch=_epoch(epoch),
                link_generation=_natural(generation),
                offset=LogOffset(_natural(offset)),
                # An ack beyond the sender's own end acks bytes that it does not have.
                log_end=LogOffset(_natural(log_end, lowest=offset)),
                is_promise_durable=_flag(durable),
                incarnation=Incarnation(reader.string()),
            )
        case _:
            return _parse_error(reader)


def _parse_transfer(reader: _Reader, body_length: int) -> Transfer:
    master_epoch, generation, epoch, start, offset, confirm = reader.numbers(_TRANSFER)
    # Bytes without an epoch could only be guessed into one, and would be cut, or kept, wrongly at the next handshake.
    if epoch == _NO_ENTRY and (body_length or start):
        raise FrameCorrupt(f"{body_length} bytes from {offset} belong to no epoch")
    return Transfer(
        master_epoch=_epoch(master_epoch),
        link_generation=_natural(generation),
        entry=None if epoch == _NO_ENTRY else _entry(epoch, start),
        offset=LogOffset(_natural(offset)),
        body_length=body_length,
        confirm_offset=LogOffset(_natural(confirm)),
    )


def _parse_handshake(reader: _Reader) -> Handshake:
    epoch, broker_id, expected_master, last_epoch, max_offset, segment_bytes, learner = reader.numbers(_HANDSHAKE)
    return Handshake(
        master_epoch=_epoch(epoch),
        broker_id=BrokerId(_natural(broker_id)),
        expected_master=BrokerId(_natural(expected_master)),
        last_epoch=_epoch(last_epoch, lowest=-1),
        max_offset=LogOffset(_natural(max_offset)),
        segment_bytes=_natural(segment_bytes),
        is_learner=_flag(learner),
        set_key=SetKey(ClusterName(reader.string()), BrokerName(reader.string())),
        fleet_incarnation=FleetIncarnation(reader.string()),
        incarnation=Incarnation(reader.string()),
        expected_master_incarnation=Incarnation(reader.string()),
    )


def _parse_reply(reader: _Reader) -> HandshakeReply:
    epoch, broker_id, generation, low, high, confirm, unclean, count = reader.numbers(_REPLY)
    if count > HISTORY_ENTRIES_MAX:
        raise FrameTooLarge(f"history of {count} epochs, the limit is {HISTORY_ENTRIES_MAX}")
    entries = [_entry(*reader.numbers(_ENTRY)) for _ in range(count)]
    try:
        history = EpochHistory(entries)
    except EpochOrderError as error:
        # Cutting searches in the list by bisection: an unordered one gives any point at all.
        raise FrameCorrupt(f"history does not grow: {error}") from None
    return HandshakeReply(
        master_epoch=_epoch(epoch),
        broker_id=BrokerId(_natural(broker_id)),
        link_generation=_natural(generation),
        min_offset=LogOffset(_natural(low)),
        max_offset=LogOffset(_natural(high, lowest=low)),
        confirm_offset=LogOffset(_natural(confirm)),
        unclean_epoch=_epoch(unclean, lowest=-1),
        history=history,
        set_key=SetKey(ClusterName(reader.string()), BrokerName(reader.string())),
        fleet_incarnation=FleetIncarnation(reader.string()),
        incarnation=Incarnation(reader.string()),
    )


def _parse_error(reader: _Reader) -> LinkError:
    code, epoch, broker_id = reader.numbers(_ERROR)
    if code not in ErrorCode._value2member_map_:
        raise VersionUnknown(f"error code {code}, version {VERSION} has 1 to {max(ErrorCode)}")
    return LinkError(
        code=ErrorCode(code),
        master_epoch=_epoch(epoch, lowest=-1),
        broker_id=BrokerId(_natural(broker_id)),
        incarnation=Incarnation(reader.string()),
        expected=reader.string(),
        actual=reader.string(),
    )


def _natural(value: int, *, lowest: int = 0) -> int:
    if not lowest <= value <= NUMBER_MAX:
        raise FrameCorrupt(f"{value} where {lowest} to {NUMBER_MAX} belongs")
    return value


def _epoch(value: int, *, lowest: int = 0) -> MasterEpoch:
    # An epoch that no controller can issue: recorded with a byte of log, it would stand above all real ones.
    if not lowest <= value <= EPOCH_MAX:
        raise FrameCorrupt(f"masterEpoch {value}, there are {lowest} to {EPOCH_MAX}")
    return MasterEpoch(value)


def _flag(value: int) -> bool:
    if value not in (0, 1):
        raise FrameCorrupt(f"flag is {value}, not 0 or 1")
    return value == 1


def _entry(epoch: int, start: int) -> EpochEntry:
    return EpochEntry(epoch=_epoch(epoch), start_offset=LogOffset(_natural(start)))
