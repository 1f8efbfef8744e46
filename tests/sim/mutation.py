"""
A mutant: one named function of the production code, replaced by one that leaves a rule out.

Here: what a mutant is, and switching it on. Not here: the list (``mutations``), running it (``mutants``).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mutant, and the ways by which it is noticed: at least two, or a stored seed beside one."""

    name: str
    what: str
    target: str
    mutate: Callable[[Function], Function]
    case: str = ""
    """Found because this case of ``directed`` raises."""
    story: str = ""
    """Found because this transcript breaks, or ends differently."""
    tests: tuple[str, ...] = ()
    """Found because each of these fails: a test id as pytest takes it, with all its parameters."""
    once_unnoticed: str = ""
    """What was left out, in words, of a mutant that once survived every test, case, story and seed that there was."""


def constant(value: Any) -> Callable[[Any], Any]:
    return lambda _original: lambda *_args, **_named: value


def instead(value: Any) -> Callable[[Any], Any]:
    """For a limit, which is no function."""
    return lambda _original: value


def changed(value: Any, **changes: Any) -> Any:
    from msgspec.structs import replace as replaced

    return replaced(value, **changes)


def original_of(mutation: Mutation) -> Any:
    """What it replaces, mostly a function."""
    owner, name = _place_of(mutation)
    return owner.__dict__[name]


def _place_of(mutation: Mutation) -> tuple[Any, str]:
    """The module or class, and the name in it."""
    module_name, _, path = mutation.target.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Within: the named function is the mutated one, wherever it was imported to."""
    owner, name = _place_of(mutation)
    original = owner.__dict__[name]
    replacement = mutation.mutate(original)
    undo: list[Callable[[], None]] = []

    def replace_in(place: Any, key: Any) -> None:
        if isinstance(place, dict):
            place[key] = replacement
            undo.append(lambda: place.__setitem__(key, original))
        else:
            setattr(place, key, replacement)
            undo.append(lambda: setattr(place, key, original))

    replace_in(owner, name)
    if inspect.ismodule(owner):
        for place, key in _places_of(original):
            replace_in(place, key)
    try:
        yield
    finally:
        for step in undo:
            step()


def _places_of(function: Any) -> list[tuple[Any, Any]]:
    """Names and tables of loaded modules that hold ``function``."""
    found: list[tuple[Any, Any]] = []
    for module in list(sys.modules.values()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                found.append((module, key))
            elif type(value) is dict and len(value) < 100:
                found += [(value, inner) for inner, held in list(value.items()) if held is function]
    return found
