"""
Fleets in states that many tests of the core begin with, and short words for what they look at.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.controller.contract.events import (
    EventRecord,
    MasterElected,
    ReplicaRegistered,
)
from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    ControllerName,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
)
from rollcall_ha.controller.contract.replies import AlterDecided, AnyReply, Refused
from rollcall_ha.controller.contract.values import DetectionStamps, Milestone, Phase, SetConfiguration, SilenceCause
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.controller.contract.views import Freshness
from tests.support.core_builders import Fleet, positions, stored

ONE = SetConfiguration(expected_replicas=1)
TWO = SetConfiguration(expected_replicas=2)
FRESH = Freshness(read_from=ControllerName("c1"), term=1, index=1, age_ms=0, is_authoritative=True, is_stale=False)
TIMEOUT = DetectionStamps(
    cause=SilenceCause.TIMEOUT,
    last_heartbeat_age_us=3_100_000,
    session_closed_age_us=50_000,
    detected_age_us=400,
    first_sign_age_us=3_100_000,
)


def refusal_of(reply: AnyReply) -> RefusalCode | None:
    """The code of a refusal, of an alter's too."""
    if isinstance(reply, AlterDecided):
        return reply.verdict.refusal
    return reply.code if isinstance(reply, Refused) else None


def alone(master: int = 1) -> Fleet:
    """Three replicas, one member: the master."""
    fleet = Fleet().serving(master=master)
    fleet.do(fleet.alter(master))
    return fleet


def judged(fleet: Fleet) -> Intactness:
    """Judgement of the last registration."""
    return fleet.event(ReplicaRegistered).intactness


def java_with_a_warm_slave(*, priority_of_2: int = 100, level: int = FEATURE_LEVEL) -> Fleet:
    """RocketMQ's replicas with equal logs, all members: 1 is master, and 3 was it before in the same process."""
    fleet = Fleet()
    fleet.state = replace(fleet.state, feature_level=level)
    for broker_id in (1, 2, 3):
        fleet.grant(f"code-{broker_id}")
        priority = priority_of_2 if broker_id == 2 else 100
        fleet.do(fleet.registration(broker_id, kind=ReplicaKind.ROCKETMQ, priority=priority))
    fleet.elect(to=1)
    for seq, master in enumerate((3, 1), start=1):
        fleet.enter()
        fleet.do(fleet.alter(1, 2, 3, seq=2 * seq))
        fleet.elect(to=master)
    fleet.enter()
    fleet.do(fleet.alter(1, 2, 3, seq=9))
    return fleet


def wiped(*views: tuple[int, int, int, tuple[int, ...]]) -> Fleet:
    """Controllers without memory, and replicas (id, epoch, set epoch, set) that register with what they kept."""
    fleet = Fleet()
    for broker_id, epoch, set_epoch, members in views:
        fleet.do(
            fleet.registration(
                broker_id, holds=positions(100 * broker_id, epoch=epoch), view=stored(epoch, set_epoch, *members)
            )
        )
    return fleet


def failed_over(
    *, released: int | None = 90, start: int = 100, acked: int = 100, ack_mode: AckMode = AckMode.ALL
) -> Fleet:
    """Replica 1 was master and is gone; replica 2 has entered epoch 2."""
    fleet = Fleet().serving(configuration=SetConfiguration(expected_replicas=3, ack_mode=ack_mode))
    fleet.silence(1)
    ends = {2: positions(start), 3: positions(10)}
    evidence = fleet.evidence(
        ends if released is None else {**ends, 1: positions(100, released=released)}, detection=TIMEOUT
    )
    if released is None:
        evidence = replace(evidence, replicas=tuple(r for r in evidence.replicas if r.broker_id != 1))
    fleet.elect(evidence=evidence)
    fleet.enter(start, acked=acked)
    return fleet


def last_election(fleet: Fleet) -> tuple[EventRecord, MasterElected]:
    """The newest election on record."""
    for record in reversed(fleet.records):
        if isinstance(record.event, MasterElected):
            return record, record.event
    raise AssertionError("no election on record")


def truncated(epoch: int, broker_id: int, cut: tuple[int, int] | None, released: int | None = None) -> Milestone:
    """An old master returned and was cut."""
    return Milestone(
        master_epoch=MasterEpoch(epoch),
        phase=Phase.TRUNCATED,
        elapsed_us=1,
        broker_id=BrokerId(broker_id),
        cut_from=None if cut is None else LogOffset(cut[0]),
        cut_to=None if cut is None else LogOffset(cut[1]),
        released=None if released is None else LogOffset(released),
    )
