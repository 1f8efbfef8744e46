"""
The sets of running RocketMQ controllers, as controllers, name servers and brokers tell of them.

Here: the questions, their answers as values (docs/wire.md, controller codes). Not here: what follows from them
(``plan``), changing anything there (``replay``). A controller has no list of its sets: their names come from a name
server, or from the caller.

Rule: nothing is guessed. A fact that cannot be read raises ``ReadingError``, with the address and the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    MasterEpoch,
    SetKey,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import BlockingLink
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.fastjson import quote_keys
from rollcall_ha.node.remoting.frame import Frame

GET_BROKER_EPOCH_CACHE = 1007
GET_BROKER_CLUSTER_INFO = 106
BROKER_TIMEOUT_MS = 1_000
"""Short: a broker that is gone does not hinder the move of its set."""


class ReadingError(Exception):
    """A fact that must be known cannot be read; the message names the fact and the address that was asked."""


class Read(Value):
    """Base of values that are read from the other side and printed."""


class ForeignReplica(Read):
    """One replica as its controllers know it."""

    broker_id: BrokerId
    address: str
    is_alive: bool
    is_in_sync: bool
    last_epoch: MasterEpoch | None = None
    """Last entry of its epoch file as it tells it; None = it did not answer."""


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
    replicas_info_table: dict[str, _Info] = msgspec.field(default_factory=dict)


class _Epoch(Read):
    epoch: int


class _EpochCache(Read):
    cluster_name: str = ""
    epoch_list: tuple[_Epoch, ...] = ()


class _BrokerData(Read):
    cluster: str = ""


class _ClusterInfo(Read):
    broker_addr_table: dict[str, _BrokerData] = msgspec.field(default_factory=dict)


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


def _first(addresses: Sequence[str], code: int, read: Callable[[Frame], T | None], lack: str) -> T:
    """The first answer in which ``read`` finds something. Raises ``ReadingError`` with what each address said."""
    troubles = []
    for address in addresses:
        try:
            with BlockingLink(address) as link:
                answer = link.ask(code)
        except (OSError, ConfigError) as error:
            troubles.append(f"{address}: {error}")
            continue
        found = read(answer) if answer.code == SystemCode.SUCCESS else None
        if found is not None:
            return found
        troubles.append(f"{address}: code {answer.code} {answer.remark or ''}")
    raise ReadingError(f"{lack}: " + "; ".join(troubles or ["no address was given"]))


def find_leader(addresses: Sequence[str]) -> str:
    """Address of the leading controller. Raises ``ReadingError``."""

    def read(answer: Frame) -> str | None:
        return (answer.ext_fields or {}).get("controllerLeaderAddress") or None

    return _first(addresses, RequestCode.GET_METADATA_INFO, read, "no controller names a leader")


def names_from(addresses: Sequence[str]) -> dict[str, str]:
    """Every brokerName with its cluster, by the first name server that answers. Raises ``ReadingError``."""

    def read(answer: Frame) -> dict[str, str]:
        found = _decode(_DECODE_CLUSTER_INFO, answer.body)
        return {name: data.cluster for name, data in sorted(found.broker_addr_table.items())}

    return _first(addresses, GET_BROKER_CLUSTER_INFO, read, "no name server lists its sets")


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
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def ask(self, code: int, fields: dict[str, object] | None = None, body: bytes = b"") -> Frame:
        """The leader's answer, whatever its code. Raises ``ReadingError``."""
        try:
            return self.link.ask(code, fields, body)
        except OSError as error:
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
        answer = self.ask(RequestCode.GET_SYNC_STATE_DATA, body=msgspec.json.encode(sorted(clusters)))
        if answer.code != SystemCode.SUCCESS:
            raise ReadingError(
                f"{self.leader} answered {RequestCode.GET_SYNC_STATE_DATA} with {answer.code} {answer.remark or ''}"
            )
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
        answer = self.ask(RequestCode.GET_NEXT_BROKER_ID, {"clusterName": cluster, "brokerName": name})
        text = (answer.ext_fields or {}).get("nextBrokerId", "")
        if answer.code != SystemCode.SUCCESS or not text.isdigit():
            raise ReadingError(f"{self.leader} does not say the next id of {name}: code {answer.code}, {text!r}")
        return BrokerId(int(text))


def _epochs_of(address: str) -> _EpochCache | None:
    """What a broker says of its epoch file; None if it does not answer."""
    try:
        with BlockingLink(address, timeout_ms=BROKER_TIMEOUT_MS) as link:
            answer = link.ask(GET_BROKER_EPOCH_CACHE)
    except (OSError, ConfigError):
        return None
    if answer.code != SystemCode.SUCCESS:
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
