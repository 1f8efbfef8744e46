"""
The shape of everything that an entry, an event or the digest of the state may hold, as tables to compare releases by.

Here: ``shapes``, by reflection. Not here: writing them (``recorded``), which level has what
(``controller.contract.levels``).
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
import msgspec.inspect as mi

from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.core.state import SetState

Shape = dict[str, Any]
"""A struct has ``tag`` (or null), ``mandatory`` and ``optional`` field names, an enumeration has ``words``."""

Defaults = dict[str, str]
"""The fields of a struct, by the names under which they are written, with their defaults as Python writes them."""


class Shapes(TypedDict):
    """Types by the names of their classes."""

    replicated: dict[str, Shape]
    """Each that can be reached from an operation or an event."""
    digested: dict[str, Defaults]
    """Each struct that can be reached from a set: ``core.digest`` hashes their encoding."""


def shapes() -> Shapes:
    """The shapes of this program."""
    replicated: dict[str, mi.StructType | mi.EnumType] = {}
    for root in (Operation, EventRecord):
        _walk(mi.type_info(root), replicated)
    held: dict[str, mi.StructType | mi.EnumType] = {}
    _walk(mi.type_info(SetState), held)
    return {
        "replicated": {name: _shape(info) for name, info in sorted(replicated.items())},
        "digested": {name: _defaults(info) for name, info in sorted(held.items()) if isinstance(info, mi.StructType)},
    }


def _shape(info: mi.StructType | mi.EnumType) -> Shape:
    if isinstance(info, mi.EnumType):
        return {"words": sorted(str(member.value) for member in info.cls)}
    return {
        "tag": info.tag,
        "mandatory": sorted(field.name for field in info.fields if field.required),
        "optional": sorted(field.name for field in info.fields if not field.required),
    }


def _defaults(info: mi.StructType) -> Defaults:
    return {field.encode_name: _default(field) for field in info.fields}


def _default(field: mi.Field) -> str:
    # The inspection shows the default UNSET as none at all.
    is_unset = not field.required and field.default is field.default_factory is msgspec.NODEFAULT
    return "UNSET" if is_unset else "mandatory" if field.required else repr(field.default)


def _walk(info: mi.Type, found: dict[str, mi.StructType | mi.EnumType]) -> None:
    match info:
        case mi.StructType():
            if info.cls.__name__ in found:
                return
            found[info.cls.__name__] = info
            for field in info.fields:
                _walk(field.type, found)
        case mi.EnumType():
            found[info.cls.__name__] = info
        case mi.UnionType():
            for part in info.types:
                _walk(part, found)
        case mi.VarTupleType():
            _walk(info.item_type, found)
        case mi.TupleType():
            for part in info.item_types:
                _walk(part, found)
