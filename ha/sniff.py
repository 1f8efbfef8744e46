"""
Which HA protocol an accepted connection speaks, by its first four bytes.

RocketMQ has two: AutoSwitch (controller mode, begins with int32 1 or 2) and classic (4.x, begins with the int64 end of
the slave's log). Neither has a magic. Not here: serving them; ``ha.transport`` closes such a link with a clear line.
"""

from __future__ import annotations

from enum import Enum

from rollcall_ha.ha.codec_native import MAGIC
from rollcall_ha.ha.errors import FrameCorrupt

SNIFF_BYTES = 4
_AUTOSWITCH_STATES = (1, 2)


class Protocol(Enum):
    """Protocols that a broker may meet on its HA address."""

    NATIVE = "native"
    AUTOSWITCH = "autoswitch"
    CLASSIC = "classic"


def sniff(first: bytes) -> Protocol:
    """
    Tell the protocol by a connection's first four bytes.

    A classic slave whose log ends between 4 and 12 GiB looks like AutoSwitch: RocketMQ cannot tell them apart either.

    Raises:
        FrameCorrupt: none of them.
    """
    if first == MAGIC:
        return Protocol.NATIVE
    state = int.from_bytes(first, "big", signed=True)
    if state in _AUTOSWITCH_STATES:
        return Protocol.AUTOSWITCH
    if state >= 0:
        return Protocol.CLASSIC
    raise FrameCorrupt(f"a connection begins with {first.hex()}, which is no HA protocol")
