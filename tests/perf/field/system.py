"""
What every system beside us is to the bench: three members, a client of one attempt, whom to strike.

Here: the protocols, what is told of a system before it runs, what cannot be had. Not here: the loop of the client
(``writing``), faults and their rows (``measuring``, ``rows``), the systems themselves (a module each).

Rule 1: a system starts processes on loopback, at free ports, below the directory that it is given, and signals no other.
Rule 2: an attempt is one write at one address. It returns when the write is acknowledged; whatever else comes, comes as
``RefusedError`` or ``OSError`` within ``ATTEMPT_MS_MAX``. It asks nobody where the master is, and tries nothing again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rollcall_ha.deploy.local.processes import LauncherError

ATTEMPT_MS_MAX = 200
"""For an attempt, its dial among it: a master that hangs costs the client so much each time it asks there."""
BODY = b"x" * 1024
READY_S_MAX = 120.0
"""From the start of the first process until writes are taken and replicated."""
HOST = "127.0.0.1"
MEMBERS = 3


class Fault(enum.StrEnum):
    """What is done to a system under writes."""

    KILL = "kill"
    STOP = "stop"
    DECIDER = "decider"
    BOTH = "both"


class Column(enum.StrEnum):
    """Whose settings."""

    DEFAULT = "default"
    TUNED = "tuned"


class RefusedError(Exception):
    """The address answered, and did not take the write: it is no master, or not yet."""


class UnavailableError(LauncherError):
    """A system cannot be had on this machine; the message says what was tried."""


class Client(Protocol):
    """Links of one thread."""

    def attempt(self, address: str) -> None:
        """One write (rule 2). Raises ``RefusedError``, ``OSError``."""

    def close(self) -> None:
        """Leave every link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Master:
    """The member that takes writes, and all of its processes."""

    address: str
    pids: tuple[int, ...]


class System(Protocol):
    """Three members in one directory. Not for several threads, but for its clients."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of every member that may be written to."""

    def start(self) -> None:
        """Returns when all members run and hold what is written. Raises ``LauncherError``."""

    def client(self) -> Client:
        """Whoever calls this closes it, on the same thread."""

    def master(self) -> Master:
        """Who it is now. Raises ``LauncherError`` if nobody is."""

    def decider(self) -> tuple[int, ...]:
        """Processes of the one that decides who is master. Raises ``LauncherError`` if nobody is."""

    def stop(self) -> None:
        """Every process is gone afterwards, those that hang too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A system before it runs, as the table tells it."""

    name: str
    title: str
    acknowledged: str
    """Who has a write when its client is told."""
    decider: str
    """Who decides, and what is killed for it."""
    settings: Mapping[Column, str]
    """In words that its users know."""
    obtain: Callable[[], str]
    """Its version, ready to be started. Raises ``UnavailableError``."""
    make: Callable[[Path, Column], System]
    """In an empty directory; nothing is started yet."""
    look_s: float
    """How long to look for an effect of the decider's death: longer than the longest timeout that it may touch."""
    decides_itself: bool = False
    """The master is the decider: two of the faults are no others."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those that are different ones."""
        return (Fault.KILL, Fault.STOP) if self.decides_itself else tuple(Fault)
