"""
What operators are told, by plain HTTP and by the CLI, on a fleet of real processes.

S47, S52, S60, S68, S69.
"""

from __future__ import annotations

import pytest

from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.faults import hanging
from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.fleet_story import (
    DirectSends,
    counted,
    curl,
    heal,
    only_set,
    plain,
    readiness,
    rest,
    rollcall,
    set_path,
)
from tests.support.fleet_trials import kill_master

pytestmark = pytest.mark.cluster

NO_QUORUM_MS_MAX = 1_000


def test_a_stale_epoch_is_a_conflict_that_names_both_values(fleet: Fleet) -> None:
    """S69: 409, what was expected, what is, and nothing done."""
    before = heal(fleet).view
    stale = before.master_epoch + 7
    leader = rest(fleet, fleet.leader())
    answer = curl(leader, set_path(fleet, "/elect"), body={"expectedEpoch": stale})
    counted(status=answer.status, problem={name: answer.document[name] for name in ("code", "requested", "current")})
    assert answer.status == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.document["code"] == "EXPECTATION_FAILED"
    assert str(stale) in answer.document["requested"]
    assert str(before.master_epoch) in answer.document["current"]
    assert answer.document["hint"]
    assert heal(fleet).view.master_epoch == before.master_epoch


def test_an_alter_of_a_stale_master_epoch_is_a_conflict_that_names_both_values(fleet: Fleet) -> None:
    """A master of the past asks for its set: 409 with both epochs, and the set is as it was."""
    status = heal(fleet)
    view = status.view
    master = fleet.identity(fleet.master(view.set_key))
    answer = curl(
        Endpoint(address=rest(fleet, fleet.leader()).address, context=master.context()),
        "/v1/sync-state-set",
        body={
            "setKey": {"cluster": view.set_key.cluster, "name": view.set_key.name},
            "brokerId": view.master,
            "incarnation": view.master_incarnation,
            "masterEpoch": view.master_epoch - 1,
            "seq": 99,
            "syncStateSetEpoch": view.sync_state_set_epoch,
            "newSet": [view.master],
        },
    )
    counted(status=answer.status, document=answer.document)
    assert answer.status == 409
    assert answer.document["code"] == "FENCED_MASTER_EPOCH"
    assert str(view.master_epoch - 1) in answer.document["requested"]
    assert str(view.master_epoch) in answer.document["current"]
    assert heal(fleet).view.sync_state_set == view.sync_state_set


def test_a_follower_passes_requests_on_to_the_leader(fleet: Fleet) -> None:
    """The leader's answer, with its name, for reads and for orders; how long it took is counted."""
    heal(fleet)
    leader = fleet.leader()
    seen = []
    for name in fleet.controllers:
        if name == leader:
            continue
        for path, body in ((set_path(fleet), None), (set_path(fleet, "/elect"), {"expectedEpoch": 999_999})):
            answer = curl(rest(fleet, name), path, body=body)
            seen.append(round(answer.elapsed_ms, 1))
            assert answer.status == (200 if body is None else 409)
            assert body is None or answer.document["code"] == "EXPECTATION_FAILED"
            assert answer.headers["x-rollcall-leader"] == leader
    counted(elapsed_ms=seen)
    assert len(seen) == 4


def test_without_a_quorum_nothing_hangs_and_status_still_answers(fleet: Fleet) -> None:
    """503 in less than a second with a remedy; ``rollcall status`` is marked STALE with exit code 0; back by itself."""
    heal(fleet)
    leader = fleet.leader()
    dead = [name for name in fleet.controllers if name != leader]
    for name in dead:
        fleet.kill(name)
    # At once, while the leader still believes itself to be one, and later, when it knows.
    answers = [curl(rest(fleet, leader), set_path(fleet)) for _ in range(3)]
    order = curl(rest(fleet, leader), set_path(fleet, "/elect"), body={})
    local = curl(rest(fleet, leader), f"{set_path(fleet)}?consistency=local")
    health = readiness(fleet, leader)[0], plain(rest(fleet, leader), "/livez")[0]
    status = rollcall(fleet, "status")
    print(status.stdout, status.stderr)
    counted(
        statuses=[one.status for one in answers], elapsed_ms=[round(one.elapsed_ms) for one in answers],
        order=(order.status, order.document.get("code")), health=health,
    )  # fmt: skip
    for answer in answers:
        assert answer.elapsed_ms < NO_QUORUM_MS_MAX
    assert answers[-1].status == 503
    assert answers[-1].document["code"] == "NO_LEADER"
    assert answers[-1].document["hint"]
    assert order.status in (503, 504)
    assert local.status == 200
    assert local.document["freshness"]["isStale"]
    assert health == (503, 200), "the quorum is wedged: not ready, but alive (S60)"
    assert status.returncode == 0
    assert "STALE" in status.stdout
    assert only_set(fleet).name in status.stdout
    heal(fleet)
    assert rollcall(fleet, "status").returncode == 0


