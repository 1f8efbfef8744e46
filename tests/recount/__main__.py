"""
Is a lake's gold what its journals say? Counted a second time, and compared row by row.

    python -m tests.recount JOURNALS... LAKE
    python -m tests.recount [--failovers 2000]    # make prove PARTS=analytics-recount

Without paths it writes journals (the stories of ``stories``, and synthetic fleets), and has ``rollcall analytics`` make a lake
of them. Exit code 1: something differs, or there was nothing to compare.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.recount.compare import SHOWN_MAX, compare, counted, published, rows_of, table, untils, wrong


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tests.recount", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="journals, and as the last one a lake")
    parser.add_argument("--failovers", type=int, default=2_000, help="of the synthetic fleets")
    options = parser.parse_args()
    if len(options.paths) == 1:
        parser.error("give journals and a lake, or neither")
    if options.paths:
        *journals, lake = options.paths
        return _judge(journals, lake)
    with tempfile.TemporaryDirectory(prefix="rollcall-recount-") as folder:
        return _made(Path(folder), options.failovers)


def _made(folder: Path, failovers: int) -> int:
    """Journals of stories and of fleets, a lake of them, and the comparison; every case must have been there."""
    # Here, not above: for somebody's journals and lake nothing of the product is needed.
    from rollcall_ha.deploy.local.analytics_demo import analyse
    from tests.recount.stories import write
    from tests.synthetic.__main__ import main as main_of_fleets

    write(folder / "stories")
    fleets = ("--fleets", "2", "--sets", "8", "--days", "4", "--failovers", str(failovers))
    if main_of_fleets([str(folder / "fleets"), *fleets]):
        raise SystemExit(2)
    journals, lake = [folder / "stories", folder / "fleets" / "journals"], folder / "lake"
    analyse("run", *map(str, journals), "--lake", str(lake))
    return _judge(journals, lake, is_made=True)


def _judge(paths: list[Path], lake: Path, *, is_made: bool = False) -> int:
    began = time.monotonic()
    journals, figures = counted(paths, untils(lake))
    compared = compare(rows_of(figures), published(lake))
    found = wrong(compared)
    print(f"{figures.cases['events']:,} events of {len(journals.fleets)} fleets, {journals.read['lines']:,} lines")
    for case, number in figures.cases.items():
        print(f"  {number:>9,} {case}")
    print(table(compared))
    if is_made:
        found += [f"no {case} among the journals" for case, number in figures.cases.items() if not number]
    for line in found[:SHOWN_MAX]:
        print(line)
    rows = sum(one.rows for one in compared.values())
    print(f"RESULT {json.dumps({'rows': rows, 'differences': len(found), 'seconds': round(time.monotonic() - began)})}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
