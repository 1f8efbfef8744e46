"""
Plans of moves: which masters of many sets go where.

Here: pure functions of the sets as the leader shows them. Not here: who could be elected
(``controller.contract.hosts``), ordering the switchovers (``cli.moving``), what each of them may do
(``controller.core.decide_switchover``, which decides).

Rule 1: a master goes to a replica that could be elected now. A set whose failure budget is below the limit stays as
it is.
Rule 2: preferences are those of an election (``controller.core.policies``): the zone of the present master, then the
smallest priority; among replicas that are equal in both, the host with the fewest masters.
Rule 3: a plan depends on the values alone, not on their order; carried out, it is followed by an empty one.
Rule 4: a host is the host of a replica's address, as with maintenances.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from rollcall_ha.controller.contract.hosts import heirs, master_of, spare_of
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, ReplicaKind, SetKey
from rollcall_ha.controller.contract.labels import in_words, label, names_of
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import MaintenanceScope, Value, host_of
from rollcall_ha.controller.contract.views import ReplicaStatus, SetStatus

BUDGET_LEAST = 1
"""What a set that is moved may lose: a target that dies while it is elected must not take the set with it."""


class Move(Value):
    """One switchover of a plan, with the master and epoch that it is planned for."""

    set_key: SetKey
    master: BrokerId
    master_epoch: MasterEpoch
    to: BrokerId
    from_host: str
    to_host: str
    names: dict[BrokerId, str] = msgspec.field(default_factory=dict)
    """Of the brokers of the set."""


class Left(Value):
    """A set that should be moved, and is not."""

    set_key: SetKey
    reason: str


class Plan(Value):
    """What a batch would do, in the order of the sets' keys."""

    moves: tuple[Move, ...]
    left: tuple[Left, ...]

    @property
    def keys(self) -> frozenset[SetKey]:
        """Every set that it says something about."""
        return frozenset([one.set_key for one in self.moves] + [one.set_key for one in self.left])


def plan_drain(sets: Iterable[SetStatus], scope: MaintenanceScope, *, budget_least: int = BUDGET_LEAST) -> Plan:
    """Move every master on a host to a replica elsewhere; of a replica alone, its mastership to another one."""
    every, host = _by_key(sets), scope.host
    masters = _masters_by_host(every)
    moves, left = [], []
    for status in every:
        master = master_of(status)
        if master is None or not is_in(scope, status, master):
            continue
        targets = [one for one in heirs(status) if not is_in(scope, status, one)]
        reason = why_not(status, budget_least=budget_least) or ("" if targets else _nobody(status, host))
        if reason:
            left.append(Left(set_key=status.view.set_key, reason=reason))
            continue
        best = min(_preference(master, one) for one in targets)
        equal = [one for one in targets if _preference(master, one) == best]
        target = min(equal, key=lambda one: (masters.get(host_of(one.address), 0), one.broker_id))
        masters[host_of(target.address)] = masters.get(host_of(target.address), 0) + 1
        moves.append(move_of(status, master, target))
    return Plan(moves=tuple(moves), left=tuple(left))


def plan_rebalance(sets: Iterable[SetStatus], *, budget_least: int = BUDGET_LEAST) -> Plan:
    """
    Spread masters over hosts as evenly as preferences allow (rule 2), with few moves.

    Afterwards no chain of moves that preferences allow takes a master from one host to another with two fewer.
    """
    every = [status for status in _by_key(sets) if master_of(status) is not None]
    spread, left = _Spread(), []
    for status in every:
        master = master_of(status)
        assert master is not None
        places = _preferred(status, master)
        reason = why_not(status, budget_least=budget_least)
        if reason:
            # It counts where it is, and is told of only if it was not where it is preferred.
            if host_of(master.address) not in places:
                left.append(Left(set_key=status.view.set_key, reason=reason))
            spread.put(status.view.set_key, host_of(master.address), (host_of(master.address),))
            continue
        home = host_of(master.address)
        # The first of equals by load would depend on sets that come later: begun anywhere, the chains even it out.
        spread.put(status.view.set_key, home if home in places else min(places), tuple(places))
    spread.even_out()
    moves = []
    for status in every:
        master = master_of(status)
        assert master is not None
        host = spread.host_of_set[status.view.set_key]
        if host == host_of(master.address):
            continue
        moves.append(move_of(status, master, _preferred(status, master)[host]))
    return Plan(moves=tuple(moves), left=tuple(left))


