"""
The durations by which this broker works now: those of its file until the controllers tell others.

Here: taking a version, and telling the parts of the process. Not here: how it arrives (``session``), what may be set
(``controller.contract.settings``).

Rule 1: a version is told apart by its number, never ordered by it: controllers that were restored from a backup begin
lower, and theirs are in force.
Rule 2: nothing is kept on disk. A start without controllers serves by the file, as the first one did.
"""

from __future__ import annotations

from collections.abc import Callable

from rollcall_ha.controller.contract.session import SettingsTold
from rollcall_ha.controller.contract.settings import Settings, changes, settings_of, timing_with
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.node.telemetry import get_logger

_log = get_logger("settings")


class LiveSettings:
    """The settings by which one process works, and since which version; on the loop."""

    def __init__(
        self, file: Timing, retime: Callable[[Timing, Settings], None], founded: Settings | None = None
    ) -> None:
        """``retime`` is called behind each change; ``file`` and ``founded``: what the own fleet file says."""
        self.timing = file
        self.settings = self._founded = founded or settings_of(file)
        self.is_known = False
        """Whether a controller has said what is in force; nothing is deleted before: its file may keep less."""
        self.version = 0
        """What heartbeats tell; 0: it works by the file."""
        self._file = file
        self._retime = retime

    def take(self, told: SettingsTold) -> None:
        """What is in force by the word of a controller."""
        if told.version == self.version:
            return
        self.version = told.version
        self.settings, self.timing = told.settings, timing_with(told.settings, self._file)
        self._retime(self.timing, told.settings)
        differing = [str(change) for change in changes(self._founded, told.settings)]
        _log.info("settings_taken", version=told.version, file_to_settings=differing)
