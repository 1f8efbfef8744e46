"""
The command that an order to change settings stands for.

Here: putting it together from what is in force at this moment. Not here: judging it (``controller.core.settings``).
"""

from __future__ import annotations

from rollcall_ha.api.rest.requests import ApplySettingsBody
from rollcall_ha.controller.contract.commands import ApplySettings
from rollcall_ha.controller.core.settings import version_in_force, wanted
from rollcall_ha.controller.runtime.service import ControllerService


def settings_command(service: ControllerService, order: ApplySettingsBody) -> ApplySettings:
    """
    Of a leader. A change that is applied meanwhile refuses it: it names the version that it was made from.

    Raises ``NoAuthority``, and ``ValueError`` for a key, preset or version that is not known.
    """
    # A follower's state may be older: made from that, the order would name a version that is over, and be refused
    # instead of being passed on to the leader.
    service.require_authority()
    state, live = service.published.state, service.live
    version = version_in_force(state) if order.expected_version is None else order.expected_version
    return ApplySettings(
        settings=wanted(state, live.founded, values=order.values, preset=order.preset, version=order.version),
        expected_version=version,
        file=live.file,
        founded=live.founded,
        reason=order.reason,
    )
