"""
Answers of a name service: routes of a topic, the cluster, lists of topics.

Here: pure functions from ``NameTable`` to beans. Not here: codes and headers (``machine``).
Rule: an answer is computed from the state that the controllers have committed by then: kept ones would send producers
to the old master after an election. The order is that of names, so equal tables give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from rollcall_ha.api.rocketmq.names.beans import BrokerData, ClusterInfo, MemberGroup, QueueData, TopicList, TopicRoute
from rollcall_ha.api.rocketmq.names.table import MASTER_ID, NameTable

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
PERMISSION_WRITE = 2
_MEMBERS_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Brokers of 5.x learn the members of their set from the route of such a topic."""
_UNIT = 1
_UNIT_SUB = 2


def broker_data(table: NameTable, name: str) -> BrokerData | None:
    """Addresses of one set by role id; None if no broker of it is shown."""
    by_role = table.by_role(name)
    if not by_role:
        return None
    newest = max(by_role.values(), key=lambda entry: entry.seen_ms)
    return BrokerData(
        broker_addrs={role: entry.address for role, entry in by_role.items()},
        broker_name=name,
        cluster=table.cluster_of(name) or newest.cluster,
        enable_acting_master=bool(newest.acts_as_master),
        zone_name=newest.zone,
    )


def route_of(table: NameTable, topic: str) -> TopicRoute | None:
    """The route of a topic; None if no set that is shown has it."""
    queues = table.queues.get(topic)
    if not queues:
        return None
    brokers = tuple(data for name in sorted(queues) if (data := broker_data(table, name)) is not None)
    if not brokers:
        return None
    # Members see each other as they are: a slave that reads of itself as 0 takes itself for the master.
    acting = {} if topic.startswith(_MEMBERS_PREFIX) else _acting_masters(table, brokers)
    return TopicRoute(
        broker_datas=tuple(acting.get(data.broker_name, data) for data in brokers),
        filter_server_table={},
        order_topic_conf=table.keys.get(ORDER_NAMESPACE, {}).get(topic),
        queue_datas=tuple(
            replace(queue, perm=queue.perm & ~PERMISSION_WRITE) if queue.broker_name in acting else queue
            for queue in (queues[data.broker_name] for data in brokers)
        ),
        topic_queue_mapping_by_broker=table.mappings.get(topic),
    )


def _acting_masters(table: NameTable, brokers: Iterable[BrokerData]) -> dict[str, BrokerData]:
    """Sets without a master whose brokers ask for an acting one: their lowest living slave as 0, to read and lock."""
    found = {}
    for data in brokers:
        if MASTER_ID in data.broker_addrs or not data.enable_acting_master:
            continue
        committed = table.committed_of(data.broker_name)
        # Living by the controllers' word: the lowest id is often the master of before, whose link still stands.
        living = [role for role, at in data.broker_addrs.items() if committed is None or at in committed.alive]
        if living:
            others = dict(data.broker_addrs)
            acting = others.pop(min(living))
            found[data.broker_name] = replace(data, broker_addrs={MASTER_ID: acting, **others})
    return found


def within_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """Only sets of this zone, and sets without a master: consumers may read their slaves from any zone."""
    kept = tuple(
        data
        for data in route.broker_datas
        if MASTER_ID not in data.broker_addrs or (data.zone_name or "").lower() == zone.lower()
    )
    names = {data.broker_name for data in kept}
    queues = tuple(queue for queue in route.queue_datas if queue.broker_name in names)
    return replace(route, broker_datas=kept, queue_datas=queues)


def cluster_info(table: NameTable) -> ClusterInfo:
    """All sets that are shown."""
    brokers = {name: data for name in sorted(table.names()) if (data := broker_data(table, name)) is not None}
    clusters: dict[str, list[str]] = {}
    for name, data in brokers.items():
        clusters.setdefault(data.cluster, []).append(name)
    return ClusterInfo(
        broker_addr_table=brokers,
        cluster_addr_table={cluster: tuple(names) for cluster, names in sorted(clusters.items())},
    )


def member_group(table: NameTable, cluster: str, name: str) -> MemberGroup:
    """One set; without addresses if no broker of it is shown."""
    data = broker_data(table, name)
    return MemberGroup(
        broker_addrs={} if data is None or data.cluster != cluster else data.broker_addrs,
        broker_name=name,
        cluster=cluster,
    )


def all_topics(table: NameTable) -> TopicList:
    return TopicList(topic_list=tuple(sorted(table.queues)))


def topics_of_cluster(table: NameTable, cluster: str) -> TopicList:
    """Topics that a set of this cluster has."""
    names = {name for name in table.names() if table.cluster_of(name) == cluster}
    return _topics_where(table, lambda queues: any(queue.broker_name in names for queue in queues))


def unit_topics(table: NameTable) -> TopicList:
    """Topics of a unit."""
    return _topics_where(table, lambda queues: bool(_first(queues).topic_sys_flag & _UNIT))


def unit_sub_topics(table: NameTable) -> TopicList:
    """Topics with a subscription of a unit."""
    return _topics_where(table, lambda queues: bool(_first(queues).topic_sys_flag & _UNIT_SUB))


def unit_sub_only_topics(table: NameTable) -> TopicList:
    """Topics with a subscription of a unit that are none of a unit."""
    return _topics_where(table, lambda queues: _first(queues).topic_sys_flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB)


def _first(queues: Iterable[QueueData]) -> QueueData:
    return next(iter(queues))


def _topics_where(table: NameTable, holds: Callable[[Iterable[QueueData]], bool]) -> TopicList:
    return TopicList(topic_list=tuple(sorted(topic for topic, found in table.queues.items() if holds(found.values()))))


def system_topics(table: NameTable) -> TopicList:
    """Topics that every fleet has: the names of its clusters and sets, with the address of some broker to ask."""
    info = cluster_info(table)
    addresses = (address for data in info.broker_addr_table.values() for address in data.broker_addrs.values())
    topics = {*info.cluster_addr_table, *info.broker_addr_table}
    return TopicList(broker_addr=next(addresses, None), topic_list=tuple(sorted(topics)))
