"""
Directed cases of a whole small fleet, for the mutants of ``mutations_elections``: the product's processes, and the stage's
hands.

Here: what must have come of each. Not here: the hands (``tests.scenario.stage``), cases of one machine (``directed``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from rollcall_ha.controller.contract.commands import ElectUnclean
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.state import SetState
from tests.sim.broker import BrokerNode
from tests.sim.violation import must
from tests.sim.world import World
from tests.support.sim_kernel import SECOND

EVERYTHING = 1 << 40


class _Play:
    """Commands of the stage, one after another, and what is known at the end of them."""

    def __init__(self, do: Callable[[str], list[str]], world: Callable[[], World]) -> None:
        self._do, self._world = do, world

    def __call__(self, *commands: str) -> list[str]:
        return [line for command in commands for line in self._do(command)]

    @property
    def world(self) -> World:
        return self._world()

    @property
    def set(self) -> SetState:
        state = self.world.set_state(self.world.keys[0])
        assert state is not None
        return state

    def elect_uncleanly(self, broker_id: int | None = None) -> str:
        """The election in one line of the story: ``MasterElected 3 epoch 2 set (3,) unclean``; empty if there is none."""
        designated = None if broker_id is None else BrokerId(broker_id)
        self.world.order(
            ElectUnclean(set_key=self.world.keys[0], to=designated, accepted_loss_bytes=EVERYTHING, reason="")
        )
        elections = (line.partition("MasterElected")[1:] for line in self("run 60"))
        return next(("".join(election) for election in elections if election[0]), "")


def _node(world: World, name: str) -> BrokerNode:
    node = world.brokers[name].node
    assert node is not None, "it was started"
    return node


@contextmanager
def _play() -> Iterator[_Play]:
    # The stage knows the cases: it can show one to its audience.
    from tests.scenario.stage import Stage

    with closing(Stage()) as stage:
        yield _Play(stage.do, lambda: stage.world)


def outsider_beside_an_intact_member() -> None:
    """3 lacks five messages that {1,2} acknowledged; 1 dies, and 3 is made master by the unclean word while 2 lives."""
    with _play() as play:
        play("world min=1", "until in-sync 3", "send 5", "cut 3 brokers", "run 4000", "send 5", "run 1500")
        must(play.set.sync_state_set == (1, 2), f"3 has left the set: {play.set.sync_state_set}")
        # 2 must not be elected first: the word comes before the silence of 1 is noticed.
        play("heal", "kill 1")
        elected = play.elect_uncleanly(3)
        must(elected == "MasterElected 3 epoch 2 set (3,) unclean", f"R6: an unclean winner stands alone: {elected}")


def winner_that_had_acked() -> None:
    """2 or 3 acks five messages to master 1, which dies: the new master says up to where it had acked."""
    with _play() as play:
        play("world", "until in-sync 3", "send 5", "run 1000")
        end = play.world.brokers["s0r1"].disk.size()
        play("kill 1", "until epoch 2", "run 500")
        grade = play.world.oracle.facts(play.world.keys[0]).grades[play.set.master_epoch]
        must(
            any(f"having acked up to {end}" in fact for fact in grade.facts),
            f"proof: the winner acked {end} bytes to the old master, its grade rests on {grade.facts}",
        )


def longer_log_of_an_older_epoch() -> None:
    """
    {1,2} acknowledge ten messages, of which 3 has five; 3 is elected uncleanly, and acknowledges one more with 1.

    Then 3 is gone, and 1 and 2 are what there is: 2 has more bytes, 1 has what epoch 2 acknowledged.
    """
    with _play() as play:
        play("world min=1", "until in-sync 3", "send 5", "cut 3 brokers", "run 4000", "send 5", "run 1500")
        play("kill 1", "kill 2", "run 2500", "heal")
        must("MasterElected 3" in play.elect_uncleanly(), "3 is elected for want of others")
        play("run 2500", "start 1", "until in-sync 2", "send 1", "run 1500")
        must(play.set.sync_state_set == (1, 3), f"1 has followed 3 and joined: {play.set.sync_state_set}")
        # 1 leaves the set, so that both are outsiders when 3 is gone; 2 never hears of epoch 2.
        play("cut 1 brokers", "run 4000")
        must(play.set.sync_state_set == (3,), f"3 is alone in its set: {play.set.sync_state_set}")
        play("kill 3", "cut 2 brokers", "start 2", "run 3000")
        ends = [play.world.brokers[f"s0r{number}"].disk.size() for number in (1, 2)]
        must(ends[0] < ends[1], f"2 has the longer log: {ends}")
        elected = play.elect_uncleanly()
        must("MasterElected 1 " in elected, f"C4: what epoch 2 acknowledged is with 1, and elected is: {elected}")


def longest_report_of_an_older_epoch() -> None:
    """
    3 and 2 hold a message that 1 never got when 1 is made master of epoch 2, and nobody follows it. All controllers are
    wiped: of the reports, the one of epoch 2 is the newest, though two others are longer.
    """
    with _play() as play:
        play("world", "until in-sync 3")
        master = play.set.master
        behind, other = (number for number in (1, 2, 3) if number != master)
        play("send 5", "run 500", f"cut {master} > {behind}", "send 1 within 60")
        play(f"cut {behind} {other}", f"elect {behind}", "until epoch 2", "run 100")
        ends = {number: play.world.brokers[f"s0r{number}"].disk.size() for number in (1, 2, 3)}
        must(ends[behind] < ends[other], f"the master of epoch 2 has the shorter log: {ends}")
        play("wipe", "start c1 c2 c3", "run 4000")
        won = play.world.oracle.facts(play.world.keys[0]).elections
        first = won[min(epoch for epoch in won if epoch > 2)]
        must(first.master == behind, f"R7: {first.master} is elected, {behind} reported the later epoch")


def master_that_its_slaves_left() -> None:
    """The way between 1, the master, and the controllers is cut; 2 is elected, and 3 follows it."""
    with _play() as play:
        play("world min=2", "until in-sync 3", "send 3", "cut 1 controllers", "until epoch 2", "run 2500")
        replica = _node(play.world, "s0r1").replica
        assert replica is not None, "it was started"
        must(replica.machine.published.state is BrokerState.MASTER, "1 has no view of epoch 2")
        named = replica.status.route.master
        must(named is None, f"R21: a client that asks 1 for the way is sent to {named}, which acknowledges nothing")
        play("heal", "run 1500")
        named = replica.status.route.master
        must(named == play.set.master, f"1 names {named} when the controllers are back")


def missed_master_is_heard() -> None:
    """No controller reaches the set; its slaves are back before the timeout, its master right behind its silence (R13)."""
    # Slaves that are back within three heartbeats were never gone: the master would be cut off alone.
    for cut_ms in range(800, 1_000, 50):
        _missed_master_is_heard(cut_ms)


def _missed_master_is_heard(cut_ms: int) -> None:
    with _play() as play:
        play("world", "until in-sync 3", "run 1000")
        world, before = play.world, play.set
        master = before.master
        brokers = {_node(world, name).broker_id: name for name in world.brokers}

        def each(do: Callable[[str, str], None], *names: str) -> None:
            for controller in world.controllers:
                for name in names:
                    do(controller, name)
                    do(name, controller)

        def is_silent() -> bool:
            replica = None if master is None else play.set.replica(master)
            return replica is not None and not replica.is_alive

        each(world.net.cut, *brokers.values())
        play(f"run {cut_ms}")
        each(world.net.heal, *(name for broker_id, name in brokers.items() if broker_id != master))
        world.kernel.run_until(world.kernel.now_us + SECOND, stop=is_silent)
        each(world.net.heal, *(name for broker_id, name in brokers.items() if broker_id == master))
        play("run 2500")
        after = play.set
        must(
            after.master_epoch == before.master_epoch,
            f"R13: {master} in epoch {before.master_epoch} was back, and in {after.master_epoch} there is {after.master}",
        )


def leader_behind_its_election() -> None:
    """The leading controller is killed as soon as the election of 1's successor is committed."""
    with _play() as play:
        play("world", "until in-sync 3")
        world, leader = play.world, play.world.leader()
        assert leader is not None, "somebody leads"
        records: list[EventRecord] = []
        oracle: Any = world.oracle
        judge = oracle._event

        def heard(record: EventRecord) -> None:
            records.append(record)
            judge(record)

        oracle._event = heard
        killed_us = world.kernel.now_us
        play("kill 1")
        world.kernel.run_until(killed_us + 20 * SECOND, stop=lambda: play.set.master_epoch == 2)
        play(f"kill {leader.name}", "until epoch 2")
        felt_us = world.kernel.now_us - killed_us
        play("run 3000")
        row = history_of(records)[0]
        must(
            row.total_us is not None and row.total_us <= felt_us <= (row.total_us_max or 0),
            f"the outage of {felt_us} us is on record as {row.total_us} to {row.total_us_max}",
        )


