"""
What a lake found in synthetic journals beside the truth that was written with them.

Here: building a lake, and the comparison, all of it in Spark, so that it is the same for a thousand failovers and a
million.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcall_ha.analytics.bronze.lines import find_journals
from rollcall_ha.analytics.gold.tables import GOLD_CLUSTERS, GOLD_FAILOVERS, GOLD_RTO, GOLD_SETS
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.silver.tables import SILVER_BROKER_SETS, SILVER_PHASES
from tests.synthetic.truth import TRUTH_ROWS

PERCENTS = (50, 90, 95, 99)
PPM = 1_000_000
_KEY = ["cluster", "broker_set", "master_epoch"]
EXACT = (
    "kind",
    "from_master",
    "to_master",
    "elected_at_ms",
    "detected_us",
    "proposed_us",
    "committed_us",
    "notified_us",
    "promised_us",
    "role_applied_us",
    "serving_us",
    "first_ack_us",
    "total_us",
    "route_converged_us",
    "grade",
    "cut_bytes",
)
"""Columns of a reign that must be the truth, row by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Truth and finding, side by side."""

    reigns: int
    failovers: tuple[int, int]
    differing: dict[str, int]
    """Column of ``EXACT``, and ``regret_bytes``, ``is_false`` of failovers -> rows that are not the truth."""
    percentiles: dict[str, tuple[int | None, ...]]
    """``truth`` and ``found``: total, in ms, by nearest rank, of all failovers."""
    regret_bytes: tuple[int, int]
    regretted: tuple[int, int]
    """Failovers whose winner held less than another eligible candidate."""
    false: tuple[int, int]
    controller_caused: tuple[int, int]
    exposed_ms: tuple[int, int]
    sets_differing_in_exposure: int
    outage_ms: tuple[int, int]
    """Of outages that ended in another epoch: the truth from the fault, the finding from its first sign."""
    availability_ppm: tuple[int, int]
    """Of all sets: the truth's outages, switchovers included, in the time that was observed; ``gold.clusters``."""

    def wrong(self) -> list[str]:
        """What is not recovered within the stated tolerance, in words; empty if all of it is."""
        found = [f"{count} reigns differ in {name}" for name, count in self.differing.items() if count]
        if self.percentiles["truth"] != self.percentiles["found"]:
            found.append(f"percentiles are {self.percentiles}")
        pairs = {"failovers": self.failovers, "regret": self.regret_bytes, "failovers with regret": self.regretted}
        found += [f"{name}: {pair}" for name, pair in pairs.items() if pair[0] != pair[1]]
        if self.false[0] != self.false[1]:
            found.append(f"false failovers: {self.false}")
        if self.sets_differing_in_exposure or self.exposed_ms[0] != self.exposed_ms[1]:
            found.append(f"exposure: {self.exposed_ms}, {self.sets_differing_in_exposure} sets differ")
        # A false alarm that happens to fall into the shadow of a change of controllers cannot be told from its effect.
        if (
            abs(self.controller_caused[1] - self.controller_caused[0])
            > CONTROLLER_TOLERANCE_PERCENT / 100 * self.false[0] + 1
        ):
            found.append(f"controller-caused: {self.controller_caused} of {self.false[0]} false ones")
        if abs(self.outage_ms[1] - self.outage_ms[0]) > OUTAGE_TOLERANCE_PERCENT / 100 * self.outage_ms[0]:
            found.append(f"outages: {self.outage_ms} ms")
        real, seen = (PPM - ppm for ppm in self.availability_ppm)
        if abs(seen - real) > OUTAGE_TOLERANCE_PERCENT / 100 * real + 1:
            found.append(f"availability: {self.availability_ppm} millionths")
        return found

    def table(self) -> str:
        """Truth and finding as Markdown."""
        milliseconds = {
            name: " / ".join(f"{int(value):,}" for value in row if value) for name, row in self.percentiles.items()
        }
        rows = [
            ("failovers", *_numbers(self.failovers), "exact"),
            ("RTO p50 / p90 / p95 / p99, ms", milliseconds["truth"], milliseconds["found"], "exact"),
            ("false failovers", *_numbers(self.false), "exact"),
            ("false-positive rate", *_shares(self.false, self.failovers), "exact"),
            ("put down to a change of controllers", *_numbers(self.controller_caused), "5 % of the false ones"),
            ("exposure, ms", *_numbers(self.exposed_ms), "exact, set by set"),
            ("failovers with regret", *_numbers(self.regretted), "exact"),
            ("regret, bytes", *_numbers(self.regret_bytes), "exact, row by row"),
            ("outages, ms", *_numbers(self.outage_ms), "10 %"),
            ("availability, millionths", *_numbers(self.availability_ppm), "10 % of what is missing"),
            *((f"reigns that differ in {name}", "0", f"{count:,}", "exact") for name, count in self.differing.items()),
        ]
        head = ["| what | truth | found | tolerance |", "| --- | ---: | ---: | --- |"]
        return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def _numbers(pair: tuple[int, int]) -> tuple[str, str]:
    return f"{pair[0]:,}", f"{pair[1]:,}"


def _shares(parts: tuple[int, int], wholes: tuple[int, int]) -> tuple[str, str]:
    truth, found = (100 * part / max(1, whole) for part, whole in zip(parts, wholes, strict=True))
    return f"{truth:.4f} %", f"{found:.4f} %"


