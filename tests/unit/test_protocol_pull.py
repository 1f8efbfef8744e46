"""Pull requests, questions and answers: both header forms, and peers that talk nonsense."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.pull import (
    PullRequest,
    Refused,
    parse_pull,
    pull_answer,
)
from rollcall_ha.node.remoting.codes import FLAG_RESPONSE
from rollcall_ha.node.remoting.frame import Frame, HeaderForm, decode_frame, encode_frame

FIELDS = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "3",
    "queueOffset": "17",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "16",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
    "expressionType": "TAG",
    "proxyFrowardClientId": "somebody's",
}
NAMES = ["groupSysFlag", "maxOffset", "minOffset", "nextBeginOffset", "suggestWhichBrokerId", "topicSysFlag"]


def a_frame(fields: dict[str, str], form: HeaderForm = HeaderForm.JSON) -> Frame:
    frame = Frame(code=ClientCode.PULL_MESSAGE, opaque=-5, ext_fields=fields, form=form)
    return decode_frame(encode_frame(frame)[4:])


@pytest.mark.parametrize("form", list(HeaderForm))
def test_a_pull_means_the_same_in_either_form(form: HeaderForm) -> None:
    """With fields that it does not know, and without those that Java's clients leave out."""
    request = parse_pull(a_frame(FIELDS, form))

    assert not isinstance(request, Refused)
    assert (request.consumer_group, request.topic, request.queue_id, request.queue_offset) == ("g", "T", 3, 17)
    assert (request.max_msg_nums, request.commit_offset, request.sub_version) == (32, 16, 1_700_000_000_000)
    assert (request.subscription, request.expression_type) == ("", "TAG")
    assert request.wait_ms == 15_000


def test_only_a_pull_that_may_be_held_waits() -> None:
    request = parse_pull(a_frame(FIELDS | {"sysFlag": "1"}))

    assert not isinstance(request, Refused)
    assert request.wait_ms == 0


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "consumerGroup"),
        (FIELDS | {"queueOffset": "abc"}, "queueOffset"),
        (FIELDS | {"queueOffset": str(1 << 63)}, "queueOffset"),
        (FIELDS | {"commitOffset": str(-(1 << 63) - 1)}, "commitOffset"),
        (FIELDS | {"queueId": ""}, "queueId"),
        (FIELDS | {"maxMsgNums": "1.5"}, "maxMsgNums"),
        (FIELDS | {"subscription": "x" * 4_097}, "<= 4096 - at `$.subscription`"),
        (FIELDS | {"expressionType": "x" * 65}, "<= 64 - at `$.expressionType`"),
    ],
)
def test_nonsense_is_a_refusal_that_names_the_field(fields: dict[str, str], what: str) -> None:
    refused = parse_pull(a_frame(fields))

    assert isinstance(refused, Refused)
    assert refused.code == ClientResult.SYSTEM_ERROR
    assert what in refused.remark


def test_texts_of_a_pull_have_room() -> None:
    assert isinstance(
        parse_pull(a_frame(FIELDS | {"subscription": "x" * 4_096, "expressionType": "x" * 64})), PullRequest
    )


@pytest.mark.parametrize("form", list(HeaderForm))
@pytest.mark.parametrize("code", [0, 1, 2, 19, 20, 21, 24])
def test_every_answer_names_the_next_offset_and_the_ends_of_the_queue(form: HeaderForm, code: int) -> None:
    """A client in Go took a missing one for 0 and began again; one in Java failed."""
    data = pull_answer(7, form, code, next_offset=5, min_offset=2, max_offset=9, remark='why "so"\n')
    answer = decode_frame(data[4:])

    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert (answer.code, answer.opaque, answer.flag, answer.form) == (code, 7, FLAG_RESPONSE, form)
    assert answer.remark == 'why "so"\n'
    assert answer.ext_fields == dict(zip(NAMES, ["0", "9", "2", "5", "0", "0"], strict=True))


def test_the_quick_form_is_what_any_frame_would_be() -> None:
    """Byte for byte: keys sorted, as Java writes them."""
    fields = dict(zip(NAMES, ["0", "9", "2", "5", "0", "0"], strict=True))
    for remark in ("", "ünïcode"):
        frame = Frame(code=19, opaque=7, flag=FLAG_RESPONSE, ext_fields=fields, remark=remark or None, body=b"abc")

        assert encode_frame(frame) == pull_answer(
            7, HeaderForm.JSON, 19, next_offset=5, min_offset=2, max_offset=9, remark=remark,
            records=[memoryview(b"a"), memoryview(b"bc")],
        )  # fmt: skip


@pytest.mark.parametrize("form", list(HeaderForm))
def test_records_lie_back_to_back_in_the_body(form: HeaderForm) -> None:
    data = pull_answer(7, form, 0, next_offset=5, records=[memoryview(b"one"), memoryview(b"two")])

    assert decode_frame(data[4:]).body == b"onetwo"
