"""A copy of a lake in an object store, brought up to date. Without Spark. Not here: its order (``lake.copies``)."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import track

from rollcall_ha.analytics.lake.copies import copy
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.node.terminal import print_json


def run(target: str, *, lake: Path, is_quiet: bool, is_json: bool) -> None:
    """Copy, and print what was done. Raises ``JobRefused``, and ``OSError`` of the store."""
    console = Console(stderr=True, quiet=is_quiet)
    found = copy(Lake(lake), target, lambda step, items, total: track(items, step, total=total, console=console))
    if is_json:
        print_json(found, is_line=True)
    else:
        print(
            f"snapshot {found.snapshot} is in {target}: {found.put:,} objects put ({found.put_bytes:,} B),"
            f" {found.kept:,} were there, {found.removed:,} removed"
        )
