"""
JSON as fastjson 1.2 writes it: numeric keys of maps stand without quotes (docs/wire.md, JSON bodies).

Here: making it legal. Not here: its meaning. Rule: time grows with the length alone, for any bytes.
"""

from __future__ import annotations

import re

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?[0-9]+)(\s*:)')


def quote_keys(body: bytes) -> bytes:
    """``body`` with its bare numeric keys in quotes; strings stay as they are."""
    return _TOKENS.sub(_quoted, body)


def _quoted(found: re.Match[bytes]) -> bytes:
    if found.group(2) is None:
        return found.group(0)
    return found.group(1) + b'"' + found.group(2) + b'"' + found.group(3)
