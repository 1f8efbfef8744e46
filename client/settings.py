"""
Calls of the client about settings.

Here: a part of ``client.Client``, which asks. Not here: keys and ranges (``controller.contract.settings``).
"""

from __future__ import annotations

from typing import TypedDict

from rollcall_ha.client.asking import Asking
from rollcall_ha.controller.contract.ids import RequestId
from rollcall_ha.controller.contract.replies import Done
from rollcall_ha.controller.contract.views import OrderPreview, SettingsAnswer


class SettingsOrder(TypedDict, total=False):
    """Body of POST /v1/settings but for its reason and id."""

    values: dict[str, int]
    preset: str
    version: int
    expectedVersion: int


class SettingsClient(Asking):
    """The requests about settings, for ``client.Client``, which brings the connection."""

    def settings(self) -> SettingsAnswer:
        """Those in force, and the versions before. Raises ``ClientError``."""
        return self._read("/v1/settings", SettingsAnswer)

    def preview_settings(self, order: SettingsOrder) -> OrderPreview:
        """What ``apply_settings`` would do. Raises ``ClientError``."""
        return self._post("/v1/settings", {**order, "dryRun": True}, OrderPreview, None)

    def apply_settings(self, order: SettingsOrder, *, reason: str = "", request_id: RequestId | None = None) -> Done:
        """Set the fleet to other values. Raises ``ClientError``."""
        return self._post("/v1/settings", {**order, "reason": reason}, Done, request_id)
