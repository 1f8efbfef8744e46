"""
Which records of a queue a consumer gets.

Here: a filter from the text of a subscription, by tags or by an expression over properties. Not here: the language of
expressions (``sql``), who has subscribed to what (``groups``).

Rule 1: a filter by tags looks at the code in the queue first, and reads only records whose code fits.
Rule 2: then it compares the text of the record's TAGS. RocketMQ's broker leaves that to the client, so that two tags
with one code ("Aa", "BB") share an answer's room, and a tag whose code is 0 gets all records without tags. Here a
record is read anyway before it is sent, and who pulls without RocketMQ's client library gets what it asked for.
Rule 3: a text is made into a filter once, as long as it comes again soon enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from rollcall_ha.broker.consuming.sql import SqlError, compile_sql
from rollcall_ha.broker.folds.dispatcher import tags_of
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.java_hash import tags_code
from rollcall_ha.broker.protocol.pull import Refused

FILTERS_KEPT_MAX: Final = 256


class Filter(msgspec.Struct, frozen=True):
    """Both questions are asked of each record, in this order; None = all pass."""

    codes: frozenset[int] | None = None
    """Codes of tags in the queue's units that may pass."""
    passes: Callable[[bytes], bool] | None = None
    """Whether a record with these properties passes; never raises."""
    text: str = "*"
    """Equal texts, equal filters."""


ALL: Final = Filter()


@lru_cache(FILTERS_KEPT_MAX)
def make_filter(expression_type: str, expression: str) -> Filter | Refused:
    """The filter of a subscription: ``expressionType`` ("" is TAG too) and ``subString`` of RocketMQ's clients."""
    if expression_type in ("", "TAG"):
        return _tag_filter(expression)
    if expression_type != "SQL92":
        remark = f"expressionType {expression_type[:99]!r} is not known; TAG and SQL92 are"
        return Refused(ClientResult.SUBSCRIPTION_PARSE_FAILED, remark)
    try:
        return Filter(passes=compile_sql(expression), text=f"SQL92 {expression}")
    except SqlError as error:
        return Refused(ClientResult.SUBSCRIPTION_PARSE_FAILED, f"SQL92 expression: {error}")


def _tag_filter(expression: str) -> Filter | Refused:
    if expression in ("", "*"):
        return ALL
    tags = frozenset(tag.encode() for part in expression.split("||") if (tag := part.strip()))
    # It would pass nothing, for ever, and look like a topic without messages.
    if not tags:
        remark = f'subscription {expression[:99]!r} names no tag; "*" is all messages, "a || b" those with either'
        return Refused(ClientResult.SUBSCRIPTION_PARSE_FAILED, remark)
    codes = frozenset(map(tags_code, tags))
    return Filter(codes=codes, passes=lambda properties: tags_of(properties) in tags, text=f"TAG {expression}")
