"""
``rollcall controllers transfer``: the order and its answer.

Not here: who can take over (``controller.runtime.transfers``).
"""

from __future__ import annotations

from rollcall_ha.cli import context
from rollcall_ha.cli.options import OperatorOptions
from rollcall_ha.cli.output import Mood, Report, print_report
from rollcall_ha.cli.tables import read_line
from rollcall_ha.controller.contract.events import LeadershipTransferOrdered
from rollcall_ha.controller.contract.ids import ControllerName


def transfer(to: ControllerName | None, order: OperatorOptions) -> None:
    """Have another controller lead."""
    with context.client(order.form) as asking:
        if order.is_dry_run:
            found = asking.preview_transfer(to)
            ordered = [event for event in found.events if isinstance(event, LeadershipTransferOrdered)]
            line = "; ".join(f"Would have {one.successor} lead instead of {one.controller}." for one in ordered)
            verdict = line or "Would change nothing."
            print_report(Report(document=found, verdict=verdict, read=read_line(found.freshness)), order.form)
            return
        answer = asking.transfer_lead(to, reason=order.reason, request_id=order.request_id)
        line, mood = f"OK  {answer.leader} leads in term {answer.term}", Mood.GOOD
        if to not in (None, answer.leader):
            # Raft's vote decides: the follower that was asked may have been cut off in that moment.
            line, mood = f"{answer.leader} leads in term {answer.term}, not {to}: it was not elected", Mood.WARNING
        print_report(Report(document=answer, verdict=line, mood=mood), order.form)
