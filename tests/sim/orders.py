"""
The operator of a scenario: what somebody has to order once the faults are over, because the faults of the plan left
nothing else.

Here: the ids of machines that were thrown away, a set whose every copy a planned fault has harmed, a replica that holds
what such an election gave up. Not here: faults (``faults``), what must hold (``oracle``).
Rule 1: an order needs a fault of the plan, seen on the disks, not the product's word that nothing else is left. A set
that waits for an operator although a member has all it ever had is a violation, and so is a false alarm.
Rule 2: everything that is ordered here is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollcall_ha.controller.contract.commands import (
    ApplySettings,
    BeginMaintenance,
    CleanReplicas,
    ConfigureSet,
    EndMaintenance,
    PauseElections,
    ResumeElections,
)
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.settings import changes, settings_of
from rollcall_ha.controller.contract.values import MaintenanceScope
from rollcall_ha.controller.core.settings import settings_in_force, version_in_force, wanted
from rollcall_ha.controller.core.state import SetState
from rollcall_ha.controller.core.views import condition_of
from tests.support.sim_kernel import SECOND

if TYPE_CHECKING:
    from tests.sim.world import World


class Operator:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stuck_since_us: dict[SetKey, int] = {}
        self._configured: set[SetKey] = set()

    def act(self) -> None:
        """Look, and order what is due."""
        self._clean_gone()
        self._clean_namesakes()
        self._end_pauses()
        self._end_maintenances()
        self._end_settings()
        self._end_configurations()
        self.replace_rotten()
        for key in self._world.keys:
            self._elect_uncleanly(key)
        self._empty_isolated()

    def pause(self, key: SetKey | None, *, for_ms: int) -> None:
        """``rollcall pause``, by the clock of the leader that takes the order."""
        world, leader = self._world, self._world.leader()
        if leader is not None:
            world.order(PauseElections(set_key=key, expires_at_ms=leader.service.ports.wall_ms() + for_ms))

    def _end_pauses(self) -> None:
        """A leader's clock that was set back would keep them for as long."""
        state = self._world.oracle.state
        if state is None or self._world.leader() is None:
            return
        for key in state.pauses:
            self._world.order(ResumeElections(set_key=key))

    def maintain(self, key: SetKey, broker_id: BrokerId, *, for_ms: int) -> None:
        """``rollcall maintenance begin --spend-last``, by the clock of the leader that takes the order."""
        world, leader = self._world, self._world.leader()
        if leader is not None:
            scope = MaintenanceScope(set_key=key, broker_id=broker_id)
            expires_at_ms = leader.service.ports.wall_ms() + for_ms
            world.order(BeginMaintenance(scope=scope, expires_at_ms=expires_at_ms, spends_last=True))

    def _end_maintenances(self) -> None:
        """As with pauses; and a set whose only members are in maintenance would have no master."""
        state = self._world.oracle.state
        if state is None or self._world.leader() is None:
            return
        for scope in state.maintenances:
            self._world.order(EndMaintenance(scope=scope))

    def change_settings(self, **values: int) -> None:
        """``rollcall config apply``, of what is in force at the leader that takes the order."""
        world, leader = self._world, self._world.leader()
        if leader is not None:
            state, live = leader.service.published.state, leader.service.live
            settings, version = wanted(state, live.founded, values=values), version_in_force(state)
            world.order(
                ApplySettings(settings=settings, expected_version=version, file=live.file, founded=live.founded)
            )

    def configure(self, key: SetKey, least: int) -> None:
        """``rollcall config set SET --min-in-sync``."""
        if self._world.leader() is not None:
            self._configured.add(key)
            self._world.order(ConfigureSet(set_key=key, min_in_sync=least))

    def _end_configurations(self) -> None:
        state, least = self._world.oracle.state, self._world.shape.min_in_sync
        if state is None or self._world.leader() is None:
            return
        for key in sorted(self._configured):
            configuration = state.sets[key].configuration if key in state.sets else None
            if configuration is not None and configuration.min_in_sync != least:
                self.configure(key, least)

    def _end_settings(self) -> None:
        """What is judged from here on has the deadlines of the file."""
        state = self._world.oracle.state
        applied = None if state is None else settings_in_force(state)
        founded = settings_of(self._world.timing)
        differing = () if applied is None else changes(applied.settings, founded)
        if differing and self._world.leader() is not None:
            self.change_settings(**{one.key: one.after for one in differing})

    def replace_rotten(self) -> None:
        """What the product's alarm of a damaged log asks for: a master with a good copy, then another disk."""
        world = self._world
        for broker in world.brokers.values():
            node, state = broker.node, world.set_state(broker.plan.set_key)
            if not broker.disk.rotten or node is None or not node.alarms or state is None:
                continue
            good = [one for one in world.good_copies(broker) if one in state.sync_state_set]
            if state.master == node.broker_id and good:
                # Its slaves refuse the record: while it reigns, nobody who needs it gets in sync.
                world.elect(broker.plan.set_key, good[0])
            elif world.is_spare(broker):
                world.counts.add("rotten replicas replaced after an alarm")
                world.replace(broker)

    def _clean_gone(self) -> None:
        """``rollcall clean`` of the ids of machines that were replaced."""
        world = self._world
        for key, broker_id in world.gone if world.leader() is not None else ():
            state = world.set_state(key)
            recovering = state.recovery if state is not None else None
            awaited = recovering.awaited if recovering is not None else ()
            if state is None or (state.replica(broker_id) is None and broker_id not in awaited):
                continue
            # While a set recovers its past, only the unclean word says that one whom its replicas name will never come
            # (R7), nor one that has told of a longer log than theirs and is gone since.
            is_unclean = recovering is not None
            world.order(CleanReplicas(set_key=key, broker_ids=(broker_id,), is_unclean=is_unclean, reason="gone"))

    def _clean_namesakes(self) -> None:
        """
        An id that replicas name, which an empty machine got of wiped controllers, and whose first machine is gone.

        Nobody else knows that the first one never comes. Its namesake is stopped, as no living replica is cleaned, and
        asks for an id of its own when it is back.
        """
        world = self._world
        for key in world.keys if world.leader() is not None else ():
            state = world.set_state(key)
            if state is None or state.recovery is None:
                continue
            for broker_id in state.recovery.awaited:
                replica, machine = state.replica(broker_id), world.holder(key, broker_id)
                if replica is None or machine is None or (key, broker_id) not in world.replaced:
                    continue
                if replica.is_alive:
                    world.kill(machine)
                else:
                    clean = CleanReplicas(set_key=key, broker_ids=(broker_id,), is_unclean=True, reason="gone")
                    world.order(clean)
                    world.start_later(machine)

    def _elect_uncleanly(self, key: SetKey) -> None:
        """Where no member is left whose disk kept everything: a second after everybody is back and heard."""
        world = self._world
        state = world.set_state(key)
        if state is None or not self._is_without_candidates(key, state) or not self._has_lost_every_copy(key, state):
            self._stuck_since_us.pop(key, None)
        elif world.kernel.now_us - self._stuck_since_us.setdefault(key, world.kernel.now_us) >= SECOND:
            world.counts.add("unclean elections asked for")
            world.elect(key, self._least_harmed(key), accepted_loss_bytes=1 << 40)

    def _least_harmed(self, key: SetKey) -> BrokerId | None:
        """Whom an operator names who has read the alarms; None: the controllers choose."""
        world = self._world
        for broker in world.brokers.values():
            if broker.plan.set_key == key and broker.disk.rotten and broker.node is not None and broker.node.alarms:
                # Of the longest log nobody could copy the rotten record, and all behind it: the set would stay alone.
                good = world.good_copies(broker)
                return next((one for one in self._voters(key) if one in good), None)
        return None

    def _voters(self, key: SetKey) -> list[BrokerId]:
        """Whom an order may name, the longest log first."""
        state = self._world.set_state(key)
        ends = [
            (one.positions.last_epoch, one.positions.max_offset, one.broker_id)
            for one in (state.replicas if state is not None else ())
            if one.is_voter and one.positions is not None
        ]
        return [broker_id for *_, broker_id in sorted(ends, reverse=True)]

    def _is_without_candidates(self, key: SetKey, state: SetState) -> bool:
        # An id whose grant was lost on its way is no machine's: nobody waits for it to come back.
        away = [one.broker_id for one in state.replicas if not one.is_alive and self._world.has_had(key, one.broker_id)]
        is_stuck = condition_of(state)[0] is Condition.NO_ELIGIBLE_REPLICA
        return is_stuck and all((key, broker_id) in self._world.gone for broker_id in away)

    def _has_lost_every_copy(self, key: SetKey, state: SetState) -> bool:
        """By the faults of the plan: each member has lost something, or may have, since it was one."""
        facts = self._world.oracle.facts(key)
        members: set[BrokerId] = {*state.sync_state_set, *state.fallen}
        doubtful: set[BrokerId] = set()
        if facts.watch is not None:
            # What the controllers have forgotten, the scenario has not: these had fallen, or lost something since.
            members, doubtful = set(facts.watch.members), facts.watch.doubtful
        return all(one in doubtful or self._world.is_harmed(key, one) for one in sorted(members))

    def _empty_isolated(self) -> None:
        """
        A replica that will not cut what it knows to be confirmed (R26) gets an empty disk.

        Due only where controllers that had lost their memory elected a replica of which they had forgotten that it was
        a suspect (R7): no unclean epoch is known then.
        """
        world = self._world
        for broker in world.brokers.values():
            node = broker.node
            if node is None or not broker.process.is_alive or node.published.state is not BrokerState.ISOLATED:
                continue
            if world.oracle.facts(broker.plan.set_key).forgot_a_loss:
                world.counts.add("isolated replicas emptied")
                world.kill(broker)
                broker.replaced()
                world.start(broker)
