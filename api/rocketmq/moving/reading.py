"""
What running RocketMQ controllers, name servers and brokers say about their sets.

Here: the questions, their answers as values. Not here: what follows from them (``plan``), changing anything there
(``replay``).
Source: rocketmq-wire sections 2.4 and 3.2. A controller has no list of its sets: their names come from a name server,
or from the caller.

Rule: nothing is guessed. What cannot be read raises ``ReadingError`` with who did not say what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar, dataclass_transform

import msgspec

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    MasterEpoch,
    SetKey,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.blocking import BlockingLink
from rollcall_ha.node.remoting.fastjson import quote_keys
from rollcall_ha.node.remoting.frame import Frame, FrameError

GET_METADATA_INFO = 1005
GET_SYNC_STATE_DATA = 1006
GET_BROKER_EPOCH_CACHE = 1007
GET_NEXT_BROKER_ID = 1012
GET_BROKER_CLUSTER_INFO = 106
SUCCESS = 0
BROKER_TIMEOUT_MS = 1_000
"""A broker that is gone is no obstacle."""


class ReadingError(Exception):
    """Something that must be known cannot be read; the message says what, and who was asked."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Read(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of what is read and printed."""


class ForeignReplica(Read):
    """One replica as its controllers know it."""

    broker_id: BrokerId
    address: str
    is_alive: bool
    is_in_sync: bool
    last_epoch: MasterEpoch | None = None
    """Last entry of its epoch file by its own word; None = it did not answer."""


class ForeignSet(Read):
    """One broker set of other controllers."""

    set_key: SetKey
    master: BrokerId | None
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    next_id: BrokerId
    replicas: tuple[ForeignReplica, ...]

    @property
    def sync_state_set(self) -> SyncStateSet:
        """Ids of the replicas that are in sync."""
        return tuple(replica.broker_id for replica in self.replicas if replica.is_in_sync)

    @property
    def highest_epoch(self) -> MasterEpoch:
        """Highest masterEpoch that its controllers or any of its brokers show."""
        return MasterEpoch(max(self.master_epoch, *(replica.last_epoch or 0 for replica in self.replicas), 0))


class _Replica(Read):
    alive: bool
    broker_address: str
    broker_id: int


class _Info(Read):
    in_sync_replicas: tuple[_Replica, ...] = ()
    not_in_sync_replicas: tuple[_Replica, ...] = ()
    master_broker_id: int | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0


class _Table(Read):
    replicas_info_table: dict[str, _Info] = {}


class _Epoch(Read):
    epoch: int


class _EpochCache(Read):
    cluster_name: str = ""
    epoch_list: tuple[_Epoch, ...] = ()


class _BrokerData(Read):
    cluster: str = ""


class _ClusterInfo(Read):
    broker_addr_table: dict[str, _BrokerData] = {}


def split_addresses(text: str) -> tuple[str, ...]:
    """``host:port;host:port`` or with commas."""
    return tuple(address.strip() for address in text.replace(",", ";").split(";") if address.strip())


