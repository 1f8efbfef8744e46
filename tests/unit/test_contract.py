"""The contract itself: stable numbers, consistent presets, values that survive JSON."""

from __future__ import annotations

import msgspec
import pytest

from rollcall_ha.controller.contract import codes, commands, events, replies
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    RequestId,
    SessionOrdinal,
    SetKey,
)
from rollcall_ha.controller.contract.timing import PRESETS, Preset, Timing


@pytest.mark.parametrize("preset", Preset)
def test_presets_satisfy_every_inequality(preset: Preset) -> None:
    """What config check prints for them is empty."""
    assert PRESETS[preset].violations() == ()


def test_a_broken_relation_is_named_with_both_values() -> None:
    """Append period too close to the election timeout."""
    broken = msgspec.structs.replace(PRESETS[Preset.NORMAL], raft_append_period_ms=200)

    (told,) = broken.violations()
    assert told == (
        "raft_election_timeout_ms_min is 300 ms, must be at least 3 x raft_append_period_ms, which is 200 ms: "
        "raise raft_election_timeout_ms_min to 600"
    )


def test_normal_keeps_its_promise_for_a_stopped_master() -> None:
    """Less than 4 s to serve again on the normal preset, less than 1.5 s on fast."""

    def worst(timing: Timing) -> int:
        return sum(timing.worst_case_rto_ms().values())

    assert worst(PRESETS[Preset.NORMAL]) < 4_000
    assert worst(PRESETS[Preset.FAST]) < 1_500


def test_codes_do_not_collide() -> None:
    """A number means one thing."""
    assert len({int(code) for code in codes.RequestCode}) == len(codes.RequestCode)
    assert len({int(code) for code in codes.RefusalCode}) == len(codes.RefusalCode)


def test_every_command_survives_json() -> None:
    """The tag is the class name; what is encoded decodes to an equal value."""
    union = commands.AnyCommand.__args__
    assert len(union) == 36
    assert {kind.__struct_config__.tag for kind in union} == {kind.__name__ for kind in union}
    command = commands.MarkAlive(
        set_key=SetKey(ClusterName("c"), BrokerName("b")),
        broker_id=BrokerId(1),
        incarnation=Incarnation("00"),
        session_ordinal=SessionOrdinal(3),
    )

    raw = msgspec.json.encode(command)

    assert b'"setKey":{"cluster":"c","name":"b"}' in raw
    assert msgspec.json.decode(raw, type=commands.AnyCommand) == command


def test_the_chain_depends_on_everything_before() -> None:
    """Two equal records after different pasts hash differently; the record's own chain field does not matter."""
    record = events.EventRecord(
        version=1,
        fleet_incarnation=FleetIncarnation("00"),
        term=1,
        index=2,
        ordinal=0,
        stamped_at_ms=3,
        set_key=None,
        request_id=RequestId("r"),
        requested_by="controller:c1",
        event=events.FeatureLevelRaised(level=1),
    )
    chained = msgspec.structs.replace(record, chain=events.chain_of("", record))

    assert events.chain_of("", record) == events.chain_of("", chained)
    assert events.chain_of("", record) != events.chain_of(chained.chain, record)
    assert msgspec.json.decode(msgspec.json.encode(chained), type=events.EventRecord) == chained


def test_replies_are_told_apart_by_their_tag() -> None:
    """A decoded reply is of the class that was sent."""
    assert isinstance(msgspec.json.decode(msgspec.json.encode(replies.Done()), type=replies.AnyReply), replies.Done)
