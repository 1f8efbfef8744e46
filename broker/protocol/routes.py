"""
Routes: RocketMQ's TopicRouteData (105) for its clients, and ours (WATCH_ROUTE), which carries the masterEpoch.

Rule: a route with a higher masterEpoch replaces one with a lower one, never the other way round.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.broker.protocol.topics import PERM_READ, QUEUE_COUNT, TopicRow
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.node.remoting.fastjson import quote_keys

WATCH_WAIT_MS_MAX = 30_000
"""A watch is answered after this at the latest, even if it asked for more."""


class RouteError(ValueError):
    """These bytes are no route."""


class RouteBroker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One replica of a set as far as the answering replica knows."""

    broker_id: BrokerId
    address: str


class RouteState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A replica's knowledge of its set. ``master`` None: there is none, or it is not known."""

    cluster: str
    broker_name: str
    master_epoch: MasterEpoch
    master: BrokerId | None
    replicas: tuple[RouteBroker, ...]
    queue_count: int = QUEUE_COUNT

    @property
    def master_address(self) -> str | None:
        return next((each.address for each in self.replicas if each.broker_id == self.master), None)


class _QueueData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int
    write_queue_nums: int


class _BrokerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_addrs: dict[str, str]
    broker_name: str
    cluster: str
    enable_acting_master: bool = False


class TopicRouteData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """RocketMQ's route of one topic; role id 0 is the master."""

    broker_datas: tuple[_BrokerData, ...]
    filter_server_table: dict[str, tuple[str, ...]] = {}
    queue_datas: tuple[_QueueData, ...]

    @property
    def read_queues(self) -> dict[str, int]:
        """How many queues of the topic each set has that may be read."""
        return {each.broker_name: each.read_queue_nums for each in self.queue_datas if each.perm & PERM_READ}

    def of_set(self, name: str) -> RouteState | None:
        """One set, in no masterEpoch, because this route knows none: broker id 0 is its master."""
        for each in self.broker_datas:
            if each.broker_name == name:
                found = tuple(
                    RouteBroker(broker_id=BrokerId(int(number)), address=address)
                    for number, address in each.broker_addrs.items()
                    if number.isdigit()
                )
                master = BrokerId(0) if "0" in each.broker_addrs else None
                epoch = MasterEpoch(0)
                return RouteState(
                    cluster=each.cluster, broker_name=name, master_epoch=epoch, master=master, replicas=found
                )
        return None


_encode = msgspec.json.Encoder(order="sorted").encode
_decode_route = msgspec.json.Decoder(RouteState).decode
_decode_topic_route = msgspec.json.Decoder(TopicRouteData).decode


def encode_topic_route(route: RouteState, row: TopicRow) -> bytes:
    """Body of an answer to 105: keys quoted and sorted, as Java writes it to new clients."""
    addresses = {
        "0" if each.broker_id == route.master else str(each.broker_id): each.address for each in route.replicas
    }  # fmt: skip
    return _encode(
        TopicRouteData(
            broker_datas=(_BrokerData(broker_addrs=addresses, broker_name=route.broker_name, cluster=route.cluster),),
            queue_datas=(made_from(row, _QueueData, broker_name=route.broker_name),),
        )
    )


def encode_route(route: RouteState) -> bytes:
    """Body of an answer to WATCH_ROUTE."""
    return _encode(route)


def decode_route(data: bytes) -> RouteState:
    try:
        return _decode_route(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RouteError(f"route: {error}") from error


def decode_topic_route(data: bytes) -> TopicRouteData:
    """Body of an answer to 105, from RocketMQ's name servers too. Raises ``RouteError``."""
    try:
        return _decode_topic_route(quote_keys(data))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RouteError(f"route of a topic: {error}") from error
