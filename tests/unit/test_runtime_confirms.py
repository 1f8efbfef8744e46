"""The confirm that the leader hears, and against whom it holds it (R3)."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from rollcall_ha.controller.contract.commands import NoteConfirms
from rollcall_ha.controller.contract.events import ElectionFailed, MasterElected
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.timing import PRESETS
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.runtime.confirms import CONFIRMS_PER_ENTRY_MAX, NOTE_PERIOD_MS
from tests.support.runtime_world import Replica, World, led_set, set_key

KEY = set_key()


def tell(world: World, replica: Replica, end: int, confirm: int) -> None:
    """A heartbeat with these offsets, in the reign of now."""
    replica.end, replica.confirm, replica.last_epoch = LogOffset(end), LogOffset(confirm), MasterEpoch(1)
    replica.known_epoch = world.the_view(KEY).master_epoch
    assert world.beat(replica) is None


def evidence(world: World) -> Evidence:
    return world.duties.sessions.evidence(
        world.the_view(KEY), now_ns=world.now_ns, triggered_by=None, stamps=None, draw=0
    )


def owed(world: World) -> dict[int, object]:
    """By replica, what it must hold."""
    return {seen.broker_id: seen.confirmed_before for seen in evidence(world).replicas}


def test_a_confirm_counts_against_the_word_behind_the_next_answer() -> None:
    """An honest slave told 1,000; the master's 1,400 came later, and the slave had them by then."""
    world, (master, slave, _) = led_set()
    tell(world, slave, 1_000, 900)
    tell(world, master, 1_400, 1_400)
    assert owed(world)[slave.broker_id] is UNSET

    tell(world, slave, 1_400, 1_300)  # answered when 1,400 was known: the next word must reach it
    assert owed(world)[slave.broker_id] == 900
    tell(world, slave, 1_400, 1_300)
    assert owed(world)[slave.broker_id] == 1_400
    assert evidence(world).confirmed == 1_400


def test_a_slave_that_told_less_than_its_master_a_moment_ago_is_elected_at_once() -> None:
    """Each failover of a busy set would have waited for one more heartbeat. Their words are from before the master's."""
    world, (master, slave, third) = led_set()
    for end in range(1_000, 6_000, 1_000):
        tell(world, master, end, end)
        tell(world, slave, end - 500, end - 900)
        tell(world, third, end - 500, end - 900)
    world.close(master)
    world.report_link(slave, master)
    world.refuse_probe()

    assert not any(isinstance(record.event, ElectionFailed) for record in world.records)
    elected = [record.event for record in world.records if isinstance(record.event, MasterElected)][-1]
    assert elected.master in (slave.broker_id, third.broker_id)
    assert set(elected.sync_state_set) == {slave.broker_id, third.broker_id}


def test_the_word_of_a_master_that_is_gone_stays() -> None:
    """Its session ends, a new process of the slave registers: nothing of that makes its word unheard."""
    world, (master, slave, _) = led_set()
    tell(world, master, 3_000, 3_000)
    world.close(master)
    copy = world.register(KEY, int(slave.broker_id), incarnation="copy", end=3_000)
    tell(world, copy, 1_600, 1_600)

    assert owed(world)[copy.broker_id] == 3_000


def test_a_copy_is_not_elected_and_the_whole_member_is() -> None:
    """Both brokers died, the one with the older copy is back first; nobody is elected before the whole one came."""
    world, replicas = led_set()
    master, stale, third = replicas
    for replica in replicas:
        tell(world, replica, 3_000, 3_000)
    world.pass_ms(PRESETS[world.timing_name].heartbeat_timeout_ms + 500)
    # Judged intact: what a leader has heard is told with a registration by ``broker_requests``, and not here.
    copy = world.register(KEY, int(stale.broker_id), incarnation="copy", end=3_000)
    before = len(world.records)
    for _ in range(3):
        tell(world, copy, 1_600, 1_600)
        world.pass_ms(500)
    since = [record.event for record in world.records[before:]]
    assert not any(isinstance(event, MasterElected) for event in since)

    whole = world.register(KEY, int(third.broker_id), incarnation="whole", end=3_000)
    tell(world, whole, 3_000, 3_000)

    elected = [record.event for record in world.records[before:] if isinstance(record.event, MasterElected)]
    assert [event.master for event in elected] == [whole.broker_id]
    assert copy.broker_id not in elected[0].sync_state_set
    assert master.broker_id != whole.broker_id


