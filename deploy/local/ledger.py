"""
The promises that producers got: ``ledger.jsonl``, one JSON object per acknowledged message.

Here: its lines, and the interruption that they show. ``audit`` reads it with code of its own.
Rule 1: a line is written only after PUT_OK; whole lines only, one append for each batch: producers may share it.
Rule 2: ``ackedAtNs`` is CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.values import Frozen, Value
from rollcall_ha.node.files import write_all

LEDGER_FILE_NAME = "ledger.jsonl"


class Line(Value):
    key: str
    set: str
    topic: str
    queue_id: int
    queue_offset: int | None
    physical_offset: int | None
    """None: only a duplicate's answer arrived, which does not say where the message lies."""
    body_sha256: str = msgspec.field(name="bodySha256")
    acked_at_ns: int
    acked_by: str = ""
    """Listen address (host:port) of the broker that acknowledged it; empty = not known."""


_decode_line = msgspec.json.Decoder(Line).decode


def offset_of(message_id: str) -> int | None:
    """Physical offset in an offsetMsgId (address, port and int64 in hex), None without one."""
    return int(message_id[-16:], 16) if len(message_id) in (32, 56) else None


class LedgerWriter:
    """Appends to a ledger."""

    def __init__(self, directory: Path) -> None:
        """Open ``directory/ledger.jsonl``, which may exist."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._descriptor = os.open(directory / LEDGER_FILE_NAME, flags, 0o644)
        self._encoder = msgspec.json.Encoder()

    def append(self, lines: Sequence[Line]) -> None:
        """All of them in one write."""
        write_all(self._descriptor, b"".join(self._encoder.encode(line) + b"\n" for line in lines))

    def close(self) -> None:
        os.close(self._descriptor)


def read(directory: Path) -> list[Line]:
    """Every whole line, in the order of writing; none if there is no ledger."""
    try:
        content = (directory / LEDGER_FILE_NAME).read_bytes()
    except FileNotFoundError:
        return []
    return [_decode_line(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


class Interruption(Frozen):
    """A fault as producers see it."""

    gap_ms: float
    """The time without an acknowledgement."""
    total_ms: float
    """From the fault to the acknowledgement that ended the gap."""


def interruption(acked_at_ns: Sequence[int], fault_at_ns: int) -> Interruption | None:
    """
    The longest gap between two acknowledgements of which the later one came after ``fault_at_ns``.

    None if there was no acknowledgement before it or none after it.
    """
    stamps = sorted(acked_at_ns)
    gaps = [(later - sooner, later) for sooner, later in itertools.pairwise(stamps) if later > fault_at_ns]
    if not gaps:
        return None
    gap_ns, ended_at_ns = max(gaps)
    return Interruption(gap_ms=gap_ns / 1e6, total_ms=(ended_at_ns - fault_at_ns) / 1e6)


def failover(lines: Sequence[Line], dead: str, fault_at_ns: int) -> Interruption | None:
    """
    From the last acknowledgement of the broker at the address ``dead`` to the first one of another broker.

    Both around ``fault_at_ns``: pauses that a slow machine makes before or afterwards are not the failover's.
    None if no other broker acknowledged after the fault, or the dead one never did.
    """
    last_ns = max((line.acked_at_ns for line in lines if line.acked_by == dead), default=None)
    others_ns = (line.acked_at_ns for line in lines if line.acked_by != dead and line.acked_at_ns > fault_at_ns)
    first_ns = min(others_ns, default=None)
    if last_ns is None or first_ns is None:
        return None
    return Interruption(gap_ms=(first_ns - last_ns) / 1e6, total_ms=(first_ns - fault_at_ns) / 1e6)
