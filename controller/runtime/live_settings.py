"""
The settings by which this process works now, and telling brokers of them.

Here: taking them from the applied state, one place to read durations from, who is told of a change. Not here: what may
be set (``controller.contract.settings``), deciding (``controller.core.settings``), what a broker does with them
(``broker.live_settings``).

Rule 1: every controller takes a version with the entry that applies it, also as a follower, and from its snapshot when
it starts. Until the first version it works by its own file, and by the ``raft_*`` durations of that for ever.
Rule 2: the leader pushes a version to every session at once; a heartbeat that shows another one gets it again, so that
a lost push and a session that opens later are mended within one interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import ReplicaKind
from rollcall_ha.controller.contract.session import Heartbeat, SettingsTold
from rollcall_ha.controller.contract.settings import Settings, changes, timing_with
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.core.settings import settings_in_force, version_in_force
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.ports import ReplicatedLog
from rollcall_ha.controller.runtime.ports import BrokerPort
from rollcall_ha.controller.runtime.sessions import Sessions
from rollcall_ha.node.telemetry import get_logger

START_LOOK_MS = 200

Retime = Callable[[Timing, Settings, int], None]

_log = get_logger("settings")


class LiveSettings:
    """The newest version that this process was told."""

    def __init__(self, file: Timing, founded: Settings, retime: Retime, now_ns: Callable[[], int]) -> None:
        """``retime`` is called with each change, behind it; ``file`` and ``founded``: what the own fleet file says."""
        self.file = file
        self.founded = founded
        self.timing = file
        """Every duration in force."""
        self.version = 0
        """0: the file is in force."""
        self._retime = retime
        self._now_ns = now_ns

    def look(self, state: FleetState, port: BrokerPort | None) -> None:
        """Take what is in force in ``state``; ``port``: the leader's, None = a follower's."""
        # Every 20 ms, so no comparison of values.
        applied = settings_in_force(state)
        if applied is None or applied.version == self.version:
            return
        self.version = applied.version
        self.timing = timing_with(applied.settings, self.file)
        self._retime(self.timing, applied.settings, self._now_ns())
        _log.info("settings_taken", version=applied.version, by=applied.applied_by)
        if port is not None:
            port.tell_brokers(RequestCode.SESSION_SETTINGS, msgspec.json.encode(_told(state)))


async def tell_of_file(log: ReplicatedLog[FleetState], live: LiveSettings) -> None:
    """Once, when all that is known to be committed is applied: what the own file says otherwise than the fleet."""
    # Sooner, it would be told of each version that a replay passes.
    while log.leadership.leader is None or log.published.index < log.leadership.commit_index:  # noqa: ASYNC110 - two threads
        await asyncio.sleep(START_LOOK_MS / 1000)
    applied = settings_in_force(log.published.state)
    differing = () if applied is None else changes(live.founded, applied.settings)
    # An operator who edits the file and starts the controller anew would else wait for a change that never comes.
    if applied is not None and differing:
        _log.warning(
            "file_differs_from_settings",
            version=applied.version,
            file_to_settings=[str(change) for change in differing],
            meaning="the settings of the fleet are in force; show them with: rollcall config show",
        )


def _told(state: FleetState) -> SettingsTold | None:
    applied = settings_in_force(state)
    return None if applied is None else SettingsTold(version=applied.version, settings=applied.settings)


def settings_unknown_to(beat: Heartbeat, state: FleetState) -> SettingsTold | None:
    """The settings, if the heartbeat asks for them and shows that its broker works by others."""
    if beat.known_settings is None or beat.known_settings == version_in_force(state):
        return None
    return _told(state)


def brokers_told(state: FleetState, sessions: Sessions) -> list[tuple[str, int]]:
    """Each broker of ours that a leader hears, and the version that it has shown; 0 = none."""
    heard = (
        (f"{key} {replica.broker_id}", sessions.get(key, replica.broker_id))
        for key in sorted(state.sets)
        for replica in state.sets[key].replicas
        if replica.is_alive and replica.kind is ReplicaKind.NATIVE
    )
    return [(name, session.known_settings or 0) for name, session in heard if session is not None]
