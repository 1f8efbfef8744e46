"""
Events of the record as tables.

Here: ``events_report``, the forms of facts in sentences, the plain facts of an event, who asked. Not here: the
sentences (``contract.sentences``), other answers that are lists (``tables``), the record of one decision
(``decisions``), fetching (``reads``).

Rule: people read a sentence; ``wide`` and ``tsv`` have the plain facts in its place. A fact that is the id of a broker
has its label (``BROKER_FACTS``); as ``tsv`` it is the id alone, as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rollcall_ha.cli import output
from rollcall_ha.cli.output import Report, Table
from rollcall_ha.cli.tables import read_line
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.labels import Names, label, labels
from rollcall_ha.controller.contract.principals import ProvedBy
from rollcall_ha.controller.contract.sentences import Form, sentence
from rollcall_ha.controller.contract.views import EventPage


def events_report(page: EventPage, *, is_wide: bool = False) -> Report:
    """One row per event."""
    table = event_table(page.events, page.names, is_wide=is_wide)
    parts: list[str | Table] = [table] if page.events else ["No events."]
    if page.gap:
        parts.insert(0, f"GAP  {page.gap}")
    names = tuple(row[0] for row in table.rows)
    return Report(document=page, read=read_line(page.freshness), parts=tuple(parts), names=names)


def event_table(records: Iterable[EventRecord], names: Mapping[str, Names], *, is_wide: bool = False) -> Table:
    """Events in their order; ``names`` of the brokers of each set (``cluster/set``)."""
    columns = output.columns("EVENT", "WHEN", "SET?", "KIND", "WHAT", "BY")
    rows = tuple(_event_row(one, names.get(str(one.set_key), {}), is_wide=is_wide) for one in records)
    return Table(columns=columns, rows=rows, leaving=("BY", "KIND", "SET"), wrapped="WHAT")


def _event_row(record: EventRecord, names: Names, *, is_wide: bool) -> tuple[str, ...]:
    """``term.index.ordinal``, when, set, kind, what it says, who asked."""
    fields = msgspec.to_builtins(record.event)
    kind = str(fields.pop("kind"))
    told = " ".join(_plain_facts(fields, names)) if is_wide else sentence(record.event, _forms(names))
    return (
        str(record.ref),
        output.utc(record.stamped_at_ms),
        "" if record.set_key is None else str(record.set_key.name),
        kind,
        output.Figure(told, " ".join(_plain_facts(fields, {}))),
        caller_text(record),
    )


def _forms(names: Names) -> Mapping[str, Form]:
    """How facts look in a sentence; the console has the same in ``words.js``."""
    return {
        "": str,
        "if": lambda _fact: "",
        "number": output.number,
        "size": output.size,
        "duration": output.duration_us,
        "utc": output.utc,
        "count": lambda fact: str(len(fact)),
        "least": lambda fact: str(fact or "half"),
        "broker": lambda fact: "nobody" if fact is None else label(fact, names),
        "brokers": lambda fact: labels(fact, names),
        "actor": lambda fact: "the leader" if fact is None else f"replica {label(fact, names)}",
        "set": _set_words,
        "scope": lambda fact: fact.get("host") or f"{_set_words(fact['setKey'])}:{label(fact['brokerId'], names)}",
    }


def _set_words(fact: Mapping[str, str] | None) -> str:
    """A pause without a set is the fleet's."""
    return "the fleet" if fact is None else f"{fact['cluster']}/{fact['name']}"


def caller_text(record: EventRecord) -> str:
    """The caller, and its proof: ``admin:alice (certificate)``; a controller itself proves nothing here."""
    caller = record.principal
    if caller is None:
        return record.requested_by
    return f"{caller} ({'unproven' if caller.proved_by is ProvedBy.NOTHING else caller.proved_by})"


_NESTED_FACTS = {
    "verdict": ("winner", "syncStateSet", "grade", "isAccepted", "cutBytes"),
    "milestone": ("phase", "elapsedUs", "brokerId"),
}
_LONG_FACTS = frozenset(
    {"incarnation", "masterIncarnation", "registerCode", "bootId", "storeId", "digest", "boundIncarnations"}
)


BROKER_FACTS = frozenset(
    ("brokerId", "brokerIds", "remaining", "master", "target", "winner", "syncStateSet", "previousSet", "importedSet")
) | {"awaitedReports", "keptOut", "newcomers"}
"""Facts of events that are ids of brokers."""


def _plain_facts(fields: Mapping[str, object], names: Names) -> list[str]:
    """The facts that fit a line; ``-o json`` has all of them."""
    facts: list[str] = []
    for name, value in fields.items():
        if name in _NESTED_FACTS and isinstance(value, dict):
            facts += [
                f"{inner}={_fact(value[inner], _names_in(inner, names))}"
                for inner in _NESTED_FACTS[name]
                if value.get(inner) is not None
            ]
        elif name not in _LONG_FACTS and not isinstance(value, dict) and value is not None and value != "":
            facts.append(f"{name}={_fact(value, _names_in(name, names))}")
    return facts


def _names_in(fact: str, names: Names) -> Names:
    return names if fact in BROKER_FACTS else {}


def _fact(value: object, names: Names) -> str:
    if isinstance(value, list | tuple):
        return labels(value, names) if names else "{" + ",".join(str(item) for item in value) + "}"
    if names and isinstance(value, int):
        return label(value, names)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'"{text}"' if " " in text else text
