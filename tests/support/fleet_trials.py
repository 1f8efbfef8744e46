"""
Single tries of a fault, each timed from outside: chaos repeats them, the cluster tests do one or two.

Here: the fault, the stop watch, what REST says afterwards. Not here: how good is good enough (the tests).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.deploy.local.faults import kill_and_see
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import Load, await_authority, curl, only_set, rest, set_path

TRY_DEADLINE_S = 20.0
POLL_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKilled:
    """One kill -9 of a master."""

    old_master: int
    new_master: int | None
    epoch: MasterEpoch
    is_next_epoch: bool
    by_rest_ms: float
    """From the moment at which the kernel had closed the victim's sockets until REST named its successor."""
    dying_ms: float
    """From the signal until then."""


def kill_master(fleet: Fleet) -> MasterKilled:
    """SIGKILL, then nothing but plain HTTP until another one is master in a higher masterEpoch and has entered it."""
    name = fleet.master(only_set(fleet))
    leader = rest(fleet, fleet.leader())
    path = set_path(fleet)
    before = curl(leader, path).document["set"]["view"]
    began_ns = time.monotonic_ns()
    seen_ns = kill_and_see(fleet, name)
    views: list[dict[str, object]] = []

    def has_successor() -> bool:
        answer = curl(leader, path, limit_s=POLL_LIMIT_S)
        if answer.status != 200:
            return False
        view = answer.document["set"]["view"]
        views[:] = [view]
        return bool(view["masterEpoch"] > before["masterEpoch"] and view["hasEntered"])

    wait_until(has_successor, deadline_s=TRY_DEADLINE_S, what="REST to name a new master that has entered")
    by_rest_ms = (time.monotonic_ns() - seen_ns) / 1e6
    (view,) = views
    return MasterKilled(
        old_master=before["master"],
        new_master=view["master"],  # type: ignore[arg-type]  # JSON
        epoch=view["masterEpoch"],  # type: ignore[arg-type]
        is_next_epoch=view["masterEpoch"] == before["masterEpoch"] + 1,
        by_rest_ms=round(by_rest_ms, 1),
        dying_ms=round((seen_ns - began_ns) / 1e6, 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderKilled:
    """One kill -9 of the leading controller under load."""

    old_leader: str
    new_leader: str
    authority_ms: float
    """From the signal until another controller answered a linearizable read."""
    gap_ms: float
    """The longest time without an acknowledgement from the signal on."""
    elections: int


def kill_leader(fleet: Fleet, work: Load) -> LeaderKilled:
    """SIGKILL; the dead one is started again afterwards, and the fleet is whole when this returns."""
    key = only_set(fleet)
    leader = fleet.leader()
    survivors = tuple(name for name in fleet.controllers if name != leader)
    before = fleet.client().set(key).set.view
    rows = len(fleet.client().history(key).rows)
    began_ns = time.monotonic_ns()
    fleet.kill(leader)
    follower = await_authority(fleet, survivors)
    authority_ms = (time.monotonic_ns() - began_ns) / 1e6
    work.wait_more()
    fleet.restart(leader)
    fleet.wait_ready([leader])
    work.wait_more()
    gap_ms = work.longest_gap_ms(began_ns)
    after = fleet.wait_redundant(key).view
    return LeaderKilled(
        old_leader=leader,
        new_leader=follower,
        authority_ms=round(authority_ms, 1),
        gap_ms=round(gap_ms, 1),
        elections=max(after.master_epoch - before.master_epoch, len(fleet.client().history(key).rows) - rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """One clean stop and start of a broker under load."""

    broker: str
    was_master: bool
    stopping_ms: float
    """From the signal until the process was gone."""
    gap_ms: float
    """The longest time without an acknowledgement from the signal until the set was whole again."""
    new_kinds: tuple[str, ...]
    """Kinds of the elections that it caused, oldest first."""


def restart_broker(fleet: Fleet, name: str, work: Load) -> Restarted:
    """SIGTERM, start, and the set is whole again when this returns."""
    key = only_set(fleet)
    was_master = fleet.master(key) == name
    before = fleet.client().set(key).set.view.master_epoch
    began_ns = time.monotonic_ns()
    fleet.terminate(name)
    stopping_ms = (time.monotonic_ns() - began_ns) / 1e6
    work.wait_more()
    fleet.restart(name)
    fleet.wait_ready([name])
    fleet.wait_redundant(key)
    work.wait_more()
    rows = fleet.client().history(key).rows
    return Restarted(
        broker=name,
        was_master=was_master,
        stopping_ms=round(stopping_ms, 1),
        gap_ms=round(work.longest_gap_ms(began_ns), 1),
        new_kinds=tuple(str(row.kind) for row in reversed(rows) if row.master_epoch > before),
    )
