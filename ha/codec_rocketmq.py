"""
Bytes of RocketMQ's HA protocols: AutoSwitch (controller mode) and classic (4.x, no controller).

AutoSwitch, big-endian:
    slave   handshake   int32 1, int16 syncFromLastFile, int16 asyncLearner, int64 id
            report      int32 2, int64 max offset
    master  handshake   int32 1, int32 12n, int64 max offset, int32 last epoch, n x (int32 epoch, int64 start)
            transfer    int32 2, int32 body, int64 offset, int32 epoch, int64 start, int64 confirm; then the body
Classic:
    slave   report      int64 max offset
    master  transfer    int64 offset, int32 body; then the body

There is no magic, no checksum and no length before a frame: whatever is not exactly one of these closes the link.
Not here: the rules of a link with a Java peer; ``ha.service`` does not open one.
Rule: only ``HaProtocolError`` and its children are raised on a peer's bytes; memory is bounded by the limits below.
"""

from __future__ import annotations

import struct
from enum import Enum

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.ha.codec_native import MAGIC
from rollcall_ha.ha.decoder import HeaderDecoder
from rollcall_ha.ha.errors import FrameCorrupt, FrameTooLarge, FrameUnexpected
from rollcall_ha.ha.frames import (
    AutoSwitchHandshake,
    AutoSwitchHandshakeReply,
    AutoSwitchMasterFrame,
    AutoSwitchReport,
    AutoSwitchSlaveFrame,
    AutoSwitchTransfer,
    ClassicReport,
    ClassicTransfer,
)

AUTOSWITCH_EPOCHS_MAX = 1000
"""Java's handshake buffer holds so many (W21)."""
ROCKETMQ_BODY_BYTES_MAX = 4 * 1024 * 1024
"""Java's receive buffer; header and body must fit."""
SNIFF_BYTES = 4

_HANDSHAKE_STATE, _TRANSFER_STATE = 1, 2
_SLAVE_HANDSHAKE = struct.Struct(">ihhq")
_SLAVE_REPORT = struct.Struct(">iq")
_MASTER_HANDSHAKE = struct.Struct(">iiqi")
_MASTER_TRANSFER = struct.Struct(">iiqiqq")
_ENTRY = struct.Struct(">iq")
_STATE = struct.Struct(">i")
_CLASSIC_REPORT = struct.Struct(">q")
_CLASSIC_TRANSFER = struct.Struct(">qi")


class Protocol(Enum):
    """What an accepted connection speaks."""

    NATIVE = "native"
    AUTOSWITCH = "autoswitch"
    CLASSIC = "classic"


def sniff(first: bytes) -> Protocol:
    """
    Tell the protocol by a connection's first four bytes.

    A classic slave whose log ends between 4 and 12 GiB looks like AutoSwitch: the reference cannot tell them either.

    Raises:
        FrameCorrupt: none of them.
    """
    if first == MAGIC:
        return Protocol.NATIVE
    (state,) = _STATE.unpack(first)
    if state in (_HANDSHAKE_STATE, _TRANSFER_STATE):
        return Protocol.AUTOSWITCH
    if state >= 0:
        return Protocol.CLASSIC
    raise FrameCorrupt(f"a connection begins with {first.hex()}, which is no HA protocol")


def encode_autoswitch(frame: AutoSwitchSlaveFrame | AutoSwitchMasterFrame) -> bytes:
    """
    The bytes of a frame; a transfer's body goes behind them.

    Raises ``FrameTooLarge`` for more than ``AUTOSWITCH_EPOCHS_MAX`` entries or a number that has no place.
    """
    try:
        match frame:
            case AutoSwitchHandshake():
                flags = frame.is_sync_from_last_file, frame.is_async_learner
                return _SLAVE_HANDSHAKE.pack(_HANDSHAKE_STATE, *flags, frame.broker_id)
            case AutoSwitchReport():
                return _SLAVE_REPORT.pack(_TRANSFER_STATE, frame.offset)
            case AutoSwitchHandshakeReply():
                if len(frame.entries) > AUTOSWITCH_EPOCHS_MAX:
                    raise FrameTooLarge(f"{len(frame.entries)} epochs, the limit is {AUTOSWITCH_EPOCHS_MAX}")
                body = b"".join(_ENTRY.pack(entry.epoch, entry.start_offset) for entry in frame.entries)
                return _MASTER_HANDSHAKE.pack(_HANDSHAKE_STATE, len(body), frame.max_offset, frame.last_epoch) + body
            case AutoSwitchTransfer():
                return _MASTER_TRANSFER.pack(
                    _TRANSFER_STATE,
                    frame.body_length,
                    frame.offset,
                    frame.epoch,
                    frame.epoch_start,
                    frame.confirm_offset,
                )
    except struct.error as error:
        raise FrameTooLarge(f"{frame} does not fit the layout: {error}") from None