T = TypeVar("T")
_DECODE_TABLE = msgspec.json.Decoder(_Table)
_DECODE_EPOCH_CACHE = msgspec.json.Decoder(_EpochCache)
_DECODE_CLUSTER_INFO = msgspec.json.Decoder(_ClusterInfo)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """A body of Java's. Raises ``ReadingError``."""
    try:
        return decoder.decode(quote_keys(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReadingError(f"an answer cannot be read: {error}") from error


def find_leader(addresses: Sequence[str]) -> str:
    """Address of the leading controller. Raises ``ReadingError`` with what each address said."""
    troubles = []
    for address in addresses:
        try:
            with BlockingLink(address) as link:
                answer = link.ask(GET_METADATA_INFO)
        except (OSError, FrameError, ConfigError) as error:
            troubles.append(f"{address}: {error}")
            continue
        leader = (answer.ext_fields or {}).get("controllerLeaderAddress")
        if answer.code == SUCCESS and leader:
            return leader
        troubles.append(f"{address}: knows no leader (code {answer.code})")
    raise ReadingError("no controller names a leader: " + "; ".join(troubles or ["no address was given"]))


def names_from(addresses: Sequence[str]) -> dict[str, str]:
    """Every brokerName with its cluster that the first name server that answers knows. Raises ``ReadingError``."""
    troubles = []
    for address in addresses:
        try:
            with BlockingLink(address) as link:
                answer = link.ask(GET_BROKER_CLUSTER_INFO)
        except (OSError, FrameError, ConfigError) as error:
            troubles.append(f"{address}: {error}")
            continue
        if answer.code == SUCCESS:
            found = _decode(_DECODE_CLUSTER_INFO, answer.body)
            return {name: data.cluster for name, data in sorted(found.broker_addr_table.items())}
        troubles.append(f"{address}: code {answer.code} {answer.remark or ''}")
    raise ReadingError("no name server lists its sets: " + "; ".join(troubles))


class Controllers:
    """The leader of RocketMQ controllers, asked over one link."""

    def __init__(self, link: BlockingLink, leader: str) -> None:
        self.link = link
        self.leader = leader

    @classmethod
    def connect(cls, addresses: Sequence[str]) -> Controllers:
        leader = find_leader(addresses)
        try:
            return cls(BlockingLink(leader), leader)
        except (OSError, ConfigError) as error:
            raise ReadingError(f"{leader} leads and cannot be reached: {error}") from error

    def __enter__(self) -> Controllers:
        """Use as a context."""
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def ask(self, code: int, fields: dict[str, object] | None = None, body: bytes = b"") -> Frame:
        """The leader's answer, whatever its code. Raises ``ReadingError``."""
        try:
            return self.link.ask(code, fields, body)
        except (OSError, FrameError) as error:
            raise ReadingError(f"{self.leader} did not answer {code}: {error}") from error

    def sets(self, clusters: dict[str, str], *, asks_brokers: bool = True) -> dict[str, ForeignSet]:
        """
        What the controllers know of these sets; names that they do not know are left out.

        Args:
            clusters: brokerName -> cluster; an empty cluster is asked of the set's brokers.
            asks_brokers: Whether each broker is asked for its epochs too.
        """
        if not clusters:
            return {}
        answer = self.ask(GET_SYNC_STATE_DATA, body=msgspec.json.encode(sorted(clusters)))
        if answer.code != SUCCESS:
            raise ReadingError(f"{self.leader} answered {GET_SYNC_STATE_DATA} with {answer.code} {answer.remark or ''}")
        table = _decode(_DECODE_TABLE, answer.body)
        return {
            name: self._read_set(name, clusters[name], info, asks_brokers)
            for name, info in table.replicas_info_table.items()
        }

    def _read_set(self, name: str, cluster: str, info: _Info, asks_brokers: bool) -> ForeignSet:
        caches = {
            replica.broker_id: _epochs_of(replica.broker_address) if asks_brokers else None
            for replica in (*info.in_sync_replicas, *info.not_in_sync_replicas)
        }
        cluster = cluster or next((cache.cluster_name for cache in caches.values() if cache is not None), "")
        if not cluster:
            raise ReadingError(
                f"the cluster of {name} is not known: none of its brokers answers; name it as CLUSTER/{name}"
            )
        said = [(replica, True) for replica in info.in_sync_replicas]
        said += [(replica, False) for replica in info.not_in_sync_replicas]
        return ForeignSet(
            set_key=SetKey(ClusterName(cluster), BrokerName(name)),
            master=None if info.master_broker_id is None else BrokerId(info.master_broker_id),
            master_epoch=MasterEpoch(info.master_epoch),
            sync_state_set_epoch=SyncStateSetEpoch(info.sync_state_set_epoch),
            next_id=self._next_id(cluster, name),
            replicas=tuple(
                ForeignReplica(
                    broker_id=BrokerId(replica.broker_id),
                    address=replica.broker_address,
                    is_alive=replica.alive,
                    is_in_sync=is_in_sync,
                    last_epoch=_last_epoch(caches[replica.broker_id]),
                )
                for replica, is_in_sync in sorted(said, key=lambda both: both[0].broker_id)
            ),
        )

    def _next_id(self, cluster: str, name: str) -> BrokerId:
        answer = self.ask(GET_NEXT_BROKER_ID, {"clusterName": cluster, "brokerName": name})
        text = (answer.ext_fields or {}).get("nextBrokerId", "")
        if answer.code != SUCCESS or not text.isdigit():
            raise ReadingError(f"{self.leader} does not say the next id of {name}: code {answer.code}, {text!r}")
        return BrokerId(int(text))


def _epochs_of(address: str) -> _EpochCache | None:
    """What a broker says of its epoch file; None if it does not answer."""
    try:
        with BlockingLink(address, timeout_ms=BROKER_TIMEOUT_MS) as link:
            answer = link.ask(GET_BROKER_EPOCH_CACHE)
    except (OSError, FrameError, ConfigError):
        return None
    if answer.code != SUCCESS:
        return None
    return _decode(_DECODE_EPOCH_CACHE, answer.body)


def _last_epoch(cache: _EpochCache | None) -> MasterEpoch | None:
    if cache is None:
        return None
    return MasterEpoch(max((entry.epoch for entry in cache.epoch_list), default=0))


def named(texts: Iterable[str]) -> dict[str, str]:
    """``broker-a`` or ``cluster/broker-a`` as brokerName -> cluster, empty if it was not said."""
    found = {}
    for text in texts:
        cluster, _, name = text.rpartition("/")
        found[name] = cluster
    return found
