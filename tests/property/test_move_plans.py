"""Laws of the plans of drains and rebalancings, over random fleets."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rollcall_ha.cli.plans import Plan, plan_drain, plan_rebalance, why_not
from rollcall_ha.controller.contract.hosts import heirs, host_shares, master_of, spare_of
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import (
    ElectionPause,
    Maintenance,
    MaintenanceScope,
    SetConfiguration,
    host_of,
)
from rollcall_ha.controller.contract.views import ReplicaStatus, SetStatus
from tests.support.fake_controllers import replica_status, set_status

HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "::1")
MAINTENANCE = Maintenance(
    scope=MaintenanceScope(host="h"), expires_at_ms=2, reason="", begun_at_ms=1, begun_by="operator:ann"
)
PAUSE = ElectionPause(set_key=None, expires_at_ms=2, reason="", paused_at_ms=1, paused_by="operator:ann")


def _address(host: str) -> str:
    return f"[{host}]:911" if ":" in host else f"{host}:911"


@st.composite
def replicas(draw: st.DrawFn, *, is_whole: bool) -> tuple[ReplicaStatus, ...]:
    """Two to four on random hosts, the first one master."""
    count = draw(st.integers(2, 4))
    found = []
    for number in range(1, count + 1):
        odd = 0 if is_whole else draw(st.integers(0, 9))
        found.append(
            replace(
                replica_status(number, is_master=number == 1, is_in_sync=odd != 1, is_alive=odd != 2 or number == 1),
                address=_address(draw(st.sampled_from(HOSTS))),
                zone="" if is_whole else draw(st.sampled_from(("", "a", "b"))),
                priority=100 if is_whole else draw(st.sampled_from((1, 100))),
                is_suspect=odd == 3,
                is_learner=odd == 4,
                maintenance=MAINTENANCE if odd == 5 else None,
                kind=ReplicaKind.ROCKETMQ if odd == 6 and number == 1 else ReplicaKind.NATIVE,
            )
        )
    return tuple(found)


@st.composite
def fleets(draw: st.DrawFn, *, is_whole: bool = False) -> list[SetStatus]:
    """Up to 20 sets, whole and alike, or with everything that can be in the way."""
    found = []
    for number in range(draw(st.integers(0, 20))):
        members = draw(replicas(is_whole=is_whole))
        in_sync = tuple(one.broker_id for one in members if one.is_in_sync)
        condition = Condition.SERVING if is_whole else draw(st.sampled_from((*[Condition.SERVING] * 5, *Condition)))
        status = set_status(in_sync=in_sync, condition=condition)
        view = replace(
            status.view,
            set_key=SetKey(ClusterName("c"), BrokerName(f"s{number:02}")),
            configuration=SetConfiguration(expected_replicas=len(members)),
        )
        pause = None if is_whole else draw(st.sampled_from((None, None, None, PAUSE)))
        found.append(replace(status, view=view, replicas=members, pause=pause))
    return found


def carried_out(sets: list[SetStatus], plan: Plan) -> list[SetStatus]:
    """Each move done."""
    targets = {move.set_key: move.to for move in plan.moves}

    def moved(status: SetStatus) -> SetStatus:
        to = targets.get(status.view.set_key)
        if to is None:
            return status
        members = tuple(replace(one, is_master=one.broker_id == to) for one in status.replicas)
        return replace(status, view=replace(status.view, master=to), replicas=members)

    return [moved(status) for status in sets]


def loads(sets: list[SetStatus]) -> Counter[str]:
    return Counter(host_of(master.address) for status in sets if (master := master_of(status)) is not None)


def assert_possible(sets: list[SetStatus], plan: Plan) -> None:
    by_key = {status.view.set_key: status for status in sets}
    assert len(plan.keys) == len(plan.moves) + len(plan.left)
    for move in plan.moves:
        status = by_key[move.set_key]
        assert why_not(status, budget_least=1) == ""
        assert move.to in {one.broker_id for one in heirs(status)}
        assert (move.master, move.master_epoch) == (status.view.master, status.view.master_epoch)


@pytest.mark.slow
@given(fleets(), st.sampled_from(HOSTS), st.randoms())
@settings(max_examples=100, deadline=None)
def test_a_drain_moves_each_master_of_the_host_elsewhere_or_says_why_not(
    sets: list[SetStatus], host: str, draw: random.Random
) -> None:
    plan = plan_drain(sets, MaintenanceScope(host=host))
    assert_possible(sets, plan)
    assert all(move.from_host == host != move.to_host for move in plan.moves)
    living = [status for status in sets if status.view.condition is not Condition.CLEANED]
    on_host = {s.view.set_key for s in living if (m := master_of(s)) is not None and host_of(m.address) == host}
    assert plan.keys == on_host
    after = plan_drain(carried_out(sets, plan), MaintenanceScope(host=host))
    assert (after.moves, after.left) == ((), plan.left)
    shuffled = list(sets)
    draw.shuffle(shuffled)
    assert plan_drain(shuffled, MaintenanceScope(host=host)) == plan


@given(fleets())
@settings(max_examples=60, deadline=None)
def test_what_is_foretold_of_a_host_that_goes_is_what_is_shown_once_it_is_gone(sets: list[SetStatus]) -> None:
    """As many that could be elected and may be lost; and no drain finds a candidate where none is foretold."""
    for status in sets:
        shares = {share.host: share for share in host_shares(status)}
        assert set(shares) == {host_of(one.address) for one in status.replicas}
        for host, share in shares.items():
            members = tuple(
                replace(one, is_alive=one.is_alive and host_of(one.address) != host) for one in status.replicas
            )
            gone = replace(status, replicas=members)
            assert share.heirs == len(heirs(gone))
            assert share.left == sum(one.is_alive and one.is_in_sync and not one.is_suspect for one in members)
            assert share.spare == (spare_of(gone) if share.goes_on else 0)
            moves = plan_drain([status], MaintenanceScope(host=host), budget_least=0).moves
            assert not moves or (share.has_master and share.heirs)


@pytest.mark.slow
@given(fleets(), st.randoms())
@settings(max_examples=100, deadline=None)
def test_a_rebalancing_is_possible_and_done_once(sets: list[SetStatus], draw: random.Random) -> None:
    plan = plan_rebalance(sets)
    assert_possible(sets, plan)
    shuffled = list(sets)
    draw.shuffle(shuffled)
    assert plan_rebalance(shuffled) == plan


@pytest.mark.slow
@given(fleets(is_whole=True))
@settings(max_examples=100, deadline=None)
def test_a_rebalanced_fleet_is_even_and_stays_as_it_is(sets: list[SetStatus]) -> None:
    """No set could go to a host with two masters fewer; the fullest host got no fuller; a second plan is empty."""
    plan = plan_rebalance(sets)
    after = carried_out(sets, plan)
    found = loads(after)
    for status in after:
        master = master_of(status)
        assert master is not None
        for one in heirs(status):
            assert found[host_of(one.address)] + 2 > found[host_of(master.address)]
    assert max(found.values(), default=0) <= max(loads(sets).values(), default=0)
    assert plan_rebalance(after).moves == ()


@given(st.integers(1, 60), st.integers(2, 5))
@settings(max_examples=60, deadline=None)
def test_masters_that_are_all_on_one_host_are_spread_with_no_move_too_many(count: int, hosts: int) -> None:
    members = tuple(
        replace(replica_status(number, is_master=number == 1), address=f"h{number}:911", priority=100)
        for number in range(1, hosts + 1)
    )
    in_sync = tuple(one.broker_id for one in members)
    sets = [
        replace(
            set_status(in_sync=in_sync),
            view=replace(
                set_status(in_sync=in_sync).view,
                set_key=SetKey(ClusterName("c"), BrokerName(f"s{n:02}")),
                configuration=SetConfiguration(expected_replicas=hosts),
            ),
            replicas=members,
        )
        for n in range(count)
    ]
    plan = plan_rebalance(sets)
    found = loads(carried_out(sets, plan))
    assert max(found.values()) - min(found.get(f"h{n}", 0) for n in range(1, hosts + 1)) <= 1
    assert len(plan.moves) == count - -(-count // hosts)


def test_preferences_come_before_an_even_spread() -> None:
    """Zone of the present master, then priority: as an election prefers them."""
    base = set_status()
    one, two, three = (replace(replica, zone="a", priority=10) for replica in base.replicas)
    far = replace(base, replicas=(one, two, replace(three, zone="b")))
    drained = plan_drain([far], MaintenanceScope(host=host_of(one.address)))
    assert [move.to for move in drained.moves] == [BrokerId(2)]
    preferred = replace(base, replicas=(one, two, replace(three, priority=1)))
    assert [move.to for move in plan_rebalance([preferred]).moves] == [BrokerId(3)]
    assert [move.to for move in plan_drain([preferred], MaintenanceScope(host=host_of(one.address))).moves] == [
        BrokerId(3)
    ]


def test_a_set_without_budget_is_left_with_both_numbers() -> None:
    bare = replace(set_status(in_sync=(1, 2)), replicas=set_status(in_sync=(1, 2)).replicas)
    plan = plan_drain([bare], MaintenanceScope(host="10.0.0.11"))
    assert [one.reason for one in plan.left] == ["it may lose 0 more replicas, at least 1 are wanted (--min-budget)"]
    assert [move.to for move in plan_drain([bare], MaintenanceScope(host="10.0.0.11"), budget_least=0).moves] == [
        BrokerId(2)
    ]
