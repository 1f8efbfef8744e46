"""The limits of the event journal in the fleet file."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from rollcall_ha.controller.runtime.settings import EVENT_BYTES_MIN, settings_from
from rollcall_ha.node.config import ConfigError, ControllerSection, FleetFile, FleetSection


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
