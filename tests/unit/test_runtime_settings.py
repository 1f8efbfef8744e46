"""The limits of the event journal in the fleet file."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import asdict

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.runtime.settings import EVENT_BYTES_MIN, ControllerAddresses, settings_from
from rollcall_ha.node.config import (
    ConfigError,
    ControllerBind,
    ControllerSection,
    FleetFile,
    FleetSection,
    ReplicationSection,
)


def _document(**limits: int) -> FleetFile:
    own = ControllerSection(raft="127.0.0.1:1", broker="127.0.0.1:2", rest="127.0.0.1:3", data="c1")
    fleet = FleetSection(name="demo", incarnation="0" * 32, **limits)  # type: ignore[arg-type]
    return FleetFile(version=1, fleet=fleet, controllers={"c1": own})


def test_events_are_kept_for_a_quarter_unless_the_fleet_file_says_otherwise() -> None:
    """Days become milliseconds; bytes are taken as they are."""
    assert asdict(settings_from(_document(), "c1").retention) == {"keep_ms": 90 * 86_400_000, "keep_bytes": 8 << 30}
    retention = settings_from(_document(event_days=1, event_bytes=EVENT_BYTES_MIN), "c1").retention
    assert asdict(retention) == {"keep_ms": 86_400_000, "keep_bytes": EVENT_BYTES_MIN}


@pytest.mark.parametrize(("key", "value"), [("event_days", 0), ("event_days", 40_000), ("event_bytes", 1_000_000)])
def test_limits_that_would_keep_nothing_are_refused(key: str, value: int) -> None:
    """A journal of less than two segments would drop what was just written; the message names key and value."""
    with pytest.raises(ConfigError, match=f"fleet.{key} is {value}"):
        settings_from(_document(**{key: value}), "c1")


def test_a_controller_listens_where_it_is_told_and_others_hear_the_address_that_they_dial() -> None:
    """Only what is bound decides whether a port leaves loopback; ``Host`` may be either name."""
    bind = ControllerBind(raft="0.0.0.0:1", rest="127.0.0.1:33")
    own = ControllerSection(raft="c1.example:11", broker="127.0.0.1:2", rest="c1.example:13", data="c1", bind=bind)
    settings = settings_from(msgspec.structs.replace(_document(), controllers={"c1": own}), "c1")
    assert settings.own == ControllerAddresses(raft="c1.example:11", broker="127.0.0.1:2", rest="c1.example:13")
    assert settings.bound == ControllerAddresses(raft="0.0.0.0:1", broker="127.0.0.1:2", rest="127.0.0.1:33")
    assert settings.rest_hosts >= {"c1.example", "127.0.0.1"}
    open_rest = msgspec.structs.replace(own, bind=ControllerBind(rest="0.0.0.0:13"))
    proved = msgspec.structs.replace(_document(), controllers={"c1": open_rest})
    assert settings_from(proved, "c1").rest_base(ControllerName("c1")) == "https://c1.example:13"
    believing = msgspec.structs.replace(proved, fleet=msgspec.structs.replace(proved.fleet, insecure=True))
    with pytest.raises(ConfigError, match=r"controllers\.c1\.rest is '0\.0\.0\.0:13'.* loopback"):
        settings_from(believing, "c1")
    nowhere = msgspec.structs.replace(own, raft="0.0.0.0:11")
    with pytest.raises(ConfigError, match=r"controllers\.c1\.raft is '0\.0\.0\.0:11', which others are told"):
        settings_from(msgspec.structs.replace(_document(), controllers={"c1": nowhere}), "c1")


def test_a_fleet_is_founded_with_the_limits_of_its_file() -> None:
    """The first change would else put limits on record that no broker works by, and lift them everywhere."""
    replication = ReplicationSection(catch_up_bytes_per_s_max=200_000, catch_up_copies_max=3)
    founded = settings_from(msgspec.structs.replace(_document(), replication=replication), "c1").founded
    assert (founded.catch_up_bytes_per_s_max, founded.catch_up_node_bytes_per_s_max) == (200_000, 0)
    assert (founded.catch_up_copies_max, founded.heartbeat_timeout_ms) == (3, 3_000)
