"""
Which broker a word of a person means: the one place where a name becomes an id.

Here: words behind options (``id_of``), and words that name a replica or a host (``scope_of``). Not here: how a broker
is called (``controller.contract.labels``), which set a name means (``context``).

Rule 1: digits are an id, whoever has them for a name: scripts were written with ids.
Rule 2: a name that is unknown, or has two ids, is wrong use (2), and is told with those that are there. Never the first
of two: an order for the other one stops or forgets the wrong broker.
Rule 3: names are read from whichever controller answers. One that is behind knows no other broker by a name, because an
id belongs to one name for ever; it knows too few, or one that was cleaned, whose order is refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rollcall_ha.cli import context
from rollcall_ha.cli.output import CommandExit, fail
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.labels import Names, label, labels, names_of
from rollcall_ha.controller.contract.values import Frozen, MaintenanceScope, host_of
from rollcall_ha.epoch.codec import NUMBER_MAX

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.views import SetPage, SetStatus

KNOWN_SHOWN_MAX = 20


class Brokers(Frozen):
    """The brokers of one set, as an order speaks of them."""

    key: SetKey
    names: Names

    def id_of(self, word: str) -> BrokerId:
        """The id that a name or an id means. Raises ``typer.Exit``: unknown, or of two ids (2)."""
        if word.isdecimal():
            return _id(word)
        found = [broker_id for broker_id, name in self.names.items() if name == word]
        if len(found) == 1:
            return found[0]
        if found:
            ids = " and ".join(map(str, found))
            told = f"{word} is broker {ids} of {self.key}: its disk was wiped, or it began anew; give the id"
            raise fail(f"rollcall: {told} (rollcall status shows which one lives)", CommandExit.WRONG_USE)
        known = labels(sorted(self.names), self.names)[1:-1] or "none with a name"
        raise fail(f"rollcall: no broker {word!r} in {self.key}; known: {known}", CommandExit.WRONG_USE)

    def may_be(self, word: str | None) -> BrokerId | None:
        """``id_of`` of an option that may be left out."""
        return None if word is None else self.id_of(word)

    def label(self, broker_id: int) -> str:
        """As people read it."""
        return label(broker_id, self.names)


def _id(word: str) -> BrokerId:
    # The length first: Python refuses to read thousands of digits, with an error of its own.
    if len(word) <= len(str(NUMBER_MAX)) and 1 <= int(word) <= NUMBER_MAX:
        return BrokerId(int(word))
    told = f"broker {word[:40]} cannot be: ids are 1 to {NUMBER_MAX}; rollcall status shows those that there are"
    raise fail(f"rollcall: {told}", CommandExit.WRONG_USE)


def brokers_of(asking: Client, name: str, *words: str | None) -> Brokers:
    """
    The set that ``name`` means, with the names of its brokers; ``words``: what ``id_of`` will be asked.

    Raises ``typer.Exit``: no such set (2). Raises ``ClientError``.
    """
    from rollcall_ha.client.errors import ClientError

    # Before the first question: an id that none can have came back as "outcome unknown" when nobody answered.
    for word in words:
        if word is not None and word.isdecimal():
            _id(word)
    if "/" not in name:
        return _named(context.find_set(asking.sets(consistency="local"), name))
    key = context.set_key(asking, name)
    try:
        return _named(asking.set(key, consistency="local").set)
    except ClientError:
        # By its full name and by ids an order needs no look: the leader judges it, and only the labels are missing.
        if any(word is not None and not word.isdecimal() for word in words):
            raise
        return Brokers(key=key, names={})


def scope_of(asking: Client, what: str) -> MaintenanceScope:
    """
    The replica or the host that a word means: ``SET:BROKER``, the name of a broker, or else a host.

    A host has no colon, but for an IPv6 address, which has two. Raises ``ClientError``, ``typer.Exit`` (2).
    """
    name, _, word = what.rpartition(":")
    if name and ":" not in name:
        found = brokers_of(asking, name, word)
        return MaintenanceScope(set_key=found.key, broker_id=found.id_of(word))
    from ipaddress import ip_address

    host = what.strip("[]")
    with suppress(ValueError):
        ip_address(host)
        return MaintenanceScope(host=host)
    return _scope_by_name(asking.sets(consistency="local"), host)


def _scope_by_name(page: SetPage, word: str) -> MaintenanceScope:
    if any(host_of(one.address) == word for status in page.sets for one in status.replicas):
        return MaintenanceScope(host=word)
    every = [_named(status) for status in page.sets]
    found = [(one, broker_id) for one in every for broker_id, name in one.names.items() if name == word]
    if len(found) == 1:
        return MaintenanceScope(set_key=found[0][0].key, broker_id=found[0][1])
    if found:
        ways = ", ".join(f"{one.key}:{broker_id}" for one, broker_id in found[:KNOWN_SHOWN_MAX])
        raise fail(f"rollcall: {word} is more than one replica; name one of them: {ways}", CommandExit.WRONG_USE)
    return MaintenanceScope(host=word)


def _named(status: SetStatus) -> Brokers:
    return Brokers(key=status.view.set_key, names=names_of(status.view.members))
