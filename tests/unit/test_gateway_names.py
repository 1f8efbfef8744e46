"""The name service as a machine: who is master by whose word, what is shown when, limits, and bodies of every form."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from rollcall_ha.api.broker_port.headers import header_fields
from rollcall_ha.api.rocketmq.names import beans
from rollcall_ha.api.rocketmq.names.machine import NameCode
from rollcall_ha.api.rocketmq.names.table import KEPT_AFTER_CLOSE_MS, KEYS_MAX, TIMEOUT_MS
from rollcall_ha.controller.runtime.session_state import ConnectionId
from rollcall_ha.node.remoting.fastjson import quote_keys
from tests.support.names_world import NameWorld, address, ha_address, register_body, topic_config, word


def test_route_names_the_new_master_from_the_commit_on() -> None:
    """Nobody has registered again yet: who asks after the election still gets the new master under id 0."""
    world = NameWorld({"broker-a": word(1, 1, 2, 3)})
    for number in (1, 2, 3):
        world.register(number, role=0 if number == 1 else number)
    assert world.addresses() == {"0": address(1), "2": address(2), "3": address(3)}

    world.words["broker-a"] = word(2, 1, 2, 3, silent=(1,))

    assert world.addresses() == {"0": address(2), "1": address(1), "3": address(3)}


def test_claim_to_be_master_counts_for_nothing_against_the_controllers() -> None:
    """A master of the past that comes back registers as 0 until it hears otherwise."""
    world = NameWorld({"broker-a": word(2, 1, 2)})
    world.register(2)
    world.register(1, role=0, body=register_body("T", state_version=9))

    assert world.addresses() == {"0": address(2), "1": address(1)}


def test_slave_hears_the_new_masters_ha_address_before_that_has_registered_again() -> None:
    """Otherwise it follows the dead master until its next 103, up to 30 s later."""
    world = NameWorld({"broker-a": word(1, 1, 2, 3)})
    for number in (1, 2, 3):
        world.register(number, role=0 if number == 1 else number)

    world.words["broker-a"] = word(2, 1, 2, 3, silent=(1,))
    answer = world.register(3)

    assert answer.header is not None
    assert header_fields(answer.header) == {"masterAddr": address(2), "haServerAddr": ha_address(2)}


def test_103_is_answered_whatever_the_controllers_know() -> None:
    """No master, no such set, not registered: code 0 without addresses, at once."""
    for words in ({}, {"broker-a": word(None, 1, 2)}, {"broker-a": word(1)}):
        world = NameWorld(words)
        answer = world.register(2)
        assert (answer.code, answer.header and header_fields(answer.header)) == (0, {})


def test_set_that_the_controllers_do_not_know_goes_by_claims_and_versions() -> None:
    """A fleet without controllers: a later claim takes id 0, one with a lower stateVersion does not."""
    world = NameWorld()
    world.register(1, role=0, body=register_body("T", state_version=2))
    world.register(2, role=0, body=register_body("T", state_version=1))
    assert world.addresses() == {"0": address(1)}

    world.register(2, role=0, body=register_body("T", state_version=2))
    assert world.addresses() == {"0": address(2)}
    world.register(2, role=2)
    assert world.addresses() == {"2": address(2)}


def test_closed_connection_hides_a_dead_broker_and_not_a_living_one() -> None:
    """A broker registers every 30 s: a connection that breaks in between must not empty the routes."""
    world = NameWorld({"broker-a": word(1, 1, 2)})
    world.register(1, role=0)
    world.register(2)
    world.table.closed(ConnectionId(1), now_ms=world.now_ms)
    assert world.addresses() == {"0": address(1), "2": address(2)}

    world.words["broker-a"] = word(1, 1, 2, silent=(1,))
    assert world.addresses() == {"2": address(2)}
    world.words["broker-a"] = word(1, 1, 2)
    world.table.expire(now_ms=world.now_ms + KEPT_AFTER_CLOSE_MS + 1)
    assert world.addresses() == {"2": address(2)}


def test_registration_on_a_new_connection_outlives_the_close_of_the_old_one() -> None:
    """Closes arrive late: only the connection of the last 103 counts."""
    world = NameWorld()
    world.register(1, role=0)
    world.ask(
        NameCode.NAMES_BROKER_HEARTBEAT,
        link=7,
        brokerName="broker-a",
        brokerAddr=address(1),
        clusterName="c1",
    )
    world.table.closed(ConnectionId(1), now_ms=world.now_ms)
    assert world.addresses() == {"0": address(1)}

    world.table.closed(ConnectionId(7), now_ms=world.now_ms)
    assert world.route() is None
    assert world.table.queues == {}


def test_silence_ends_a_registration_and_a_heartbeat_or_322_prolongs_it() -> None:
    """120 s after the last word; topics of a set without brokers go with it."""
    world = NameWorld()
    world.register(1, role=0)
    broker: dict[str, Any] = {"brokerName": "broker-a", "brokerAddr": address(1), "clusterName": "c1", "brokerId": "0"}
    for code in (NameCode.NAMES_BROKER_HEARTBEAT, NameCode.QUERY_DATA_VERSION):
        world.now_ms += TIMEOUT_MS - 1
        world.ask(code, b"{}", link=1, **broker)
        assert world.table.expire(now_ms=world.now_ms + TIMEOUT_MS) == 0
    assert world.table.expire(now_ms=world.now_ms + TIMEOUT_MS + 1) == 1
    assert (world.table.brokers, world.table.queues) == (0, {})


def test_topics_come_from_the_master_only_and_when_they_changed() -> None:
    """A slave's copy is older, and write permission that was wiped stays wiped until the broker changes its topics."""
    world = NameWorld({"broker-a": word(1, 1, 2)})
    world.register(1, role=0)
    world.register(2, body=register_body("T", counter=9, Stale=topic_config()))
    assert world.route("Stale") is None

    wiped = world.ask(NameCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert wiped.header is not None
    assert header_fields(wiped.header) == {"wipeTopicCount": "3"}
    world.register(1, role=0)
    route = world.route()
    assert route is not None
    assert route["queueDatas"][0]["perm"] == 4
    world.register(1, role=0, body=register_body("T", counter=2))
    route = world.route()
    assert route is not None
    assert route["queueDatas"][0]["perm"] == 6
    world.ask(NameCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    added = world.ask(NameCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert added.header is not None
    assert header_fields(added.header) == {"addTopicCount": "3"}


def test_topics_of_a_master_that_registered_before_its_election_was_applied_are_taken_later() -> None:
    """On a follower the 103 of a new master can overtake the log; its version will not change again."""
    world = NameWorld({"broker-a": word(1, 1, 2)})
    world.register(1, role=0)
    body = register_body("T", "New", state_version=2)
    world.register(2, role=0, body=body)
    assert world.route("New") is None
    asked = world.ask(
        NameCode.QUERY_DATA_VERSION,
        json.dumps({"counter": 1, "stateVersion": 2, "timestamp": 1}).encode(),
        brokerName="broker-a",
        brokerAddr=address(2),
    )
    assert asked.header is not None
    assert header_fields(asked.header) == {"changed": "false"}

    world.words["broker-a"] = word(2, 1, 2)
    world.register(2, role=0, body=body)

    assert world.route("New") is not None


def test_one_topic_of_an_unknown_broker_is_no_registration() -> None:
    """An addition to a table that never came is refused, as in RocketMQ, so that the broker sends it whole."""
    world = NameWorld()
    single = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {"T": topic_config()}}}).encode()
    answer = world.register(1, role=0, body=single)
    assert (answer.code, answer.remark) == (1, "register broker failed")

    world.register(1, role=0)
    assert world.register(1, role=0, body=single).code == 0


