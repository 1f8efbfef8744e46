"""Feature levels (R15): what a released level has is fixed, and what came later is listed and kept from older ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract import levels
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    Barrier,
    CleanReplicas,
    ElectMaster,
    Operation,
    RaiseFeatureLevel,
)
from rollcall_ha.controller.contract.ids import BrokerId, RequestId
from rollcall_ha.controller.contract.replies import AnyReply, Done
from rollcall_ha.controller.contract.values import DetectionStamps, Evidence, SilenceCause
from rollcall_ha.controller.core import apply
from tests.levels.recorded import RECORDED, recorded_shapes
from tests.levels.shapes import Defaults, Shape, shapes
from tests.support.core_builders import SET_A, Fleet
from tests.support.core_fleets import refusal_of

recorded = pytest.mark.skipif(not RECORDED, reason="no level was recorded yet: python -m tests.levels.recorded")

UNRELEASED = f"Only while no release has level {FEATURE_LEVEL}: python -m tests.levels.recorded"
WHAT_TO_DO = (
    "An older controller in the same quorum does not know it. Raise FEATURE_LEVEL in controller/contract/commands.py above "
    "the last release's, list the new thing in controller/contract/levels.py under it, give a field the type "
    "'X | UnsetType' and the default UNSET, and let decide make it only in a state of that level (CONTRIBUTING, to change "
    f"what is decided). {UNRELEASED}"
)


def released() -> dict[str, Shape]:
    """What commands and events of the newest recorded level have."""
    return recorded_shapes()["replicated"]


def now() -> dict[str, Shape]:
    """The same of this program."""
    return shapes()["replicated"]


def listed() -> set[str]:
    """What ``levels`` says came after the first level, in the words of ``added``."""
    kinds = {kind.__name__ for kind in (*levels.COMMANDS_SINCE, *levels.EVENTS_SINCE)}
    fields = {f"{kind.__name__}.{name}" for kind, names in levels.FIELDS_SINCE.items() for name in names}
    return kinds | fields | {f"{type(word).__name__}.{word.value}" for word in levels.WORDS_SINCE}


def added(before: dict[str, Shape], now: dict[str, Shape]) -> set[str]:
    """Kinds, fields and words that ``now`` has and ``before`` lacks. A value that only they use comes with them."""
    found: set[str] = set()
    for name, shape in now.items():
        old = before.get(name)
        if old is None:
            found |= {name} if shape.get("tag") is not None else set()
        elif "words" in shape:
            found |= {f"{name}.{word}" for word in set(shape["words"]) - set(old["words"])}
        else:
            found |= {f"{name}.{field}" for field in _fields(shape) - _fields(old)}
    return found


def gone(before: dict[str, Shape], now: dict[str, Shape]) -> list[str]:
    """What entries and events of ``before`` hold, and ``now`` cannot read or writes otherwise."""
    found: list[str] = []
    for name, old in before.items():
        new = now.get(name, {"words": (), "tag": None, "mandatory": (), "optional": ()})
        if "words" in old:
            found += [f"{name}.{word} is gone" for word in sorted(set(old["words"]) - set(new["words"]))]
            continue
        found += [f"{name} has another tag"] if new["tag"] != old["tag"] else []
        found += [f"{name}.{field} is demanded" for field in sorted(set(new["mandatory"]) - set(old["mandatory"]))]
        found += [f"{name}.{field} is gone" for field in sorted(_fields(old) - _fields(new))]
    return found


def _fields(shape: Shape) -> set[str]:
    return {*shape["mandatory"], *shape["optional"]}


@recorded
def test_what_came_after_the_released_level_is_listed() -> None:
    """A command, an event, a field or a word that older controllers do not know has a level."""
    missing = added(released(), now()) - listed()

    assert not missing, f"{sorted(missing)} came after level {RECORDED[-1]}. {WHAT_TO_DO}"


@recorded
def test_a_released_level_keeps_its_commands_events_and_mandatory_fields() -> None:
    """Old logs and journals are read for ever."""
    lost = gone(released(), now())

    assert not lost, f"{lost}: entries of level {RECORDED[-1]} hold it. {UNRELEASED}"


def test_added_fields_are_not_written_where_they_are_not_set() -> None:
    """Written as null, an old event would have another hash, and the older controller another chain."""
    for kind, names in levels.FIELDS_SINCE.items():
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        for name in names:
            assert fields[name].default is msgspec.UNSET, f"{kind.__name__}.{name}: {WHAT_TO_DO}"


def test_no_level_is_listed_above_the_programs_own() -> None:
    listed_levels = [
        *levels.COMMANDS_SINCE.values(),
        *levels.EVENTS_SINCE.values(),
        *levels.WORDS_SINCE.values(),
        *(level for names in levels.FIELDS_SINCE.values() for level in names.values()),
    ]
    assert set(listed_levels) <= set(range(2, FEATURE_LEVEL + 1))


def test_a_new_kind_a_new_field_and_a_new_word_are_each_found() -> None:
    """The pin itself: one of each, planted."""
    before = now()
    planted: dict[str, Any] = {
        **before,
        "Nudge": {"tag": "Nudge", "mandatory": ["set_key"], "optional": []},
        "Barrier": {**before["Barrier"], "optional": ["reason"]},
        "SilenceCause": {"words": [*before["SilenceCause"]["words"], "bored"]},
    }

    assert added(before, planted) == {"Nudge", "Barrier.reason", "SilenceCause.bored"}
    # The other way round it is what an older journal holds, and a program reads no more.
    assert gone(planted, before) == [
        "Barrier.reason is gone",
        "SilenceCause.bored is gone",
        "Nudge has another tag",
        "Nudge.set_key is gone",
    ]


# --- the digest of the state ---------------------------------------------------------------------------------------------

WHAT_A_DIGEST_WANTS = (
    "Sets are hashed into the digest of the state (controller/core/digest.py, rule 3): an upgraded controller that writes "
    "a set otherwise than the older ones differs from their majority, and stops. A new field has the type 'X | UnsetType' "
    "and the default UNSET, and keeps it until the fleet is at its level; an old one keeps its name and default. "
    f"{UNRELEASED}"
)


def otherwise(before: dict[str, Defaults], now: dict[str, Defaults]) -> list[str]:
    """What is written of a set now and was not before, or the other way round, while nothing of it is set."""
    found = []
    for name, old in before.items():
        new = now.get(name, {})
        found += [f"{name}.{field} is gone" for field in old.keys() - new.keys()]
        found += [
            f"{name}.{field} is new, with {new[field]}" for field in new.keys() - old.keys() if new[field] != "UNSET"
        ]
        found += [
            f"{name}.{field} had {old[field]}, has {new[field]}"
            for field in old.keys() & new.keys()
            if old[field] != new[field]
        ]
    return sorted(found)


@recorded
def test_a_set_is_written_as_older_controllers_of_its_level_write_it() -> None:
    """A field that a later program adds, and nobody has set, is not in the digest."""
    differing = otherwise(recorded_shapes()["digested"], shapes()["digested"])

    assert not differing, f"{differing}. {WHAT_A_DIGEST_WANTS}"


def test_a_default_that_would_make_an_upgraded_controller_differ_is_found() -> None:
    """The pin itself: one change of each kind, planted; a new field that is unset is none."""
    before = shapes()["digested"]
    assert {"SetState", "ReplicaState", "Outage", "AlterVerdict"} <= before.keys()
    planted = {**before["SetState"], "boredUs": "0", "nudged": "UNSET", "hasEntered": "None"}
    del planted["fallen"]

    assert otherwise(before, {**before, "SetState": planted}) == [
        "SetState.boredUs is new, with 0",
        "SetState.fallen is gone",
        "SetState.hasEntered had False, has None",
    ]


# --- operations as a level takes them ----------------------------------------------------------------------------------


def test_a_field_above_the_level_is_left_out_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The detection of an election lies two values deep; the rest of the operation stays as it is."""
    stamps = DetectionStamps(cause=SilenceCause.TIMEOUT, first_sign_age_us=7, link_closed_age_us=7)
    evidence = Evidence(read_at_index=1, master_epoch=1, sync_state_set_epoch=1, replicas=(), detection=stamps)  # type: ignore[arg-type]
    operation = _operation(ElectMaster(set_key=SET_A, to=BrokerId(2)), evidence=evidence)
    monkeypatch.setattr(levels, "FIELDS_SINCE", {DetectionStamps: {"link_closed_age_us": 2}})

    fitted, needed = levels.fitted(operation, 1)

    assert needed == 1
    assert fitted == replace(
        operation, evidence=replace(evidence, detection=replace(stamps, link_closed_age_us=msgspec.UNSET))
    )
    assert levels.fitted(operation, 2) == (operation, 1)


