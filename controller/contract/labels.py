"""
Labels of brokers, where people read of them.

Here: the label of one broker, and of several. Not here: which names are taken (``names``), how a word of a person
becomes an id (``cli.brokers``).

Rule 1: the name stands first, the id behind it. Ids are given in the order of arrival, so that broker 1 of a set may be
``orders-3``; machines, units, logs and certificates know the name alone, and by the id the wrong one is stopped.
Rule 2: one name may have two ids in a set: a broker whose disk was wiped comes back under a new one, and its old one
stays until it is cleaned. The id is always shown, therefore, and alone is what a person is told to type there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.values import MaintenanceScope

Names = Mapping[BrokerId, str]
"""The name of each broker of one set. One that is missing, or empty, is not known: a broker of RocketMQ has none."""


class Member(Protocol):
    """A replica that may be bound to a name."""

    @property
    def broker_id(self) -> BrokerId:
        """The id that its set gave it."""

    @property
    def owner(self) -> str | None:
        """Name in the certificate of the one broker that may be this replica."""


def names_of(members: Iterable[Member]) -> dict[BrokerId, str]:
    """Those that are known."""
    return {one.broker_id: one.owner for one in members if one.owner}


def label(broker_id: int, names: Names) -> str:
    """``orders-3 (1)``; of a broker without a name ``1``."""
    name = names.get(BrokerId(broker_id))
    return f"{name} ({broker_id})" if name else str(broker_id)


def labels(broker_ids: Iterable[int], names: Names) -> str:
    """``{orders-3 (1), orders-1 (2)}``; without names ``{1,2}``."""
    told = [label(one, names) for one in broker_ids]
    return "{" + (", " if any(one.endswith(")") for one in told) else ",").join(told) + "}"


def word(broker_id: int, names: Names) -> str:
    """The word by which a command takes it: its name, or its id where the name is missing or has two ids (rule 2)."""
    name = names.get(BrokerId(broker_id), "")
    return name if name and [*names.values()].count(name) == 1 else str(broker_id)


def scope_words(scope: MaintenanceScope, names: Names) -> str:
    """``demo/orders:orders-3 (1)``, or the host."""
    return scope.host or f"{scope.set_key}:{label(scope.broker_id or 0, names)}"


_TOLD = re.compile(
    r"(?P<typed>\b(?:are paused|in maintenance) by .*?(?=; else replica \d+ would be master now$|$))"
    r"|\b(?P<what>broker|replica|master) (?P<id>\d+)\b(?![.,:]\d)"
)
"""What a person typed stands behind these words of ours (``controller.core.pauses`` and ``maintenance``)."""


def in_words(text: str, names: Names) -> str:
    """
    A reason of the controllers with the label in the place of each ``replica 1``, ``broker 1`` and ``master 1``.

    Reasons are on record with ids: members make equal ones of equal entries, and they stay the same. The reason of a
    pause or a maintenance stays as it was typed: its "broker 1" may be a rack's, and quoted it has to be what was said.
    """

    def told(found: re.Match[str]) -> str:
        return found[0] if found["typed"] else f"{found['what']} {label(int(found['id']), names)}"

    return _TOLD.sub(told, text)