def encode_classic(frame: ClassicReport | ClassicTransfer) -> bytes:
    """The bytes of a classic frame; a body goes behind them."""
    if isinstance(frame, ClassicReport):
        return _CLASSIC_REPORT.pack(frame.offset)
    return _CLASSIC_TRANSFER.pack(frame.offset, frame.body_length)


class AutoSwitchSlaveDecoder(HeaderDecoder[AutoSwitchSlaveFrame]):
    """What an AutoSwitch slave says. The full 16 bytes of a handshake are waited for (W22)."""

    def _first_size(self) -> int:
        return _STATE.size

    def _next_size(self, header: bytes) -> int:
        return _SLAVE_HANDSHAKE.size if _state(header) == _HANDSHAKE_STATE else _SLAVE_REPORT.size

    def _parse(self, header: bytes) -> tuple[AutoSwitchSlaveFrame, int]:
        if _state(header) == _TRANSFER_STATE:
            return AutoSwitchReport(offset=LogOffset(_SLAVE_REPORT.unpack(header)[1])), 0
        _, last_file, learner, broker_id = _SLAVE_HANDSHAKE.unpack(header)
        return (
            AutoSwitchHandshake(
                broker_id=BrokerId(broker_id), is_sync_from_last_file=_flag(last_file), is_async_learner=_flag(learner)
            ),
            0,
        )


class AutoSwitchMasterDecoder(HeaderDecoder[AutoSwitchMasterFrame]):
    """What an AutoSwitch master says."""

    def _first_size(self) -> int:
        return _STATE.size

    def _next_size(self, header: bytes) -> int:
        if _state(header) == _TRANSFER_STATE:
            return _MASTER_TRANSFER.size
        if len(header) < _MASTER_HANDSHAKE.size:
            return _MASTER_HANDSHAKE.size
        listed: int = _MASTER_HANDSHAKE.unpack_from(header)[1]
        if listed < 0 or listed % _ENTRY.size:
            raise FrameCorrupt(f"handshake body of {listed} bytes is no multiple of {_ENTRY.size}")
        if listed > AUTOSWITCH_EPOCHS_MAX * _ENTRY.size:
            raise FrameTooLarge(f"{listed // _ENTRY.size} epochs, the limit is {AUTOSWITCH_EPOCHS_MAX}")
        return _MASTER_HANDSHAKE.size + listed

    def _parse(self, header: bytes) -> tuple[AutoSwitchMasterFrame, int]:
        if _state(header) == _HANDSHAKE_STATE:
            _, _, max_offset, last_epoch = _MASTER_HANDSHAKE.unpack_from(header)
            listed = _ENTRY.iter_unpack(memoryview(header)[_MASTER_HANDSHAKE.size :])
            entries = tuple(EpochEntry(epoch=MasterEpoch(e), start_offset=LogOffset(s)) for e, s in listed)
            return (
                AutoSwitchHandshakeReply(
                    max_offset=LogOffset(max_offset), last_epoch=MasterEpoch(last_epoch), entries=entries
                ),
                0,
            )
        _, body, offset, epoch, start, confirm = _MASTER_TRANSFER.unpack(header)
        _check_body(body)
        return (
            AutoSwitchTransfer(
                body_length=body,
                offset=offset,
                epoch=MasterEpoch(epoch),
                epoch_start=LogOffset(start),
                confirm_offset=LogOffset(confirm),
            ),
            body,
        )


class ClassicSlaveDecoder(HeaderDecoder[ClassicReport]):
    """What a classic slave says."""

    def _first_size(self) -> int:
        return _CLASSIC_REPORT.size

    def _next_size(self, header: bytes) -> int:
        return len(header)

    def _parse(self, header: bytes) -> tuple[ClassicReport, int]:
        return ClassicReport(offset=LogOffset(_CLASSIC_REPORT.unpack(header)[0])), 0


class ClassicMasterDecoder(HeaderDecoder[ClassicTransfer]):
    """What a classic master says."""

    def _first_size(self) -> int:
        return _CLASSIC_TRANSFER.size

    def _next_size(self, header: bytes) -> int:
        return len(header)

    def _parse(self, header: bytes) -> tuple[ClassicTransfer, int]:
        offset, body = _CLASSIC_TRANSFER.unpack(header)
        _check_body(body)
        return ClassicTransfer(offset=LogOffset(offset), body_length=body), body


def _state(header: bytes) -> int:
    state = int.from_bytes(header[: _STATE.size], "big", signed=True)
    if state not in (_HANDSHAKE_STATE, _TRANSFER_STATE):
        raise FrameUnexpected(f"state {state}, only handshake (1) and transfer (2) are ever sent")
    return state


def _flag(value: int) -> bool:
    if value not in (0, 1):
        raise FrameCorrupt(f"flag is {value}, not 0 or 1")
    return value == 1


def _check_body(length: int) -> None:
    if length < 0:
        raise FrameCorrupt(f"body of {length} bytes")
    if length > ROCKETMQ_BODY_BYTES_MAX:
        raise FrameTooLarge(f"body of {length} bytes, the limit is {ROCKETMQ_BODY_BYTES_MAX}")