def test_a_confirm_of_another_reign_or_of_nobody_who_counts_is_not_kept() -> None:
    """Behind an unclean election the confirm of before is that of bytes which no log has any more."""
    world, (master, slave, third) = led_set()
    tell(world, master, 3_000, 3_000)
    slave.end = slave.confirm = LogOffset(5_000)  # it knows no view yet
    slave.last_epoch = MasterEpoch(1)
    assert world.beat(slave) is None
    assert evidence(world).confirmed == 3_000

    world.pass_ms(PRESETS[world.timing_name].heartbeat_timeout_ms + 500, slave, third)
    assert world.the_view(KEY).master_epoch == 2
    assert evidence(world).confirmed is UNSET
    assert set(owed(world).values()) == {UNSET}


def test_who_was_no_member_when_it_was_answered_owes_nothing() -> None:
    """It had told 10 while it caught up, joined, and its master died: it holds every byte, and told 10."""
    world, (master, slave, third) = led_set()
    tell(world, master, 3_000, 3_000)
    key = world.state.sets[KEY]
    outside = world.register(KEY, 4)
    assert outside.broker_id not in key.sync_state_set
    tell(world, outside, 10, 10)
    tell(world, outside, 10, 10)

    assert owed(world)[outside.broker_id] is UNSET
    assert not any(isinstance(record.event, ElectionFailed) for record in world.records)
    assert slave.broker_id != third.broker_id


# --- what is put into replicated state -----------------------------------------------------------------------------------


def noted(world: World) -> list[int]:
    """Sets that each entry told of."""
    commands = [proposal.command for proposal in world.proposals]
    return [len(command.confirms) for command in commands if isinstance(command, NoteConfirms)]


def test_what_grew_is_noted_once_in_a_period_and_what_stands_still_is_not() -> None:
    world, (master, slave, third) = led_set()
    world.pass_ms(200, master, slave, third)
    for end in range(1_000, 4_000, 10):  # 30 s of sends
        tell(world, master, end, end)
        world.pass_ms(100, slave, third)
    assert noted(world) == [1, 1, 1]
    world.pass_ms(NOTE_PERIOD_MS, master, slave, third)
    assert noted(world) == [1, 1, 1, 1]
    assert world.state.sets[KEY].known_confirm == 3_990

    world.pass_ms(5 * NOTE_PERIOD_MS, master, slave, third)
    assert noted(world) == [1, 1, 1, 1]


@pytest.mark.slow
def test_many_sets_share_entries_and_a_lost_one_is_repeated() -> None:
    """An idle set whose one entry was lost would be unknown until it is written to again."""
    world = World()
    world.take()
    masters = [world.serving_set(f"broker-{number:04}", size=1)[0] for number in range(CONFIRMS_PER_ENTRY_MAX + 5)]
    world.pass_ms(200, *masters)
    world.applies = False
    for master in masters:
        master.end = master.confirm = LogOffset(700)
        master.known_epoch = MasterEpoch(1)
        world.beat(master)
    world.pass_ms(NOTE_PERIOD_MS, *masters)
    assert noted(world) == [CONFIRMS_PER_ENTRY_MAX, 5]
    lost, world.waiting, world.applies = world.waiting, [], True
    for proposal in lost:
        world.lose(proposal)

    world.pass_ms(NOTE_PERIOD_MS + 200, *masters)
    assert noted(world)[2:] == [CONFIRMS_PER_ENTRY_MAX, 5]
    assert {found.known_confirm for found in world.state.sets.values()} == {700}
