"""
From the lake to the rows of a report.

Here: reading. Not here: the SELECTs (``contents``, ``questions``), the program that they are asked of (``lake.query``).
Rule 1: each query ends in an aggregate or in an ordered limit.
Rule 2: ties are broken by keys, so that one lake gives one report.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.analytics.gold.tables import GOLD_SETS_DAILY
from rollcall_ha.analytics.lake.lake import Lake, NoLake
from rollcall_ha.analytics.lake.query import answers
from rollcall_ha.analytics.lake.tables import LakeView
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.report.contents import Contents


def gather(lake: Lake, *, made_at_ms: int, tables: Sequence[LakeView] = contents.TABLES) -> Contents:
    """
    Tables of a report, from one version of the lake.

    Raises:
        NoLake: nothing was ever published there, or gold has an older form.
    """
    snapshot = lake.require()
    if GOLD_SETS_DAILY.path in snapshot.rows and not snapshot.built_from("gold"):
        raise NoLake(f"gold in {lake.root} has an older form; make it anew: rollcall analytics gold --lake {lake.root}")
    rows = answers(lambda one: lake.dataset(one, lake.files(one.path, snapshot.version(one.path))), tables)
    return Contents(rows=rows, lake=str(lake.root), lake_version=snapshot.number, made_at_ms=made_at_ms)
