"""A name server and a broker of RocketMQ's in one, without Java: no watches, no reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.send import decode_batch
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame


class JavaSet:
    """Of the set ``j``. Each message is refused once as busy; one with the body "bad" for ever, with all of its frame."""

    def __init__(self, *, refuses_once: bool = True) -> None:
        self.server = RemotingServer(self)
        self.seen: Counter[bytes] = Counter()
        self.batches: list[int] = []
        """Messages of each frame that was sent here, repeats included."""
        self.has_topics = True
        self.master = ""
        """Another one, that has taken over; empty: this."""
        self._refuses_once = refuses_once

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def connected(self, connection: RemotingConnection) -> None:
        pass

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        pass

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.code == ClientCode.GET_ROUTE_BY_TOPIC:
                self._route(connection, frame)
            elif frame.code in (ClientCode.SEND_MESSAGE_V2, ClientCode.SEND_BATCH_MESSAGE):
                self._take(connection, frame)
            else:
                connection.respond(frame, 3, remark="not supported")

    def _route(self, connection: RemotingConnection, frame: Frame) -> None:
        if not self.has_topics:
            remark = "No topic route info in name server for the topic: it\nSee a page"
            connection.respond(frame, ClientResult.TOPIC_NOT_EXIST, remark=remark)
            return
        # As fastjson writes it: keys that are numbers stand without quotes.
        body = (
            '{"brokerDatas":[{"brokerAddrs":{0:"%s"},"brokerName":"j","cluster":"C"}],"filterServerTable":{},'
            '"queueDatas":[{"brokerName":"j","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )
        connection.respond(frame, 0, body=(body % (self.master or self.address)).encode())

    def _take(self, connection: RemotingConnection, frame: Frame) -> None:
        if not self.has_topics:
            remark = "topic[it] not exist, apply first please!\nSee a page"
            connection.respond(frame, ClientResult.TOPIC_NOT_EXIST, remark=remark)
        elif self.master:
            connection.respond(frame, ClientResult.SERVICE_NOT_AVAILABLE, remark="it is a slave")
        else:
            self._store(connection, frame)

    def _store(self, connection: RemotingConnection, frame: Frame) -> None:
        is_batch = frame.code == ClientCode.SEND_BATCH_MESSAGE
        bodies = [bytes(item.body) for item in decode_batch(memoryview(frame.body))] if is_batch else [frame.body]
        self.batches.append(len(bodies))
        if b"bad" in bodies:
            self.seen.update(bodies if not is_batch else ())
            connection.respond(frame, ClientResult.MESSAGE_ILLEGAL, remark="the message is illegal")
            return
        self.seen.update(bodies)
        is_busy = self._refuses_once and any(self.seen[body] == 1 for body in bodies)
        fields = None if is_busy else {"msgId": ",".join(["x"] * len(bodies)), "queueId": "0", "queueOffset": "7"}
        connection.respond(frame, 2 if is_busy else 0, ext_fields=fields, remark="[REJECTREQUEST]")
