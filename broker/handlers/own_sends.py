"""
Messages that the broker itself writes: the offsets of consumers, deliveries, what groups refused.

Here: one sender among the others (``broker.ports.Appender``). Not here: what it writes
(``broker.consuming``, ``broker.delaying``).

Rule 1: its messages go the way of all sends, through gate, log and waiting acknowledgements (``put``): what is
confirmed of them is on every required member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.log.record import Draft
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.record import SYS_FLAG_BORN_IPV6
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
        host = self.peer_host
        draft = Draft(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            sys_flag=0 if len(host) == 8 else SYS_FLAG_BORN_IPV6,
            born_at_ms=self._now_ms(),
            born_host=host,
        )
        refusal = self.append_run([draft], on_outcome)
        if refusal:
            on_outcome(refusal)

    @property
    def full_disk(self) -> str:
        return self._put.full_disk

    def refusal(self) -> str:
        return self._put.refusal()

    def append_run(self, drafts: Sequence[Draft], on_outcome: Callable[[str], None]) -> str:
        self._opaque = opaque = (self._opaque + 1) % _OPAQUES
        self._waiting[opaque] = on_outcome
        refusal = self._put.put_run(self, drafts, opaque)
        if refusal:
            del self._waiting[opaque]
        return refusal

    def write_answers(self, data: bytes) -> None:
        """Of the put path: one frame for each run that is acknowledged, or will perhaps never be."""
        view, at = memoryview(data), 0
        while at < len(view):
            end = at + 4 + int.from_bytes(view[at : at + 4], "big")
            answer = decode_frame(view[at + 4 : end])
            at = end
            outcome = "" if answer.code == ClientResult.PUT_OK else answer.remark or f"code {answer.code}"
            # In a turn of its own: here others wait for their acknowledgements.
            asyncio.get_running_loop().call_soon(self._waiting.pop(answer.opaque), outcome)
