"""
The shape of everything that an entry, an event or the digest of the state may hold, as tables to compare releases by.

Here: ``shapes`` and ``digested``, by reflection; ``python -m tests.levels.shapes`` holds the latter for this level. Not
here: which level has what (``controller.contract.levels``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as mi

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, Operation
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.core.state import SetState

Shape = dict[str, Any]
"""Of a struct: ``tag`` (or null), ``mandatory`` and ``optional`` field names. Of an enumeration: ``words``."""

Defaults = dict[str, str]
"""Of a struct: its fields, by the names under which they are written, with their defaults as Python writes them."""


def shapes() -> dict[str, Shape]:
    """Each type that can be reached from an operation or an event, by the name of its class."""
    found: dict[str, mi.StructType | mi.EnumType] = {}
    for root in (Operation, EventRecord):
        _walk(mi.type_info(root), found)
    return {name: _shape(found[name]) for name in sorted(found)}


def digested() -> dict[str, Defaults]:
    """Each struct that can be reached from a set, by the name of its class: ``core.digest`` hashes their encoding."""
    found: dict[str, mi.StructType | mi.EnumType] = {}
    _walk(mi.type_info(SetState), found)
    return {name: _defaults(info) for name, info in sorted(found.items()) if isinstance(info, mi.StructType)}


def digested_of(level: int) -> Path:
    """Where the digested shapes of a level are held."""
    return Path(__file__).parent / f"digested_{level}.json"


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


def hold() -> None:
    """Write what this level digests; until its release it may change."""
    digested_of(FEATURE_LEVEL).write_text(json.dumps(digested(), indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    hold()
