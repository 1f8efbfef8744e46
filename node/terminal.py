"""
Text that a terminal shows and does not obey.

Here: control characters, written out; characters that the reader's encoding lacks. Not here: tables, formats
(``cli.output``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TextIO

import msgspec

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


def keep_printing() -> None:
    """
    Have standard output show what it cannot encode, as standard error does, and take what nobody reads.

    A job of cron with an ASCII locale meets a set with a Chinese name; a service may start us with descriptor 1 closed.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 (for the life of the process)
    elif hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def can_show(text: str, stream: TextIO) -> bool:
    """Whether the stream's encoding has every character."""
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def for_stream(text: str, stream: TextIO) -> str:
    """The text, with what the stream cannot encode as Python writes it."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def json_for(text: str, stream: TextIO) -> str:
    """The same JSON in characters that the stream can encode; ``for_stream`` knows escapes that JSON does not."""
    return text if can_show(text, stream) else re.sub(r"[^\x00-\x7f]", lambda one: json.dumps(one[0])[1:-1], text)


def print_json(found: object, *, is_line: bool = False) -> None:
    """A document for programs, on standard output, at once."""
    text = msgspec.json.encode(found)
    text = text if is_line else msgspec.json.format(text, indent=2)
    sys.stdout.write(json_for(text.decode(), sys.stdout) + "\n")
    sys.stdout.flush()
