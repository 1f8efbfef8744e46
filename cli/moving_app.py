"""The commands ``rollcall drain`` and ``rollcall rebalance``: options, help. What they do is in ``moving``."""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.cli.options import LagOption, OperatorOptions, takes_order
from rollcall_ha.controller.contract.commands import SWITCHOVER_DEADLINE_MS, SWITCHOVER_LAG_BYTES

AtATimeOption = Annotated[int, typer.Option("--at-a-time", min=1, max=64, metavar="N", help="So many sets at once.")]
BudgetOption = Annotated[
    int, typer.Option("--min-budget", min=0, metavar="N", help="Leave sets that may lose fewer replicas than this.")
]
DeadlineOption = Annotated[
    int, typer.Option("--deadline-ms", metavar="MS", help="Of each set; not done by then: its old master serves again.")
]
DRY_RUN = "Print the plan and what each order would be answered."


@takes_order(dry_run=DRY_RUN, repeats=False)
def drain(
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host of replicas' addresses: 10.0.0.5.")],
    *,
    order: OperatorOptions,
    at_a_time: AtATimeOption = 4,
    min_budget: BudgetOption = 1,
    deadline_ms: DeadlineOption = SWITCHOVER_DEADLINE_MS,
    max_lag: LagOption = SWITCHOVER_LAG_BYTES,
) -> None:
    """Switch every set over whose master is on a host, some at a time; Ctrl-C stops it."""
    from rollcall_ha.cli import moving

    options = moving.BatchOptions(
        at_a_time=at_a_time, budget_least=min_budget, deadline_ms=deadline_ms, max_lag_bytes=max_lag
    )
    moving.drain(host, order, options)


@takes_order(dry_run=DRY_RUN, repeats=False)
def rebalance(
    *,
    order: OperatorOptions,
    at_a_time: AtATimeOption = 4,
    min_budget: BudgetOption = 1,
    deadline_ms: DeadlineOption = SWITCHOVER_DEADLINE_MS,
    max_lag: LagOption = SWITCHOVER_LAG_BYTES,
) -> None:
    """Spread masters evenly over hosts, within their zones and by priority, some at a time; Ctrl-C stops it."""
    from rollcall_ha.cli import moving

    options = moving.BatchOptions(
        at_a_time=at_a_time, budget_least=min_budget, deadline_ms=deadline_ms, max_lag_bytes=max_lag
    )
    moving.rebalance(order, options)
