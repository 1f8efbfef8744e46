"""
An operator who adds, removes and replaces controllers while a fleet runs, and what dies at each step.

Here: the plan from one controller to three, to five and back to three, orders as REST gives them, kills in the middle of
each. The votes of new ones are the product's (``controller.runtime.seating``). Not here: other faults (``faults``), the
law of the steps (``members.MembersJudge``).
Rule: nobody stops a controller that was removed, and its supervisor starts it again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rollcall_ha.controller.contract.commands import ChangeControllers
from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.controller.replication.proposer import ProposeError
from rollcall_ha.controller.replication.raft.catch_up import CATCHING_UP_FILE_NAME
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.seating import carry_out_change, refusal_of
from tests.support.sim_kernel import MS

if TYPE_CHECKING:
    from tests.sim.controller import ControllerNode
    from tests.sim.raft import RaftQuorum
    from tests.sim.world import ControllerMachine, World

SEATS = ("c1", "c2", "c3", "c4", "c5", "c6")
GOALS = (SEATS[:3], SEATS[:5], ("c3", "c5", "c6"))
"""c1 alone has founded the fleet. c6 takes the place of two that were added before, and of the founder."""
LOOK_MS = (40, 300)
"""Between two looks of the operator."""
KILL_PROBABILITY = 0.6
"""Of a step, in the middle."""
KILL_MS_MAX = 120
"""After the order."""
AWAY_MS_MAX = 1_500


class Seats:
    """Of one world, until ``until_us``; then ``act`` goes on without kills."""

    def __init__(self, world: World, until_us: int) -> None:
        self._world = world
        self._kernel = world.kernel
        self._until_us = until_us
        self._goals = list(GOALS)
        self._files: dict[str, frozenset[str]] = {}
        self._again()

    @property
    def goal(self) -> tuple[str, ...]:
        """The controllers that the operator wants now."""
        return self._goals[0] if self._goals else GOALS[-1]

    def unsettled(self) -> str:
        """What is not as the operator wants it; empty: all is."""
        members = self._quorum.judge.newest
        voters = tuple(seat.name for seat in members.voters)
        if self._goals or voters != GOALS[-1] or members.learners:
            return f"the controllers are {voters}, and {len(self._goals)} goals are left"
        return ""

    @property
    def _quorum(self) -> RaftQuorum:
        from tests.sim.raft import RaftQuorum

        quorum = self._world.quorum
        assert isinstance(quorum, RaftQuorum)
        return quorum

    # --- what an operator writes and loses ---

    def by_fleet_file(self, name: str) -> frozenset[str]:
        """The controllers in its fleet file."""
        return self._files.get(name, frozenset((*self._world.founder_names, name)))

    def can_lose(self, machine: ControllerMachine) -> bool:
        """Whether all that a voter knew is known to a majority without it, which has its memory: of three or more."""
        leader = self._world.leader()
        if leader is None:
            return False
        members = leader.log.members
        others = [self._world.controllers[seat.name] for seat in members.voters if seat.name != machine.name]
        remember = [one for one in others if one.disk.names() and not one.disk.exists(CATCHING_UP_FILE_NAME)]
        return members.is_voter(machine.name) and len(others) >= 2 and remember == others

    def wiped(self, machine: ControllerMachine) -> None:
        """It gets a fleet file of today with its new disk: a founder's own names it alone, and it would not start."""
        voters = (seat.name for seat in self._quorum.judge.newest.voters)
        self._files[machine.name] = frozenset((*voters, machine.name))

    # --- orders ---

    def _again(self) -> None:
        self._kernel.after(self._kernel.random.randrange(*LOOK_MS) * MS, "seats", self._look)

    def _look(self) -> None:
        if self._kernel.now_us >= self._until_us:
            return
        self._again()
        if self.act() and self._kernel.chance(KILL_PROBABILITY):
            delay_us = self._kernel.random.randrange(KILL_MS_MAX) * MS
            self._kernel.after(delay_us, "kill in a change", self._hurt)

    def act(self) -> bool:
        """One order towards the goal, as ``rollcall controllers``; whether there was something to order or to wait for."""
        leader = self._world.leader()
        if leader is None or not self._goals:
            return False
        members, goal = leader.log.members, self._goals[0]
        voters = tuple(seat.name for seat in members.voters)
        missing = [name for name in goal if not members.is_voter(name) and not members.is_learner(name)]
        extra = [name for name in voters if name not in goal]
        if voters == goal and not members.learners:
            if self._quorum.judge.newest == members:
                self._kernel.counts.add(f"groups of {len(goal)} controllers reached")
                self._goals.pop(0)
            return False
        if members.learners:
            return True
        if missing:
            name, number = missing[0], self._world.controller_names.index(missing[0])
            self._world.start(self._world.controllers[name])
            # On loopback: the simulated fleet is insecure.
            command = ChangeControllers(
                verb=MembershipVerb.ADD,
                name=ControllerName(name),
                raft=f"127.0.0.1:{100 + number}",
                broker=self._world.broker_ports[ControllerName(name)],
                rest=f"127.0.0.1:{200 + number}",
            )
            self._order(leader, command)
        elif leader.name in extra:
            self._move_lead(leader, [name for name in voters if name in goal])
        else:
            self._order(leader, ChangeControllers(verb=MembershipVerb.REMOVE, name=ControllerName(extra[0])))
        return True

    def _move_lead(self, leader: ControllerNode, heirs: list[str]) -> None:
        heir = ControllerName(self._kernel.random.choice(heirs))
        self._kernel.counts.add("leads moved to remove their holders")
        leader.process.run("transfer", lambda: leader.log.hand_over(heir, lambda _how: None))

    def _order(self, leader: ControllerNode, command: ChangeControllers) -> None:
        leader.loop.create_task(self._carry_out(leader, command))

    async def _carry_out(self, leader: ControllerNode, command: ChangeControllers) -> None:
        """As ``api.rest.orders``."""
        service, counts = leader.service, self._kernel.counts
        request_id = RequestId(self._kernel.hex_digits(16))
        if refusal_of(service, command) is not None:
            counts.add("changes of controllers refused")
            return
        try:
            reply = await service.submit(command, request_id=request_id, requested_by="admin:sim")
            if isinstance(reply, Refused):
                return
            answer = await carry_out_change(service, command, request_id)
        except (NoAuthority, ProposeError):
            counts.add("changes of controllers without an outcome")
            return
        counts.add("changes of controllers refused", int(isinstance(answer, Refused)))

    # --- kills ---

    def _hurt(self) -> None:
        """The leader, the one that comes, any other, or all of them, while a change is under way."""
        world, random = self._world, self._kernel.random
        if self._kernel.now_us >= self._until_us:
            return
        leader, newest = world.leader(), self._quorum.judge.newest
        alive = [one for one in world.controllers.values() if one.process.is_alive]
        learners = [world.controllers[seat.name] for seat in newest.learners]
        some = [alive, learners or alive, alive if leader is None else [world.controllers[leader.name]]]
        victims = alive if self._kernel.chance(0.15) or not alive else [random.choice(random.choice(some))]
        for machine in victims:
            if self._kernel.chance(0.5):
                world.kill(machine)
            else:
                world.lose_power(machine)
            self._kernel.after(random.randrange(20, AWAY_MS_MAX) * MS, "restart", partial(world.start, machine))
        self._kernel.counts.add("controllers killed in the middle of a change", len(victims))
