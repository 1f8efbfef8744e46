"""
The shape of everything that an entry or an event may hold, as a table to compare releases by.

Here: ``shapes``, by reflection. Not here: which level has what (``controller.contract.levels``).
"""

from __future__ import annotations

from typing import Any

import msgspec.inspect as mi

from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.events import EventRecord

Shape = dict[str, Any]
"""Of a struct: ``tag`` (or null), ``mandatory`` and ``optional`` field names. Of an enumeration: ``words``."""


def shapes() -> dict[str, Shape]:
    """Each type that can be reached from an operation or an event, by the name of its class."""
    found: dict[str, Shape] = {}
    for root in (Operation, EventRecord):
        _walk(mi.type_info(root), found)
    return dict(sorted(found.items()))


def _walk(info: mi.Type, found: dict[str, Shape]) -> None:
    match info:
        case mi.StructType():
            if info.cls.__name__ in found:
                return
            found[info.cls.__name__] = {
                "tag": info.tag,
                "mandatory": sorted(field.name for field in info.fields if field.required),
                "optional": sorted(field.name for field in info.fields if not field.required),
            }
            for field in info.fields:
                _walk(field.type, found)
        case mi.EnumType():
            found[info.cls.__name__] = {"words": sorted(str(member.value) for member in info.cls)}
        case mi.UnionType():
            for part in info.types:
                _walk(part, found)
        case mi.VarTupleType():
            _walk(info.item_type, found)
        case mi.TupleType():
            for part in info.item_types:
                _walk(part, found)
