"""Headers as clients in other languages write them: numbers, truth values and nulls where Java has texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.broker.protocol.send import SendRequest, parse_frame
from rollcall_ha.node.remoting.frame import Frame, FrameError, decode_frame

LONG = {
    "producerGroup": "g",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 1,
    "sysFlag": 0,
    "bornTimestamp": 1_700_000_000_000,
    "flag": 0,
    "properties": "TAGS\x01a\x02",
    "reconsumeTimes": 0,
    "unitMode": False,
}
SHORT = {
    "a": "g",
    "b": "T",
    "c": "TBW102",
    "d": 4,
    "e": 1,
    "f": 0,
    "g": 1_700_000_000_000,
    "h": 0,
    "i": "TAGS\x01a\x02",
    "j": 0,
    "k": False,
}
FIRST = {"version": 357, "language": "CPP", "flag": 0, "opaque": 5}
CLIENTS: dict[str, tuple[dict[str, Any], str]] = {
    # jsoncpp sorts; rocketmq-client-cpp before 2.0 sends code 10, later 310.
    "C++, code 10": (
        {"code": 10, "extFields": LONG, "flag": 0, "language": "CPP", "opaque": 5, "remark": "", "version": 357},
        "",
    ),
    "C++, code 310": ({"code": 310, "extFields": SHORT, "flag": 0, "language": "CPP", "opaque": 5, "version": 357}, ""),
    "Node": ({"code": 310, "language": "JAVA", "opaque": 5, "flag": 0, "version": 121, "extFields": SHORT}, ""),
    "Lua": ({"extFields": SHORT, **FIRST, "code": 310, "language": "OTHER"}, "1.7e+12"),
    "PHP": (
        {"code": 310, "extFields": {**SHORT, "m": None}, "flag": 0, "language": "PHP", "opaque": 5, "remark": None},
        "",
    ),
}


def frame(header: str) -> memoryview:
    return memoryview(len(header.encode()).to_bytes(4, "big") + header.encode() + b"hello")


def understood(header: str) -> SendRequest | Frame:
    try:
        return parse_frame(frame(header))
    except FrameError as error:
        pytest.fail(f"its link would be closed: {error}")


def texts(fields: dict[str, Any]) -> dict[str, str]:
    """As Java writes the same."""
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in fields.items()
        if value is not None
    }


@pytest.mark.parametrize("client", CLIENTS)
def test_a_send_with_numbers_is_understood_as_its_twin_with_texts(client: str) -> None:
    header, instant = CLIENTS[client]
    written = json.dumps(header, separators=(",", ":"))
    if instant:
        written = written.replace("1700000000000", instant)
    twin = json.dumps({**header, "extFields": texts(header["extFields"])}, separators=(",", ":"))

    found, expected = understood(written), parse_frame(frame(twin))

    assert isinstance(found, SendRequest)
    assert found == expected
    assert (found.header.extFields.e, found.header.extFields.g) == (1, 1_700_000_000_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", "1"),
        ("-7", "-7"),
        ("true", "true"),
        ("false", "false"),
        ("1.5", "1.5"),
        ("1.7e+12", "1700000000000"),
        ('{"a":[1]}', '{"a":[1]}'),
        ("18446744073709551616", "18446744073709551616"),
        ('"as it is"', "as it is"),
    ],
)
def test_a_field_that_is_no_text_becomes_one(value: str, text: str) -> None:
    found = decode_frame(frame(f'{{"code":105,"opaque":1,"extFields":{{"x":{value}}}}}'))

    assert found.ext_fields == {"x": text}


def test_a_field_that_is_null_is_none() -> None:
    """A reader of ours that found the text ``null`` would look for a broker of that name."""
    found = understood('{"code":105,"opaque":1,"extFields":{"topic":"T","x":null}}')

    assert isinstance(found, Frame)
    assert found.ext_fields == {"topic": "T"}


def test_nesting_beyond_the_decoder_is_no_frame() -> None:
    """In a field that nobody reads: the error of the fast way went past the link's handler."""
    deep = "[" * 100_000 + "]" * 100_000

    with pytest.raises(FrameError):
        parse_frame(frame(f'{{"code":310,"extFields":{{"b":"T","e":1,"z":{deep}}},"opaque":1}}'))


VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-5, 5).map(str),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["1.0", "1e3", "null", "true", " 1", "01", ""]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.none(), max_size=2),
)


def outcome(header: str) -> object:
    try:
        return parse_frame(frame(header))
    except ValueError as error:
        return type(error)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*"befghijk", "waitUs", "other"]), VALUES))
def test_the_fast_and_the_general_way_agree_on_every_field(fields: dict[str, Any]) -> None:
    """Which of the two is taken is the order of the keys: code first, or not."""
    written = json.dumps({"b": "T", "e": 1, **fields})

    fast = outcome(f'{{"code":310,"extFields":{written},"opaque":1,"flag":0}}')
    general = outcome(f'{{"extFields":{written},"code":310,"opaque":1,"flag":0}}')

    assert fast == general
