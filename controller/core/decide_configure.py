"""
Changing how many replicas a set expects, and how many of them have to hold a message.

Here: deciding it. Not here: the numbers that a set begins with (``registration``), the gate of a master that goes by
them (``ha.sync_state``).

Rule 1: it counts from the view that shows it on. A message that was acknowledged before has the copies that were asked
for then.
Rule 2: an order that would stop the writes of a set is refused; one that lets a stopped set write again is not.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ConfigureSet
from rollcall_ha.controller.contract.events import SetConfigured
from rollcall_ha.controller.contract.ids import ReplicaKind
from rollcall_ha.controller.contract.values import SetConfiguration
from rollcall_ha.controller.core.decision import Decision, Refusal, done, find_set
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX, FleetState, SetState


def decide_configure(fleet: FleetState, command: ConfigureSet) -> Decision:
    """Other numbers for a set; None in the order leaves the present one. The same again changes nothing."""
    found = find_set(fleet, command.set_key)
    present = found.configuration
    if present is None:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"no replica of {found.set_key} has registered yet",
            "start its brokers: the first one brings the numbers of its file",
        )
    expected = present.expected_replicas if command.expected_replicas is None else command.expected_replicas
    least = present.min_in_sync if command.min_in_sync is None else command.min_in_sync
    wanted = replace(present, expected_replicas=expected, min_in_sync=least)
    if wanted == present:
        return done()
    _refuse_wanted(found, present, wanted)
    return done(
        SetConfigured(
            expected_replicas=expected,
            min_in_sync=least,
            previous_expected_replicas=present.expected_replicas,
            previous_min_in_sync=present.min_in_sync,
            reason=command.reason,
        )
    )


def _refuse_wanted(found: SetState, present: SetConfiguration, wanted: SetConfiguration) -> None:
    least, expected = wanted.effective_min_in_sync, wanted.expected_replicas
    if wanted.min_in_sync < 0 or not 1 <= least <= expected <= REPLICAS_PER_SET_MAX:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"min_in_sync {least} of {expected} expected replicas; both are 1 to {REPLICAS_PER_SET_MAX}, in this order",
            "min_in_sync is at most expected_replicas; 0 means half of them, rounded up",
            requested=f"{least} of {expected}",
            current=f"{present.effective_min_in_sync} of {present.expected_replicas}",
        )
    voters = [replica.broker_id for replica in found.replicas if replica.is_voter]
    # With 3 of 2 in sync, a set that has lost one would count as whole.
    if len(voters) > expected:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"replicas {voters} are registered, and {expected} would be expected",
            f"stop one for good and take it out first: rollcall clean {found.set_key.name} --broker ID",
            requested=expected,
            current=len(voters),
        )
    is_java = any(replica.kind is ReplicaKind.ROCKETMQ for replica in found.replicas)
    # Its brokers go by their own minInSyncReplicas: on record here, it would be kept by nobody.
    if is_java and wanted.min_in_sync != present.min_in_sync:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"{found.set_key} has RocketMQ brokers, and they acknowledge by their own minInSyncReplicas",
            "set it in their broker.conf, or by mqadmin updateBrokerConfig",
            requested=wanted.min_in_sync,
            current=present.min_in_sync,
        )
    # Rule 2. {1} of 3 with min_in_sync 1: with 2 from here on, every send would be refused until a slave has caught up.
    in_sync = len(found.sync_state_set)
    if found.is_established and not is_java and in_sync < least > present.effective_min_in_sync:
        raise Refusal(
            RefusalCode.NO_BUDGET,
            f"min_in_sync would be {least}, and {list(found.sync_state_set)} are in sync: writes would stop",
            f"bring more replicas in sync first: rollcall wait {found.set_key.name} --until in-sync; or name a smaller "
            "min_in_sync in the same order",
            requested=least,
            current=in_sync,
        )
