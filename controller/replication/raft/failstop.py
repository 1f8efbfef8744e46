"""
Ending the process because going on would be worse.

Rule 1: a failed write or sync is never retried: a second sync may report success for pages that the kernel has
dropped.
Rule 2: the end is a port. The real one leaves by ``node.standard_error.leave``, so that no handler, buffer or thread of
ours runs on. Simulations raise instead.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn, Protocol

from rollcall_ha.node.process import ExitCode
from rollcall_ha.node.standard_error import leave


class FailStop(IntEnum):
    """Exit codes of a controller that stops itself; restart it, except after DAMAGED and FEATURE_LEVEL."""

    DAMAGED = ExitCode.DIRECTORY
    """Journal or snapshot cannot be trusted."""
    STORAGE = ExitCode.STORAGE
    """A write or sync failed."""
    TICKS = ExitCode.RAFT
    """The raft thread failed ``FAILED_TICKS_MAX`` times in a row."""
    NOT_DETERMINISTIC = ExitCode.NOT_DETERMINISTIC
    """Apply ran out of memory or stack: another node may have had more."""
    FEATURE_LEVEL = ExitCode.FEATURE_LEVEL
    """An operation or snapshot above this node's feature level, or one that it cannot decode (R15)."""
    DIVERGED = 77
    """The library was about to cut entries that are already applied here; or a majority has another state."""


class FailStopPort(Protocol):
    """Ends the process; does not return."""

    def __call__(self, code: FailStop, reason: str) -> NoReturn:
        """``reason`` goes to stderr: both values and the remedy."""
        ...


def exit_process(code: FailStop, reason: str) -> NoReturn:
    """The real end: one line on stderr, then out, from any thread."""
    leave(code, f"rollcall: raft stops this process ({code.name}, exit {code.value}): {reason}")
