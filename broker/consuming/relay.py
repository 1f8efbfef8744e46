"""
What RocketMQ's tools ask of a member of a group through its broker: its state (307), to consume a message now (309).

Here: passing a question on to the member's link, and its answer back. Not here: who is a member (``groups``).

Rule: a member that hangs keeps a few questions, and each for ``WAIT_MS_MAX`` only.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from rollcall_ha.broker.consuming.groups import Groups
from rollcall_ha.broker.consuming.reading import copy_record
from rollcall_ha.broker.consuming.replies import Reply, kept, order_responder
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.node.remoting.connection import LinkClosed, RemotingConnection, RemotingTimeout
from rollcall_ha.node.remoting.frame import Frame

WAIT_MS_MAX: Final = 10_000
"""As long as RocketMQ's tools wait for it."""
_PLACE: Final = re.compile(r"[0-9A-Fa-f]{16}")
"""The end of a message's id: where it lies in the log."""
ASKED_MAX: Final = 64
"""Questions that wait, of all groups."""


class Relay:
    """The questions to members of one replica's groups. On the loop thread."""

    def __init__(self, at: Around, groups: Groups) -> None:
        self._at = at
        self._groups = groups
        self._asking: set[asyncio.Task[None]] = set()

    def responders(self) -> dict[int, Responder]:
        # By an order's right: 309 makes an application handle a message.
        asked = (ClientCode.GET_CONSUMER_RUNNING_INFO, ClientCode.CONSUME_MESSAGE_DIRECTLY)
        return dict.fromkeys(asked, order_responder(self._pass_on))

    def _pass_on(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        fields, body = dict(frame.ext_fields or {}), b""
        group, client_id = fields.get("consumerGroup", ""), fields.get("clientId", "")
        members = self._groups.table.members(group).items()
        link = next((link for link, member in members if member.client_id == client_id), None)
        if link is None:
            remark = f"The Consumer <{group[:255]}> <{client_id[:255]}> not online"
            return Reply(ClientResult.SYSTEM_ERROR, remark)
        if len(self._asking) >= ASKED_MAX:
            return Reply(ClientResult.SYSTEM_BUSY, f"{ASKED_MAX} questions to members wait; ask again in a moment")
        if frame.code == ClientCode.CONSUME_MESSAGE_DIRECTLY:
            place, behind_bytes = fields.get("msgId", "")[-16:], self._at.folds.catch_up()
            record = copy_record(self._at.folds, int(place, 16)) if _PLACE.fullmatch(place) else None
            if record is None:
                code = ClientResult.SYSTEM_BUSY if behind_bytes else ClientResult.SYSTEM_ERROR
                return Reply(code, f"no message begins at {place!r} here; {behind_bytes} bytes are not taken in yet")
            fields["brokerName"], body = self._at.standing.broker_name, record
        task = asyncio.get_running_loop().create_task(self._ask(link, fields, body, connection, kept(frame)))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return None

    async def _ask(
        self, link: RemotingConnection, fields: dict[str, str], body: bytes, asker: RemotingConnection, frame: Frame
    ) -> None:
        try:
            answer = await link.request(frame.code, body=body, ext_fields=fields, timeout_ms=WAIT_MS_MAX)
        except (LinkClosed, RemotingTimeout) as error:
            reply = Reply(ClientResult.SYSTEM_ERROR, f"the member has not answered: {error}")
        else:
            # Answers are counted by code: a member that draws its own would fill the table of counters.
            code = ClientResult.SYSTEM_ERROR if answer.code else 0
            reply = Reply(code, answer.remark or "", answer.body, answer.ext_fields)
        reply.give(asker, frame)
