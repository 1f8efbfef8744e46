"""What an operator sees of a set: replicated state joined with what the leader heard."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from rollcall_ha.controller.contract.problems import ProblemCode
from rollcall_ha.controller.contract.values import host_of
from rollcall_ha.controller.contract.views import RefusedBroker, SetStatus
from rollcall_ha.controller.replication.ports import RefusedPeer
from rollcall_ha.controller.runtime.refusals import (
    CERTIFICATE_HINT,
    REASON_CHARS_MAX,
    REFUSED_MAX,
    REFUSED_MS_MAX,
    REFUSED_PER_SET_MAX,
    Refusals,
)
from rollcall_ha.controller.runtime.views import set_status
from tests.support.runtime_world import World, led_set, set_key

KEY = set_key()


def _status(world: World) -> SetStatus:
    return set_status(world.the_view(KEY), world.duties.sessions, last_election_ms=None, now_ns=world.now_ns)


def test_a_whole_set_has_no_problems_and_can_lose_one() -> None:
    """Three in sync, two demanded."""
    world, replicas = led_set()
    world.pass_ms(500, *replicas)
    status = _status(world)

    assert status.problems == ()
    assert status.failure_budget == 1
    assert [replica.lag_bytes for replica in status.replicas if replica.is_master] == [None]
    assert all(replica.seen_age_ms is not None and replica.seen_age_ms < 500 for replica in status.replicas)


def test_a_master_that_says_it_is_fenced_is_a_problem_although_the_record_calls_it_master() -> None:
    """A forged epoch had fenced it for 40 s; nothing was acknowledged, and ``status --check`` said OK."""
    world, (master, *others) = led_set()
    world.pass_ms(500, master, *others)
    assert _status(world).problems == (), "its last word is of before it knew this epoch: a winner is about to enter"
    master.known_epoch = world.the_view(KEY).master_epoch
    world.pass_ms(500, master, *others)

    assert _status(world).problems == (ProblemCode.MASTER_NOT_SERVING,)


def test_the_lag_of_a_dead_slave_is_its_distance_to_the_master_not_its_last_word() -> None:
    """A slave said "0 behind" and died; the master wrote on: showing 0 would call it a good candidate."""
    world, (master, dead, other) = led_set()
    for replica in (master, dead, other):
        replica.end = LogOffset(1_000)
    world.pass_ms(500, master, dead, other)
    master.end = LogOffset(5_000)
    world.pass_ms(4_000, master, other)
    status = _status(world)

    (row,) = [replica for replica in status.replicas if replica.broker_id == dead.broker_id]
    assert not row.is_alive
    assert row.lag_bytes == 4_000
    assert ProblemCode.REPLICA_SILENT in status.problems


def test_refusals_that_are_told_are_new_and_few() -> None:
    """A process that was stopped, or taken, is not told as one that is refused; a flood of them takes no memory."""
    world, _ = led_set()
    view, refusals = world.the_view(KEY), Refusals()
    view = replace(view, members=(replace(view.members[0], is_alive=False), *view.members[1:]))

    def refused(number: int | None, host: str = "10.9.9.9") -> RefusedBroker:
        broker_id = None if number is None else BrokerId(number)
        return RefusedBroker(broker_id=broker_id, host=host, code="TOMBSTONED", reason="", hint="")

    def told(now_ns: int = 0) -> list[tuple[int | None, int]]:
        return [(one.broker_id, one.age_ms) for one in refusals.of(view, now_ns)]

    for number in (1, 2, 3):
        refusals.note(KEY, refused(number), 0)
    refusals.note(set_key("broker-b"), refused(4), 0)
    refusals.note(None, refused(None), 0)
    for member in view.members[:2]:
        refusals.note(None, refused(None, host_of(member.description.address)), 0)
    refusals.note(KEY, refused(None, "10.0.0.7"), 0)
    refusals.taken(KEY, BrokerId(2), "10.0.0.7")
    refusals.note(KEY, refused(1), 1_000_000)

    assert told(1_000_000) == [(1, 0), (None, 1), (3, 1)]
    assert told((REFUSED_MS_MAX + 1) * 1_000_000) == [(1, REFUSED_MS_MAX)]
    for number in range(REFUSED_MAX + 100):
        refusals.note(KEY, replace(refused(number), reason="\x1b" + "x" * 1_000_000), 2_000_000)
    assert refusals.of(view, 2_000_000)[0].reason.startswith("'\\x1bxxx")
    assert len(refusals.of(view, 2_000_000)[0].reason) < 2 * REASON_CHARS_MAX
    assert len(told(2_000_000)) == REFUSED_PER_SET_MAX
    assert len(refusals._seen) == REFUSED_MAX


def test_a_controller_that_is_refused_is_told_once_for_a_minute_by_its_name_where_that_is_known() -> None:
    """It is refused by its host where it asks, and by its name where it is asked."""

    def refused(name: str, host: str, code: str, at_ms: int) -> RefusedPeer:
        return RefusedPeer(name=name, host=host, code=code, reason="\x1bwhy", at_ns=at_ms * 1_000_000)

    refusals = Refusals()
    assert refusals.of_controllers(0) == ()
    kept = refused("c2", "10.0.0.2", "tls", 0), refused("", "10.0.0.2", "tls", 7), refused("c3", "10.0.0.3", "frame", 9)
    refusals.peers = lambda: kept
    c3, c2 = refusals.of_controllers(10_000_000)
    assert (c3.who, c3.age_ms, str(c3)) == ("c3", 1, "'\\x1bwhy' (frame)")
    assert "release" in c3.hint
    assert (c2.who, c2.age_ms, c2.hint) == ("c2", 10, CERTIFICATE_HINT)
    later = refusals.of_controllers((REFUSED_MS_MAX + 1) * 1_000_000)
    assert [one.who for one in later] == ["c3", "a process at 10.0.0.2"]
