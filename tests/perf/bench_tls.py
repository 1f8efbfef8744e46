"""
What TLS costs: whole fleets with certificates beside the same fleets with plain links, in one run.

Three controllers, three brokers, one client, each a process of its own. The plain fleet says ``fleet.insecure = true``;
nothing else differs. Ratios count: both sides run on the same machine in the same minute, one after the other, and every
other run begins with the other side.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from rollcall_ha.deploy.local import faults
from rollcall_ha.deploy.local.fleet import Layout
from tests.perf.bench_catch_up import catch_up, fill
from tests.perf.bench_failover import TIMED, fail_over, spans_ms
from tests.perf.bench_put import KIB, put
from tests.perf.bench_sets import SETS, beat, crowds, register
from tests.perf.results import Measure
from tests.perf.section import Context, Section

IN_FLIGHT = (1, 16, 64)
PUT_S = 3.0
BODY_BYTES = KIB


def run_side(context: Context, *, is_insecure: bool) -> dict[str, float]:
    """Puts, a wiped slave's catch-up and failovers on one fleet; the heartbeats of 2,000 replicas on another."""
    values: dict[str, float] = {}
    side = "plain" if is_insecure else "TLS"
    is_quick = context.is_quick
    with context.fleet(Layout(name="perf", is_insecure=is_insecure)) as fleet:
        key = fleet.set_keys()[0]
        for in_flight in IN_FLIGHT:
            told, cpu = put(fleet, in_flight, BODY_BYTES, 1.5 if is_quick else PUT_S)
            values[f"put_{in_flight}"] = told.acked / told.seconds
            values[f"p50_{in_flight}"] = told.p50_ms
            values[f"cpu_{in_flight}"] = cpu * 1e6
            context.say(f"{side}: {in_flight} in flight: {values[f'put_{in_flight}']:,.0f}/s, {cpu * 1e6:.0f} us")
            fleet.wait_redundant(key)
        fill(fleet, 128 if is_quick else 256)
        samples = []
        for _ in range(1 if is_quick else 2):
            mib, seconds = catch_up(fleet)
            samples.append(mib / seconds)
            context.say(f"{side}: {mib:.0f} MiB in {seconds:.2f} s: {samples[-1]:.0f} MiB/s")
        values["catch_up"] = max(samples)
        gaps, rows = fail_over(
            context, fleet, 3 if is_quick else 7, lambda name: faults.kill_and_see(fleet, name), fleet.restart
        )
        values["gap_ms"] = statistics.median(gap.gap_ms for gap in gaps)
        values["gap_max_ms"] = max(gap.gap_ms for gap in gaps)
        context.detail[f"{side}_catch_up_mib_per_s"] = samples
        for phase in TIMED:
            context.detail[f"{side}_{phase.value}_ms"] = [spans_ms(row).get(phase, 0.0) for row in rows]
        context.detail[f"{side}_gap_ms"] = [gap.gap_ms for gap in gaps]
        context.say(f"{side}: gap p50 {values['gap_ms']:.1f} ms, longest {values['gap_max_ms']:.1f} ms")
    with crowds(context, is_insecure=is_insecure) as (fleet, slaves, masters):
        pid = fleet.pid(fleet.leader())
        assert pid is not None
        values["registered_s"] = register(context, slaves, masters, SETS)["registered_s"]
        values |= beat(context, pid, slaves, masters)
    return values


def compared(plain: Mapping[str, float], tls: Mapping[str, float]) -> dict[str, float]:
    """The values of both sides, and how they compare."""
    values = {f"{key}_plain": value for key, value in plain.items()} | {f"{key}_tls": tls[key] for key in tls}
    for key in ("put_1", "put_16", "put_64", "cpu_64", "catch_up", "beat_cpu"):
        values[f"{key}_ratio"] = tls[key] / plain[key]
    values["gap_more_ms"] = tls["gap_ms"] - plain["gap_ms"]
    return values


def run_tls(context: Context) -> dict[str, float]:
    """Both sides, one after the other."""
    sides: dict[bool, dict[str, float]] = {}
    is_odd = int(context.directory.name.rpartition("-")[2]) % 2 == 1
    for is_insecure in (is_odd, not is_odd):
        sides[is_insecure] = run_side(context, is_insecure=is_insecure)
    return compared(sides[True], sides[False])


def _both(key: str, what: str, unit: str) -> tuple[Measure, ...]:
    return (
        Measure(key=f"{key}_plain", what=f"  {what}, plain", unit=unit),
        Measure(key=f"{key}_tls", what=f"  {what}, TLS", unit=unit),
    )


def _measures() -> tuple[Measure, ...]:
    found: list[Measure] = []
    for in_flight in IN_FLIGHT:
        what = f"puts with {in_flight} in flight, TLS to plain"
        found += (
            Measure(key=f"put_{in_flight}_ratio", what=what, unit="", aim=0.8, is_floor=True),
            *_both(f"put_{in_flight}", "puts", "/s"),
            *_both(f"p50_{in_flight}", "p50", "ms"),
        )
    found += (
        Measure(key="cpu_64_ratio", what="CPU of the brokers per put, TLS to plain", unit=""),
        *_both("cpu_64", "with 64 in flight", "us"),
        Measure(key="catch_up_ratio", what="catch-up of a wiped slave, TLS to plain", unit="", aim=0.5, is_floor=True),
        *_both("catch_up", "until in sync", "MiB/s"),
        Measure(key="gap_more_ms", what="kill -9 of the master: gap with TLS less gap without", unit="ms", aim=10),
        *_both("gap_ms", "p50", "ms"),
        *_both("gap_max_ms", "longest", "ms"),
        Measure(key="beat_cpu_ratio", what="leader's CPU at 2,000 heartbeats/s, TLS to plain", unit=""),
        *_both("beat_cpu", "of a core", "%"),
        *_both("beats", "heartbeats that were answered", "/s"),
        *_both("registered_s", "1,000 sets of two registered", "s"),
    )
    return tuple(found)


TLS = Section(name="tls", title="TLS on every port, beside plain ports", measures=_measures(), run=run_tls)