def clone_beside_its_original() -> None:
    """A copy of 3's directory is started beside 3, which isolates itself; then the copy is gone."""
    with _play() as play:
        play("world min=1", "until in-sync 3", "send 5", "run 500")
        world = play.world
        world.clone(world.brokers["s0r3"], "s0r3-copy")

        def roles() -> list[str]:
            return [_node(world, name).published.state.value for name in ("s0r3", "s0r3-copy")]

        play("start 3-copy", "run 2500")
        # For longer than an id must be nobody's, and looked at all the while: who fights for it is found at the first blow.
        for _ in range(15):
            play("run 2500")
            must(roles() == ["isolated", "slave"], f"one of two processes with one identity serves: {roles()}")
        play("kill 3-copy", "until in-sync 2", "send 5", "run 20000")
        must(roles()[0] == "isolated", "R3: the start of a supervisor comes first")
        play("run 20000", "until in-sync 3")
        must(play.set.sync_state_set == (1, 2, 3), "the loser of an identity is back once that is nobody's")


FLEET_CASES: dict[str, Callable[[], None]] = {
    "outsider-beside-an-intact-member": outsider_beside_an_intact_member,
    "winner-that-had-acked": winner_that_had_acked,
    "longer-log-of-an-older-epoch": longer_log_of_an_older_epoch,
    "longest-report-of-an-older-epoch": longest_report_of_an_older_epoch,
    "missed-master-is-heard": missed_master_is_heard,
    "leader-behind-its-election": leader_behind_its_election,
    "clone-beside-its-original": clone_beside_its_original,
    "master-that-its-slaves-left": master_that_its_slaves_left,
}
"""By name, as ``directed.CASES``."""
