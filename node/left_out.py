"""
Imports without what a library brings along for a use that this process has not.

Here: ``left_out``. Not here: who leaves what out (``telemetry``, ``cli.context``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """
    Within, the package ``name`` is to importers as if it were not installed; afterwards it can be imported.

    For libraries that do without it. Nothing is left out if it has been imported. Before other threads run: one that
    imports ``name`` meanwhile would not find it.
    """
    if name in sys.modules:
        yield
        return
    modules = cast("dict[str, Any]", sys.modules)
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
