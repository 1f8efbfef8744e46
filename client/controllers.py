"""
Calls of the client about the controllers themselves: which one leads, and which there are.

Here: a part of ``client.Client``, which asks. Not here: which change may follow
(``controller.replication.raft.membership``), waiting for a vote (``cli.members``).
"""

from __future__ import annotations

from rollcall_ha.client.asking import Asking
from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.views import (
    ControllersChanged,
    ControllerStatus,
    FleetStatus,
    LeadershipTransferred,
    OrderPreview,
)


class ControllersClient(Asking):
    """The requests about controllers, for ``client.Client``."""

    def preview_transfer(self, to: ControllerName | None) -> OrderPreview:
        """What ``transfer_lead`` would order. Raises ``ClientError``."""
        return self._post("/v1/controllers/transfer", {"to": to, "dryRun": True}, OrderPreview, None)

    def transfer_lead(
        self, to: ControllerName | None, *, reason: str = "", request_id: RequestId | None = None
    ) -> LeadershipTransferred:
        """Have another controller lead, None: the one that is furthest. Raises ``ClientError``."""
        return self._post("/v1/controllers/transfer", {"to": to, "reason": reason}, LeadershipTransferred, request_id)

    def change_controllers(self, verb: str, body: dict[str, str]) -> ControllersChanged:
        """``add`` or ``remove`` a controller: the body's fields. Raises ``ClientError``."""
        return self._post(f"/v1/controllers/{verb}", dict(body), ControllersChanged, None)

    def preview_controllers(self, verb: str, body: dict[str, str]) -> OrderPreview:
        """What ``change_controllers`` would order. Raises ``ClientError``."""
        return self._post(f"/v1/controllers/{verb}", {**body, "dryRun": True}, OrderPreview, None)

    def members(self) -> ControllerStatus:
        """The leader, with the controllers by its log. Raises ``ClientError``."""
        return self._read("/v1/status", FleetStatus, {"limit": "1"}).controller
