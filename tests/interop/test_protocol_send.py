"""Send requests of Java clients, byte for byte, and answers that they understand."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.protocol.codes import ClientResult, SendRefusal
from rollcall_ha.broker.protocol.routes import (
    RouteBroker,
    RouteState,
    decode_route,
    encode_route,
    encode_topic_route,
)
from rollcall_ha.broker.protocol.send import (
    BatchItem,
    SendRefusedError,
    SendRequest,
    decode_batch,
    encode_send,
    parse_frame,
    put_duplicate,
    put_ok,
    put_refused,
    send_from_frame,
)
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.node.remoting.frame import Frame, HeaderForm, decode_frame, encode_frame

JAVA_SEND = bytes.fromhex(
    "000001570000014e7b22636f6465223a3331302c226578744669656c6473223a7b2261223a227067222c2262223a22546f70696347222c22"
    "63223a22544257313032222c2264223a2234222c2265223a2233222c2266223a2230222c2267223a2231373935323232313430373234222c"
    "2268223a2230222c2269223a224b4559535c75303030316b315c7530303032554e49515f4b45595c7530303031494430315c753030303257"
    "4149545c7530303031747275655c7530303032544147535c7530303031746167415c7530303032222c226a223a2230222c226b223a226661"
    "6c7365222c226d223a2266616c7365222c226e223a2262726f6b65722d61227d2c22666c6167223a302c226c616e6775616765223a224a41"
    "5641222c226f7061717565223a352c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e"
    "223a3437397d68656c6c6f"
)
JAVA_BATCH = bytes.fromhex(
    "0000003a0000000000000000000000000000000262310022554e49515f4b4559014944303202574149540174727565025441475301746167"
    "41020000003a0000000000000000000000000000000262320022554e49515f4b455901494430330257414954017472756502544147530174"
    "61674202"
)


def test_a_java_producers_send_is_read_the_fast_and_the_general_way_alike() -> None:
    """A send of a Java producer, code 310."""
    fast = parse_frame(memoryview(JAVA_SEND)[4:])
    assert isinstance(fast, SendRequest)
    general = send_from_frame(decode_frame(JAVA_SEND[4:]))
    assert fast == general
    fields = fast.header.extFields
    assert (fields.b, fields.e, fields.g, fields.i) == (
        "TopicG",
        3,
        1795222140724,
        "KEYS\x01k1\x02UNIQ_KEY\x01ID01\x02WAIT\x01true\x02TAGS\x01tagA\x02",
    )
    assert (fast.header.opaque, bytes(fast.body)) == (5, b"hello")


def test_the_long_names_of_code_10_and_the_binary_header_mean_the_same() -> None:
    """docs/wire.md, client codes: one value, whichever way it travels."""
    fields = {
        "producerGroup": "pg", "topic": "TopicG", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "3", "sysFlag": "0", "bornTimestamp": "7", "flag": "2", "properties": "K\x01v\x02", "reconsumeTimes": "1",
    }  # fmt: skip
    for form in HeaderForm:
        frame = Frame(code=10, opaque=9, ext_fields=fields, body=b"hello", form=form)
        found = parse_frame(memoryview(encode_frame(frame))[4:])
        assert isinstance(found, SendRequest)
        assert found.form is form
        read = found.header.extFields
        assert (read.b, read.e, read.g, read.h, read.i, read.j) == ("TopicG", 3, 7, 2, "K\x01v\x02", 1)


def test_a_send_without_a_topic_is_refused_with_its_opaque() -> None:
    """The link stays: it is a frame, only no send."""
    for code in (10, 310, 320):
        raw = encode_frame(Frame(code=code, opaque=4, ext_fields={"e": "0"}))
        with pytest.raises(SendRefusedError) as refused:
            parse_frame(memoryview(raw)[4:])
        assert refused.value.frame.opaque == 4


def test_batches_of_document_and_java_client() -> None:
    """One worked out by hand, and one of a Java producer."""
    document = bytes.fromhex(
        "0000001c00000000000000000000000000000002 6d31 0004 4b017602 0000001800000000000000000000000000000002 6d32 0000"
    )
    for raw, bodies in ((document, [b"m1", b"m2"]), (JAVA_BATCH, [b"b1", b"b2"])):
        items = decode_batch(memoryview(raw))
        assert [bytes(each.body) for each in items] == bodies
    assert decode_batch(memoryview(document))[0] == BatchItem(body=b"m1", properties=b"K\x01v\x02")


@pytest.mark.parametrize("form", HeaderForm)
def test_answers_have_the_fields_that_a_java_client_dereferences(form: HeaderForm) -> None:
    """extFields with msgId, queueId and queueOffset, as numbers in strings; refusals say what is known."""
    frame = decode_frame(put_ok(7, form, queue_id=3, queue_offset=5, message_id=b"0A")[4:])
    assert (frame.code, frame.opaque, frame.is_response) == (0, 7, True)
    assert frame.ext_fields is not None
    assert {"msgId": "0A", "queueId": "3", "queueOffset": "5"}.items() <= frame.ext_fields.items()
    duplicate = decode_frame(put_duplicate(7, form, queue_id=3)[4:]).ext_fields
    assert duplicate is not None
    assert duplicate["duplicate"] == "true"
    refused = decode_frame(put_refused(7, form, SendRefusal.NOT_MASTER, "why", master_epoch=4, master="h:1")[4:])
    assert refused.code == ClientResult.SERVICE_NOT_AVAILABLE
    assert refused.ext_fields == {
        "reason": "not-master",
        "outcome": "not-appended",
        "masterEpoch": "4",
        "master": "h:1",
    }


@pytest.mark.parametrize("code", [b"310", b"320"])
def test_a_senders_wait_is_read_in_place_one_for_each_batch(code: bytes) -> None:
    """An extField that RocketMQ's brokers skip, as every one that their header class does not name."""
    header = b'{"code":%b,"extFields":{"b":"T","e":"0","waitUs":"1500"},"flag":0,"opaque":1}' % code
    frame = memoryview(len(header).to_bytes(4, "big") + header + b"body")
    found = parse_frame(frame)
    assert isinstance(found, SendRequest)
    assert found.header.extFields.waited_us == 1_500
    assert found.body.obj is frame.obj, "decoded where it lies"
    assert send_from_frame(decode_frame(frame)).header == found.header


def test_our_producers_send_is_an_ordinary_310() -> None:
    """Any JSON text in names and properties survives."""
    raw = encode_send(
        opaque=3, group='g"\\', topic="Tö", queue_id=2, born_at_ms=9, properties='K\x01"v"\x02', body=b"b"
    )  # fmt: skip
    frame = decode_frame(raw[4:])
    assert frame.ext_fields is not None
    assert frame.ext_fields["a"] == 'g"\\'
    found = parse_frame(memoryview(raw)[4:])
    assert found == send_from_frame(frame)


def test_routes_read_back_and_topic_routes_look_like_javas() -> None:
    """Code 105: role id 0 is the master, keys are quoted."""
    route = RouteState(
        cluster="C",
        broker_name="broker-a",
        master_epoch=MasterEpoch(3),
        master=BrokerId(1),
        replicas=(
            RouteBroker(broker_id=BrokerId(1), address="10.0.0.1:10911"),
            RouteBroker(broker_id=BrokerId(2), address="10.0.0.2:10911"),
        ),
    )
    assert decode_route(encode_route(route)) == route
    assert encode_topic_route(route, TopicRow()) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","2":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"C",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
