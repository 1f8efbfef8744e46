"""Settings in the controllers' core: judged as a whole, versioned, taken back; and the table that describes them."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ApplySettings
from rollcall_ha.controller.contract.events import CommandRefused, SettingsApplied
from rollcall_ha.controller.contract.levels import fitted
from rollcall_ha.controller.contract.replies import AnyReply, Done
from rollcall_ha.controller.contract.settings import KEYS, Settings, settings_of, timing_with
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.core.invariants import check_state, check_transition
from rollcall_ha.controller.core.settings import timing_in_force, version_in_force, wanted
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.state import SETTINGS_KEPT
from tests.support.core_builders import Fleet, refusal

FILE = PRESETS[Preset.NORMAL]
FOUNDED = settings_of(FILE)
ALICE = "admin:alice"


def change(fleet: Fleet, expected: int, settings: Settings | None = None, by: str = ALICE, **values: int) -> AnyReply:
    """As an admin, from what is in force."""
    order = ApplySettings(
        settings=settings or wanted(fleet.state, FOUNDED, values=values),
        expected_version=expected,
        file=FILE,
        reason="night",
    )
    return fleet.apply([fleet.operation(order, requested_by=by)]).replies[0]


def test_the_first_change_puts_the_file_on_record_before_it() -> None:
    """Without version 1 nobody could go back: what was before the first change stood in files alone."""
    fleet = Fleet()
    assert timing_in_force(fleet.state, FILE) is FILE
    assert change(fleet, 0, heartbeat_timeout_ms=2_000) == Done()

    founded, changed = (event for event in fleet.events if isinstance(event, SettingsApplied))
    assert (founded.version, founded.settings, founded.changed) == (1, FOUNDED, ())
    assert (changed.version, [str(one) for one in changed.changed]) == (2, ["heartbeat_timeout_ms 3000 -> 2000"])
    assert changed.worst_case_rto_ms == founded.worst_case_rto_ms - 1_000 == 2_700
    assert timing_in_force(fleet.state, FILE) == replace(FILE, heartbeat_timeout_ms=2_000)
    newest = fleet.state.settings[-1]
    assert (newest.version, newest.applied_by, newest.reason) == (2, ALICE, "night")


def test_an_inconsistent_whole_is_refused_with_both_values_and_the_remedy() -> None:
    """Each value is fine by itself; together every master would be found dead between two heartbeats."""
    fleet = Fleet()
    answer = refusal(change(fleet, 0, heartbeat_timeout_ms=1_500, heartbeat_interval_ms=1_000))

    assert answer.code is RefusalCode.INVALID_ARGUMENT
    assert answer.reason == (
        "heartbeat_timeout_ms is 1500 ms, must be at least 2 x heartbeat_interval_ms, which is 1000 ms: raise "
        "heartbeat_timeout_ms to 2000, or lower heartbeat_interval_ms to 750"
    )
    assert fleet.state.settings == ()
    assert isinstance(fleet.events[-1], CommandRefused)


def test_a_limit_that_another_one_makes_needless_is_refused_with_both_values() -> None:
    answer = refusal(change(Fleet(), 0, catch_up_bytes_per_s_max=300_000, catch_up_node_bytes_per_s_max=200_000))
    assert "is 300000, must be at most catch_up_node_bytes_per_s_max, which is 200000: lower" in answer.reason


def test_version_1_is_what_the_leaders_file_says() -> None:
    founded = replace(FOUNDED, catch_up_copies_max=4)
    order = ApplySettings(
        settings=replace(founded, handover_ms=500), expected_version=0, file=FILE, founded=founded, reason=""
    )
    fleet = Fleet()
    fleet.apply([fleet.operation(order)])
    assert fleet.state.settings[0].settings == founded
    assert [str(one) for one in fleet.state.settings[1].changed] == ["handover_ms 2000 -> 500"]


def test_settings_must_fit_the_raft_durations_that_stay_in_the_file() -> None:
    slow = replace(FILE, raft_election_timeout_ms_max=2_000, raft_fallback_ms=2_000, raft_connection_timeout_ms=2_000)
    fleet = Fleet()
    order = ApplySettings(settings=replace(FOUNDED, heartbeat_timeout_ms=1_500), expected_version=0, file=slow)
    answer = refusal(fleet.apply([fleet.operation(order)]).replies[0])

    assert (
        "must be at least raft_election_timeout_ms_max, which is 2000 ms: raise heartbeat_timeout_ms" in answer.reason
    )
    assert "lower raft" not in answer.reason


@pytest.mark.parametrize("name", KEYS)
def test_a_value_outside_of_its_range_is_refused_with_the_range(name: str) -> None:
    for value in (KEYS[name].least - 1, KEYS[name].most + 1):
        if KEYS[name].takes(value):
            continue
        answer = refusal(change(Fleet(), 0, settings=replace(FOUNDED, **{name: value})))
        assert f"{name} is {value}, it takes {KEYS[name].range}" in answer.reason


def test_of_two_who_change_at_the_same_time_the_second_is_told() -> None:
    """Applied, it would undo in silence what its caller has not seen."""
    fleet = Fleet()
    assert change(fleet, 0, handover_ms=1_000) == Done()
    answer = refusal(change(fleet, 0, by="admin:bob", handover_ms=500))

    assert answer.code is RefusalCode.EXPECTATION_FAILED
    assert (answer.requested, answer.current) == ("0", "2")
    assert "applied by admin:alice" in answer.reason
    assert version_in_force(fleet.state) == 2


def test_the_same_values_again_are_no_version() -> None:
    fleet = Fleet()
    change(fleet, 0, handover_ms=1_000)
    before = fleet.state
    assert change(fleet, 2) == Done()
    assert fleet.state.settings == before.settings


def test_an_older_version_comes_back_as_a_new_one() -> None:
    fleet = Fleet()
    change(fleet, 0, handover_ms=1_000)
    change(fleet, 2, handover_ms=500)
    assert change(fleet, 3, settings=wanted(fleet.state, FOUNDED, values={}, version=1)) == Done()

    assert [applied.version for applied in fleet.state.settings] == [1, 2, 3, 4]
    assert fleet.state.settings[-1].settings == FOUNDED


def test_kept_versions_have_a_bound_and_survive_a_snapshot() -> None:
    fleet = Fleet()
    for number in range(SETTINGS_KEPT + 5):
        change(fleet, version_in_force(fleet.state), handover_ms=1_000 + number)

    kept = fleet.state.settings
    assert (len(kept), kept[-1].version) == (SETTINGS_KEPT, SETTINGS_KEPT + 6)
    assert decode_state(encode_state(fleet.state)) == fleet.state
    assert check_state(fleet.state) == ()
    with pytest.raises(ValueError, match=f"version 1 of the settings is not kept; kept are: 7 to {SETTINGS_KEPT + 6}"):
        wanted(fleet.state, FOUNDED, values={}, version=1)


def test_what_is_wanted_is_a_preset_and_single_values_over_what_is_in_force() -> None:
    fleet = Fleet()
    change(fleet, 0, rocketmq_heartbeat_timeout_ms=2_500)
    found = wanted(fleet.state, FOUNDED, values={"handover_ms": 700}, preset="fast")

    assert found.rocketmq_heartbeat_timeout_ms == 2_500
    assert timing_with(found, FILE).heartbeat_timeout_ms == PRESETS[Preset.FAST].heartbeat_timeout_ms
    assert found.handover_ms == 700
    for values, preset, words in (
        ({"heartbeat_timout_ms": 1}, None, r"not known; did you mean heartbeat_timeout_ms\? keys are: heartbeat_i"),
        ({"lease": 1}, None, "key 'lease' is not known; keys are: heartbeat_interval_ms, "),
        ({"handover_ms": True}, None, "handover_ms is True; it takes a whole number, 0 to 600000 ms"),
        ({}, "faster", "preset 'faster' is not known; presets are: fast, normal, safe"),
    ):
        with pytest.raises(ValueError, match=words):
            wanted(fleet.state, FOUNDED, values=values, preset=preset)


@pytest.mark.parametrize("preset", Preset)
def test_every_preset_is_a_set_of_values_that_is_taken(preset: Preset) -> None:
    order = ApplySettings(settings=settings_of(PRESETS[preset]), expected_version=0, file=PRESETS[preset])
    fleet = Fleet()
    assert fleet.apply([fleet.operation(order)]).replies == (Done(),)


def test_the_invariants_notice_versions_that_cannot_be() -> None:
    """C13."""
    fleet = Fleet()
    before = fleet.state
    change(fleet, 0, handover_ms=1_000)
    after = fleet.state
    assert check_transition(before, after, fleet.records[-2:]) == ()
    gap = replace(after, settings=(after.settings[0], replace(after.settings[1], version=4)))
    assert any("C13" in text for text in check_state(gap))
    assert any("C13" in text for text in check_transition(before, gap, fleet.records[-2:]))
    deaf = replace(after.settings[1], settings=replace(FOUNDED, heartbeat_timeout_ms=600))
    assert any("C13" in text for text in check_state(replace(after, settings=(after.settings[0], deaf))))


def test_every_setting_is_an_integer_with_words_of_its_own() -> None:
    """What is shown and documented is made of this table."""
    assert tuple(KEYS) == Settings.__struct_fields__
    meanings = [key.meaning for key in KEYS.values()]
    assert all(text.endswith(".") for text in meanings)
    assert len(set(meanings)) == len(meanings)
    assert {type(FOUNDED.value(name)) for name in KEYS} == {int}


def test_a_key_of_a_later_level_is_refused_below_it_and_written_by_nobody_before_it_is_set() -> None:
    """Left out in silence, the order would be answered as done; written, older controllers would have another state."""
    fleet = Fleet()
    older = replace(fleet.state, feature_level=1)
    with pytest.raises(ValueError, match="'ack_timeout_ms' needs feature level 2, the fleet is at 1"):
        wanted(older, FOUNDED, values={"ack_timeout_ms": 3_000})
    assert b"ack_timeout_ms" not in msgspec.json.encode(FOUNDED)
    order = ApplySettings(settings=replace(FOUNDED, ack_timeout_ms=3_000), expected_version=0, file=FILE)
    assert fitted(fleet.operation(order), 1)[0].command == replace(order, settings=FOUNDED)

    assert change(fleet, 0, ack_timeout_ms=3_000) == Done()
    before, after = fleet.state.settings
    assert (before.settings.value("ack_timeout_ms"), after.settings.ack_timeout_ms) == (5_000, 3_000)
    assert [str(one) for one in after.changed] == ["ack_timeout_ms 5000 -> 3000"]
    assert change(fleet, 2, ack_timeout_ms=999) != Done()
