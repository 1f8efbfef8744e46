"""What a broker makes of its part of the fleet file, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from rollcall_ha.broker.config import broker_config, rocketmq_config
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.values import SetConfiguration
from rollcall_ha.ha.catch_up import CatchUpLimits
from rollcall_ha.node.config import (
    BrokerBind,
    BrokerSection,
    ConfigError,
    ControllerSection,
    FleetFile,
    FleetSection,
    ReplicationSection,
)

GOOD = BrokerSection(
    set="broker-a", listen="127.0.0.1:1", ha="localhost:2", health="[::1]:3", data="data/broker-a-1"
)  # fmt: skip


def fleet(broker: BrokerSection, *, insecure: bool = True, open_broker_ports: bool = False) -> FleetFile:
    """One controller, one broker."""
    return FleetFile(
        version=1,
        fleet=FleetSection(name="demo", incarnation="0" * 32, insecure=insecure, open_broker_ports=open_broker_ports),
        controllers={"c1": ControllerSection(raft="127.0.0.1:4", broker="127.0.0.1:5", rest="127.0.0.1:6", data="c1")},
        brokers={"broker-a-1": broker},
        directory="/nowhere",
    )


def test_loopback_is_what_a_broker_may_be_bound_to() -> None:
    """By name and in both families."""
    config = broker_config(fleet(GOOD), "broker-a-1")

    assert (config.listen, config.ha, config.health) == (("127.0.0.1", 1), ("localhost", 2), ("::1", 3))


@pytest.mark.parametrize("key", ["listen", "ha", "health"])
@pytest.mark.parametrize("address", ["0.0.0.0:9", "10.1.2.3:9", "[::]:9", "broker.example:9"])
def test_a_port_without_authentication_was_open_to_everybody(key: str, address: str) -> None:
    """Whoever reached it could send messages, follow the log, or read the metrics; nothing said so."""
    section = msgspec.structs.replace(GOOD, **{key: address})

    with pytest.raises(ConfigError) as refused:
        broker_config(fleet(section), "broker-a-1")

    for part in (f"brokers.broker-a-1.{key}", repr(address), "loopback", "fleet.open_broker_ports"):
        assert part in str(refused.value)


def test_the_fleet_file_may_open_the_ports() -> None:
    """Where the network is trusted somebody has to say so, and that is enough."""
    section = msgspec.structs.replace(GOOD, listen="10.1.2.3:9")

    assert broker_config(fleet(section, open_broker_ports=True), "broker-a-1").listen == ("10.1.2.3", 9)


def test_one_name_of_all_controllers_is_enough_for_a_broker() -> None:
    """Its file need not change when a controller moves; those that it names all the same are dialled after it."""
    named = msgspec.structs.replace(
        fleet(GOOD), fleet=FleetSection(name="demo", incarnation="0" * 32, controllers_name="controllers.example:7100")
    )
    assert broker_config(named, "broker-a-1").controllers == ("controllers.example:7100", "127.0.0.1:5")
    alone = msgspec.structs.replace(named, controllers={})
    assert broker_config(alone, "broker-a-1").controllers == ("controllers.example:7100",)
    nowhere = msgspec.structs.replace(fleet(GOOD), controllers={})
    with pytest.raises(ConfigError, match=r"fleet\.controllers_name"):
        broker_config(nowhere, "broker-a-1")


@pytest.mark.parametrize("key", ["listen", "ha", "health"])
def test_ports_with_tls_may_be_bound_anywhere(key: str) -> None:
    section = msgspec.structs.replace(GOOD, **{key: "10.1.2.3:9"})

    assert getattr(broker_config(fleet(section, insecure=False), "broker-a-1"), key) == ("10.1.2.3", 9)


def test_open_ports_of_a_fleet_with_certificates_are_a_word_without_meaning() -> None:
    """Left there, it would open every plain port on the day on which the fleet becomes insecure."""
    with pytest.raises(ConfigError, match="remove open_broker_ports"):
        broker_config(fleet(GOOD, insecure=False, open_broker_ports=True), "broker-a-1")


def test_a_broker_listens_where_it_is_told_and_others_hear_the_address_that_they_dial() -> None:
    """Behind a translation or in a container the address that slaves and clients dial is none of the machine's."""
    bind = BrokerBind(listen="0.0.0.0:9", ha="127.0.0.1:8")
    section = msgspec.structs.replace(GOOD, listen="192.0.2.1:19", ha="broker.example:18", bind=bind)
    with pytest.raises(ConfigError, match=r"listen is '0\.0\.0\.0:9'"):
        broker_config(fleet(section), "broker-a-1")
    found = broker_config(fleet(section, open_broker_ports=True), "broker-a-1")
    assert (found.listen, found.ha) == (("0.0.0.0", 9), ("127.0.0.1", 8))
    assert (found.description.address, found.description.ha_address) == ("192.0.2.1:19", "broker.example:18")
    assert found.store_host == bytes([192, 0, 2, 1, 0, 0, 0, 19])


