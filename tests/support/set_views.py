"""A set as the controllers show it to a broker: one replica, without a master, unless a test says otherwise."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    MasterEpoch,
    SessionOrdinal,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Condition, MemberView, SetView
from rollcall_ha.controller.contract.values import ReplicaDescription, SetConfiguration

KEY = SetKey(cluster=ClusterName("c"), name=BrokerName("broker-a"))

_EMPTY = SetView(
    set_key=KEY,
    fleet_incarnation=FleetIncarnation("f"),
    term=1,
    index=1,
    master=None,
    master_incarnation=None,
    master_epoch=MasterEpoch(0),
    sync_state_set=(),
    sync_state_set_epoch=SyncStateSetEpoch(0),
    configuration=SetConfiguration(expected_replicas=1),
    members=(),
    has_entered=False,
    start_offset=None,
    last_alter=None,
    condition=Condition.SERVING,
    condition_reason="",
)


def shown(**fields: object) -> SetView:
    """The view with these fields."""
    return replace(_EMPTY, **fields)


def shown_member(number: int, *, is_stopping: bool = False) -> MemberView:
    """A replica of the view, with an address of its own."""
    return MemberView(
        broker_id=BrokerId(number),
        incarnation=Incarnation(f"i{number}"),
        session_ordinal=SessionOrdinal(1),
        description=ReplicaDescription(address=f"127.0.0.1:{number}", ha_address=f"127.0.0.1:{number + 1}"),
        is_alive=True,
        is_suspect=False,
        is_stopping=is_stopping,
    )
