"""
Telling the sessions of a set what was committed, in the turn of the loop that hears of it.

Here: which sets, to which connections, encoded once. Not here: sockets (``BrokerPort``), the brokers' side (R2, R9).

Rule: a notice is the whole authoritative view, so that a lost or late one is mended by the next, or by a heartbeat.
RocketMQ brokers are told by messages of their own, on connections of their own, which the port makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rollcall_ha.controller.contract.events import BrokerIdGranted, EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import ReplicaKind
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.session import RoleNotice
from rollcall_ha.controller.contract.timing import NS_PER_US
from rollcall_ha.controller.core.election_duty import changed_sets
from rollcall_ha.controller.core.views import ViewOf
from rollcall_ha.controller.runtime.duties import LeaderDuties
from rollcall_ha.controller.runtime.ports import BrokerPort


def push_views(
    records: Sequence[EventRecord],
    *,
    view_of: ViewOf,
    duties: LeaderDuties,
    port: BrokerPort,
    now_ns: Callable[[], int],
) -> None:
    """Push the view of every set that ``records`` changed; stamp the notice of each winner."""
    changed = [record for record in records if not isinstance(record.event, BrokerIdGranted)]
    elected = {record.set_key for record in records if isinstance(record.event, MasterElected)}
    for key in changed_sets(changed):
        view = view_of(key)
        if view is None:
            continue
        if _has_rocketmq(view):
            port.announce(view)
        # Read once, BEFORE the write: the phase NOTIFIED ends where the winner's clock begins, and no time falls
        # between.
        sent_ns = now_ns()
        if key in elected and view.master is not None:
            winner = duties.sessions.get(key, view.master)
            is_native = winner is not None and winner.kind is ReplicaKind.NATIVE
            if winner is not None and is_native and winner.connection is not None:
                duties.handle_notified(key, view.master_epoch, sent_ns)
        body = msgspec.json.encode(RoleNotice(view=view, sent_at_us=sent_ns // NS_PER_US))
        for connection in duties.sessions.connections_of(view):
            port.notify(connection, body)


def _has_rocketmq(view: SetView) -> bool:
    return any(member.description.kind is ReplicaKind.ROCKETMQ for member in view.members)
