"""
Puts while a wiped slave is copied to: what the members in sync feel of it.

Windows of puts by two members in sync, first alone, then beside the copy of a whole log to the third; a window in which
the copy ended counts for nothing. The ratio of the medians counts, not the absolute figures.
"""

from __future__ import annotations

import statistics

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.perf.bench_catch_up import CATCH_UP_DEADLINE_S, answered_at_ms, fill, wipe
from tests.perf.bench_put import KIB, Told, put
from tests.perf.results import Measure
from tests.perf.section import Context, Section

IN_FLIGHT = 16
WINDOW_S = 1.0
WINDOWS_MAX = 8


def window(fleet: Fleet) -> Told:
    return put(fleet, IN_FLIGHT, KIB, WINDOW_S)[0]


def is_in_sync(fleet: Fleet) -> bool:
    status = fleet.set_status(fleet.set_keys()[0])
    return status is not None and len(status.view.sync_state_set) == 3


def run_beside(context: Context) -> dict[str, float]:
    """One copy, and as many windows as it takes, but ``WINDOWS_MAX``."""
    with context.fleet(Layout(name="perf")) as fleet:
        key = fleet.set_keys()[0]
        fill(fleet, 384 if context.is_quick else 1024)
        slave, size_mib = wipe(fleet)
        alone = [window(fleet) for _ in range(3 if context.is_quick else WINDOWS_MAX)]
        log = fleet.processes.log / f"{slave}.log"
        fleet.restart(slave)
        wait_until(lambda: answered_at_ms(log) is not None, deadline_s=30, what="the slave's handshake to be answered")
        beside: list[Told] = []
        while not is_in_sync(fleet) and len(beside) < WINDOWS_MAX:
            told = window(fleet)
            if not is_in_sync(fleet):
                beside.append(told)
        fleet.wait_redundant(key, deadline_s=CATCH_UP_DEADLINE_S)
    if not beside:
        raise RuntimeError(f"the copy of {size_mib:.0f} MiB was done within one window; fill the log with more")
    values = {"windows": float(len(beside))}
    for name in ("p50", "p99"):
        figures = [[getattr(told, f"{name}_ms") for told in side] for side in (alone, beside)]
        context.detail[f"{name}_alone_ms"], context.detail[f"{name}_beside_ms"] = figures
        values[f"{name}_alone"], values[f"{name}_beside"] = map(statistics.median, figures)
        values[f"{name}_ratio"] = values[f"{name}_beside"] / values[f"{name}_alone"]
    rates = [statistics.median(told.acked / told.seconds for told in side) for side in (alone, beside)]
    values["rate_ratio"] = rates[1] / rates[0]
    context.say(
        f"{size_mib:.0f} MiB beside {len(beside)} windows: p99 {values['p99_alone']:.1f} -> {values['p99_beside']:.1f} ms, "
        f"{rates[0]:,.0f} -> {rates[1]:,.0f} puts/s"
    )
    return values


CATCH_UP_BESIDE = Section(
    name="catch-up-beside",
    title="puts beside the copy to a wiped slave",
    measures=(
        Measure(key="p99_ratio", what="p99 beside the copy, of that alone", unit="x", aim=2),
        Measure(key="p99_alone", what="  alone", unit="ms"),
        Measure(key="p99_beside", what="  beside", unit="ms"),
        Measure(key="p50_ratio", what="p50 beside the copy, of that alone", unit="x"),
        Measure(key="p50_alone", what="  alone", unit="ms"),
        Measure(key="p50_beside", what="  beside", unit="ms"),
        Measure(key="rate_ratio", what="puts per second beside, of those alone", unit="x"),
        Measure(key="windows", what="windows of 1 s beside the copy", unit=""),
    ),
    run=run_beside,
)
