"""
The table of docs/settings.md, made of ``controller/contract/settings.py``.

``python -m tests.docs.settings_page`` writes it into the page.
"""

from __future__ import annotations

from pathlib import Path

from rollcall_ha.controller.contract.settings import KEYS, settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
BEGIN, END = "<!-- settings -->\n", "<!-- end of settings -->"


def table() -> str:
    """One row for each key."""
    founded = settings_of(PRESETS[Preset.NORMAL])
    lines = ["| key | meaning | unit | range | default | RocketMQ's name | read by |", "| --- " * 7 + "|"]
    for name, key in KEYS.items():
        taken = f"{'0 or ' if key.is_off_at_zero else ''}{key.least:,} to {key.most:,}"
        default = f"{getattr(founded, name):,}"
        rocketmq = f"`{key.rocketmq}`" if key.rocketmq else ""
        lines.append(f"| {name} | {key.meaning} | {key.unit} | {taken} | {default} | {rocketmq} | {key.read_by} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The page with the table of today. Raises ``ValueError`` if it has no place for it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no lines {BEGIN.strip()} and {END}; write them where the table goes")
    return f"{before}{begin}{table()}{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
