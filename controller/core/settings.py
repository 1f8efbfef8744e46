"""
Settings of the fleet: which are in force, changing them, going back.

Here: deciding a change, what it makes of the state, the values that an order of a person stands for. Not here: keys,
ranges and relations (``controller.contract.settings``), how values reach the parts that work by them
(``controller.runtime.live_settings``).

Rule 1: values are judged and applied as a whole. Judged key by key, two changes that are fine by themselves would make
a timeout that is shorter than the heartbeats that it waits for, and every master would be found dead.
Rule 2: compare-and-set. An order names the version that it was made from: of two operators who change at the same time,
the second one is told, and does not undo what it has not seen.
Rule 3: before the first change the files are in force, each controller's own. The first change puts the leader's on
record as version 1, so that there is something to go back to; from there on no file counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ApplySettings
from rollcall_ha.controller.contract.events import EventRecord, SettingsApplied
from rollcall_ha.controller.contract.levels import FIELDS_SINCE
from rollcall_ha.controller.contract.settings import (
    KEYS,
    AppliedSettings,
    SettingChange,
    Settings,
    changes,
    faults_of,
    settings_of,
    timing_keys_of,
    timing_with,
)
from rollcall_ha.controller.contract.timing import PRESETS, Preset, Timing
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.core.decision import Decision, Refusal, done
from rollcall_ha.controller.core.state import SETTINGS_KEPT, FleetState


def settings_in_force(fleet: FleetState) -> AppliedSettings | None:
    """The newest version; None: nothing was ever changed, and the files are in force."""
    return fleet.settings[-1] if fleet.settings else None


def version_in_force(fleet: FleetState) -> int:
    """0: the files are in force."""
    return fleet.settings[-1].version if fleet.settings else 0


def timing_in_force(fleet: FleetState, file: Timing) -> Timing:
    """Every duration by which a controller with this file works now."""
    applied = settings_in_force(fleet)
    return file if applied is None else timing_with(applied.settings, file)


def decide_settings(fleet: FleetState, command: ApplySettings) -> Decision:
    """Set the fleet to other values, or say what is wrong with them."""
    present = settings_in_force(fleet)
    version = version_in_force(fleet)
    # Rule 2, and before the values are judged: they were made from others.
    if command.expected_version != version:
        raise Refusal(
            RefusalCode.EXPECTATION_FAILED,
            f"version {version} of the settings is in force"
            f"{'' if present is None else f', applied by {present.applied_by}'}; the change was made from version "
            f"{command.expected_version}",
            "look at what changed since with: rollcall config history; then apply again",
            requested=command.expected_version,
            current=version,
        )
    # Rule 1.
    if faults := faults_of(command.settings, command.file):
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            "; ".join(faults),
            "keys, ranges and units are in docs/settings.md; change what belongs together in one order",
        )
    founded = command.founded or settings_of(command.file)
    before = present.settings if present is not None else founded
    found = changes(before, command.settings)
    events: list[SettingsApplied] = []
    # Rule 3. Without it, nobody could go back to what was before the first change: it stood in files alone.
    if present is None:
        version += 1
        events.append(_applied(version, before, (), command, reason="the fleet file of the leading controller"))
    if found:
        events.append(_applied(version + 1, command.settings, found, command, reason=command.reason))
    return done(*events)


def _applied(
    version: int, settings: Settings, changed: tuple[SettingChange, ...], command: ApplySettings, *, reason: str
) -> SettingsApplied:
    return SettingsApplied(
        version=version,
        settings=settings,
        changed=changed,
        worst_case_rto_ms=sum(timing_with(settings, command.file).worst_case_rto_ms().values()),
        reason=reason,
    )


def with_settings(fleet: FleetState, event: SettingsApplied, record: EventRecord) -> FleetState:
    """The state with this version in force."""
    applied = made_from(event, AppliedSettings, applied_at_ms=record.stamped_at_ms, applied_by=record.requested_by)
    return replace(fleet, settings=(*fleet.settings, applied)[-SETTINGS_KEPT:])


def wanted(
    fleet: FleetState,
    founded: Settings,
    *,
    values: Mapping[str, int],
    preset: str | None = None,
    version: int | None = None,
) -> Settings:
    """
    The whole that a change stands for: those in force, or of ``version``, then the preset's durations, then ``values``.

    ``founded``: what the own fleet file says, where nothing was changed yet.

    Raises:
        ValueError: A key, preset or version that is not known, a key above the fleet's feature level, or a value that
            is no whole number; with the remedy.
    """
    start = _starting_from(fleet, founded, version)
    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f"preset {preset!r} is not known; presets are: {', '.join(Preset)}")
        start = timing_keys_of(start, PRESETS[Preset(preset)])
    for name, value in values.items():
        if name not in KEYS:
            likely = "".join(f"did you mean {key}? " for key in get_close_matches(name, KEYS, 1))
            raise ValueError(f"key {name!r} is not known; {likely}keys are: {', '.join(KEYS)}")
        # Left out of the entry (R15), it would be answered as done.
        if (since := FIELDS_SINCE[Settings].get(name, 0)) > fleet.feature_level:
            raise ValueError(
                f"key {name!r} needs feature level {since}, the fleet is at {fleet.feature_level}; when "
                "every controller is upgraded: rollcall raise-level"
            )
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; it takes a whole number, {KEYS[name].range}")  # noqa: TRY004
    return replace(start, **values)


def _starting_from(fleet: FleetState, founded: Settings, version: int | None) -> Settings:
    if version is None:
        present = settings_in_force(fleet)
        return founded if present is None else present.settings
    for applied in fleet.settings:
        if applied.version == version:
            return applied.settings
    kept = f"{fleet.settings[0].version} to {fleet.settings[-1].version}" if fleet.settings else "none"
    raise ValueError(f"version {version} of the settings is not kept; kept are: {kept}")
