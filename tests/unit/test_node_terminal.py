"""Texts for readers whose encoding lacks characters."""

from __future__ import annotations

import io
import json

import pytest

from rollcall_ha.node.terminal import can_show, for_stream, json_for

ASCII = io.TextIOWrapper(io.BytesIO(), encoding="ascii")


@pytest.mark.parametrize("name", ["订单", "é", "\U0001f600", "\x85 and \u202e"])
def test_json_for_an_ascii_reader_is_json_with_the_same_names(name: str) -> None:
    """Python's own escapes are none of JSON: ``\\xe9``, ``\\U0001f600``."""
    text = json_for(json.dumps({name: name}, ensure_ascii=False), ASCII)

    assert can_show(text, ASCII)
    assert json.loads(text) == {name: name}


def test_what_can_be_shown_stays_as_it_is() -> None:
    utf_8 = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")

    assert (json_for('{"a":"订"}', utf_8), for_stream("订", utf_8), for_stream("订", io.StringIO())) == (
        '{"a":"订"}',
        "订",
        "订",
    )
