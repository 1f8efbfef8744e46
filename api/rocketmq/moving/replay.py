"""
Doing an export: the steps of ``plan_export`` at the leader of RocketMQ's controllers.

Rule 1: every answer is checked; the first unexpected one ends the export with that answer (``ReadingError``). The next
export goes on from there.
Rule 2: an epoch is raised by elections that fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.api.rocketmq.moving.plan import AnyStep, Apply, CleanIds, Elect, ExportLine, Raise, Wipe
from rollcall_ha.api.rocketmq.moving.reading import Controllers, ReadingError
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.ids import MasterEpoch, SetKey
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.frame import Frame, FrameError

RAISES_PER_BATCH = 100
NO_BROKER = -1
"""brokerId of an election by the controllers themselves: the only kind that counts the epoch up when it fails."""


def replay(controllers: Controllers, line: ExportLine) -> MasterEpoch:
    """Do the steps of one set; the epoch that its controllers are in then. Raises ``ReadingError`` (rule 1)."""
    for step in line.steps:
        _do(controllers, line.set_key, step)
    return epoch_of(controllers, line.set_key)


def _do(controllers: Controllers, key: SetKey, step: AnyStep) -> None:
    fields: dict[str, object] = {"clusterName": key.cluster, "brokerName": key.name}
    match step:
        case Wipe():
            _expect(
                controllers, "forget the set", RequestCode.CLEAN_BROKER_DATA, fields | {"isCleanLivingBroker": "false"}
            )
        case Apply():
            applied = {"appliedBrokerId": step.broker_id, "registerCheckCode": step.check_code}
            _expect(controllers, f"give out id {step.broker_id}", RequestCode.APPLY_BROKER_ID, fields | applied)
        case Elect():
            asked = {"brokerId": step.broker_id, "designateElect": "false", "invokeTime": 0}
            _expect(controllers, f"elect broker {step.broker_id}", RequestCode.ELECT_MASTER, fields | asked)
        case CleanIds():
            ids = ";".join(map(str, step.broker_ids))
            cleaned = {"brokerControllerIdsToClean": ids, "isCleanLivingBroker": "false", "invokeTime": 0}
            _expect(controllers, f"forget ids {ids}", RequestCode.CLEAN_BROKER_DATA, fields | cleaned)
        case Raise():
            _raise(controllers, key, step)


def _expect(controllers: Controllers, what: str, code: int, fields: dict[str, object]) -> None:
    answer = controllers.ask(code, fields)
    if answer.code != SystemCode.SUCCESS:
        raise ReadingError(
            f"{controllers.leader} would not {what} of {fields['brokerName']}: code {answer.code} {answer.remark or ''}"
        )


def _raise(controllers: Controllers, key: SetKey, step: Raise) -> None:
    """Hold failing elections until the epoch is reached (rule 2)."""
    epoch = epoch_of(controllers, key)
    while epoch < step.to_epoch:
        count = min(RAISES_PER_BATCH, step.to_epoch - epoch)
        asked = {
            "clusterName": key.cluster,
            "brokerName": key.name,
            "brokerId": NO_BROKER,
            "designateElect": "false",
            "invokeTime": 0,
        }
        for answer in _ask_all(controllers, [(RequestCode.ELECT_MASTER, asked, b"")] * count):
            # A success: a broker of the set listens to those controllers already, and has just become master there
            # while ours serves here. The operator must hear of two masters now, not after 90,000 more elections.
            if answer.code != RefusalCode.MASTER_NOT_AVAILABLE:
                raise ReadingError(
                    f"an election of {key.name} at {controllers.leader} was to fail and was answered {answer.code}: "
                    "a broker of the set listens to those controllers already"
                )
        before, epoch = epoch, epoch_of(controllers, key)
        # Read back, not counted: another version that does not count failed elections would keep us here for ever.
        if epoch <= before:
            raise ReadingError(f"masterEpoch of {key.name} at {controllers.leader} stays at {epoch}")


def _ask_all(controllers: Controllers, requests: Sequence[tuple[int, dict[str, object], bytes]]) -> list[Frame]:
    try:
        return controllers.link.ask_all(requests)
    except (OSError, FrameError) as error:
        raise ReadingError(f"{controllers.leader} did not answer: {error}") from error


def epoch_of(controllers: Controllers, key: SetKey) -> MasterEpoch:
    """The masterEpoch of a set there. Raises ``ReadingError``."""
    answer = controllers.ask(RequestCode.GET_REPLICA_INFO, {"brokerName": key.name})
    text = (answer.ext_fields or {}).get("masterEpoch", "")
    if answer.code != SystemCode.SUCCESS or not text.isdigit():
        raise ReadingError(f"{controllers.leader} does not say the epoch of {key.name}: code {answer.code}, {text!r}")
    return MasterEpoch(int(text))
