"""
What simulated processes say to each other where the shells of production use remoting frames.

Here: envelopes only; what is inside are the values of ``controller.contract`` and ``ha.frames``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.ha.frames import NativeFrame


@dataclass(frozen=True, slots=True)
class Ask:
    """A request on a session, to be answered by ``Answer`` with the same number."""

    number: int
    body: object
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """``body`` is an ``AnyReply``, a ``HeartbeatAck``, or a ``LeaderHint`` from who does not lead; None = outcome unknown."""

    number: int
    body: object


@dataclass(frozen=True, slots=True)
class OneWay:
    """A ``RoleNotice`` down, a ``LinkReport`` up."""

    body: object


@dataclass(frozen=True, slots=True)
class FindLeader:
    """Asks any controller."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One frame of an HA link with the log bytes that follow it."""

    frame: NativeFrame
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Send:
    """One message of a producer."""

    number: int
    producer_id: bytes
    producer_epoch: int
    sequence: int
    value: int


@dataclass(frozen=True, slots=True)
class PutOk:
    """The only acknowledgement."""

    number: int
    end: LogOffset
    master_epoch: MasterEpoch
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class NotAppended:
    """Definitely not in this replica's log; ``master`` is a hint: where the master listens."""

    number: int
    reason: str
    master: str | None = None


@dataclass(frozen=True, slots=True)
class PutUnknown:
    """May be in the log: the same sequence must be sent again."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Pull:
    """A consumer asks for what is at ``offset`` (R19)."""

    number: int
    offset: LogOffset


@dataclass(frozen=True, slots=True)
class Pulled:
    """Bytes up to confirm; none = retry; ``is_legal`` False = the offset is beyond the log."""

    number: int
    next_offset: LogOffset
    is_legal: bool
    max_offset: LogOffset


@dataclass(frozen=True, slots=True)
class Probe:
    """Which incarnation lives here (R13)."""
