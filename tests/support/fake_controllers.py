"""
Controllers by script, behind ``httpx.MockTransport``: they answer from values of the contract.

For tests of the REST client and of the CLI. Not a model of what controllers decide: a test says what each path answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    ControllerName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import EventRef, Phase, SetConfiguration
from rollcall_ha.controller.contract.verdicts import CandidateOutcome, CandidateVerdict, ElectionKind, Grade, Verdict
from rollcall_ha.controller.contract.views import (
    ControllerRole,
    ControllerStatus,
    FleetStatus,
    Freshness,
    HistoryRow,
    PhaseSpan,
    Problem,
    ReplicaStatus,
    SetPage,
    SetStatus,
)
from tests.support.set_views import shown

KEY = SetKey(ClusterName("demo"), BrokerName("broker-a"))
NAMES = ("c1", "c2", "c3")
SET_PATH = "/v1/sets/demo/broker-a"


def base(name: str) -> str:
    """URL of a controller of these tests."""
    return f"http://{name}:9870"


def freshness(name: str = "c2", *, is_stale: bool = False) -> Freshness:
    """Read at index 4207, 0.2 s ago."""
    return Freshness(
        read_from=ControllerName(name), term=7, index=4207, age_ms=200, is_authoritative=not is_stale, is_stale=is_stale
    )


def controller_status(name: str, *, leads: bool, has_authority: bool | None = None) -> ControllerStatus:
    """One controller at index 4207."""
    return ControllerStatus(
        name=ControllerName(name),
        role=ControllerRole.LEADER if leads else ControllerRole.FOLLOWER,
        has_authority=leads if has_authority is None else has_authority,
        leader=ControllerName("c2"),
        term=7,
        commit_index=4207,
        applied_index=4207,
        rest_address=f"{name}:9870",
        broker_address=f"{name}:9871",
        raft_address=f"{name}:9872",
        feature_level=1,
        fleet_incarnation=FleetIncarnation("f" * 32),
    )


def replica_status(broker_id: int, *, is_master: bool, is_in_sync: bool = True, is_alive: bool = True) -> ReplicaStatus:
    """A replica that holds 5,120,442 bytes, a slave that is not in sync 21.8 K less."""
    lag = 0 if is_in_sync else 21_800
    return ReplicaStatus(
        broker_id=BrokerId(broker_id),
        address=f"10.0.0.1{broker_id}:911",
        ha_address=f"10.0.0.1{broker_id}:912",
        kind="native",
        zone="",
        priority=10 * broker_id,
        is_master=is_master,
        is_in_sync=is_in_sync,
        is_alive=is_alive,
        is_learner=False,
        is_suspect=False,
        state=BrokerState.MASTER if is_master else BrokerState.SLAVE,
        last_epoch=MasterEpoch(7),
        max_offset=LogOffset(5_120_442 - lag),
        confirm_offset=LogOffset(5_120_442),
        lag_bytes=None if is_master else lag,
        seen_age_ms=300,
    )


def set_status(
    *,
    master: int | None = 1,
    in_sync: tuple[int, ...] = (1, 2, 3),
    condition: Condition = Condition.SERVING,
    reason: str = "",
    problems: tuple[str, ...] = (),
) -> SetStatus:
    """broker-a with three replicas."""
    members = tuple(BrokerId(member) for member in in_sync)
    view = shown(
        set_key=KEY,
        fleet_incarnation=FleetIncarnation("f" * 32),
        term=7,
        index=4207,
        master=None if master is None else BrokerId(master),
        master_incarnation=None if master is None else Incarnation("1" * 32),
        master_epoch=MasterEpoch(7),
        sync_state_set=members,
        sync_state_set_epoch=SyncStateSetEpoch(12),
        configuration=SetConfiguration(expected_replicas=3),
        has_entered=True,
        start_offset=LogOffset(0),
        condition=condition,
        condition_reason=reason,
    )
    replicas = tuple(
        replica_status(number, is_master=number == master, is_in_sync=number in in_sync) for number in (1, 2, 3)
    )
    return SetStatus(
        view=view,
        replicas=replicas,
        failure_budget=max(0, len(in_sync) - 2),
        problems=problems,
        last_election_ms=1_700_000_000_000,
    )


def fleet_status(name: str = "c2", *, sets: tuple[SetStatus, ...] | None = None, is_stale: bool = False) -> FleetStatus:
    """What one controller answers on /v1/status."""
    found = (set_status(),) if sets is None else sets
    return FleetStatus(
        freshness=freshness(name, is_stale=is_stale),
        controller=controller_status(name, leads=name == "c2" and not is_stale),
        fleet_name="demo",
        timing="normal",
        sets=found,
        sets_total=len(found),
        next_after=None,
    )


def set_page(*sets: SetStatus) -> SetPage:
    """What the leader answers on /v1/sets."""
    return SetPage(freshness=freshness(), sets=sets, sets_total=len(sets), next_after=None)


def verdict(*, winner: int | None = 2) -> Verdict:
    """Broker 2 wins over 3, which is not in sync, and 1, the master."""

    def candidate(broker_id: int, outcome: CandidateOutcome, reason: str) -> CandidateVerdict:
        return CandidateVerdict(
            broker_id=BrokerId(broker_id),
            outcome=outcome,
            reason=reason,
            rank=1 if outcome is CandidateOutcome.ELECTED else None,
            is_alive=True,
            is_in_sync=broker_id != 3,
            last_epoch=MasterEpoch(7),
            max_offset=LogOffset(5_120_442),
            priority=10,
            heartbeat_age_ms=400,
        )

    return Verdict(
        kind=ElectionKind.REQUESTED,
        winner=None if winner is None else BrokerId(winner),
        candidates=(
            candidate(1, CandidateOutcome.EXCLUDED, "current master; replica 2 is designated"),
            candidate(2, CandidateOutcome.ELECTED, "in SyncStateSet, alive, greatest (epoch, offset)"),
            candidate(3, CandidateOutcome.REJECTED, "not in SyncStateSet; unclean election is off"),
        ),
        policy="default@1",
        previous_master=BrokerId(1),
        previous_epoch=MasterEpoch(7),
        master_epoch=MasterEpoch(8),
        previous_set=(BrokerId(1), BrokerId(2)),
        sync_state_set=(BrokerId(2),),
        previous_set_epoch=SyncStateSetEpoch(12),
        sync_state_set_epoch=SyncStateSetEpoch(13),
    )


def history_row(epoch: int = 8) -> HistoryRow:
    """A failover of 3.2 s, nothing lost."""
    return HistoryRow(
        master_epoch=MasterEpoch(epoch),
        elected_at_ms=1_763_433_673_000,
        kind=ElectionKind.FAILOVER,
        cause="no heartbeat for 3 s",
        from_master=BrokerId(3),
        to_master=BrokerId(1),
        phases=(
            PhaseSpan(phase=Phase.DETECTED, duration_us=3_100_000),
            PhaseSpan(phase=Phase.PROPOSED, duration_us=2_000),
            PhaseSpan(phase=Phase.COMMITTED, duration_us=10_000),
            PhaseSpan(phase=Phase.SERVING, duration_us=50_000),
        ),
        total_us=3_165_000,
        unattributed_us=3_000,
        missing=(Phase.FIRST_ACK,),
        grade=Grade.PROVEN,
        loss_bytes=0,
        cut_bytes=None,
        requested_by="controller:c2",
        event=EventRef(term=7, index=4200, ordinal=1),
        total_us_max=3_165_000,
    )


def problem(status: int, code: str, **more: Any) -> Problem:
    """A problem document."""
    return Problem(
        type="about:blank", title=code, status=status, detail=f"{code} happened", code=code, hint="do this", **more
    )


Answer = Callable[[httpx.Request], httpx.Response]


def answer(value: object, status: int = 200) -> httpx.Response:
    """A JSON answer; the status of a problem is its own."""
    if isinstance(value, Problem):
        status = value.status
    return httpx.Response(status, content=msgspec.json.encode(value), headers={"Content-Type": "application/json"})


@dataclass
class FakeControllers:
    """(controller, method, path) -> answer; what is not scripted refuses the connection. Remembers every request."""

    script: Mapping[tuple[str, str, str], Answer | object]
    requests: list[tuple[str, httpx.Request]] = field(default_factory=list)

    def transport(self) -> httpx.MockTransport:
        """For ``client.client.Client(transport=...)``."""
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host
        self.requests.append((name, request))
        scripted = self.script.get((name, request.method, request.url.path))
        if scripted is None:
            raise httpx.ConnectError("Connection refused", request=request)
        if callable(scripted):
            made = scripted(request)
            assert isinstance(made, httpx.Response)
            return made
        return answer(scripted)


def everywhere(method: str, path: str, value: object) -> dict[tuple[str, str, str], object]:
    """Each controller answers so."""
    return {(name, method, path): value for name in NAMES}


def noted(bodies: list[Any], reply: object) -> Answer:
    """Answers so, and keeps what it was asked with."""

    def note(request: httpx.Request) -> httpx.Response:
        bodies.append(msgspec.json.decode(request.content))
        return answer(reply)

    return note


def showing(*sets: SetStatus) -> dict[tuple[str, str, str], object]:
    """Each controller passes on the leader's status of a fleet with these sets."""
    return everywhere("GET", "/v1/status", fleet_status(sets=sets))


EACH = {(name, "GET", "/v1/status"): fleet_status(name) for name in NAMES}
STATUS = EACH | {("c1", "GET", "/v1/status"): fleet_status("c2")}
SETS = everywhere("GET", "/v1/sets", set_page(set_status()))