def test_a_command_or_a_word_above_the_level_cannot_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "COMMANDS_SINCE", {Barrier: 2})
    assert levels.fitted(_operation(Barrier()), 1)[1] == 2
    monkeypatch.setattr(levels, "WORDS_SINCE", {SilenceCause.GOODBYE: 2})
    stamps = DetectionStamps(cause=SilenceCause.GOODBYE, first_sign_age_us=0)
    evidence = Evidence(read_at_index=1, master_epoch=1, sync_state_set_epoch=1, replicas=(), detection=stamps)  # type: ignore[arg-type]
    assert levels.fitted(_operation(ElectMaster(set_key=SET_A), evidence=evidence), 1)[1] == 2


def test_a_command_of_the_next_level_is_refused_until_the_level_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An artificial level 2, which this program has and its fleet does not yet."""
    monkeypatch.setattr(levels, "COMMANDS_SINCE", {CleanReplicas: FEATURE_LEVEL + 1})
    monkeypatch.setattr(apply, "FEATURE_LEVEL", FEATURE_LEVEL + 1)
    fleet = Fleet().serving()

    def order() -> AnyReply:
        operation = fleet.operation(CleanReplicas(set_key=SET_A, is_unclean=True))
        fitting, needed = levels.fitted(operation, fleet.state.feature_level)
        return fleet.apply([replace(fitting, version=needed)]).replies[0]

    assert refusal_of(order()) is RefusalCode.FEATURE_LEVEL
    assert not fleet.set.is_tombstone
    fleet.do(RaiseFeatureLevel(level=FEATURE_LEVEL + 1))
    assert isinstance(order(), Done)
    assert fleet.set.is_tombstone


def _operation(command: Any, evidence: Evidence | None = None) -> Operation:
    return Operation(
        version=1,
        request_id=RequestId("r"),
        stamped_at_ms=1,
        requested_by="admin:a",
        command=command,
        evidence=evidence,
    )