@pytest.mark.parametrize(
    ("listen", "host"), [("[2001:db8::17]:9", "20010db8" + "0" * 22 + "17"), ("[::1]:9", "0" * 31 + "1")]
)
def test_a_broker_with_an_address_of_ipv6_was_refused(listen: str, host: str) -> None:
    """Records have room for 16 bytes of address and a flag that says so."""
    found = broker_config(fleet(msgspec.structs.replace(GOOD, listen=listen), insecure=False), "broker-a-1")
    assert found.store_host.hex() == host + "00000009"


def test_a_name_without_an_address_is_refused_with_the_remedy() -> None:
    found = broker_config(
        fleet(msgspec.structs.replace(GOOD, listen="nowhere.invalid:9"), insecure=False), "broker-a-1"
    )
    with pytest.raises(ConfigError, match=r"'nowhere\.invalid' has no address .* use a name or address that has"):
        _ = found.store_host


@pytest.mark.parametrize("address", ["0.0.0.0:9", "[::]:9"])
def test_an_address_that_nobody_can_dial_is_not_told_to_others(address: str) -> None:
    """Slaves on other machines would follow themselves."""
    section = msgspec.structs.replace(GOOD, ha=address)
    with pytest.raises(ConfigError, match=r"which others are told and cannot reach.* as bind\.ha"):
        broker_config(fleet(section, open_broker_ports=True), "broker-a-1")


@pytest.mark.parametrize("mode", ["n", "async", "some"])
def test_an_ack_mode_that_is_not_served_was_accepted(mode: str) -> None:
    """It waited for all members, without a word: the operator believed to have bought latency, or a bounded loss."""
    with pytest.raises(ConfigError, match=f"brokers.broker-a-1.ack_mode is '{mode}'; it must be one of: all"):
        broker_config(fleet(msgspec.structs.replace(GOOD, ack_mode=mode)), "broker-a-1")


def test_a_tool_was_told_that_no_replica_must_be_in_sync() -> None:
    """0 stands for half of the replicas, and an order may have changed it since the fleet file was written."""
    found = broker_config(fleet(msgspec.structs.replace(GOOD, expected_replicas=3)), "broker-a-1")
    ordered = SetConfiguration(expected_replicas=5, min_in_sync=1)
    view = cast("SetView", SimpleNamespace(configuration=ordered))

    assert found.configuration.min_in_sync == 0
    assert rocketmq_config(found, None)["minInSyncReplicas"] == "2"
    assert [rocketmq_config(found, view)[key] for key in ("minInSyncReplicas", "totalReplicas")] == ["1", "5"]


def copied_with(**limits: Any) -> FleetFile:
    return msgspec.structs.replace(fleet(GOOD), replication=ReplicationSection(**limits))


def test_the_limits_of_copies_are_those_of_the_fleet_file() -> None:
    """Nothing said: no limit, and one copy at a time."""
    assert broker_config(fleet(GOOD), "broker-a-1").catch_up == CatchUpLimits(copies_max=1)
    said = copied_with(
        catch_up_bytes_per_s_max=50_000_000, catch_up_node_bytes_per_s_max=80_000_000, catch_up_copies_max=2
    )
    assert broker_config(said, "broker-a-1").catch_up == CatchUpLimits(
        link_bytes_per_s_max=50_000_000, node_bytes_per_s_max=80_000_000, copies_max=2
    )


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"catch_up_bytes_per_s_max": 1}, ["replication.catch_up_bytes_per_s_max is 1", "131072"]),
        ({"catch_up_node_bytes_per_s_max": -1}, ["replication.catch_up_node_bytes_per_s_max is -1", "131072"]),
        ({"catch_up_copies_max": 0}, ["replication.catch_up_copies_max is 0", "1 to 64"]),
        (
            {"catch_up_bytes_per_s_max": 2_000_000, "catch_up_node_bytes_per_s_max": 1_000_000},
            ["2000000", "1000000", "lower catch_up_bytes_per_s_max"],
        ),
    ],
)
def test_a_limit_of_copies_that_means_nothing_is_refused(limits: dict[str, int], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_config(copied_with(**limits), "broker-a-1")
    for word in words:
        assert word in str(refused.value)
