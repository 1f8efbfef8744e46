"""
Headers and bodies of RocketMQ's controller protocol (docs/wire.md, controller codes).

Here: one value per header class, and the bodies. Not here: what they mean (``handlers``).
Names are those of the wire in snake case; all fields of a request are optional (``headers``, rule 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from rollcall_ha.api.broker_port.headers import Header
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.node.remoting.fastjson import quote_keys

# --- requests --------------------------------------------------------------------------------------------------------


class SetHeader(Header):
    """1004, 1012: which set; base of all headers that name one. Also the answer to 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None


class BrokerHeartbeatHeader(SetHeader):
    """904. Missing fields take the values of the session (``replicas``)."""

    broker_addr: str | None = None
    broker_id: int | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    heartbeat_timeout_mills: int | None = None
    election_priority: int | None = None


class AlterSyncStateSetHeader(Header):
    broker_name: str | None = None
    master_broker_id: int | None = None
    master_epoch: int | None = None


class ElectMasterHeader(SetHeader):
    broker_id: int | None = None
    designate_elect: bool | None = None


class RegisterBrokerHeader(SetHeader):
    broker_id: int | None = None
    broker_address: str | None = None


class ApplyBrokerIdHeader(SetHeader):
    applied_broker_id: int | None = None
    register_check_code: str | None = None


class CleanBrokerDataHeader(SetHeader):
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool | None = None


# --- answers and pushes ----------------------------------------------------------------------------------------------


class MetadataInfoHeader(Header, kw_only=True):
    """Answer to 1005. Without a leader that confirms itself, its two fields are left out."""

    group: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool
    peers: str


class NextBrokerIdHeader(SetHeader, kw_only=True):
    next_broker_id: int


class MasterHeader(Header):
    """Answer to 1002 and 1004, and header of the push 1008."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None


class RegisteredHeader(MasterHeader, kw_only=True):
    """Answer to 1003; the fields of a master only if there is a living one."""

    cluster_name: str | None
    broker_name: str | None


class AlteredHeader(Header):
    """Answer to 1001; 0 on errors."""

    new_sync_state_set_epoch: int = 0


class ExchangeHaHeader(Header):
    master_ha_address: str | None = None
    master_flush_offset: int | None = None
    master_address: str | None = None


# --- bodies ----------------------------------------------------------------------------------------------------------


class ControllerBody(Value, omit_defaults=True):
    """Base of all bodies. Keys in the order in which fastjson writes them: sorted."""


class SyncStateSetBody(ControllerBody):
    """Body of 1001, of its answer, of the answers to 1003 and 1004, and of 1008."""

    sync_state_set: tuple[int, ...]
    sync_state_set_epoch: int


class BrokerMemberGroup(ControllerBody):
    """Addresses of a set by id; keys are quoted."""

    broker_addrs: dict[str, str]
    broker_name: str
    cluster: str


class ElectedBody(ControllerBody, kw_only=True):
    """Answer to 1002. Brokers read ``syncStateSet`` alone, and need it also when the old master stays."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: tuple[int, ...]


class ReplicaBody(ControllerBody):
    """One replica in the answer to 1006."""

    alive: bool
    broker_address: str
    broker_id: int
    broker_name: str


class SetBody(ControllerBody, kw_only=True):
    """One set in the answer to 1006."""

    in_sync_replicas: tuple[ReplicaBody, ...]
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int
    not_in_sync_replicas: tuple[ReplicaBody, ...]
    sync_state_set_epoch: int


class SyncStateDataBody(ControllerBody):
    replicas_info_table: dict[str, SetBody]


_decode_sync_state_set = msgspec.json.Decoder(SyncStateSetBody).decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
encode_body = msgspec.json.Encoder().encode


def read_sync_state_set(body: bytes) -> SyncStateSetBody:
    """Body of 1001. Raises ``msgspec.MsgspecError``."""
    # Java writes a HashSet, in any order: compared as it came, {2,1} would differ from {1,2} and be a change each time.
    found = _decode_sync_state_set(quote_keys(body))
    return SyncStateSetBody(
        sync_state_set=tuple(sorted(set(found.sync_state_set))), sync_state_set_epoch=found.sync_state_set_epoch
    )


def read_names(body: bytes) -> tuple[str, ...]:
    """Body of 1006. Raises ``msgspec.MsgspecError``."""
    return _decode_names(body)


def sync_state_set_body(members: Iterable[int], epoch: int) -> bytes:
    """A SyncStateSet as Java reads it: both keys, always; without one of them Java's decoder throws."""
    return encode_body(SyncStateSetBody(sync_state_set=tuple(members), sync_state_set_epoch=epoch))


def configuration_body(values: dict[str, Any]) -> bytes:
    """Answer to 1010: ``key=value`` lines, sorted."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values)).encode()
