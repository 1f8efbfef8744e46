"""Filters by tags: what the queue's code lets pass, and what the record's text does."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.consuming.filters import ALL, FILTERS_KEPT_MAX, Filter, make_filter
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.java_hash import tags_code
from rollcall_ha.broker.protocol.pull import Refused


def passes(subscription: str, properties: bytes, *, tags: bytes = b"") -> bool:
    """As the queue's reader asks: the code first, then the properties."""
    found = make_filter("TAG", subscription)
    assert isinstance(found, Filter)
    if found.codes is not None and tags_code(tags) not in found.codes:
        return False
    return found.passes is None or found.passes(properties)


@pytest.mark.parametrize("text", ["", "*"])
@pytest.mark.parametrize("kind", ["", "TAG"])
def test_all_messages_are_wanted_by_nothing_and_by_a_star(kind: str, text: str) -> None:
    assert make_filter(kind, text) is ALL


def test_any_of_the_tags_passes_and_no_other() -> None:
    assert passes(" a ||b|| ", b"TAGS\x01b\x02KEYS\x01a\x02", tags=b"b")
    assert not passes("a||b", b"TAGS\x01c\x02", tags=b"c")
    assert not passes("a||b", b"TAGS\x01a || b\x02", tags=b"a || b"), "all of TAGS is one tag"


def test_two_tags_with_one_code_are_told_apart() -> None:
    assert tags_code(b"Aa") == tags_code(b"BB")
    assert passes("Aa", b"UNIQ_KEY\x011\x02TAGS\x01Aa", tags=b"Aa")
    assert not passes("Aa", b"TAGS\x01BB\x02", tags=b"BB")


def test_a_tag_of_code_0_does_not_get_records_without_tags() -> None:
    """Of one NUL character the hash is 0, which is what the queue has for no tags."""
    tag = "x\0"[1:]

    assert tags_code(tag.encode()) == 0
    assert not passes(tag, b"KEYS\x01k\x02")


def test_a_property_whose_name_ends_like_tags_is_none() -> None:
    assert not passes("a", b"MYTAGS\x01a\x02", tags=b"a")


def test_a_tag_in_chinese_passes_by_java_s_code() -> None:
    tag = "订单"

    assert passes(tag, b"TAGS\x01" + tag.encode() + b"\x02", tags=tag.encode())


@pytest.mark.parametrize("text", ["||", " || ", "|| ||"])
def test_a_subscription_to_no_tag_is_refused(text: str) -> None:
    """It would look like a topic without messages for ever."""
    refused = make_filter("TAG", text)

    assert isinstance(refused, Refused)
    assert refused.code == ClientResult.SUBSCRIPTION_PARSE_FAILED
    assert '"*" is all messages' in refused.remark


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("CLASS", "x", "'CLASS' is not known; TAG and SQL92 are"),
        ("SQL92", "a >", "SQL92 expression"),
    ],
)
def test_what_cannot_be_a_filter_is_refused_with_its_reason(kind: str, text: str, why: str) -> None:
    refused = make_filter(kind, text)

    assert isinstance(refused, Refused)
    assert refused.code == ClientResult.SUBSCRIPTION_PARSE_FAILED
    assert why in refused.remark


def test_equal_texts_have_one_filter() -> None:
    """As long as it is among those that are kept."""
    one = make_filter("TAG", "one-filter")
    assert isinstance(one, Filter)
    assert make_filter("TAG", "one-filter") is one
    assert make_filter("SQL92", "TRUE") != ALL
    assert make_filter("SQL92", "a = 1") is make_filter("SQL92", "a = 1")
    for number in range(FILTERS_KEPT_MAX):
        make_filter("TAG", f"another-{number}")

    again = make_filter("TAG", "one-filter")

    assert make_filter.cache_info().currsize <= FILTERS_KEPT_MAX
    assert isinstance(again, Filter)
    assert (again is one, again.text == one.text) == (False, True)


def test_an_expression_looks_at_every_unit() -> None:
    found = make_filter("SQL92", "a > 5")

    assert isinstance(found, Filter)
    assert found.codes is None
    assert found.passes is not None
    assert found.passes(b"a\x016\x02")
    assert not found.passes(b"a\x015\x02")
