"""
``rollcall analytics what-if [PATH...] --preset fast``: the recorded failovers under other rules.

Which would have been faster or slower, which false ones would not have happened, which would have come on top, and who
would have won under another policy. What a replay may not claim is printed with every answer.

Exit codes: 0 answered; 1 the record holds no failover; 2 nothing to read, settings that contradict the record, or no
Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rollcall_ha.analytics.core.counterfactual import CLEAN_POLICIES, MAY_NOT_CLAIM, Settings
from rollcall_ha.analytics.inputs import add_inputs, check_inputs, read_events
from rollcall_ha.analytics.lake import NoLake
from rollcall_ha.analytics.lines import NoJournals
from rollcall_ha.analytics.session import NoSpark, spark_session
from rollcall_ha.analytics.what_if import AVOIDED, FASTER, SAME, SLOWER, UNKNOWN, WhatIf, WrongReality, what_if
from rollcall_ha.controller.contract.timing import PRESETS, Preset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTCOMES = (SAME, FASTER, SLOWER, AVOIDED, UNKNOWN)
PERCENTS = (50, 95, 99)
SHOWN_MAX = 20
"""Failovers that are printed: those that change most. All are in --rows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        files = check_inputs(options)
        spark = spark_session(app="rollcall what-if", master=options.master)
    except (NoJournals, NoLake, NoSpark) as error:
        print(f"rollcall analytics what-if: {error}", file=sys.stderr)
        return 2
    try:
        answer = ask(spark, read_events(spark, options, files).persist(), options)
        facts, shown = summary(answer)
        if options.rows is not None:
            answer.failovers.write.mode("errorifexists").parquet(str(options.rows / "failovers"))
            answer.added.write.mode("errorifexists").parquet(str(options.rows / "added"))
    except WrongReality as error:
        print(f"rollcall analytics what-if: {error}", file=sys.stderr)
        return 2
    finally:
        spark.stop()
    if options.gaps is None:
        facts["added"] = None
    claims = (*filter(None, [answer.doubt]), *MAY_NOT_CLAIM)
    if options.output == "json":
        print(msgspec.json.encode({**facts, "shown": shown, "may_not_claim": claims}).decode())
    else:
        _print(facts, shown, options, claims)
    return 0 if facts["failovers"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rollcall analytics what-if", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    presets = [preset.value for preset in Preset]
    add_inputs(parser)
    parser.add_argument("--preset", choices=presets, help="ask about this preset; default: the real one")
    parser.add_argument("--timeout-ms", type=int, help="ask about this heartbeat timeout")
    parser.add_argument("--policy", choices=CLEAN_POLICIES, help="ask about this policy; default: the recorded ones")
    parser.add_argument("--real-preset", choices=presets, default=Preset.NORMAL.value, help="in force in reality")
    parser.add_argument("--real-timeout-ms", type=int, help="heartbeat timeout in reality, if not the preset's")
    parser.add_argument("--gaps", type=Path, help="Parquet of heartbeat gaps, as analytics generate writes truth/gaps")
    parser.add_argument("--rows", type=Path, help="a new folder for the rows behind the answer, as Parquet")
    return parser


def ask(spark: SparkSession, events: DataFrame, options: argparse.Namespace) -> WhatIf:
    """What the options ask about. Raises ``WrongReality``."""
    real = Settings.of(PRESETS[Preset(options.real_preset)], timeout_ms=options.real_timeout_ms)
    timing = PRESETS[Preset(options.preset or options.real_preset)]
    timeout_ms = options.timeout_ms if options.timeout_ms or options.preset else options.real_timeout_ms
    other = Settings.of(timing, timeout_ms=timeout_ms)
    gaps = spark.read.parquet(str(options.gaps)) if options.gaps is not None else None
    return what_if(events, real=real, other=other, policy=options.policy, gaps=gaps)


def summary(answer: WhatIf) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Counts and percentiles, and the failovers that change most."""
    from pyspark.sql import functions as f

    rows = answer.failovers.persist()
    # Both sides speak of the same failovers, but for those that would not have been.
    real, other = f.when(f.col("outcome") != UNKNOWN, f.col("total_us")), f.col("other_total_us")
    shares = f.array(*(f.lit(percent / 100) for percent in PERCENTS))
    counted = rows.agg(
        f.count("*").alias("failovers"),
        *(f.count_if(f.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
        f.count_if("was_false").alias("false"),
        f.count_if("is_other_winner").alias("other_winners"),
        f.sum("regret_bytes").alias("regret_bytes"),
        f.sum("other_regret_bytes").alias("other_regret_bytes"),
        f.percentile(real, shares).alias("total_us"),
        f.percentile(other, shares).alias("other_total_us"),
    ).first()
    added = answer.added.agg(f.count("*").alias("possible"), f.count_if("is_certain").alias("certain")).first()
    changed = rows.where(~f.col("outcome").isin(SAME, UNKNOWN) | f.col("is_other_winner"))
    # What would not have been comes first: it has no time that could have changed.
    order = f.abs("saved_us").desc_nulls_first()
    shown = [row.asDict() for row in changed.orderBy(order, "elected_at_ms").limit(SHOWN_MAX).collect()]
    return {**counted.asDict(), "added": added.asDict()}, shown


def _print(
    facts: dict[str, Any], shown: Sequence[dict[str, Any]], options: argparse.Namespace, claims: Sequence[str]
) -> None:
    rules = [
        *([f"preset {options.preset}"] if options.preset else []),
        *([f"timeout {options.timeout_ms:,} ms"] if options.timeout_ms else []),
        *([f"policy {options.policy}"] if options.policy else []),
    ]
    print(
        f"UNDER {', '.join(rules) or 'the real settings'}: {facts['failovers']:,} failovers, {facts['false']:,} false"
    )
    print("  " + ", ".join(f"{facts[outcome]:,} {outcome}" for outcome in OUTCOMES))
    if facts["added"] is None:
        print("  false failovers on top: not known without --gaps")
    else:
        print(f"  false failovers on top: {facts['added']['certain']:,} to {facts['added']['possible']:,}")
    for number, percent in enumerate(PERCENTS):
        pair = [facts[name] and facts[name][number] / 1000 for name in ("total_us", "other_total_us")]
        print(f"  RTO p{percent}: " + " -> ".join("unknown" if ms is None else f"{ms:,.1f} ms" for ms in pair))
    print(f"  other winners: {facts['other_winners']:,}; regret {_bytes(facts, 'regret_bytes')} -> ", end="")
    print(_bytes(facts, "other_regret_bytes"))
    for row in shown:
        saved = "" if row["saved_us"] is None else f" by {abs(row['saved_us']) / 1000:,.1f} ms"
        winner = f", winner {row['to_master']} -> {row['other_winner']}" if row["is_other_winner"] else ""
        name = f"{row['cluster']}/{row['broker_set']} epoch {row['master_epoch']}"
        print(f"{name}: {row['outcome']}{saved}{winner}{' (false)' if row['was_false'] else ''}")
    print("What this may not claim:")
    for line in claims:
        print(f"  - {line}")


def _bytes(facts: dict[str, Any], name: str) -> str:
    return f"{facts[name] or 0:,} B"


if __name__ == "__main__":
    sys.exit(main())
