"""The Spark schema follows the event schema by itself."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.schema import event_record_schema
from rollcall_ha.controller.contract import events


def test_every_field_of_every_kind_has_a_column() -> None:
    """A new event or field needs no second place to be written down."""
    columns = event_record_schema()["event"].dataType

    missing = [
        (kind.__name__, field.encode_name)
        for kind in events.AnyEvent.__args__
        for field in msgspec.structs.fields(kind)
        if field.encode_name not in columns.fieldNames()
    ]

    assert missing == []
    assert "kind" in columns.fieldNames()


def test_fields_of_one_name_are_merged() -> None:
    """``verdict`` is an election's, an alter's and a loss's: one struct holds all three."""
    verdict = event_record_schema()["event"].dataType["verdict"].dataType.fieldNames()

    assert {"winner", "seq", "grade"} <= set(verdict)
