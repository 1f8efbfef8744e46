"""An attempt in RocketMQ's frames: the same for RocketMQ's brokers and for ours."""

from __future__ import annotations

import time

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.topics import DEFAULT_TOPIC
from rollcall_ha.node.remoting.asking import BlockingLink
from rollcall_ha.node.remoting.secured import ExpectedPeer
from tests.perf.field.system import ATTEMPT_MS_MAX, BODY, RefusedError

TOPIC = "Field"
GROUP = "field"


class Writing:
    """Sends to the first queue of one topic."""

    def __init__(self, expected: ExpectedPeer | None) -> None:
        """Nothing is dialled yet. ``expected`` None: links are plain."""
        self._expected = expected
        self._links: dict[str, BlockingLink] = {}

    def attempt(self, address: str) -> None:
        link = self._links.pop(address, None)
        if link is None:
            link = BlockingLink(address, timeout_ms=ATTEMPT_MS_MAX, expected=self._expected)
        fields = {"a": GROUP, "b": TOPIC, "c": DEFAULT_TOPIC, "d": "4", "e": "0", "f": "0", "h": "0", "i": "", "j": "0"}
        fields |= {"g": str(time.time_ns() // 1_000_000), "k": "false", "m": "false"}
        try:
            answer = link.ask(ClientCode.SEND_MESSAGE_V2, fields, BODY)
        except OSError:
            link.close()
            raise
        self._links[address] = link
        if answer.code != ClientResult.PUT_OK:
            raise RefusedError(answer.remark or f"code {answer.code}")

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
