"""A consumer of one queue, by frames as RocketMQ's clients send them, for questions to one broker of a fleet."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from tests.support.fleet_links import listen_socket
from tests.support.frames import FrameDecoder

SUSPEND, SUBSCRIPTION = 2, 4
ANSWER_S_MAX = 20.0


class Pulled(NamedTuple):
    """An answer to a pull."""

    code: int
    next_offset: int
    max_offset: int
    records: list[tuple[int, bytes]]
    """(queue offset, body)."""
    remark: str
    refusals: list[tuple[int, int]]
    """Of each record, its place in the log, and how often it was refused."""
    reader: int
    """The broker id that is named for the next pull."""


class ConsumerLink:
    """One link to one broker, asked one thing after the other."""

    def __init__(self, fleet: Fleet, name: str, *, group: str = "readers", client: str = "one") -> None:
        """Connect. Raises ``OSError``."""
        self.group, self.client = group, client
        self._socket = listen_socket(fleet.file, name)
        self._socket.settimeout(ANSWER_S_MAX)
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self._opaques = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def ask(self, code: int, body: bytes = b"", **fields: object) -> Frame:
        """The answer. Raises ``OSError``."""
        opaque = next(self._opaques)
        ext = {name: str(value) for name, value in fields.items()}
        self._socket.sendall(encode_frame(Frame(code=code, opaque=opaque, ext_fields=ext, body=body)))
        while True:
            for at, frame in enumerate(self._frames):
                if frame.opaque == opaque and frame.is_response:
                    del self._frames[at]
                    return frame
            data = self._socket.recv(1 << 20)
            if not data:
                raise OSError("the broker closed the link")
            self._frames += self._decoder.feed(data)

    def heartbeat(self, topic: str, *, text: str = "*", version: int = 1) -> Frame:
        """As a push consumer's."""
        subscription = {"topic": topic, "subString": text, "subVersion": version, "expressionType": "TAG"}
        group = {
            "groupName": self.group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        beat = {"clientID": self.client, "consumerDataSet": [group], "producerDataSet": []}
        return self.ask(ClientCode.HEART_BEAT, json.dumps(beat).encode())

    def pull(
        self, topic: str, queue_id: int, offset: int, *, wait_ms: int = 0, text: str | None = "*", messages: int = 32
    ) -> Pulled:
        """``text`` None: by the subscription of the last heartbeat."""
        flags = (SUSPEND if wait_ms else 0) | (0 if text is None else SUBSCRIPTION)
        answer = self.ask(
            ClientCode.PULL_MESSAGE, consumerGroup=self.group, topic=topic, queueId=queue_id, queueOffset=offset,
            maxMsgNums=messages, sysFlag=flags, commitOffset=0, suspendTimeoutMillis=wait_ms, subscription=text or "",
            subVersion=0, expressionType="TAG",
        )  # fmt: skip
        told = answer.ext_fields or {}
        records = list(_records(answer.body))
        found = [(record.queue_offset, bytes(record.body)) for record in records]
        refusals = [(int(record.physical_offset), record.reconsume_times) for record in records]
        next_offset, max_offset = int(told["nextBeginOffset"]), int(told["maxOffset"])
        reader = int(told["suggestWhichBrokerId"])
        return Pulled(answer.code, next_offset, max_offset, found, answer.remark or "", refusals, reader)

    def pull_one(self, topic: str, queue_id: int, offset: int) -> Pulled:
        """The record at ``offset``, which is not there yet."""
        deadline = time.monotonic() + 3 * ANSWER_S_MAX
        while (pulled := self.pull(topic, queue_id, offset, wait_ms=15_000, messages=1)).code in (2, 19):
            assert time.monotonic() < deadline, f"nothing at {offset} of {topic}:{queue_id}"
        assert pulled.code == 0, pulled
        return pulled

    def send(self, topic: str, body: bytes, *, level: int = 0) -> int:
        """The place in the log of a message, which waits at ``level`` first."""
        properties = f"DELAY\x01{level}\x02" if level else ""
        answer = self.ask(310, body, a="g", b=topic, c="TBW102", d=4, e=0, f=0, g=0, h=0, i=properties, j=0)
        assert answer.code == 0, answer
        return int((answer.ext_fields or {})["msgId"][16:], 16)

    def give_back(self, place: int, *, level: int, times_max: int) -> int:
        """The code of the answer."""
        answer = self.ask(36, group=self.group, offset=place, delayLevel=level, maxReconsumeTimes=times_max)
        return answer.code

    def commit(self, topic: str, queue_id: int, offset: int) -> Frame:
        return self.ask(
            ClientCode.UPDATE_CONSUMER_OFFSET, consumerGroup=self.group, topic=topic, queueId=queue_id,
            commitOffset=offset,
        )  # fmt: skip

    def ask_committed(self, topic: str, queue_id: int) -> Frame:
        return self.ask(
            ClientCode.QUERY_CONSUMER_OFFSET, consumerGroup=self.group, topic=topic, queueId=queue_id,
            setZeroIfNotFound="false",
        )  # fmt: skip

    def committed(self, topic: str, queue_id: int) -> int | None:
        """None: code 22, nobody has committed."""
        answer = self.ask_committed(topic, queue_id)
        if answer.code == 22:
            return None
        assert answer.code == 0, answer
        return int((answer.ext_fields or {})["offset"])

    def members(self) -> list[str]:
        answer = self.ask(ClientCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=self.group)
        found: list[str] = json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []
        return found


def _records(body: bytes) -> Iterator[RecordView]:
    at = 0
    while at < len(body):
        record = RecordView(memoryview(body), at)
        yield record
        at += record.size_bytes
