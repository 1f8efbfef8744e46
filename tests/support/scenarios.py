"""Scenarios that are tests themselves: a coroutine below a decorator, instead of one in a function that plays it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

Scenario = Callable[..., Awaitable[None]]


def player(play: Callable[..., None]) -> Callable[..., Callable[[Scenario], Callable[..., None]]]:
    """
    Make a decorator of ``play(directory, scenario, **how)``; it takes ``how``.

    The first argument of what it decorates is the stage that ``play`` hands over, the others are fixtures and parameters.
    """

    def decorator(**how: Any) -> Callable[[Scenario], Callable[..., None]]:
        def decorate(scenario: Scenario) -> Callable[..., None]:
            _stage, *others = signature(scenario).parameters.values()
            asked = {one.name: one for one in others}

            @wraps(scenario)
            def test(**given: Any) -> None:
                directory = given["tmp_path"]
                play(directory, partial(scenario, **{name: given[name] for name in asked}), **how)

            folder = Parameter("tmp_path", Parameter.POSITIONAL_OR_KEYWORD, annotation=Path)
            shown = signature(scenario).replace(parameters=list(({"tmp_path": folder} | asked).values()))
            test.__signature__ = shown  # type: ignore[attr-defined]  # what pytest reads the fixtures from
            return test

        return decorate

    return decorator
