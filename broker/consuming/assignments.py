"""
The server's own sharing of queues: codes 400 and 401.

Here: what a member of a group is told to read. Not here: the strategies, which are those of members that share by
themselves (``broker.client.rebalance``), who the members are (``groups``), routes of other sets (``broker.names``).

Rule 1: a member is told queues of all sets, or nothing: ``null``, and it keeps what it has. By those of this set alone
it would give up the others'.
Rule 2: what is not known here is refused, and RocketMQ's client then shares by itself. RocketMQ answers ``null``, and
the client reads nothing, for ever.
Rule 3: the route of a topic is asked for once in ``ROUTE_MS``, whoever wants it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from rollcall_ha.broker.client.rebalance import Strategy, average, average_by_circle, in_order
from rollcall_ha.broker.consuming.groups import Groups
from rollcall_ha.broker.consuming.groups_core import BROADCASTING
from rollcall_ha.broker.consuming.replies import Reply, kept, order_responder, responder
from rollcall_ha.broker.consuming.topics import Topics
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import (
    AssignmentQuestion,
    MessageQueue,
    decode_assignment,
    decode_mode,
    encode,
)
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

ROUTE_MS: Final = 1_000
ROUTES_MAX: Final = 1_000
"""Topics whose routes are kept, or asked for, at a time."""
QUESTIONS_MAX: Final = 10_000
"""That wait for a route."""
STRATEGIES: Final[Mapping[str, Strategy]] = {"AVG": average, "AVG_BY_CIRCLE": average_by_circle}

Queues = Mapping[str, int]
"""How many queues of a topic each set has to read."""


class Assignments:
    """Shares of all groups, as one replica tells them. On the loop thread."""

    def __init__(self, at: Around, *, groups: Groups, topics: Topics, follow: Callable[[], bool]) -> None:
        """``follow``: whether all members that the log has are known."""
        self.routes: Callable[[str], Coroutine[Any, Any, Queues | None]] | None = None
        """Asks the name service, None: it does not tell; not there: clients hear of routes from this set alone."""
        self._at = at
        self._groups, self._topics, self._follow = groups, topics, follow
        self._found: dict[str, asyncio.Task[Queues | None]] = {}
        self._waiting = 0

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.QUERY_ASSIGNMENT: responder(self._query),
            ClientCode.SET_MESSAGE_REQUEST_MODE: order_responder(self._set_mode),
        }

    def _query(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        asked = decode_assignment(frame.body)
        if asked.message_model != BROADCASTING and asked.strategy_name not in STRATEGIES:
            remark = f"strategy {asked.strategy_name!r}: brokers share queues by {' and '.join(STRATEGIES)}"
            return Reply(ClientResult.INVALID_PARAMETER, remark)
        if self.routes is None:
            row = self._topics.existing(asked.topic)
            own = {} if row is None or not row.may_read else {self._at.standing.broker_name: row.read_queue_nums}
            return self._share(asked, own)
        task = self._found.get(asked.topic)
        if task is not None and task.done():
            return self._share(asked, _queues_of(task))
        # Beyond the limits nothing is told (rule 1): a client that asks on and on would fill the memory with questions.
        if self._waiting >= QUESTIONS_MAX:
            return self._share(asked, None)
        if task is None:
            if len(self._found) >= ROUTES_MAX:
                return self._share(asked, None)
            loop = asyncio.get_running_loop()
            task = self._found[asked.topic] = loop.create_task(self.routes(asked.topic))
            loop.call_later(ROUTE_MS / 1000, self._found.pop, asked.topic)
        request = kept(frame)
        self._waiting += 1

        def told(done: asyncio.Task[Queues | None]) -> None:
            self._waiting -= 1
            self._share(asked, _queues_of(done)).give(connection, request)

        task.add_done_callback(told)
        return None

    def _share(self, asked: AssignmentQuestion, queues: Queues | None) -> Reply:
        """``queues`` None: not known (rule 1)."""
        names = sorted((queues or {}).items())
        all_ = in_order(MessageQueue(name, each, asked.topic) for name, count in names for each in range(count))
        members, share = self._groups.facts(asked.consumer_group).members, None
        if asked.message_model == BROADCASTING:
            share = all_ or None
        # Not in the list yet, or by half of the list, it would give up queues that are its own.
        elif all_ and self._follow() and asked.client_id in members:
            share = STRATEGIES[asked.strategy_name](all_, members, asked.client_id)
        told = None if share is None else [{"messageQueue": queue, "mode": "PULL"} for queue in share]
        return Reply(body=encode({"messageQueueAssignments": told}))

    def _set_mode(self, _: RemotingConnection, frame: Frame) -> Reply:
        asked = decode_mode(frame.body)
        if asked.mode == "PULL":
            return Reply()
        remark = f"mode {asked.mode} of {asked.consumer_group} for {asked.topic}: POP is not served; groups pull"
        return Reply(ClientResult.SYSTEM_ERROR, remark)


def _queues_of(done: asyncio.Task[Queues | None]) -> Queues | None:
    return None if done.cancelled() else done.result()
