"""
The tables of pages that are made of the contract: settings, orders, who may do what by REST (``threats``), and limits;
and that of ``make bench-field``, which is made of what it measured.

``python -m tests.docs.made_tables`` writes them into the pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from rollcall_ha.api.broker_port import port
from rollcall_ha.api.rest import listening, requests
from rollcall_ha.api.rest.roles import OPEN, ROLES
from rollcall_ha.broker.client import packing, producer
from rollcall_ha.broker.consuming import reading, waiting
from rollcall_ha.broker.consuming.offsets_core import GROUPS_MAX, TOPICS_MAX
from rollcall_ha.broker.handlers.put import PutLimits
from rollcall_ha.broker.protocol.topics import QUEUES_PER_TOPIC_MAX
from rollcall_ha.controller.contract.orders import ORDERS
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.contract.settings import KEYS, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.views import PAGE_SETS_MAX
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX
from rollcall_ha.controller.replication import proposer
from rollcall_ha.controller.replication.membership import MEMBERS_MAX
from rollcall_ha.controller.replication.raft import config as raft
from rollcall_ha.controller.runtime import event_journal as journal
from rollcall_ha.controller.runtime import queries
from rollcall_ha.hooks.settings import Limits as HookLimits
from rollcall_ha.node import standard_error
from rollcall_ha.node.config import BrokerSection, FleetSection
from rollcall_ha.node.remoting.links import LinkLimits
from rollcall_ha.probe import journal as probe
from tests.perf.field.published import published_table

DOCS = Path(__file__).resolve().parents[2] / "docs"


def settings_table() -> str:
    """One row for each key."""
    founded = settings_of(PRESETS[Preset.NORMAL])
    lines = ["| key | meaning | unit | range | default | RocketMQ's name | read by |", "| --- " * 7 + "|"]
    for name, key in KEYS.items():
        taken = f"{'0 or ' if key.is_off_at_zero else ''}{key.least:,} to {key.most:,}"
        default = f"{founded.value(name):,}"
        rocketmq = f"`{key.rocketmq}`" if key.rocketmq else ""
        lines.append(f"| {name} | {key.meaning} | {key.unit} | {taken} | {default} | {rocketmq} | {key.read_by} |")
    return "\n".join(lines) + "\n"


def orders_table() -> str:
    """One row for each order; in its body what must be there stands in bold."""
    lines = ["| POST /v1... | role | what it does | body | answer |", "| --- " * 5 + "|"]
    for order in ORDERS:
        fields = [one for one in order.fields if one.name != "reason"]
        body = ", ".join(f"**{one.encode_name}**" if one.required else one.encode_name for one in fields)
        lines.append(f"| `{order.path}` | {order.role} | {order.summary} | {body} | {order.gives.__name__} |")
    return "\n".join(lines) + "\n"


def roles_table() -> str:
    """One row for each role, with the operations that the one before it may not call."""
    lines = ["| role | may call |", "| --- " * 2 + "|", f"| anybody | {_listed(OPEN)} |"]
    known: set[str] = set()
    for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.BROKER):
        may = {operation for operation, roles in ROLES.items() if role in roles}
        lines.append(f"| `{role}` | {'that, ' if known & may else ''}{_listed(may - known)} |")
        known |= may
    return "\n".join(lines) + "\n"


def _listed(operations: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in sorted(operations))


def limits_table() -> str:
    """One row for each limit that a person meets; values are those of the program."""
    fleet = {field.name: field.default for field in msgspec.structs.fields(FleetSection)}
    broker = {field.name: field.default for field in msgspec.structs.fields(BrokerSection)}
    put, links, hook = PutLimits(), LinkLimits(), HookLimits()
    probe_days = f"{probe.FILES_MAX} files of {_size(probe.FILE_BYTES_MAX)}, {probe.DAYS_MAX} days"
    fixed = "fixed"
    rows = (
        ("events that a controller keeps, by age", f"{fleet['event_days']} days", "`fleet.event_days`", "whole segments go, oldest first"),
        ("the same by size", _size(fleet["event_bytes"]), "`fleet.event_bytes`", "the same; whichever is met first"),
        ("events that wait for a controller's disk", f"{journal.PENDING_EVENTS_MAX:,}", fixed, "the controller ends"),
        ("what a cut has set aside (quarantine), by age", f"{broker['quarantine_days']} days", "`brokers.NAME.quarantine_days`", "looked at when the broker starts"),
        ("the same by size", _size(broker["quarantine_bytes"]), "`brokers.NAME.quarantine_bytes`", "the oldest go, never the newest"),
        ("segment of a log", _size(broker["segment_bytes"]), "`brokers.NAME.segment_bytes`", "the next one begins"),
        ("controllers; replicas of a set", f"{MEMBERS_MAX}; {REPLICAS_PER_SET_MAX}", fixed, "refused"),
        ("body of a message", _size(put.body_bytes_max), fixed, "refused"),
        ("messages of a master that wait for other replicas", f"{put.waiting_messages_max:,}, {_size(put.waiting_bytes_max)}", fixed, "sends are refused as overloaded"),
        ("queues of a broker, of a topic", f"{put.queues_max:,}, {QUEUES_PER_TOPIC_MAX}", fixed, "refused"),
        ("topics by order, groups", f"{TOPICS_MAX:,}, {GROUPS_MAX:,}", fixed, "refused"),
        ("a producer's sends without an answer", f"{producer.IN_FLIGHT_MAX:,}", "`in_flight_max`", "`send` waits"),
        ("the same by size", _size(producer.WAITING_BYTES_MAX), "`waiting_bytes_max`", "`send` waits"),
        ("messages that share a frame", f"{packing.PACK_MESSAGES_MAX:,}, {_size(packing.PACK_BYTES_MAX)}", "`PackLimits`", "the next frame begins"),
        ("a message's wait for neighbours", f"{packing.PACK_DELAY_MS} ms", "`PackLimits`", "its frame leaves"),
        ("a producer's wait for one", f"{producer.SEND_TIMEOUT_MS // 1000} s", "`send_timeout_ms`", "`SendFailedError` with its outcome"),
        ("pause between a producer's attempts", f"{producer.RETRY_DELAY_MS_MIN} to {producer.RETRY_DELAY_MS_MAX} ms", fixed, "until the wait ends"),
        ("messages in an answer to a reader", f"{reading.MESSAGES_MAX}, {_size(reading.BYTES_MAX)}", fixed, "the reader asks again"),
        ("a pull that waits", f"{waiting.WAIT_MS_MAX // 1000} s", fixed, "answered that there is nothing"),
        ("frame at a broker, at a controller", f"{_size(links.frame_bytes_max)}, {_size(port.FRAME_BYTES_MAX)}", fixed, "the link ends"),
        ("links of a port; of a REST port", f"{links.connections_max:,}; {listening.LINKS_MAX:,}", fixed, "a new one is closed, or one that said nothing"),
        ("a link on which nothing comes", f"{links.idle_ms_max // 1000} s", fixed, "closed"),
        ("body of a REST request", _size(requests.BODY_BYTES_MAX), fixed, "413"),
        ("page of sets; of events; of history", f"{PAGE_SETS_MAX}; {journal.PAGE_EVENTS_MAX}; {queries.HISTORY_ROWS_MAX}", "`limit`, up to this", "the next page"),
        ("a wait for events", f"{queries.EVENTS_WAIT_MS_MAX // 1000} s", "`waitMs`, up to this", "an empty page"),
        ("orders and reports that wait to be proposed", f"{proposer.BUFFER_OPERATIONS_MAX:,}", fixed, "refused"),
        ("a controller's Raft journal", _size(raft.JOURNAL_BYTES_MAX), fixed, "compacted into a snapshot"),
        ("tries of a hook's delivery, and its age", f"{hook.tries_max}, {hook.age_s_max // 3600} h", "`[limits]` of hooks.toml", "a dead letter"),
        ("deliveries that wait", f"{hook.waiting_max:,}", "the same", "events stay unread with the controllers"),
        ("a probe's journal", probe_days, fixed, "the oldest files go"),
        ("log lines that wait for standard error", _size(standard_error.WAITING_BYTES_MAX), fixed, "dropped and counted"),
    )  # fmt: skip
    lines = ["| limit | value | where it is set | beyond it |", "| --- " * 4 + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _size(count: object) -> str:
    """Bytes in the largest unit that divides them."""
    assert isinstance(count, int)
    unit, name = next(
        (1 << bits, name) for bits, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if not count % (1 << bits)
    )
    return f"{count // unit} {name}"


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "orders": orders_table,
    "threats": roles_table,
    "limits": limits_table,
    "bench-field": published_table,
}
"""By the name of the page, and of the marks around the table."""


def with_table(name: str, text: str) -> str:
    """The page with the table of today. Raises ``ValueError`` if it has no place for it."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"docs/{name}.md has no lines {begin.strip()} and {end}; write them where the table goes")
    return f"{before}{begin}{TABLES[name]()}{end}{after}"


def write(name: str) -> None:
    """The page ``name`` has the table of today. Raises as ``with_table``."""
    page = DOCS / f"{name}.md"
    page.write_text(with_table(name, page.read_text()))


if __name__ == "__main__":
    for one in TABLES:
        write(one)
