"""
Properties of a record: ``name 0x01 value 0x02`` repeated.
"""

from __future__ import annotations

from collections.abc import Collection


def last_value(properties: bytes, name: bytes) -> bytes:
    """
    The value of the property ``name``, which ends with 0x01; empty: there is none.

    As RocketMQ reads them: of two the last one counts, and one without a value is none.
    """
    at = properties.rfind(name)
    while at >= 0:
        # ``MYTAGS`` is another property than ``TAGS``.
        if not at or properties[at - 1] == 2:
            start = at + len(name)
            end = properties.find(b"\x02", start)
            if value := properties[start : end if end >= 0 else len(properties)]:
                return value
        at = properties.rfind(name, 0, at)
    return b""


def without(properties: bytes, names: Collection[bytes]) -> bytes:
    """All but the properties of these names, which are given without 0x01; whatever is left ends with 0x02."""
    parts = [part for part in properties.split(b"\x02") if part and part.partition(b"\x01")[0] not in names]
    return b"".join(part + b"\x02" for part in parts)


def decode_properties(properties: bytes) -> dict[str, str]:
    """``name 0x01 value 0x02`` repeated; of two with one name the last counts."""
    pairs = (part.partition("\x01") for part in properties.decode("utf-8", "replace").split("\x02"))
    return {name: value for name, _, value in pairs if name and value}
