"""
Text that a terminal shows and does not obey.

Here: control characters, written out. Not here: tables, formats (``cli.output``).
"""

from __future__ import annotations

_ESCAPED = {
    code: ascii(chr(code))[1:-1]
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
OBEYED = "".join(map(chr, _ESCAPED))
"""Control characters, and those that turn the direction of the text."""


def harmless(text: str) -> str:
    """The text with what a terminal obeys as Python writes it; ``rich.control`` leaves ESC as it is."""
    # Without this, a broker that registers as "c\x1b[2J" clears the screen of each operator who asks for the status.
    return text.translate(_ESCAPED)
