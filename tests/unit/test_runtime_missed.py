"""What people are told while masters are missed, and not replaced (R13)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.cli.decisions import explanation_report
from rollcall_ha.cli.tables import judge, status_report
from rollcall_ha.controller.contract.problems import MASTER_MISSED_WORDS, own_network_words
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.views import MissedMasters
from rollcall_ha.controller.core.explain import explain
from rollcall_ha.controller.runtime.views import set_status
from tests.support import fake_controllers
from tests.support.runtime_world import Replica, World, set_key

NAMES = ("broker-a", "broker-b", "broker-c", "broker-d")


def _fleet() -> tuple[World, list[list[Replica]]]:
    world = World()
    world.take()
    return world, [world.serving_set(name) for name in NAMES]


def _missed(world: World) -> MissedMasters | None:
    return world.duties.sessions.missed_masters(world.now_ns)


def _is_missed(world: World, name: str) -> bool:
    view = world.the_view(set_key(name))
    return set_status(view, world.duties.sessions, last_election_ms=None, now_ns=world.now_ns).is_master_missed


def test_status_did_not_say_that_nobody_is_elected_because_most_sets_fell_silent_at_once() -> None:
    """At three in the morning it read as three sets whose brokers are down."""
    world, (*cut, served) = _fleet()
    assert _missed(world) is None
    world.pass_ms(4_000, *served)

    missed = _missed(world)
    assert missed is not None
    assert (missed.sets, missed.left_ms) == (3, None)
    assert 3_900 <= missed.silent_ms <= 4_200
    assert [_is_missed(world, name) for name in NAMES] == [True, True, True, False]

    for replica in (one for replicas in cut for one in replicas):
        world.beat(replica)
    world.pass_ms(500, *served, *(one for replicas in cut for one in replicas))
    assert _missed(world) is None


def test_the_time_for_which_a_master_is_awaited_has_an_end() -> None:
    world = World()
    world.take()
    master, slave, _ = world.serving_set()
    world.pass_ms(4_000)
    slave.known_epoch = world.the_view(master.key).master_epoch
    left = []
    while (missed := _missed(world)) is not None:
        left.append(missed.left_ms)
        assert _is_missed(world, "broker-a")
        world.run_loop(100)
        world.beat(slave, master_heard_ms=20)
        world.tick()
    assert left == [None, *range(3_000, 0, -100)]
    assert world.the_view(master.key).master == slave.broker_id


def test_a_master_whose_witness_fell_silent_again_is_awaited_without_an_end() -> None:
    world = World()
    world.take()
    master, slave, _ = world.serving_set()
    world.pass_ms(4_000)
    slave.known_epoch = world.the_view(master.key).master_epoch
    world.beat(slave, master_heard_ms=0)
    world.pass_ms(4_000)
    missed = _missed(world)
    assert missed is not None
    assert missed.left_ms is None
    assert world.the_view(master.key).master == master.broker_id


def test_a_member_that_hears_no_master_ends_it() -> None:
    world, ((_, slave, *_), *_) = _fleet()
    world.pass_ms(4_000)
    world.beat(slave)
    missed = _missed(world)
    assert missed is not None
    assert missed.sets == 3


def test_brokers_that_were_killed_together_are_no_fault_of_the_network() -> None:
    """Their machines refuse the probes: they are reached."""
    world, (killed, *others) = _fleet()
    for replica in killed:
        world.close(replica)
        world.refuse_probe()
    world.pass_ms(4_000, *(one for replicas in others for one in replicas))
    assert not world.the_view(killed[0].key).condition.has_master
    assert _missed(world) is None


def test_a_new_leader_does_not_tell_of_sets_that_were_silent_long_before_it() -> None:
    """Stopped a year ago, they would be its network for ever; awaited, when a slave hears its master, it is told."""
    world = World()
    world.take()
    master, slave, _ = world.serving_set()
    world.pass_ms(4_000)
    world.take()
    assert _missed(world) is None
    slave.known_epoch = world.the_view(master.key).master_epoch
    world.beat(slave, master_heard_ms=20)
    assert _missed(world) == MissedMasters(sets=1, silent_ms=0, left_ms=3_000)


def test_a_master_that_is_heard_before_its_silence_is_applied_is_not_missed() -> None:
    world = World()
    world.take()
    replicas = world.serving_set()
    world.applies = False
    world.pass_ms(4_000)
    assert _missed(world) is not None
    for replica in replicas:
        world.beat(replica)
    assert _missed(world) is None


@pytest.mark.parametrize(
    ("left_ms", "end"),
    [(2_400, "without its master, and for 2.4 s more at most"), (None, "without its master")],
)
def test_words_say_how_many_since_when_and_how_long_at_most(left_ms: int | None, end: str) -> None:
    assert own_network_words(None, 4) == ""
    words = own_network_words(MissedMasters(sets=3, silent_ms=15_000, left_ms=left_ms), 4)
    assert words.startswith("OWN_NETWORK: the masters of 3 of 4 sets are silent for up to 15.0 s, since all of their")
    assert words.endswith(f"nobody is elected there until a member is heard {end}")


def test_status_tells_it_in_its_verdict_and_below() -> None:
    down = replace(
        fake_controllers.set_status(condition=Condition.MASTER_SILENT, reason="broker 1 is silent"),
        is_master_missed=True,
    )
    fleet = fake_controllers.fleet_status(sets=(down,))
    missed = MissedMasters(sets=1, silent_ms=4_000, left_ms=None)
    fleet = replace(fleet, controller=replace(fleet.controller, missed=missed))
    assert judge(fleet, ()).verdict == f"DOWN  broker-a does not serve: broker 1 is silent; {MASTER_MISSED_WORDS}"
    assert f"WARNING  {own_network_words(missed, 1)}." in status_report(fleet, ()).parts


def test_explain_without_an_epoch_told_of_the_last_election_alone_while_a_master_was_missed() -> None:
    world = World()
    world.take()
    world.serving_set()
    world.pass_ms(4_000)
    epoch = world.the_view(set_key()).master_epoch
    found = explain(world.records, master_epoch=epoch, freshness=fake_controllers.freshness())
    assert found is not None
    now = set_status(world.the_view(set_key()), world.duties.sessions, last_election_ms=None, now_ns=world.now_ns)
    assert explanation_report(found, now).parts[0] == f"NOW  {MASTER_MISSED_WORDS}; rollcall status says for how long."
    assert "NOW" not in str(explanation_report(found, replace(now, is_master_missed=False)).parts)
