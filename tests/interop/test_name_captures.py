"""Captured traffic of Java name servers: our name service gives the same answers, in the form in which it was asked."""

from __future__ import annotations

import asyncio
import itertools
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.api.broker_port.code_table import CodeTable, Request
from rollcall_ha.api.rocketmq.names.name_service import NameService
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.core.state import EMPTY_FLEET, FleetState
from rollcall_ha.controller.replication.ports import Published
from rollcall_ha.controller.runtime.session_state import ConnectionId
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.fastjson import quote_keys
from rollcall_ha.node.remoting.frame import Frame, HeaderForm, decode_frame, encode_frame
from rollcall_ha.node.remoting.links import LinkLimits
from tests.support.frames import FrameDecoder, QuietHandler

CAPTURES = {
    entry["title"]: bytes.fromhex(entry["hex"])
    for entry in json.loads((Path(__file__).parent / "captures.json").read_text())
    if entry["section"] == "4"
}
REQUESTS = {title: data for title, data in CAPTURES.items() if not decode_frame(data[4:]).is_response}
ANSWERS = {title: data for title, data in CAPTURES.items() if decode_frame(data[4:]).is_response}
WHOEVER = Principal(name="rocketmq", role=Role.ADMIN, proved_by=ProvedBy.NOTHING)
FORMS = [pytest.param(form, id=form.name) for form in HeaderForm]


class Wire(asyncio.Transport):
    """The other end of a link: what was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


class Port(QuietHandler):
    """The codes of a name service on one link."""

    def __init__(self) -> None:
        nothing: Published[FleetState] = Published(state=EMPTY_FLEET, term=0, index=0)
        shell = NameService(published=lambda: nothing, monotonic_ns=lambda: 0, file=None, settings={})
        self._codes = CodeTable()
        shell.register(self._codes)
        self._opaques = itertools.count(1)

    async def ask(self, data: bytes) -> tuple[bytes, Frame | None]:
        """The raw answer, and what it means; None if there was none."""
        connection, wire = RemotingConnection(self, LinkLimits(), itertools.count(1)), Wire()
        connection.connection_made(wire)
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        raw = bytes(wire.written)
        return raw, next(iter(FrameDecoder().feed(raw)), None)

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            served = self._codes.find(frame)
            assert served is not None, frame.code
            assert (
                served.handler(Request(frame=frame, connection=connection, link=ConnectionId(1), caller=WHOEVER))
                is None
            )


def _frame(code: int, form: HeaderForm, body: bytes = b"", **fields: str) -> bytes:
    return encode_frame(
        Frame(code=code, opaque=9, ext_fields=fields or None, body=body, language="JAVA", version=479, form=form)
    )


def _register(number: int, form: HeaderForm, *, topics: int = 2, crc_is_right: bool = True) -> bytes:
    """A 103 as the captured answers got it: brokers 31998 (0) and 31999 (2) of broker-z."""
    queues = {"perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}
    table = dict(itertools.islice({"TopicA": queues, "TopicB": queues}.items(), topics))
    version = {"counter": 1, "stateVersion": 1, "timestamp": 1_700_000_000_000}
    body = json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}).encode()
    crc = zlib.crc32(body) & 0x7FFFFFFF
    return _frame(
        103,
        form,
        body,
        brokerName="broker-z",
        brokerAddr=f"127.0.0.1:{31998 if number == 0 else 31999}",
        clusterName="c1",
        haServerAddr=f"127.0.0.1:{31988 if number == 0 else 31989}",
        brokerId=str(number),
        bodyCrc32=str(crc if crc_is_right else crc + 1),
        enableActingMaster="false",
        compressed="false",
    )


def _meaning(frame: Frame) -> tuple[int, str | None, dict[str, str] | None, Any]:
    body = msgspec.json.decode(quote_keys(frame.body)) if frame.body else None
    # The binary form has no empty header: without fields there is nothing.
    fields = frame.ext_fields if frame.form is HeaderForm.JSON else frame.ext_fields or None
    return frame.code, frame.remark, fields, body


def _conversation(title: str, form: HeaderForm) -> tuple[list[bytes], bytes]:
    """What came before on the captured name server, and the request that the capture answers."""
    both = [_register(0, form), _register(2, form)]
    stored = json.dumps({"counter": 2, "stateVersion": 1, "timestamp": 1}).encode()
    asks_version = _frame(322, form, stored, brokerName="broker-z", brokerAddr="127.0.0.1:31998", clusterName="c1")
    return {
        "Java namesrv to 103, id 0": ([], both[0]),
        "to 103, id 2, master registered": (both[:1], both[1]),
        "to 103, bad CRC: 1": ([], _register(0, form, crc_is_right=False)),
        "to 103, one topic and id unknown: 1": ([], _register(0, form, topics=1)),
        "to 105, requester version 479": (both, _frame(105, form, topic="TopicA")),
        "to 105, unknown topic: 17": ([], _frame(105, form, topic="TopicA")),
        "to 106": (both, _frame(106, form)),
        "to 322, changed": (both, asks_version),
    }[title]


def test_there_are_captures_to_replay() -> None:
    """A fixture that lost its name server would pass everything."""
    assert (len(REQUESTS), len(ANSWERS)) == (4, 8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("title", ANSWERS)
def test_answer_is_the_captured_one(title: str, form: HeaderForm) -> None:
    """Code, remark, header and body of Java's answer; map keys are compared quoted."""
    before, request = _conversation(title, form)
    captured = decode_frame(ANSWERS[title][4:])
    expected = _meaning(decode_frame(encode_frame(msgspec.structs.replace(captured, form=form))[4:]))

    async def scenario() -> Frame | None:
        port = Port()
        for earlier in before:
            await port.ask(earlier)
        raw, answer = await port.ask(request)
        assert raw[4] == form
        return answer

    answer = asyncio.run(scenario())

    assert answer is not None
    assert (answer.opaque, answer.flag) == (9, 1)
    assert _meaning(answer) == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("title", "codes"), [("103", (1, 0)), ("104", (0, 0)), ("105", (17, 17)), ("106", (0, 0))])
def test_captured_request_is_served(title: str, codes: tuple[int, int], form: HeaderForm) -> None:
    """
    Bytes of a Java broker or client, to an empty name service and to one that knows the broker of the captured 103.

    That one is an addition of a single topic: to an empty table it is refused.
    """
    (data,) = (data for name, data in REQUESTS.items() if name.startswith(title))
    request = decode_frame(data[4:])
    data = encode_frame(msgspec.structs.replace(request, form=form))
    register = msgspec.structs.replace(
        decode_frame(_register(2, form)[4:]),
        ext_fields={
            "brokerName": "broker-c",
            "brokerAddr": "127.0.0.1:31941",
            "clusterName": "c1",
            "haServerAddr": "127.0.0.1:31942",
            "brokerId": "2",
        },
    )

    async def scenario() -> list[int]:
        port = Port()
        found = []
        for earlier in (None, encode_frame(register)):
            if earlier is not None:
                await port.ask(earlier)
            raw, answer = await port.ask(data)
            assert answer is not None
            assert (raw[4], answer.opaque) == (form, request.opaque)
            found.append(answer.code)
        return found

    assert tuple(asyncio.run(scenario())) == codes
