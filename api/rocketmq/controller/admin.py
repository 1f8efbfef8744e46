"""
1009, 1010, 1011: what mqadmin asks of a controller besides elections (docs/wire.md, controller codes).

Here: settings under RocketMQ's keys, and cleaning. Not here: when cleaning is refused (``controller.core.cleaning``).
"""

from __future__ import annotations

from typing import Any

from rollcall_ha.api.broker_port.code_table import CodeTable, Handler, Request, Served
from rollcall_ha.api.broker_port.headers import read_header
from rollcall_ha.api.rocketmq.controller.beans import CleanBrokerDataHeader, configuration_body
from rollcall_ha.api.rocketmq.controller.broker_sets import belongs_to
from rollcall_ha.api.rocketmq.controller.leading import for_leader
from rollcall_ha.api.rocketmq.controller.replicas import RocketmqReplicas
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import CleanReplicas
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.core.state import SetState
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.remoting.codes import SystemCode

IDS_MAX = 64
"""Ids in one 1011."""
BLACK_LIST = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
"""Keys that RocketMQ lets nobody change."""


class AdminCodes:
    """The handlers. Runs on the loop; serves once ``register`` has put them into a table."""

    def __init__(self, service: ControllerService, replicas: RocketmqReplicas) -> None:
        self.service = service
        self._replicas = replicas

    def register(self, codes: CodeTable) -> None:
        handlers: dict[RequestCode, Handler] = {
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_configuration,
            RequestCode.GET_CONTROLLER_CONFIG: self._configuration,
            RequestCode.CLEAN_BROKER_DATA: self._clean,
        }
        codes.register(*(Served(code=code, name=code.name, handler=handler) for code, handler in handlers.items()))

    def _settings(self) -> dict[str, Any]:
        """What ``mqadmin getControllerConfig`` shows of ours, under RocketMQ's keys."""
        settings, timing = self.service.settings, self.service.live.timing
        return {
            "controllerDLegerGroup": settings.fleet_name,
            "controllerDLegerPeers": ";".join(f"{n}-{peer.broker}" for n, peer in settings.controllers.items()),
            "controllerDLegerSelfId": settings.name,
            "controllerType": "Rollcall",
            "enableElectUncleanMaster": "false",
            "isProcessReadEvent": "false",
            "notifyBrokerRoleChanged": "true",
            "scanInactiveMasterInterval": timing.scan_interval_ms,
            "scanNotActiveBrokerInterval": timing.scan_interval_ms,
        }

    def _configuration(self, request: Request) -> None:
        request.answer(body=configuration_body(self._settings()))

    def _update_configuration(self, request: Request) -> None:
        """Unknown keys do nothing and succeed, as in RocketMQ; keys of ours are not changed from here."""
        try:
            lines = [line for line in request.frame.body.decode().splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            request.answer(SystemCode.SYSTEM_ERROR, remark=f"the body is not UTF-8: {error}")
            return
        asked = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
        known = self._settings()
        fixed = [key for key, value in asked.items() if key in known and str(known[key]) != value]
        if BLACK_LIST & asked.keys():
            request.answer(SystemCode.NO_PERMISSION, remark="Can not update config in black list.")
        elif fixed:
            # Not a silent success: an operator who turned unclean elections on would rely on it in the next outage.
            request.answer(
                SystemCode.NO_PERMISSION,
                remark=f"{', '.join(sorted(fixed))}: not set from here: rollcall config apply, or the fleet file",
            )
        else:
            request.answer()

    @for_leader
    async def _clean(self, request: Request) -> None:
        header = read_header(CleanBrokerDataHeader, request.fields)
        found = self._replicas.find(header.broker_name)
        ids = [text.strip() for text in (header.broker_controller_ids_to_clean or "").split(";") if text.strip()]
        if found is None or not belongs_to(found, header.cluster_name):
            request.answer(
                RefusalCode.INVALID_CLEAN,
                remark=f"Broker set {header.broker_name} is not existed, clean broker data failure.",
            )
            return
        if len(ids) > IDS_MAX or not all(text.isdecimal() and text.isascii() and len(text) < 10 for text in ids):
            request.answer(
                RefusalCode.INVALID_CLEAN, remark=f"When clean broker ids, each is a number; came: {ids[:8]}"
            )
            return
        named = {BrokerId(int(text)) for text in ids}
        broker_ids = tuple(sorted(replica.broker_id for replica in found.replicas if replica.broker_id in named))
        # As in RocketMQ, an id that is not there need not be removed. Without this line no id would be left to remove,
        # and an order without ids means the whole set.
        if named and not broker_ids:
            request.answer()
            return
        reply = await self.service.submit(
            CleanReplicas(
                set_key=found.set_key,
                # Also with isCleanLivingBroker=true, for which RocketMQ drops the whole set (W30): "clean broker 3"
                # must not take 1 and 2 with it.
                broker_ids=broker_ids,
                is_unclean=bool(header.is_clean_living_broker),
                reason="asked by mqadmin",
            ),
            request_id=self.service.ports.new_request_id(),
            requested_by="admin:mqadmin",
            principal=request.caller,
        )
        if isinstance(reply, Refused):
            remark = _clean_remark(found, broker_ids) or reply.reason
            request.answer(RefusalCode.INVALID_CLEAN, remark=remark)
        else:
            request.answer()


def _clean_remark(found: SetState, broker_ids: tuple[BrokerId, ...]) -> str | None:
    living = [r.broker_id for r in found.replicas if r.is_alive and r.broker_id in broker_ids]
    if not living:
        return None
    return f"Broker [{found.set_key.name},  {living[0]}] is still alive, clean up failure"
