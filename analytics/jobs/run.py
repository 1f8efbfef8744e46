"""
``rollcall analytics run PATH... [--lake FOLDER]``: journals into a lake, through bronze, silver and gold.

``ingest PATH...``, ``silver`` and ``gold`` do one layer each. What has not changed since the last run is not computed
again; ``--full`` does. Each layer is published as a whole when it is ready: a run that is killed leaves what was
published, and the next one goes on from there.

Exit codes: 0 the lake is up to date; 2 nothing to read, no lake, another writer, or no Spark; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rollcall_ha.analytics.lake import Lake, LakeBusy, NoLake
from rollcall_ha.analytics.layers import Layers
from rollcall_ha.analytics.lines import NoJournals, find_journals
from rollcall_ha.analytics.progress import Progress
from rollcall_ha.analytics.session import NoSpark, spark_session
from rollcall_ha.analytics.summary import print_summary, summary_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE = Path("lake")
INTERRUPTED = 130
LAYERS = ("ingest", "silver", "gold")


def main(arguments: Sequence[str] | None = None, *, layers: Sequence[str] = LAYERS) -> int:
    """Run the job for these layers; returns the exit code."""
    verb = layers[0] if len(layers) == 1 else "run"
    options = _parser(verb, layers).parse_args(arguments)
    try:
        files = find_journals(options.paths) if "ingest" in layers else []
        lake = Lake(options.lake)
        if "ingest" not in layers:
            lake.require()
        spark = spark_session(app=f"rollcall {verb}", master=options.master)
    except (NoJournals, NoLake, NoSpark) as error:
        print(f"rollcall analytics {verb}: {error}", file=sys.stderr)
        return 2
    try:
        _build(spark, lake, files, layers, options)
        if "gold" in layers:
            _tell(spark, lake, options.output)
    except (LakeBusy, NoLake) as error:
        print(f"rollcall analytics {verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"rollcall analytics {verb}: interrupted; what was published stays, the next run goes on", file=sys.stderr
        )
        return INTERRUPTED
    finally:
        spark.stop()
    return 0


def _parser(verb: str, layers: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"rollcall analytics {verb}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if "ingest" in layers:
        parser.add_argument("paths", nargs="+", type=Path, help="journals, pages of /v1/events, or folders of journals")
    parser.add_argument("--lake", type=Path, default=LAKE, help=f"folder of the tables; default: {LAKE}")
    parser.add_argument("--full", action="store_true", help="compute everything again")
    parser.add_argument("--master", default="local[*]", help="Spark master, e.g. spark://host:7077")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _build(
    spark: SparkSession, lake: Lake, files: Sequence[Path], layers: Sequence[str], options: argparse.Namespace
) -> None:
    progress = Progress(spark, is_quiet=options.quiet)
    with lake.writer() as writer:
        work = Layers(spark, writer, progress)
        if "ingest" in layers:
            read = work.ingest_files(files, again=options.full)
            progress.say(f"{read:,} of {len(files):,} files are new or have grown")
            writer.publish()
        if "silver" in layers:
            work.silver(is_full=options.full)
            writer.publish()
        if "gold" in layers:
            work.gold(is_full=options.full)
            writer.publish()


def _tell(spark: SparkSession, lake: Lake, output: str) -> None:
    found = summary_of(spark, lake)
    if output == "json":
        print(msgspec.json.encode(found).decode())
    else:
        print_summary(found)


if __name__ == "__main__":
    sys.exit(main())