def test_body_that_is_not_what_its_checksum_says_is_refused() -> None:
    """Also one that is no JSON, too deep, or lacks its names."""
    world = NameWorld()
    assert world.register(1, bodyCrc32=4711).remark == "crc32 not match"
    for body in (b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"topicConfigSerializeWrapper":' * 5_000):
        answer = world.register(1, body=body)
        assert answer.code == 1
    assert world.ask(NameCode.NAMES_REGISTER_BROKER).code == 1
    assert world.table.brokers == 0


def _text(content: str) -> bytes:
    return struct.pack(">i", len(content)) + content.encode()


def test_compressed_registration_has_the_same_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """One zlib stream of lengths and texts; what is cut off or unfolds without end is refused."""
    unfolded = (
        _text('{"counter":1,"stateVersion":1,"timestamp":1}')
        + struct.pack(">i", 2)
        + _text('T 4 4 6 SINGLE_TAG {"a":"b c"}')
        + _text("U 1 2 4 SINGLE_TAG {}")
        + _text("[]")
        + struct.pack(">i", 1)
        + _text('{"topic":"U","bname":"broker-a","currIdMap":{0:1}}')
    )
    world = NameWorld()
    whole = zlib.compress(unfolded)
    assert world.register(1, role=0, body=whole, compressed="true").code == 0
    route = world.route("U")
    assert route is not None
    assert route["queueDatas"] == [
        {"brokerName": "broker-a", "perm": 4, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 2}
    ]
    assert route["topicQueueMappingByBroker"]["broker-a"]["currIdMap"] == {"0": 1}

    monkeypatch.setattr("rollcall_ha.api.rocketmq.names.beans.BODY_BYTES_MAX", 1024 * 1024)
    bomb = zlib.compress(bytes(1024 * 1024 + 1))
    for body in (whole[:-3], bomb, zlib.compress(unfolded[:30]), zlib.compress(b"\xff" * 8), b"no zlib"):
        assert world.register(1, role=0, body=body, compressed="true").code == 1


def test_keys_of_maps_may_come_without_quotes() -> None:
    """Fastjson writes integer keys bare, and every text may hold what looks like one."""
    world = NameWorld()
    body = register_body("T").replace(b'"topicQueueMappingInfoMap":{}', b'"x":{0:{1:"{2:3}"}},"y":"{7:1}"')

    assert world.register(1, role=0, body=body).code == 0
    assert world.route() is not None


def _static(topics: int) -> bytes:
    """Static topics as Java writes them into a 103: the keys of their queues are bare."""
    mappings = ",".join(
        f'"Static{number}":{{"currIdMap":{{0:0}},"topic":"Static{number}"}}' for number in range(topics)
    )
    return mappings.encode()


@pytest.mark.parametrize("topics", [6_000, 20_000])
def test_one_static_topic_does_not_keep_a_broker_of_many_topics_out(
    topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above 1 MiB the body was "malformed": the bare keys of one static topic made all topics unreadable."""
    quoted: list[int] = []

    def watched(body: bytes) -> bytes:
        quoted.append(len(body))
        return quote_keys(body)

    monkeypatch.setattr(beans, "quote_keys", watched)
    names = [f"TopicOfSomeTeam_{number:0>150}" for number in range(topics)]
    body = register_body(*names).replace(b'"topicQueueMappingInfoMap":{', b'"topicQueueMappingInfoMap":{' + _static(1))
    assert len(body) > beans.BARE_KEYS_BYTES_MAX
    world = NameWorld()

    assert world.register(1, role=0, body=body).code == 0
    assert world.route(names[-1]) is not None
    assert world.table.mappings["Static0"]["broker-a"]["currIdMap"] == {"0": 0}
    # The loop is held up by what is gone through byte by byte.
    assert max(quoted) < 1_000


def test_static_topics_above_the_limit_are_refused_with_the_remedy() -> None:
    """Quoting them all would hold up the loop that runs elections."""
    body = register_body("T").replace(
        b'"topicQueueMappingInfoMap":{', b'"topicQueueMappingInfoMap":{' + _static(30_000)
    )
    size = len(body) - body.index(b'"topicQueueM')
    answer = NameWorld().register(1, role=0, body=body)

    limit = beans.BARE_KEYS_BYTES_MAX
    assert answer.code == 1
    assert answer.remark == (
        f"{size} bytes of static topics with bare keys, at most {limit} are taken: "
        "spread the static topics over more broker sets"
    )


def test_zones_hide_masters_elsewhere_but_no_set_that_has_lost_its_master() -> None:
    """``__ZONE_MODE`` of the request; the zone itself came with the 103."""
    world = NameWorld({"a": word(1, 1), "b": word(2, 2), "c": word(None, 3)})
    for number, (name, zone) in enumerate((("a", "Z1"), ("b", "z2"), ("c", "z3")), start=1):
        world.register(number, role=0, name=name, __ZONE_NAME=zone)

    route = world.route(__ZONE_NAME="z1", __ZONE_MODE="true")
    assert route is not None
    assert [data["brokerName"] for data in route["brokerDatas"]] == ["a", "c"]
    assert [data["brokerName"] for data in route["queueDatas"]] == ["a", "c"]
    unasked = world.route(__ZONE_NAME="z1")
    assert unasked is not None
    assert len(unasked["brokerDatas"]) == 3


def test_consumers_of_a_set_without_a_master_go_on_with_an_acting_one() -> None:
    """No route showed one: with enableSlaveActingMaster nobody gave locks while the set had no master."""
    members = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    for asked, silent, acting in (("true", (1,), 2), ("false", (1,), None), ("true", (1, 2, 3), None)):
        world = NameWorld({"broker-a": word(1, 1, 2, 3)})
        for number in (1, 2, 3):
            role = 0 if number == 1 else number
            world.register(number, role=role, body=register_body("T", members), enableActingMaster=asked)
        real = {str(number): address(number) for number in (1, 2, 3)}
        assert world.addresses() == {"0": address(1), "2": address(2), "3": address(3)}

        world.words["broker-a"] = word(None, 1, 2, 3, silent=silent)

        shown = real if acting is None else {"0": address(2), "1": address(1), "3": address(3)}
        route = world.route()
        assert route is not None
        assert world.addresses() == shown
        assert route["queueDatas"][0]["perm"] == (6 if acting is None else 4)
        assert world.addresses(members) == real, "members see each other as they are"
        group = json.loads(world.ask(NameCode.GET_BROKER_MEMBER_GROUP, clusterName="c1", brokerName="broker-a").body)
        assert group["brokerMemberGroup"]["brokerAddrs"] == real

        world.words["broker-a"] = word(3, 1, 2, 3, silent=(1,))
        assert world.addresses()["0"] == address(3)
        route = world.route()
        assert route is not None
        assert route["queueDatas"][0]["perm"] == 6


def test_an_acting_master_elsewhere_is_hidden_as_a_master_is() -> None:
    """RocketMQ looks at zones when acting masters are in place: nobody reads across zones what asks for acting ones."""
    world = NameWorld({"a": word(1, 1, 2), "b": word(3, 3, 4)})
    for number, name in enumerate("aabb", start=1):
        role = 0 if number in {1, 3} else number
        world.register(number, role=role, name=name, enableActingMaster="true", __ZONE_NAME=f"z-{name}")
    world.words.update(a=word(None, 1, 2, silent=(1,)), b=word(None, 3, 4, silent=(3,)))

    route = world.route(__ZONE_NAME="z-a", __ZONE_MODE="true")
    assert route is not None
    assert [(data["brokerName"], data["brokerAddrs"]) for data in route["brokerDatas"]] == [
        ("a", {"0": address(2), "1": address(1)})
    ]


def test_cluster_info_and_lists_of_topics() -> None:
    """106, 206, 224, 304, 311 to 313, 901: sorted, keys quoted."""
    world = NameWorld({"broker-a": word(1, 1, 2)})
    world.register(1, role=0, body=register_body(Unit=topic_config(flags=1), Sub=topic_config(flags=2)))
    world.register(2)
    world.register(3, role=0, name="broker-b", cluster="c2", body=register_body("T"))

    assert json.loads(world.ask(NameCode.GET_BROKER_CLUSTER_INFO).body) == {
        "brokerAddrTable": {
            "broker-a": {
                "brokerAddrs": {"0": address(1), "2": address(2)},
                "brokerName": "broker-a",
                "cluster": "c1",
                "enableActingMaster": False,
            },
            "broker-b": {
                "brokerAddrs": {"0": address(3)},
                "brokerName": "broker-b",
                "cluster": "c2",
                "enableActingMaster": False,
            },
        },
        "clusterAddrTable": {"c1": ["broker-a"], "c2": ["broker-b"]},
    }
    listed = {
        NameCode.GET_ALL_TOPIC_LIST: ["SELF_TEST_TOPIC", "Sub", "T", "TBW102", "Unit"],
        NameCode.GET_TOPICS_BY_CLUSTER: ["SELF_TEST_TOPIC", "T", "TBW102"],
        NameCode.GET_SYSTEM_TOPIC_LIST: ["broker-a", "broker-b", "c1", "c2"],
        NameCode.GET_UNIT_TOPIC_LIST: ["Unit"],
        NameCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ["Sub"],
        NameCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ["Sub"],
    }
    for code, topics in listed.items():
        assert json.loads(world.ask(code, cluster="c2").body)["topicList"] == topics
    group = world.ask(NameCode.GET_BROKER_MEMBER_GROUP, clusterName="c1", brokerName="broker-a")
    assert json.loads(group.body)["brokerMemberGroup"]["brokerAddrs"] == {"0": address(1), "2": address(2)}


def test_topics_are_deleted_everywhere_or_in_one_cluster_and_can_be_added() -> None:
    """216 and 217."""
    world = NameWorld()
    world.register(1, role=0)
    world.register(2, role=0, name="broker-b", cluster="c2")
    world.ask(NameCode.DELETE_TOPIC_IN_NAMESRV, topic="T", clusterName="c2")
    route = world.route()
    assert route is not None
    assert [data["brokerName"] for data in route["queueDatas"]] == ["broker-a"]
    world.ask(NameCode.DELETE_TOPIC_IN_NAMESRV, topic="T")
    assert world.route() is None

    queue = {"brokerName": "broker-b", "perm": 6, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1}
    body = json.dumps({"queueDatas": [queue, queue | {"brokerName": "stranger"}]}).encode()
    assert world.ask(NameCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="T").code == 0
    route = world.route()
    assert route is not None
    assert route["queueDatas"] == [queue]


def test_settings_by_namespace_and_key() -> None:
    """100, 101, 102, 219; topics with an order travel with the route and with the answer to 103."""
    world = NameWorld()
    where: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    assert world.ask(NameCode.GET_KV_CONFIG, **where).code == 22
    assert world.ask(NameCode.GET_KVLIST_BY_NAMESPACE, namespace="n").code == 22
    assert world.ask(NameCode.PUT_KV_CONFIG, value="broker-a:4", **where).code == 0
    answer = world.ask(NameCode.GET_KV_CONFIG, **where)
    assert answer.header is not None
    assert header_fields(answer.header) == {"value": "broker-a:4"}
    assert json.loads(world.register(1, role=0).body) == {"table": {"T": "broker-a:4"}}
    route = world.route()
    assert route is not None
    assert route["orderTopicConf"] == "broker-a:4"
    world.ask(NameCode.DELETE_KV_CONFIG, **where)
    assert world.ask(NameCode.GET_KV_CONFIG, **where).code == 22
    assert world.ask(NameCode.PUT_KV_CONFIG, namespace="n").code == 1


def test_settings_have_a_limit() -> None:
    """Whoever writes more than the table may hold is refused, and told both numbers."""
    world = NameWorld()
    for number in range(KEYS_MAX):
        world.table.put_key("n", str(number), "")
    answer = world.ask(NameCode.PUT_KV_CONFIG, namespace="n", key="one more", value="")
    assert (answer.code, answer.remark) == (1, f"{KEYS_MAX} keys are stored, at most {KEYS_MAX} can be")


def test_registration_tells_whether_its_topics_are_known() -> None:
    """322: brokers with ``forceRegister=false`` send a 103 only if this says so."""
    world = NameWorld()
    broker: dict[str, Any] = {"brokerName": "broker-a", "brokerAddr": address(1), "clusterName": "c1", "brokerId": "0"}
    same = b'{"counter":1,"stateVersion":1,"timestamp":1}'
    unknown = world.ask(NameCode.QUERY_DATA_VERSION, same, **broker)
    assert unknown.header is not None
    assert (header_fields(unknown.header), unknown.body) == ({"changed": "true"}, b"")
    world.register(1, role=0)
    for body, changed in ((same, "false"), (b'{"counter":2,"stateVersion":1,"timestamp":1}', "true")):
        answer = world.ask(NameCode.QUERY_DATA_VERSION, body, **broker)
        assert answer.header is not None
        assert header_fields(answer.header) == {"changed": changed}
        assert answer.body == same


def test_goodbye_takes_the_broker_out_at_once() -> None:
    """104 at the broker's stop, not its timeout."""
    world = NameWorld({"broker-a": word(1, 1, 2)})
    world.register(1, role=0)
    world.register(2)
    world.ask(NameCode.UNREGISTER_BROKER, brokerName="broker-a", brokerAddr=address(2), brokerId="2")
    assert world.addresses() == {"0": address(1)}


def test_table_survives_a_restart_and_shows_the_living_only() -> None:
    """Brokers register again within 30 s; until then the controllers' word decides who is shown."""
    world = NameWorld({"broker-a": word(1, 1, 2)})
    world.register(1, role=0)
    world.register(2)
    world.register(3, role=0, name="unknown")
    world.table.put_key("n", "k", "v")

    after = NameWorld({"broker-a": word(1, 1, 2, silent=(2,))})
    after.table.restore(world.table.saved(), now_ms=after.now_ms)

    assert after.addresses() == {"0": address(1)}
    assert after.table.keys == {"n": {"k": "v"}}
    assert after.table.expire(now_ms=after.now_ms + KEPT_AFTER_CLOSE_MS + 1) == 3
    assert after.route() is None


@pytest.mark.parametrize("code", sorted(NameCode))
def test_every_code_answers_an_empty_request(code: NameCode) -> None:
    """Nothing that a peer leaves out may raise."""
    answer = NameWorld().ask(code)

    assert answer.code in (0, 1, 16, 17, 22)
