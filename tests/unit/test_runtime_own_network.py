"""Masters that fell silent with all others: which are awaited, for how long, and which are replaced at once."""

from __future__ import annotations

import pytest

from tests.support.runtime_world import Replica, World, led_set


def missed() -> tuple[World, Replica, Replica, Replica, int]:
    """A set whose replicas fell silent at once and were found: the master, a slave that knows it, the other, the events."""
    world, (master, slave, other) = led_set()
    slave.known_epoch = world.the_view(master.key).master_epoch
    world.pass_ms(4_000)
    return world, master, slave, other, len(world.records)


def hear(world: World, *slaves: Replica, ms: int = 100) -> None:
    """These slaves beat each 100 ms, and had bytes from their master 20 ms ago."""
    for _ in range(ms // 100):
        world.run_loop(100)
        for slave in slaves:
            world.beat(slave, master_heard_ms=20)
        world.tick()


def test_a_cut_between_controllers_and_brokers_deposed_a_healthy_master_when_it_ended() -> None:
    """Its slave was back first. It hears the master: elected is nobody, and the master goes on in its epoch."""
    world, master, slave, _, since = missed()
    assert world.kinds()[-1] == "election-failed"
    hear(world, slave, ms=2_000)
    world.beat(master)
    world.pass_ms(2_000, master, slave)

    assert "master-elected" not in world.kinds(since)
    view = world.the_view(master.key)
    assert (view.master, view.condition.has_master) == (master.broker_id, True)


def test_a_missed_master_is_awaited_for_one_timeout_and_no_longer() -> None:
    """A slave may hear it for ever while controllers do not: it is cut off from them alone."""
    world, _, slave, _, since = missed()
    began_ms = world.now_ms
    while "master-elected" not in world.kinds(since) and world.now_ms < began_ms + 10_000:
        hear(world, slave)
    assert 3_000 <= world.now_ms - began_ms <= 3_200


def test_a_master_that_hung_while_all_were_cut_off_is_found_at_once() -> None:
    world, _, slave, _, since = missed()
    world.beat(slave, master_heard_ms=3_900)
    assert "master-elected" in world.kinds(since)


def test_a_master_that_controllers_alone_do_not_hear_is_not_missed() -> None:
    """Its slaves were heard all the time: it is the master's network, not the leader's."""
    world, (master, *slaves) = led_set()
    for slave in slaves:
        slave.known_epoch = world.the_view(master.key).master_epoch
    since = len(world.records)
    hear(world, *slaves, ms=4_000)
    assert "master-elected" in world.kinds(since)


def test_a_master_that_fell_silent_with_most_of_the_fleet_is_awaited_although_its_slave_is_heard() -> None:
    world, (master, slave, other) = led_set()
    rest = [replica for name in ("broker-b", "broker-c") for replica in world.serving_set(name)]
    slave.known_epoch = world.the_view(master.key).master_epoch
    since = len(world.records)
    hear(world, slave, ms=3_500)
    for replica in (master, slave, other, *rest):
        world.beat(replica)
    world.pass_ms(1_000, master, slave, other, *rest)
    assert "master-elected" not in world.kinds(since)


def test_a_cut_that_ended_just_before_the_timeout_deposed_the_master_whose_slaves_were_heard_first() -> None:
    """Silent were all of them: heartbeats of 100 ms ago do not make it the master's own network."""
    world, (master, *slaves) = led_set()
    slaves[0].known_epoch = world.the_view(master.key).master_epoch
    since = len(world.records)
    world.pass_ms(2_900)
    for _ in range(3):
        world.beat(slaves[0], master_heard_ms=20)
        world.beat(slaves[1])
        world.run_loop(100)
        world.tick()
    assert "replica-silent" in world.kinds(since)
    world.beat(master)
    world.pass_ms(1_000, master, *slaves)
    assert "master-elected" not in world.kinds(since)


def test_a_cut_from_most_of_a_fleet_that_ended_just_before_the_timeout_deposed_its_masters() -> None:
    """One slave of the set was never cut off, and the others of the fleet are back already."""
    world, (master, slave, other) = led_set()
    rest = [replica for name in ("broker-b", "broker-c") for replica in world.serving_set(name)]
    slave.known_epoch = world.the_view(master.key).master_epoch
    since = len(world.records)
    for step in range(31):
        world.run_loop(100)
        world.beat(slave, master_heard_ms=20)
        for replica in (other, *rest) if step >= 28 else ():
            world.beat(replica)
        world.tick()
    assert "replica-silent" in world.kinds(since)
    world.beat(master)
    world.pass_ms(1_000, master, slave, other, *rest)
    assert "master-elected" not in world.kinds(since)


def test_a_slave_that_hung_for_a_moment_bears_witness_after_one_timeout() -> None:
    """Later the master alone is cut off from controllers: it is not missed."""
    world, (master, slave, _) = led_set()
    slave.known_epoch = world.the_view(master.key).master_epoch
    world.pass_ms(2_000, master)
    world.pass_ms(200, master, slave)
    since = len(world.records)
    hear(world, slave, ms=3_100)
    assert "master-elected" in world.kinds(since)


def test_a_master_that_was_killed_while_it_was_awaited_is_replaced_at_once() -> None:
    """The kernel closed its links: that is other evidence than silence."""
    world, master, slave, _, since = missed()
    world.beat(slave, master_heard_ms=20)
    world.pass_ms(100)
    assert "master-elected" not in world.kinds(since)
    world.report_link(slave, master, closed_ms=10, heard_ms=20)
    world.pass_ms(100)
    assert "master-elected" in world.kinds(since)


def test_a_master_that_was_killed_while_a_new_leader_awaited_it_is_replaced_at_once() -> None:
    world, master, slave, _, since = missed()
    world.take()
    world.beat(slave, master_heard_ms=20)
    world.report_link(slave, master, closed_ms=0)
    world.pass_ms(100)
    assert "master-elected" in world.kinds(since)


def test_a_link_that_ended_before_the_last_bytes_does_not_end_the_wait() -> None:
    """One slave lost its link and opened no other yet; the other one hears the master."""
    world, master, slave, other, since = missed()
    world.beat(slave, master_heard_ms=20)
    world.report_link(other, master, closed_ms=500, heard_ms=510)
    world.pass_ms(100)
    assert "master-elected" not in world.kinds(since)


def test_a_new_leader_awaits_a_master_that_the_last_one_found_silent() -> None:
    """It has not seen why, and the slave's word says that it lives."""
    world, master, slave, _, since = missed()
    world.take()
    world.beat(slave, master_heard_ms=20)
    world.beat(slave, master_heard_ms=20)
    world.beat(master)
    world.pass_ms(1_000, master, slave)
    assert "master-elected" not in world.kinds(since)


@pytest.mark.parametrize("slaves_back_ms", [2_900, 400])
def test_a_leader_that_began_within_a_cut_deposed_the_master_whose_slaves_were_heard_first(slaves_back_ms: int) -> None:
    """It had heard nobody before the cut ended: its first heartbeats looked like those of slaves that were never gone."""
    world, (master, *slaves) = led_set()
    for slave in slaves:
        slave.known_epoch = world.the_view(master.key).master_epoch
    world.duties.stand_down()
    world.take()
    since = len(world.records)
    world.pass_ms(slaves_back_ms)
    hear(world, *slaves, ms=3_200 - slaves_back_ms)
    assert "replica-silent" in world.kinds(since)
    world.pass_ms(1_000, master, *slaves)
    assert "master-elected" not in world.kinds(since)


def test_a_missed_master_was_deposed_by_its_own_first_heartbeat() -> None:
    """Heard 20 ms after its silence was applied, it was neither awaited any more nor alive yet."""
    world, (master, slave, _) = led_set()
    slave.known_epoch = world.the_view(master.key).master_epoch
    world.take()
    since = len(world.records)
    world.pass_ms(2_900)
    while "replica-silent" not in world.kinds(since):
        world.run_loop(20)
        world.beat(slave, master_heard_ms=20)
        world.tick()
    world.run_loop(20)
    world.beat(master)
    world.pass_ms(1_000, master, slave, step_ms=20)
    assert "master-elected" not in world.kinds(since)
    assert "replica-alive" in world.kinds(since)