class _Spread(msgspec.Struct):
    """Sets on hosts, each with the hosts that it may be on."""

    host_of_set: dict[SetKey, str] = msgspec.field(default_factory=dict)
    _loads: dict[str, int] = msgspec.field(default_factory=dict)
    _places: dict[SetKey, tuple[str, ...]] = msgspec.field(default_factory=dict)
    _movable: dict[str, dict[str, dict[SetKey, None]]] = msgspec.field(default_factory=dict)
    """From host to host: the sets that may go."""

    def put(self, key: SetKey, host: str, places: Sequence[str]) -> None:
        """``key`` is on ``host``."""
        self._places[key] = tuple(places)
        for place in (host, *places):
            self._loads.setdefault(place, 0)
        self._add(key, host)

    def _add(self, key: SetKey, host: str) -> None:
        self.host_of_set[key] = host
        self._loads[host] += 1
        for place in self._places[key]:
            if place != host:
                self._movable.setdefault(host, {}).setdefault(place, {})[key] = None

    def _shift(self, source: str, target: str) -> None:
        key = min(self._movable[source][target])
        for keys in self._movable[source].values():
            keys.pop(key, None)
        self._loads[source] -= 1
        self._add(key, target)

    def even_out(self) -> None:
        """Shift sets along chains until no host has two more than one that it could give to."""
        while (path := self._uneven_path()) is not None:
            # From the end: the host in the middle of a chain gives one before it takes one, so each step is possible.
            for source, target in reversed(list(pairwise(path))):
                self._shift(source, target)

    def _uneven_path(self) -> list[str] | None:
        """A shortest chain of hosts from one of the fullest to the emptiest that it reaches, if that has two fewer."""
        for start in sorted(self._loads, key=lambda host: (-self._loads[host], host)):
            before: dict[str, str | None] = {start: None}
            waiting = deque([start])
            while waiting:
                here = waiting.popleft()
                for there in sorted(self._movable.get(here, {})):
                    if there not in before and self._movable[here][there]:
                        before[there] = here
                        waiting.append(there)
            # Not the first with two fewer: of 4, 0 and 0 the second host would get two, and give one on to the third.
            emptiest = min(before, key=self._loads.__getitem__)
            if self._loads[emptiest] + 2 <= self._loads[start]:
                return _chain(before, emptiest)
        return None


def _chain(before: Mapping[str, str | None], end: str) -> list[str]:
    found, here = [end], before[end]
    while here is not None:
        found.append(here)
        here = before[here]
    return found[::-1]


def is_in(scope: MaintenanceScope, status: SetStatus, one: ReplicaStatus) -> bool:
    """Whether this replica of the set is the one that is meant, or on the host that is."""
    if scope.host:
        return host_of(one.address) == scope.host
    return (status.view.set_key, one.broker_id) == (scope.set_key, scope.broker_id)


def move_of(status: SetStatus, master: ReplicaStatus, target: ReplicaStatus) -> Move:
    """The switchover from ``master`` in its present epoch."""
    return Move(
        set_key=status.view.set_key,
        master=master.broker_id,
        master_epoch=status.view.master_epoch,
        to=target.broker_id,
        from_host=host_of(master.address),
        to_host=host_of(target.address),
        names=names_of(status.view.members),
    )


def why_not(status: SetStatus, *, budget_least: int) -> str:
    """Why the master of this set is not moved now; empty: it may be."""
    master, names = master_of(status), names_of(status.view.members)
    if status.view.condition is not Condition.SERVING or master is None:
        return f"it is {status.view.condition}: {in_words(status.view.condition_reason, names)}"
    # A pause keeps masters where they are; a batch that went on moving them would be what it was begun against.
    if status.pause is not None:
        return f"elections are paused by {status.pause.paused_by}; end that with: rollcall resume"
    if status.view.switchover is not None:
        return f"it switches over to broker {label(status.view.switchover.target, names)} already"
    if master.kind == ReplicaKind.ROCKETMQ:
        return "its master is a RocketMQ broker, which cannot drain; use: rollcall elect SET --to BROKER"
    # {1,2} with 3 gone, min_in_sync 2: were the target lost while it enters, the set would refuse writes.
    if spare_of(status) < budget_least:
        return f"it may lose {spare_of(status)} more replicas, at least {budget_least} are wanted (--min-budget)"
    return ""


def _by_key(sets: Iterable[SetStatus]) -> list[SetStatus]:
    living = (status for status in sets if status.view.condition is not Condition.CLEANED)
    return sorted(living, key=lambda status: status.view.set_key)


def _masters_by_host(sets: Iterable[SetStatus]) -> dict[str, int]:
    masters: dict[str, int] = {}
    for status in sets:
        master = master_of(status)
        if master is not None:
            host = host_of(master.address)
            masters[host] = masters.get(host, 0) + 1
    return masters


def _preference(master: ReplicaStatus, one: ReplicaStatus) -> tuple[int, int]:
    return (0 if not master.zone or one.zone == master.zone else 1, one.priority)


def _preferred(status: SetStatus, master: ReplicaStatus) -> dict[str, ReplicaStatus]:
    """By host, the replicas that preferences make equal first, the master among those that may stay (rule 2)."""
    stays = [] if master.maintenance is not None and heirs(status) else [master]
    able = [*stays, *heirs(status)]
    best = min(_preference(master, one) for one in able)
    found: dict[str, ReplicaStatus] = {}
    for one in able:
        if _preference(master, one) == best:
            found.setdefault(host_of(one.address), one)
    return found


def _nobody(status: SetStatus, host: str) -> str:
    """Why nobody elsewhere may be elected, replica by replica."""
    able, names = {one.broker_id for one in heirs(status)}, names_of(status.view.members)
    told = []
    for one in status.replicas:
        if one.is_master:
            continue
        who = label(one.broker_id, names)
        if one.broker_id in able:
            told.append(f"{who} is on {host}, too")
        elif one.maintenance is not None:
            told.append(f"{who} is in maintenance")
        elif not one.is_alive:
            told.append(f"{who} is gone")
        else:
            told.append(f"{who} is not in sync, suspect, a learner, or about to stop")
    return "nobody elsewhere may be elected: " + ("; ".join(told) or "it has no other replica")
