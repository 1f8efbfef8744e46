"""
The recorded failovers under other rules: the question, the counts, and the failovers that change most.

Here: what is asked and printed. Not here: the answer (``checks.what_if``), the limits of a replay
(``core.counterfactual``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rollcall_ha.analytics.bronze.inputs import Source
from rollcall_ha.analytics.checks.counterfactual import MAY_NOT_CLAIM, Settings
from rollcall_ha.analytics.checks.what_if import OUTCOMES, PERCENTS, SAME, UNKNOWN, WhatIf, counts, what_if
from rollcall_ha.analytics.lake.session import as_path, spark_session
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.terminal import print_json

SHOWN_MAX = 20
"""Failovers that are printed: those that change most. All are in --rows."""


class Question(Frozen):
    """The settings that are asked about, and those that were in force."""

    preset: Preset | None
    """None: the real one."""
    timeout_ms: int | None
    policy: str | None
    """None: the recorded ones."""
    real_preset: Preset
    real_timeout_ms: int | None
    """None: the preset's."""
    gaps: Path | None
    """Parquet of heartbeat gaps; None: false failovers on top are not known."""


def run(paths: Sequence[Path], question: Question, *, lake: Path, rows: Path | None, master: str, is_json: bool) -> int:
    """Print the answer; 1 if the record holds no failover. Raises ``JobRefused``."""
    source = Source.of(paths, lake)
    with spark_session(app="rollcall analytics what-if", master=master) as spark:
        answer = ask(spark, source.events(spark).persist(), question)
        facts, shown = summary(answer)
        if rows is not None:
            answer.failovers.write.mode("errorifexists").parquet(str(rows / "failovers"))
            answer.added.write.mode("errorifexists").parquet(str(rows / "added"))
    if question.gaps is None:
        # Without gaps nothing was looked for: a zero here would claim that nothing comes on top.
        facts["added"] = None
    claims = (*filter(None, [answer.doubt]), *MAY_NOT_CLAIM)
    if is_json:
        print_json({**facts, "shown": shown, "may_not_claim": claims}, is_line=True)
    else:
        _print(facts, shown, question, claims)
    return 0 if facts["failovers"] else 1


def ask(spark: SparkSession, events: DataFrame, question: Question) -> WhatIf:
    """The answer to ``question`` from these events. Raises ``WrongReality``."""
    real = Settings.of(PRESETS[question.real_preset], timeout_ms=question.real_timeout_ms)
    timing = PRESETS[question.preset or question.real_preset]
    timeout_ms = question.timeout_ms if question.timeout_ms or question.preset else question.real_timeout_ms
    other = Settings.of(timing, timeout_ms=timeout_ms)
    gaps = spark.read.parquet(as_path(question.gaps)) if question.gaps is not None else None
    return what_if(events, real=real, other=other, policy=question.policy, gaps=gaps)


def summary(answer: WhatIf) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Counts and percentiles, and the failovers that change most."""
    rows = answer.failovers.persist()
    counted = rows.agg(
        *counts(),
        f.count_if("was_false").alias("false"),
        f.count_if("is_other_winner").alias("other_winners"),
        f.sum("regret_bytes").alias("regret_bytes"),
        f.sum("other_regret_bytes").alias("other_regret_bytes"),
    ).first()
    added = answer.added.agg(f.count("*").alias("possible"), f.count_if("is_certain").alias("certain")).first()
    changed = rows.where(~f.col("outcome").isin(SAME, UNKNOWN) | f.col("is_other_winner"))
    # What would not have been comes first: it has no time that could have changed.
    order = f.abs("saved_us").desc_nulls_first()
    shown = [row.asDict() for row in changed.orderBy(order, "elected_at_ms").limit(SHOWN_MAX).collect()]
    return {**counted.asDict(), "added": added.asDict()}, shown


def _print(facts: dict[str, Any], shown: Sequence[dict[str, Any]], question: Question, claims: Sequence[str]) -> None:
    rules = [
        *([f"preset {question.preset}"] if question.preset else []),
        *([f"timeout {question.timeout_ms:,} ms"] if question.timeout_ms else []),
        *([f"policy {question.policy}"] if question.policy else []),
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
    regret, other_regret = (facts[name] or 0 for name in ("regret_bytes", "other_regret_bytes"))
    print(f"  other winners: {facts['other_winners']:,}; regret {regret:,} B -> {other_regret:,} B")
    for row in shown:
        saved = "" if row["saved_us"] is None else f" by {abs(row['saved_us']) / 1000:,.1f} ms"
        winner = f", winner {row['to_master']} -> {row['other_winner']}" if row["is_other_winner"] else ""
        name = f"{row['cluster']}/{row['broker_set']} epoch {row['master_epoch']}"
        print(f"{name}: {row['outcome']}{saved}{winner}{' (false)' if row['was_false'] else ''}")
    print("Limits of this answer:")
    for line in claims:
        print(f"  - {line}")