CONTROLLER_TOLERANCE_PERCENT = 5
OUTAGE_TOLERANCE_PERCENT = 10
"""A silent master's fault lies within a heartbeat interval of its first sign, and an outage ends at first acks."""


def build_lake(spark: Any, journals: Path, folder: Path) -> Lake:
    """Bronze, silver and gold of all journals below a folder."""
    lake = Lake(folder)
    with lake.writer() as writer:
        layers = Layers(spark, writer, Progress(spark))
        layers.ingest_files(find_journals([journals]))
        # What is there when it is ended is not made again.
        writer.publish()
        layers.silver()
        writer.publish()
        layers.gold()
        writer.publish()
    return lake


def compare(spark: Any, lake: Lake, truth: Path) -> Comparison:
    """Everything at once; only sums reach the driver."""
    from pyspark.sql import functions as f

    tables = {name: spark.read.parquet(str(truth / name)) for name in TRUTH_ROWS}
    reigns = tables["reigns"].persist()
    real = reigns.select(*_KEY, *(f.col(name).alias(f"true_{name}") for name in (*EXACT, "regret_bytes", "is_false")))
    found = in_ms(lake.read(spark, SILVER_PHASES).join(lake.read(spark, SILVER_BROKER_SETS), "set_id")).select(
        *_KEY, *EXACT
    )
    judged = lake.read(spark, GOLD_FAILOVERS).select(
        *_KEY, "regret_bytes", f.col("is_false_positive").alias("is_false"), f.lit(True).alias("is_failover")
    )
    both = real.join(found, _KEY, "full_outer").join(judged, _KEY, "full_outer")

    def differs(name: str) -> Any:
        return ~f.col(name).eqNullSafe(f.col(f"true_{name}"))

    wrong = [f.count_if(differs(name)).alias(name) for name in EXACT]
    wrong += [f.count_if(f.col("is_failover") & differs(name)).alias(name) for name in ("regret_bytes", "is_false")]
    differing = both.agg(*wrong).first().asDict()
    replaced = reigns.where("kind in ('failover', 'unclean')")
    regret = [f.count("*"), f.sum("regret_bytes"), f.count_if(f.col("regret_bytes") > 0)]
    failovers, regret_bytes, regretted = map(_pair, replaced.agg(*regret).first(), judged.agg(*regret).first())
    return Comparison(
        reigns=reigns.count(),
        differing=differing,
        percentiles={"truth": _true_percentiles(reigns), "found": _found_percentiles(spark, lake)},
        failovers=failovers,
        regret_bytes=regret_bytes,
        regretted=regretted,
        false=_pair(reigns.where(f.col("is_false")).count(), judged.where("is_false").count()),
        controller_caused=_pair(
            reigns.where(f.col("is_controller_caused")).count(),
            lake.read(spark, GOLD_FAILOVERS).where("is_controller_caused").count(),
        ),
        **_exposure(spark, lake, tables["exposures"]),
        outage_ms=_pair(
            _sum(tables["outages"].where("is_recorded and fault != 'switchover'"), "(to_us - from_us) div 1000"),
            _sum(lake.read(spark, GOLD_FAILOVERS), "outage_ms"),
        ),
        availability_ppm=_availability(spark, lake, tables["outages"]),
    )


def _true_percentiles(reigns: Any) -> tuple[int | None, ...]:
    from pyspark.sql import functions as f

    failovers = reigns.where("kind in ('failover', 'unclean') and total_us is not null")
    ranks = [
        f.expr(f"percentile_disc({percent / 100}) within group (order by total_us div 1000)") for percent in PERCENTS
    ]
    return tuple(failovers.agg(*ranks).first())


def _found_percentiles(spark: Any, lake: Lake) -> tuple[int | None, ...]:
    rows = lake.read(spark, GOLD_RTO).where("fleet = '*' and kind = '*' and cause = '*' and phase = 'total'").collect()
    return tuple(rows[0][f"p{percent}_ms"] for percent in PERCENTS) if rows else ()


def _exposure(spark: Any, lake: Lake, exposures: Any) -> dict[str, Any]:
    from pyspark.sql import functions as f

    real = exposures.groupBy("cluster", "broker_set").agg(f.sum(f.expr("to_ms - from_ms")).alias("true_ms"))
    found = lake.read(spark, GOLD_SETS).select("cluster", "broker_set", "exposed_ms")
    both = found.join(real, ["cluster", "broker_set"], "full_outer").fillna(0)
    row = both.agg(
        f.sum("true_ms").alias("real"),
        f.sum("exposed_ms").alias("found"),
        f.count_if(f.col("true_ms") != f.col("exposed_ms")).alias("differing"),
    ).first()
    return {"exposed_ms": _pair(row["real"], row["found"]), "sets_differing_in_exposure": row["differing"]}


def _availability(spark: Any, lake: Lake, outages: Any) -> tuple[int, int]:
    observed_ms = _sum(lake.read(spark, GOLD_SETS), "observed_ms")
    outage_ms = _sum(outages.where("is_recorded"), "(to_us - from_us) div 1000")
    row = lake.read(spark, GOLD_CLUSTERS).where("fleet = '*'").first()
    return PPM * (observed_ms - outage_ms) // observed_ms, row["availability_ppm"]


def _sum(table: Any, what: str) -> int:
    from pyspark.sql import functions as f

    return int(table.agg(f.sum(f.expr(what))).first()[0] or 0)


def _pair(truth: int, found: int) -> tuple[int, int]:
    return int(truth or 0), int(found or 0)
