"""
The preview of a dry run, as an order that does this and nothing else.

Here: ``bound``, the order with what its preview was decided against, and ``exactly``, the command to type for it. Not
here: how previews look (``decisions``, ``settings``), asking and confirming (``orders``).

Rule: an order is bound by its target and by the master, epoch or version that it replaces: it is refused, with both
values, where these are others. The index of the state would refuse it as well when any other set has moved meanwhile.
An election is bound by its epoch alone: an epoch has one master, and the one that is lost is master of none.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from rollcall_ha.cli.context import OPTIONS
from rollcall_ha.controller.contract.events import LeadershipTransferOrdered, SwitchoverOrdered
from rollcall_ha.controller.contract.labels import Names, word
from rollcall_ha.controller.contract.orders import order_of
from rollcall_ha.controller.contract.replies import AnsweredBy
from rollcall_ha.controller.contract.views import ElectionPreview, OrderPreview

Asked = TypeVar("Asked", bound=AnsweredBy[Any])

_VERBS: Mapping[str, str] = {
    "elect": "elect",
    "elect-unclean": "elect",
    "switchover": "switchover",
    "transfer": "controllers transfer",
    "settings": "config apply",
}
"""The last part of an order's path -> the words of its command. Of other orders the leader chooses nothing."""
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "accepted_loss_bytes": ("--unclean", "--accept-loss"),
    "to": ("--to",),
    "expected_master": ("--expect-master",),
    "expected_epoch": ("--expect-epoch",),
    "deadline_ms": ("--deadline-ms",),
    "max_lag_bytes": ("--max-lag",),
    "preset": ("--preset",),
    "version": ("--version",),
    "expected_version": ("--expect-version",),
    "reason": ("--reason",),
}


def bound(wanted: Asked, found: ElectionPreview | OrderPreview) -> Asked:
    """``wanted``, refused by whoever decides it if it would do something else than ``found`` says."""
    if isinstance(found, ElectionPreview):
        verdict = found.verdict
        return replace(wanted, to=verdict.winner, expected_epoch=verdict.previous_epoch)
    for event in found.events:
        match event:
            case SwitchoverOrdered(target=to, master=master, master_epoch=epoch):
                return replace(wanted, to=to, expected_master=master, expected_epoch=epoch)
            case LeadershipTransferOrdered(successor=to):
                return replace(wanted, to=to)
    return wanted


def exactly(wanted: AnsweredBy[Any], found: ElectionPreview | OrderPreview) -> tuple[str, ...]:
    """The last lines of a dry run: the command that does what it showed. Empty: it would do nothing."""
    nothing = found.verdict.winner is None if isinstance(found, ElectionPreview) else not found.events
    if nothing or _last_part(wanted) not in _VERBS:
        return ()
    return ("To do exactly this, or be refused:", f"  {_command(bound(wanted, found), found.names)}")


def _command(order: AnsweredBy[Any], names: Names) -> str:
    # In the fleet that was asked: typed without its context, the order would go to the fleet that lies nearest.
    words = ["rollcall"]
    for one in msgspec.structs.fields(OPTIONS):
        if value := getattr(OPTIONS, one.name):
            words += [f"--{one.name}", str(value)]
    words += _VERBS[_last_part(order)].split()
    if (key := getattr(order, "set_key", None)) is not None:
        words.append(str(key))
    words += [f"{name}={value}" for name, value in getattr(order, "values", {}).items()]
    fields = {one.name: one.default for one in msgspec.structs.fields(type(order))}
    for name, flags in _FLAGS.items():
        value = getattr(order, name, None)
        # An accepted loss of 0 is said as well: it is what makes the election an unclean one.
        if name in fields and (value != fields[name] or name == "accepted_loss_bytes"):
            # A controller's name, in the place of a broker's id, is no number.
            is_broker = name in ("to", "expected_master") and isinstance(value, int)
            words += [*flags, word(int(value or 0), names) if is_broker else str(value)]
    return shlex.join(words)


def _last_part(order: AnsweredBy[Any]) -> str:
    return order_of(order).path.rpartition("/")[2]
