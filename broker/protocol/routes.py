"""
Routes: RocketMQ's TopicRouteData (105) for its clients, and ours (WATCH_ROUTE), which carries the masterEpoch.

Rule: a route with a higher masterEpoch replaces one with a lower one, never the other way round.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.broker.protocol.delays import LEVEL_DELAYS_MS, SCHEDULE_TOPIC
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch

WATCH_WAIT_MS_MAX = 30_000
"""A watch is answered after this at the latest, even if it asked for more."""
PERM_READ_WRITE = 6
QUEUE_COUNT = 8
RETRY_PREFIX = "%RETRY%"
"""Before the name of a group: the topic of what is given to the group again."""
DEAD_LETTER_PREFIX = "%DLQ%"
"""Before the name of a group: the topic of what it refused too often."""


class RouteError(ValueError):
    """These bytes are no route."""


def queue_count(topic: str) -> int:
    """How many queues a topic has; topics are created by their first message."""
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        return 1
    return len(LEVEL_DELAYS_MS) if topic.encode() == SCHEDULE_TOPIC else QUEUE_COUNT


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


_encode = msgspec.json.Encoder(order="sorted").encode
_decode_route = msgspec.json.Decoder(RouteState).decode


def encode_topic_route(route: RouteState, topic: str) -> bytes:
    """Body of an answer to 105: keys quoted and sorted, as Java writes it to new clients."""
    count = queue_count(topic)
    addresses = {
        "0" if each.broker_id == route.master else str(each.broker_id): each.address for each in route.replicas
    }  # fmt: skip
    return _encode(
        TopicRouteData(
            broker_datas=(_BrokerData(broker_addrs=addresses, broker_name=route.broker_name, cluster=route.cluster),),
            queue_datas=(
                _QueueData(
                    broker_name=route.broker_name,
                    perm=PERM_READ_WRITE,
                    read_queue_nums=count,
                    topic_sys_flag=0,
                    write_queue_nums=count,
                ),
            ),
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
