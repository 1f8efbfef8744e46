"""
One record of RocketMQ's log in place, as readers of answers and of the log see it (``docs/wire.md``, commit log).

Here: a lazy view of one. Not here: packing, walking and checking records (``broker.log.record``), which take a library
that clients do not have.

Rule: decoding nonsense raises ``RecordError`` and nothing else.
"""

from __future__ import annotations

import struct
from typing import Final

from rollcall_ha.epoch.model import LogOffset

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""Topic longer than 127 bytes: its length takes two."""
RECORD_BYTES_MIN: Final = 74 + 8 + 8 + 1 + 1

SYS_FLAG_BORN_IPV6: Final = 1 << 4
SYS_FLAG_STORE_IPV6: Final = 1 << 5

_SIZE_MAGIC = struct.Struct(">II")
_INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")


class RecordError(ValueError):
    """These bytes are not a record, or this draft does not fit into one; the message names the field and its value."""


class RecordView:
    """
    One record in place: fields are decoded when asked for. Release the underlying view when done.

    Raises ``RecordError`` at construction unless sizes and magic agree with each other and with ``view``.
    """

    __slots__ = (
        "_at",
        "_body_at",
        "_body_bytes",
        "_properties_at",
        "_properties_bytes",
        "_topic_at",
        "_topic_bytes",
        "_view",
        "size_bytes",
    )

    def __init__(self, view: memoryview, at: int = 0) -> None:
        """Find the variable parts; reads the lengths only."""
        self._view, self._at = view, at
        try:
            self.size_bytes, magic = _SIZE_MAGIC.unpack_from(view, at)
            if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_BYTES_MIN <= self.size_bytes <= len(view) - at:
                raise RecordError(f"magic {magic:#010x}, size {self.size_bytes} with {len(view) - at} bytes left")
            sys_flag = self.sys_flag
            position = at + 48 + (20 if sys_flag & SYS_FLAG_BORN_IPV6 else 8) + 8
            position += (20 if sys_flag & SYS_FLAG_STORE_IPV6 else 8) + 12
            (self._body_bytes,) = _UINT32.unpack_from(view, position)
            self._body_at = position + 4
            position = self._body_at + self._body_bytes
            if position + 4 > at + self.size_bytes:
                raise RecordError(f"a body of {self._body_bytes} bytes in a record of {self.size_bytes}")
            if magic == MAGIC_V1:
                self._topic_bytes, self._topic_at = view[position], position + 1
            else:
                (self._topic_bytes,), self._topic_at = _UINT16.unpack_from(view, position), position + 2
            position = self._topic_at + self._topic_bytes
            (self._properties_bytes,) = _UINT16.unpack_from(view, position)
            self._properties_at = position + 2
        except (struct.error, IndexError) as error:
            raise RecordError(f"a record that ends before its fields do: {error}") from error
        if self._properties_at + self._properties_bytes != at + self.size_bytes:
            raise RecordError(f"the parts of a record of {self.size_bytes} bytes do not add up")

    @property
    def body_crc(self) -> int:
        """CRC-32 of the stored body, without its highest bit."""
        return int.from_bytes(self._view[self._at + 8 : self._at + 12], "big")

    @property
    def queue_id(self) -> int:
        """Queue of the topic."""
        return int.from_bytes(self._view[self._at + 12 : self._at + 16], "big", signed=True)

    @property
    def flag(self) -> int:
        return int.from_bytes(self._view[self._at + 16 : self._at + 20], "big", signed=True)

    @property
    def queue_offset(self) -> int:
        """Index in the consume queue."""
        return int.from_bytes(self._view[self._at + 20 : self._at + 28], "big", signed=True)

    @property
    def physical_offset(self) -> LogOffset:
        """Where the record says that it is."""
        return LogOffset(int.from_bytes(self._view[self._at + 28 : self._at + 36], "big", signed=True))

    @property
    def sys_flag(self) -> int:
        """Compression, transaction state, kinds of hosts."""
        found: int = _UINT32.unpack_from(self._view, self._at + 36)[0]
        return found

    @property
    def born_at_ms(self) -> int:
        found: int = _INT64.unpack_from(self._view, self._at + 40)[0]
        return found

    @property
    def _born_bytes(self) -> int:
        return 20 if self.sys_flag & SYS_FLAG_BORN_IPV6 else 8

    @property
    def born_host(self) -> bytes:
        """4 or 16 bytes of IP and an int32 port: of its sender."""
        return bytes(self._view[self._at + 48 : self._at + 48 + self._born_bytes])

    @property
    def stored_at_ms(self) -> int:
        at = self._at + 48 + self._born_bytes
        found: int = _INT64.unpack_from(self._view, at)[0]
        return found

    @property
    def store_host(self) -> bytes:
        """4 or 16 bytes of IP and an int32 port: of the broker that took it."""
        at = self._at + 56 + self._born_bytes
        return bytes(self._view[at : at + (20 if self.sys_flag & SYS_FLAG_STORE_IPV6 else 8)])

    @property
    def reconsume_times(self) -> int:
        """How often consumers have sent it back."""
        return int.from_bytes(self._view[self._body_at - 16 : self._body_at - 12], "big", signed=True)

    @property
    def body(self) -> memoryview:
        """As stored: maybe compressed."""
        return self._view[self._body_at : self._body_at + self._body_bytes]

    @property
    def topic(self) -> bytes:
        return bytes(self._view[self._topic_at : self._topic_at + self._topic_bytes])

    @property
    def properties(self) -> bytes:
        """``name 0x01 value 0x02`` repeated."""
        return bytes(self._view[self._properties_at : self._properties_at + self._properties_bytes])
