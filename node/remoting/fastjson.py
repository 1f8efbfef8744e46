"""
JSON as fastjson 1.2 writes it: numeric keys of maps stand without quotes (docs/wire.md, JSON bodies).

Here: making it legal. Not here: its meaning. Rule: time grows with the length alone, for any bytes.
"""

from __future__ import annotations

import re

_BEFORE_KEYS = re.compile(
    # All up to the comma or brace before a bare key, then its digits. Nothing that was passed is looked at again: a
    # string without an end is passed too, or each quote in it would begin a search of its own to the end.
    rb'((?:[^"{,]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{,](?!\s*-?[0-9]+\s*:))*+(?:[{,]\s*)?)(-?[0-9]+)?',
    re.DOTALL,
)


def quote_keys(body: bytes) -> bytes:
    """``body`` with its bare numeric keys in quotes; strings stay as they are."""
    return b"".join(before + b'"' + key + b'"' if key else before for before, key in _BEFORE_KEYS.findall(body))
