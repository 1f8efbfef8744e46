"""
The tables of pages that are made of the contract: settings, orders, and who may do what by REST (``threats``).

``python -m tests.docs.made_tables`` writes them into the pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rollcall_ha.api.rest.roles import OPEN, ROLES
from rollcall_ha.controller.contract.orders import ORDERS
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.contract.settings import KEYS, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset

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


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "orders": orders_table,
    "threats": roles_table,
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


if __name__ == "__main__":
    for one in TABLES:
        page = DOCS / f"{one}.md"
        page.write_text(with_table(one, page.read_text()))