def test_elect_dry_run_names_every_replica_with_its_reason_and_changes_nothing(fleet: Fleet) -> None:
    """S68: each broker has a row with a verdict and a reason."""
    status = heal(fleet)
    before = status.view
    other = next(member.broker_id for member in before.members if member.broker_id != before.master)
    refused = rollcall(fleet, "elect", only_set(fleet).name, "--dry-run")
    assert (refused.returncode, "MASTER_STILL_EXISTS" in refused.stderr) == (1, True)
    done = rollcall(fleet, "elect", only_set(fleet).name, "--to", str(other), "--dry-run")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    rows = candidate_rows(done.stdout)
    assert sorted(rows) == sorted(member.name for member in status.replicas)
    assert all(reason for reason in rows.values())
    after = heal(fleet).view
    assert (after.master, after.master_epoch) == (before.master, before.master_epoch)


def test_explain_names_every_replica_with_its_reason(fleet: Fleet) -> None:
    """The decision record of a failover, by the CLI."""
    names: dict[int, str] = {member.broker_id: member.name for member in heal(fleet).replicas}
    trial = kill_master(fleet)
    done = rollcall(fleet, "explain", only_set(fleet).name, str(trial.epoch))
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    rows = candidate_rows(done.stdout)
    assert sorted(rows) == sorted(names.values())
    assert rows[names[trial.old_master]]
    assert "elected" in done.stdout
    heal(fleet)


def test_electing_a_replica_that_is_not_in_sync_is_refused_with_both_values_and_the_remedy(fleet: Fleet) -> None:
    """Exit code 1, whom was asked for, which set is in sync, and what to do."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    hung = next(name for name in fleet.brokers if name != master)
    with hanging(fleet, [hung]):
        status = fleet.wait_set(
            key, lambda status: len(status.view.sync_state_set) == 2, what=f"{hung} to leave the SyncStateSet"
        )
        (out,) = set(before.sync_state_set) - set(status.view.sync_state_set)
        by_cli = rollcall(fleet, "elect", key.name, "--to", str(out))
        by_rest = curl(rest(fleet, fleet.leader()), set_path(fleet, "/elect"), body={"to": out})
        after = fleet.wait_set(key, lambda _: True, what="to be known").view
    print(by_cli.stdout, by_cli.stderr)
    counted(problem={name: by_rest.document[name] for name in ("code", "detail", "requested", "current", "hint")})
    assert by_cli.returncode == 1
    assert "What to do:" in by_cli.stdout + by_cli.stderr
    assert by_rest.status == 409
    assert by_rest.document["requested"] == str(out)
    in_sync = by_rest.document["current"]
    assert in_sync, "the refusal does not say what is in sync"
    assert all(str(member) in in_sync for member in status.view.sync_state_set)
    assert by_rest.document["hint"]
    assert (after.master, after.master_epoch) == (before.master, before.master_epoch)
    heal(fleet)


def test_a_slave_refuses_sends_and_names_the_master(fleet: Fleet) -> None:
    """Nothing is appended on a slave; the answer says where to go."""
    heal(fleet)
    master = fleet.master(only_set(fleet))
    slave = next(name for name in fleet.brokers if name != master)
    direct = DirectSends(fleet, slave)
    direct.send(10)
    fates = direct.settle(limit_s=5)
    counted(fates=fates)
    assert (fates.acknowledged, fates.refused, fates.unknown) == (0, 10, 0)
    assert fates.reasons == {"not-master"}


def candidate_rows(text: str) -> dict[str, str]:
    """Broker -> reason, from the table that begins with RANK."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("RANK"))
    at = lines[first].index("REASON")
    rows = {}
    for line in lines[first + 1 :]:
        if not line.strip() or not (line[0].isdigit() or line.startswith("-")):
            break
        rows[line.split()[1]] = line[at:].strip()
    return rows
