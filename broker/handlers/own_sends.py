"""
Messages that the broker itself writes, such as the offsets of consumers.

Here: one sender among the others (``consuming.ports.Appender``). Not here: what it writes (``broker.consuming``).

Rule 1: its messages go the way of all sends, through gate, log and waiting acknowledgements (``put``): what is
confirmed of them is on every required member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.send import SendFields, SendHeader, SendRequest
from rollcall_ha.node.remoting.frame import decode_frame

_OPAQUES: Final = 1 << 31


class OwnSends:
    """One sender among the others; its link is this object (``AnswerSink``)."""

    def __init__(self, put: PutPath, *, host: bytes, now_ms: Callable[[], int]) -> None:
        """``host`` is this broker's own, as records carry it: clients have another port."""
        self.peer_host = host
        self._put = put
        self._now_ms = now_ms
        self._opaque = 0
        self._waiting: dict[int, Callable[[str], None]] = {}

    def append(
        self, topic: bytes, queue_id: int, body: bytes, properties: bytes, on_outcome: Callable[[str], None]
    ) -> None:
        """As ``consuming.ports.Appender`` says."""
        # A sender's socket would be held; this one is told, and comes again.
        if not self._put.is_ready_for(len(topic) + len(body) + len(properties) + 256):
            on_outcome("the log has no room yet, or the lead is being handed over")
            return
        self._opaque = (self._opaque + 1) % _OPAQUES
        self._waiting[self._opaque] = on_outcome
        fields = SendFields(b=topic.decode(), e=queue_id, g=self._now_ms(), i=properties.decode())
        header = SendHeader(code=ClientCode.SEND_MESSAGE_V2, opaque=self._opaque, extFields=fields)
        self._put.handle(self, [SendRequest(header, memoryview(body))])

    def write_answers(self, data: bytes) -> None:
        """Of the put path: one frame for each send that is acknowledged or refused."""
        view, at = memoryview(data), 0
        while at < len(view):
            end = at + 4 + int.from_bytes(view[at : at + 4], "big")
            answer = decode_frame(view[at + 4 : end])
            at = end
            outcome = "" if answer.code == ClientResult.PUT_OK else answer.remark or f"code {answer.code}"
            # In a turn of its own: here others wait for their acknowledgements.
            asyncio.get_running_loop().call_soon(self._waiting.pop(answer.opaque), outcome)
