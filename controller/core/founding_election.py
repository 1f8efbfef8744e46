"""
The first election of a set (R8).

Here: the automatic one, and bootstrap. Not here: every later election (``decide_election``).

Rule 1: the automatic one waits until the expected replicas have registered and all report empty logs. All of them are
the first set: nothing has been written, so none lacks anything. A RocketMQ winner stands alone.
Rule 2: a log with records needs an operator who names its master; the set is then that replica alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Bootstrap, ElectMaster
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, ReplicaKind, SyncStateSet
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.decision import Decision, Refusal, elected, find_replica
from rollcall_ha.controller.core.election_record import master_elected, verdict_of
from rollcall_ha.controller.core.evidence import candidates_of
from rollcall_ha.controller.core.policies import FIRST
from rollcall_ha.controller.core.ranking import elect
from rollcall_ha.controller.core.state import SetState


def decide_first(
    set_state: SetState,
    command: ElectMaster,
    evidence: Evidence,
    *,
    set_aside: Mapping[BrokerId, str],
) -> Decision:
    """Elect the first master if rule 1 allows it; ``set_aside`` may not win."""
    voters = tuple(replica.broker_id for replica in set_state.replicas if replica.is_voter)
    expected = set_state.configuration.expected_replicas if set_state.configuration is not None else 1
    # Three machines, one with an old log. The first that boots, empty, would be elected, and the full one refused from
    # then on: so no replica is elected before the set is complete.
    if len(voters) < expected:
        raise Refusal(
            RefusalCode.NO_ELIGIBLE_REPLICA,
            f"{len(voters)} of {expected} expected replicas of {command.set_key} have registered",
            "start the others, or choose one with: rollcall bootstrap --master ID",
            requested=expected,
            current=len(voters),
        )
    # Records that no election here wrote: which log is the right one, only a person knows. If the longest were elected,
    # the others would be cut to what they share with it, or set aside.
    filled = _ends(set_state, evidence)
    if filled:
        raise Refusal(
            RefusalCode.NO_ELIGIBLE_REPLICA,
            f"replicas of {command.set_key} bring records that no election here wrote: "
            + ", ".join(f"{broker_id} up to {end}" for broker_id, end in sorted(filled.items())),
            "choose one with: rollcall bootstrap --master ID",
        )
    return _outcome(
        set_state, evidence, command,
        kind=ElectionKind.FIRST, designated=command.to, members=voters, set_aside=set_aside,
    )  # fmt: skip


def decide_bootstrap(set_state: SetState, command: Bootstrap, evidence: Evidence) -> Decision:
    """Make ``command.master`` the first master, with an empty or a full log (rule 2)."""
    # Bootstrap asks nothing about loss. On a set with a past it would be an unclean election without a number.
    if set_state.is_established or set_state.recovery is not None:
        raise Refusal(
            RefusalCode.NOT_BOOTSTRAPPABLE,
            f"{command.set_key} has a past: its epochs end at {set_state.master_epoch}",
            "use: rollcall elect, or elect --unclean with an accepted loss",
            current=set_state.master_epoch,
        )
    find_replica(set_state, command.master)
    return _outcome(
        set_state, evidence, command,
        kind=ElectionKind.BOOTSTRAP, designated=command.master, members=None, set_aside={},
    )  # fmt: skip


def _ends(set_state: SetState, evidence: Evidence) -> dict[BrokerId, int]:
    """
    The replicas that report records, and up to where: by the evidence, else by the registration.

    Learners count. A set founded over a learner's full log would refuse the learner, with the only copy.
    """
    ends = {r.broker_id: r.positions.max_offset for r in set_state.replicas if r.positions is not None}
    ends.update({seen.broker_id: seen.max_offset for seen in evidence.replicas})
    return {broker_id: end for broker_id, end in ends.items() if end > 0}


def _outcome(
    set_state: SetState,
    evidence: Evidence,
    command: ElectMaster | Bootstrap,
    *,
    kind: ElectionKind,
    designated: BrokerId | None,
    members: SyncStateSet | None,
    set_aside: Mapping[BrokerId, str],
) -> Decision:
    """Rank by ``FIRST`` and elect, or refuse. ``members`` None: the winner stands alone."""
    ranking = elect(candidates_of(set_state, evidence, set_aside=set_aside), policy=FIRST, designated=designated)
    winner = ranking.winner
    if winner is None:
        raise Refusal(
            RefusalCode.NO_ELIGIBLE_REPLICA if designated is None else RefusalCode.NOT_ELIGIBLE,
            f"no replica of {set_state.set_key} may be elected: {ranking.reasons}"
            if designated is None
            else f"replica {designated} may not be elected: {ranking.reason_of(designated)}",
            "start it, and retry once it is ready",
            requested=designated,
        )
    replica = set_state.replica(winner)
    is_java = replica is not None and replica.kind is ReplicaKind.ROCKETMQ
    # A bootstrapped log has a past of its own. An epoch that one of the logs already shows, given out again, would have
    # two starts: the handshake would take bytes of two masters for the same ones and cut nothing.
    floor = max((seen.last_epoch for seen in evidence.replicas), default=MasterEpoch(0))
    floor = max([floor, *(r.positions.last_epoch for r in set_state.replicas if r.positions is not None)])
    verdict = verdict_of(set_state, ranking, kind=kind, policy=FIRST, designated=designated, previous_master=None)
    return elected(
        master_elected(
            set_state,
            evidence,
            verdict,
            winner=winner,
            # RocketMQ's master takes its set from an election for {itself}: others join as they catch up (C5).
            members=(winner,) if members is None or is_java else members,
            reason=command.reason,
            floor=floor,
        )
    )
