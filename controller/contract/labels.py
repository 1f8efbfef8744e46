"""
What a broker is called where people read of it.

Here: the label of one broker, and of several. Not here: which names are taken (``names``), how a word of a person
becomes an id (``cli.brokers``).

Rule: the name stands first, the id behind it. Ids are given in the order of arrival, so that broker 1 of a set may be
``orders-3``; machines, units, logs and certificates know the name alone, and by the id the wrong one is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from rollcall_ha.controller.contract.ids import BrokerId

Names = Mapping[BrokerId, str]
"""The name of each broker of one set. One that is missing, or empty, is not known: a broker of RocketMQ has none."""


class Member(Protocol):
    """A replica that may be bound to a name."""

    @property
    def broker_id(self) -> BrokerId:
        """Its id."""

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
