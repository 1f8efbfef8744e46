"""
RocketMQ's own producer and two push consumers, with their defaults, at our brokers, while these are killed and stopped.

Here: the faults, what must hold after each, the audit. Not here: who is asked to run it (``__main__``), the clients
(``tests.interop_java.fleet``).

Rule 1: a fault strikes a whole fleet, with both clients at work since the fault before.
Rule 2: the group's offsets are asked for at the master before and behind each fault: none may be lower.
Rule 3: clients find brokers by asking the brokers themselves for routes (105): their ports are plain here.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.remoting.asking import BlockingLink
from tests.interop_java.books import Books
from tests.interop_java.fleet import JavaFleet
from tests.interop_java.story import CONSUMER, EVERYTHING, KILL, LEADER, PRODUCER, STOP, Audit, Plan, Strike

TOPIC, GROUP, QUEUES = "ours", "rollcall-interop-consumer", 8
QUERY_OFFSET = 14
HEALTHY_ACKS = 200
RESUMED_DEADLINE_S = 90.0
HEALED_DEADLINE_S = 60.0
STOPPED_S = 4.0
"""A hang of the master: longer than the fast preset waits for a silent one."""
SQL_CONSUMER, SQL = "by-sql", "KEYS IS NOT NULL AND KEYS <> 'nobody'"


class Ours:
    """One run."""

    def __init__(self, fleet: Fleet, java: JavaFleet, plan: Plan, say: Callable[[str], object]) -> None:
        self.strikes: list[Strike] = []
        self.epochs: list[int] = []
        self.offsets_fell = self.offsets_asked = 0
        self._fleet, self._java, self._plan, self._say = fleet, java, plan, say
        self._key = fleet.set_keys()[0]
        self._folder = java.directory / "books"
        self._books = Books(self._folder)
        self.by_sql = Books(java.directory / SQL_CONSUMER)
        """Of a second group, which takes what an SQL92 expression lets pass: here, everything."""

    def run(self) -> Audit:
        """Raises ``LauncherError``: something did not come back in time."""
        names = ";".join(self._fleet.file.broker(name).listen for name in self._fleet.brokers)
        self._java.start_consumer(self._folder, namesrv=names, topic=TOPIC, name=CONSUMER)
        self._java.start_consumer(
            self.by_sql.directory, namesrv=names, topic=TOPIC, name=SQL_CONSUMER, by_sql=(SQL_CONSUMER, SQL)
        )
        self._java.start_producer(
            self._folder, namesrv=names, topic=TOPIC, pause_ms=5, route_poll_ms=self._plan.route_poll_ms, name=PRODUCER
        )
        self._until_at_work()
        plan = self._plan
        faults = {KILL: plan.kills, STOP: plan.stops, LEADER: plan.leaders, EVERYTHING: plan.restarts}
        # One of each, then again: no fault meets a fleet that knows that fault only.
        rows = itertools.zip_longest(*([kind] * count for kind, count in faults.items()))
        for kind in (kind for row in rows for kind in row if kind is not None):
            self._strike(kind)
        self._java.terminate(PRODUCER)
        books = self._books
        wait_until(
            lambda: not books.missing() and not books.acked.keys() - self.by_sql.consumed.keys(),
            deadline_s=RESUMED_DEADLINE_S,
            what="everything to be consumed by both groups",
        )
        self._java.terminate(CONSUMER, SQL_CONSUMER)
        acked, consumed = books.acked, books.consumed
        return Audit(
            acked=len(acked),
            consumed=len(consumed),
            lost=len(books.missing()),
            changed=sum(digest not in consumed[key] for key, digest in acked.items() if key in consumed),
            twice=sum(sum(bodies.values()) > 1 for bodies in consumed.values()),
            epochs_fell=sum(later < earlier for earlier, later in itertools.pairwise(self.epochs)),
            ids_changed=0,
        )

    def _until_at_work(self) -> None:
        """New messages are acknowledged, and all that were until now are consumed."""
        acked, here = len(self._books.acked), set(self._books.acked)
        self._java.require_running(PRODUCER, CONSUMER, SQL_CONSUMER)
        wait_until(
            lambda: len(self._books.acked) >= acked + HEALTHY_ACKS and not (here - self._books.consumed.keys()),
            deadline_s=RESUMED_DEADLINE_S,
            what="the producer and the consumer to be at work",
        )

    def _strike(self, kind: str) -> None:
        fleet, before = self._fleet, self._offsets()
        epoch, master = self._epoch(), fleet.master(self._key)
        strike = Strike(
            number=len(self.strikes) + 1, kind=kind, victim=master, at_ns=time.monotonic_ns(), epoch_before=epoch
        )
        self.strikes.append(strike)
        if kind == KILL:
            fleet.kill(master)
        elif kind == STOP:
            fleet.stop(master)
            time.sleep(STOPPED_S)
            fleet.cont(master)
        elif kind == LEADER:
            strike.victim = fleet.leader()
            fleet.kill(strike.victim)
        else:
            strike.victim = "all"
            for name in (*fleet.brokers, *fleet.controllers):
                fleet.kill(name)
        for name in (*fleet.controllers, *fleet.brokers):
            if fleet.pid(name) is None:
                fleet.restart(name)
        repaired = time.monotonic()
        fleet.leader(deadline_s=HEALED_DEADLINE_S)
        fleet.wait_redundant(self._key, deadline_s=HEALED_DEADLINE_S)
        strike.in_sync_s = time.monotonic() - repaired
        strike.epoch_after = self._epoch()
        self._until_at_work()
        strike.gap_s = self._books.longest_gap_s(strike.at_ns)
        after = self._offsets()
        self.offsets_asked += len(before)
        self.offsets_fell += sum(after.get(queue_id, -1) < offset for queue_id, offset in before.items())
        self._say(
            f"{strike.number}. {kind} ({strike.victim}): gap {strike.gap_s:.2f} s, masterEpoch {epoch} -> "
            f"{strike.epoch_after}, consumed again after {(time.monotonic_ns() - strike.at_ns) / 1e9:.0f} s"
        )

    def _epoch(self) -> int:
        self.epochs.append(self._fleet.client().set(self._key).set.view.master_epoch)
        return self.epochs[-1]

    def _offsets(self) -> dict[int, int]:
        """Acknowledged offsets of the group by queue, as its clients would ask the master."""
        found: dict[int, int] = {}
        with BlockingLink(self._fleet.file.broker(self._fleet.master(self._key)).listen) as link:
            for queue_id in range(QUEUES):
                fields = {
                    "consumerGroup": GROUP,
                    "topic": TOPIC,
                    "queueId": str(queue_id),
                    "setZeroIfNotFound": "false",
                }
                answer = link.ask(QUERY_OFFSET, fields)
                if answer.code == 0:
                    found[queue_id] = int((answer.ext_fields or {})["offset"])
        return found


@contextmanager
def our_fleet(directory: Path) -> Iterator[Fleet]:
    """Three controllers and three brokers with plain ports, up."""
    with Fleet.create(directory, Layout(name="ours", is_insecure=True)) as fleet:
        fleet.up()
        yield fleet
