"""
Header classes of RocketMQ as values: ``extFields`` to fields and back (docs/wire.md, header fields).

Here: the conversion. Not here: which header a code has (``beans`` of each family), frames and bodies
(``node.remoting``).

Rule 1: names on the wire are the fields' names in camel case; every value is text; null is left out.
Rule 2: a field that is missing, or is no number where one should be, is null, as in Java, which logs it and goes on. So
every field of a request header has the default None.
Rule 3: a boolean is true only as "true", in any case.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from rollcall_ha.controller.contract.values import Value


class Header(Value):
    """Base of all header classes. Fields are ``str``, ``int`` or ``bool``, each with None for null."""


HeaderType = TypeVar("HeaderType", bound=Header)

_INT64 = range(-(2**63), 2**63)
PLAIN_DIGITS_MAX = 18
"""So many digits without a sign are surely a number of 64 bits."""
_INT = re.compile(r"[+-]?[0-9]{1,19}")
_KINDS: dict[type[Header], tuple[tuple[str, str, type], ...]] = {}


def _kinds_of(header: type[Header]) -> tuple[tuple[str, str, type], ...]:
    """(attribute, name on the wire, type) of every field."""
    kinds = _KINDS.get(header)
    if kinds is None:
        hints = get_type_hints(header)
        kinds = tuple(
            (field.name, field.encode_name, next(iter(get_args(hints[field.name]) or (hints[field.name],))))
            for field in msgspec.structs.fields(header)
        )
        _KINDS[header] = kinds
    return kinds


def read_header(header: type[HeaderType], fields: dict[str, str] | None) -> HeaderType:
    """The header of a request; total (rules 2 and 3)."""
    given = fields or {}
    values: dict[str, Any] = {
        attribute: value
        for attribute, name, kind in _kinds_of(header)
        if (text := given.get(name)) is not None and (value := _read(text, kind)) is not None
    }
    return header(**values)


def _read(text: str, kind: type) -> str | int | bool | None:
    if kind is bool:
        return text.lower() == "true"
    if kind is int:
        # isdigit() alone is true for "²", for which int() raises.
        if len(text) <= PLAIN_DIGITS_MAX and text.isascii() and text.isdigit():
            return int(text)
        return number if _INT.fullmatch(text) and (number := int(text)) in _INT64 else None
    return text


def header_fields(header: Header) -> dict[str, str]:
    """``extFields`` of an answer or a push; names sorted, as Java writes them."""
    found: dict[str, str] = {}
    for attribute, name, _ in _kinds_of(type(header)):
        value = getattr(header, attribute)
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return dict(sorted(found.items()))
