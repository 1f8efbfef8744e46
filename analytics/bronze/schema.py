"""
The Spark schema of an event record, generated from the one event schema of the house.

Here: types by reflection. Not here: reading files (``lines``), the meaning of fields
(``controller.contract.events``).
Rule 1: nothing is written by hand: a field added to ``controller.contract.events`` appears here by itself.
Rule 2: kinds share one flat struct; fields of one name are merged, and two that cannot be merged fail at import, not
at run.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec.inspect as mi

from rollcall_ha.controller.contract.events import EventRecord

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def event_record_schema() -> StructType:
    """Type of one journal line. All fields are nullable: one that a version does not have is null."""
    schema = _spark_type(mi.type_info(EventRecord))
    from pyspark.sql.types import StructType

    assert isinstance(schema, StructType)
    return schema


def _spark_type(info: mi.Type) -> DataType:
    from pyspark.sql import types as st

    match info:
        case mi.StructType():
            return st.StructType([st.StructField(f.encode_name, _spark_type(f.type)) for f in _with_tag(info)])
        case mi.UnionType():
            return reduce(_merged, (_spark_type(t) for t in info.types if not isinstance(t, mi.NoneType)))
        case mi.VarTupleType() | mi.ListType():
            return st.ArrayType(_spark_type(info.item_type))
        case mi.TupleType():
            # Items of different types: JSON gives them as one array, whose only common type is text.
            return st.ArrayType(st.StringType())
        case mi.BoolType():
            return st.BooleanType()
        case mi.EnumType():
            return st.LongType() if issubclass(info.cls, int) else st.StringType()
        case mi.IntType():
            return st.LongType()
        case mi.StrType():
            return st.StringType()
        case _:
            raise TypeError(f"no Spark type for {info}; events carry integers, text, booleans, arrays and structs")


def _with_tag(info: mi.StructType) -> list[mi.Field]:
    tag = [] if info.tag_field is None else [_tag_field(info.tag_field)]
    return [*tag, *info.fields]


def _tag_field(name: str) -> mi.Field:
    return mi.Field(name=name, encode_name=name, type=mi.StrType())


def _merged(left: DataType, right: DataType) -> DataType:
    """One type that holds both. Raises ``TypeError`` where a name means two things."""
    from pyspark.sql import types as st

    if left == right:
        return left
    if isinstance(left, st.StructType) and isinstance(right, st.StructType):
        fields: dict[str, Any] = {field.name: field.dataType for field in left.fields}
        for field in right.fields:
            known = fields.get(field.name)
            fields[field.name] = field.dataType if known is None else _merged(known, field.dataType)
        return st.StructType([st.StructField(name, kind) for name, kind in fields.items()])
    if isinstance(left, st.ArrayType) and isinstance(right, st.ArrayType):
        return st.ArrayType(_merged(left.elementType, right.elementType))
    raise TypeError(f"one field name, two types: {left.simpleString()} and {right.simpleString()}")
