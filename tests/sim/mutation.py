"""
A mutant: one named function of the production code, replaced by one that leaves a rule out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mutant. Found by a seed, unless ``case`` or ``story`` says otherwise."""

    name: str
    what: str
    target: str
    mutate: Callable[[Function], Function]
    case: str = ""
    story: str = ""
    """Found because this transcript breaks, or ends differently."""


def constant(value: Any) -> Callable[[Any], Any]:
    return lambda _original: lambda *_args, **_named: value


def instead(value: Any) -> Callable[[Any], Any]:
    """For a limit, which is no function."""
    return lambda _original: value


def changed(value: Any, **changes: Any) -> Any:
    from dataclasses import replace as dataclass_replace

    return dataclass_replace(value, **changes)
