"""
Errors of an HA link, as exceptions and as codes on the wire.

Rule 1: for any bytes of a peer a codec raises ``HaProtocolError`` or one of its children and nothing else.
Rule 2: an error closes the link that it happened on, and nothing else.
"""

from __future__ import annotations

from enum import IntEnum


class HaError(Exception):
    """Root of this package's errors."""


class HaProtocolError(HaError):
    """The peer's bytes make no sense here; the message has both values."""


class FrameCorrupt(HaProtocolError):
    """Magic or CRC do not match."""


class FrameTooLarge(HaProtocolError):
    """An announced length is above the limit; nothing was reserved for it."""


class VersionUnknown(HaProtocolError):
    """A version or a kind of frame that this program does not speak."""


class FrameUnexpected(HaProtocolError):
    """A well-formed frame at the wrong moment or from the wrong side."""


class ReceivedDamaged(ValueError):
    """Bytes of a peer that are records, and not the ones that were stored: told by the log that was to take them."""


class ErrorCode(IntEnum):
    """Why a native link ends, as the error frame says it. Numbers are part of the protocol."""

    PROTOCOL = 1
    """The peer sent bytes or a frame that it must not."""
    WRONG_SET = 2
    """Cluster, set or fleet incarnation differ (S64, S66)."""
    WRONG_PEER = 3
    """Broker id or incarnation are not the expected ones."""
    NOT_MASTER = 4
    """The accepting broker has no reign."""
    EPOCH_STALE = 5
    """The peer's masterEpoch is lower than the sender's: it asks the controllers (R21)."""
    EPOCH_UNKNOWN = 6
    """The peer's masterEpoch is higher than the sender's: the sender asks the controllers (R21)."""
    OFFSET_UNSERVED = 7
    """The master has no bytes, or no epoch, at the offset that was asked for (W16)."""
    LINK_REPLACED = 8
    """The same replica opened a newer link (W10)."""
    REIGN_ENDED = 9
    """The master left its epoch (R12)."""
    IDLE = 10
    """Nothing was heard for too long."""
    CODEC_UNSUPPORTED = 11
    """This address does not serve the protocol that the peer speaks."""
    LOG_FAILED = 12
    """The log could not take or give bytes; the disk is full or broken."""
    STOPPING = 13
    """The broker closes its links on purpose."""
    CUT_REFUSED = 14
    """The follower will not cut below its own confirm offset (R26), or could not cut."""
    WRONG_SEGMENTS = 15
    """The two logs have segments of different sizes: bytes of one have no place in the other."""
    RECORD_DAMAGED = 16
    """A body does not match its CRC: the master's disk or memory, or the way, has changed it."""
    CERTIFICATE_REFUSED = 17
    """The peer's certificate gives it no right to this link, or none any more."""
