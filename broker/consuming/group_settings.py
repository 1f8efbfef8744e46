"""
Settings of groups by order: codes 200, 201, 207, 225 and 352.

Here: orders and questions. Not here: what the settings do (``groups``, ``topics``), how they are remembered
(``offsets_log``).

Rule 1: a group that was deleted has RocketMQ's defaults, as one without an order (``groups``, rule 4), and is listed
while it has members. Its offsets end with it only if the order says so.
Rule 2: as for topics, an order counts when it is confirmed (``topics``, rules 4 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from rollcall_ha.broker.consuming.offsets_core import NO_OFFSET, NO_RESET, GroupChange
from rollcall_ha.broker.consuming.offsets_log import ConsumerLog
from rollcall_ha.broker.consuming.replies import Reply, order_all, order_responder, responder
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import encode
from rollcall_ha.broker.protocol.topics import (
    GroupConfig,
    GroupRow,
    decode_group,
    decode_groups,
    group_config,
    group_table,
    parse_delete_group,
    parse_group_name,
)
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

USUAL: Final = GroupRow()
_DELETED: Final = GroupRow(is_deleted=True)


class GroupSettings:
    """The settings of all groups of one replica. On the loop thread."""

    def __init__(self, at: Around, log: ConsumerLog) -> None:
        self._at = at
        self._log = log

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.UPDATE_AND_CREATE_GROUP: order_responder(self._create),
            ClientCode.UPDATE_AND_CREATE_GROUP_LIST: order_responder(self._create),
            ClientCode.DELETE_GROUP: order_responder(self._delete),
            ClientCode.GET_GROUP_CONFIG: responder(self._describe),
            ClientCode.GET_ALL_GROUP_CONFIG: responder(self._list),
        }

    def of(self, group: str) -> GroupRow:
        """The settings that count."""
        known = self._log.known.groups.get(group)
        return USUAL if known is None or known.settings is None else known.settings

    def all(self) -> dict[str, GroupConfig]:
        """Of all groups that are there."""
        groups = self._log.known.groups.items()
        return {name: change.settings or USUAL for name, change in groups if change.is_there}

    # --- orders ------------------------------------------------------------------------------------------------------

    def _create(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        is_one = frame.code == ClientCode.UPDATE_AND_CREATE_GROUP
        orders = [decode_group(frame.body)] if is_one else decode_groups(frame.body)
        if complaint := next(filter(None, (order.complaint for order in orders)), ""):
            return Reply(ClientResult.SYSTEM_ERROR, complaint)
        return self._write({each.group_name: GroupChange(settings=each.row()) for each in orders}, connection, frame)

    def _delete(self, connection: RemotingConnection, frame: Frame) -> Reply | None:
        asked = parse_delete_group(frame)
        change = GroupChange(settings=_DELETED)
        self._log.follow()
        parts = self._log.parts(asked.group_name)
        # A row for each name that somebody mistypes would fill the table.
        if not parts and not self._log.is_doubtful:
            return self._write({}, connection, frame)
        if asked.clean_offset:
            for part in parts:
                for topic, offsets in part.offsets.items():
                    change.offsets.setdefault(topic, {}).update(dict.fromkeys(offsets, NO_OFFSET))
                for topic, resets in part.resets.items():
                    change.resets.setdefault(topic, {}).update(dict.fromkeys(resets, NO_RESET))
        return self._write({asked.group_name: change}, connection, frame)

    def _write(self, changes: Mapping[str, GroupChange], connection: RemotingConnection, frame: Frame) -> Reply | None:
        notes = [partial(self._log.note, group, change) for group, change in changes.items()]
        return order_all(connection, frame, self._log.why_unknown(), notes)

    # --- questions ---------------------------------------------------------------------------------------------------

    def _describe(self, _: RemotingConnection, frame: Frame) -> Reply:
        group = parse_group_name(frame).group
        return Reply(body=encode(group_config(group, self.of(group))))

    def _list(self, _: RemotingConnection, __: Frame) -> Reply:
        known = self._log.known
        return Reply(body=encode(group_table(self.all(), self._at.version(known.orders + len(known.groups)))))
