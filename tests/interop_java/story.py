"""
A Java fleet under load while its masters and controllers are killed and stopped; then every acknowledged message is
looked for at the consumer.

Here: the faults one after the other, how each felt to the producer, the audit. Not here: who is asked to run it
(``__main__``), processes (``tests.interop_java.fleet``, ``sides``).

Rule 1: producer and consumer are RocketMQ's, with their own defaults, in processes of their own, from beginning to end.
Rule 2: a fault strikes only a fleet that is whole: all replicas in sync, acknowledgements flowing, both clients at work.
Rule 3: nothing tells the system what was done to it.
Rule 4: a client that ends on its own ends the run, with its log: an audit of what it did not do would say nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.controller.contract.commands import ElectMaster
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, SetKey
from rollcall_ha.deploy.local.processes import DeadlineError, LauncherError, wait_until
from rollcall_ha.node.remoting.asking import BlockingLink
from tests.interop_java import asking
from tests.interop_java.admin import BROKERS, create_topic, start_again
from tests.interop_java.books import Books
from tests.interop_java.fleet import CLUSTER, SET, JavaFleet
from tests.interop_java.sides import RollcallSide, Side

TOPIC = "interop"
HEALTHY_ACKS = 40
"""Acknowledgements in a row before the next fault."""
ELECTED_DEADLINE_S = 90.0
RESUMED_DEADLINE_S = 180.0
HEALED_DEADLINE_S = 300.0
CONSUMED_DEADLINE_S = 180.0
PRODUCER, CONSUMER = "producer", "consumer"

KILL, STOP, LEADER, EVERYTHING = "kill master", "stop master", "kill leading controller", "restart everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many of which fault."""

    kills: int
    stops: int
    leaders: int
    restarts: int
    route_poll_ms: int = 0
    """0 = the producer's own 30 s."""
    stuck_s: float | None = None
    """Who is not in sync so long after a repair is started again, and that is counted; None = the run fails later."""

    def counts(self) -> dict[str, int]:
        """By kind of fault."""
        return {KILL: self.kills, STOP: self.stops, LEADER: self.leaders, EVERYTHING: self.restarts}

    def faults(self) -> list[str]:
        """In the order in which they strike: mixed, the restart of everything in the middle of the kills."""
        kinds = {STOP: self.stops, LEADER: self.leaders, EVERYTHING: self.restarts}
        found: list[str] = []
        for number in range(self.kills):
            found.append(KILL)
            for kind, count in kinds.items():
                found += [kind] * ((number + 1) * count // self.kills - number * count // self.kills)
        return found


@dataclass(slots=True, kw_only=True)
class Strike:
    """One fault and what came of it."""

    number: int
    kind: str
    victim: str
    at_ns: int
    epoch_before: int
    epoch_after: int = 0
    elected_s: float | None = None
    """Until the controllers named another master, or until another controller led; None = not looked for."""
    gap_s: float = 0.0
    """Longest time between two acknowledgements, by the producer's own stamps."""
    gaps: dict[str, float] = field(default_factory=dict)
    """The same of each client of several, and between two messages of each group."""
    in_sync_s: float = 0.0
    """Until all replicas were in the SyncStateSet again, from the repair on."""
    started_again: int = 0
    """Replicas that did not come back by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What became of the messages."""

    acked: int
    consumed: int
    """Different keys."""
    lost: int
    """Acknowledged and never consumed."""
    changed: int
    """Consumed with another body than the one that was acknowledged."""
    twice: int
    """Consumed more than once, which RocketMQ allows."""
    epochs_fell: int
    """Times that a masterEpoch was seen lower than before."""
    ids_changed: int


@dataclass
class Story:
    """One run on one side."""

    side: Side
    java: JavaFleet
    plan: Plan
    say: Callable[[str], object]
    strikes: list[Strike] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    """masterEpoch at each look, in order."""

    def __post_init__(self) -> None:
        """The clients' files need not be there yet."""
        self.books = Books(self.java.directory / "faults")

    @property
    def clients(self) -> Path:
        """Where ledger and consumed.tsv lie."""
        return self.books.directory

    def run(self) -> Audit:
        """Everything; brokers are started here. Raises ``LauncherError`` with what did not happen in time."""
        self.start_brokers()
        self.start_clients()
        return self.faults()

    def faults(self) -> Audit:
        """What the plan says, to brokers and clients that run. Raises as ``run``."""
        before = self.ids()
        for number, kind in enumerate(self.plan.faults(), start=1):
            self.strike(number, kind)
        return self.finish(before)

    def start_brokers(self) -> None:
        """Three, in sync and routed to."""
        for name in BROKERS:
            self.java.start_broker(name, controllers=self.side.controllers, namesrv=self.side.namesrv)
            self.java.wait_serving(name)
        self.java.wait_in_sync(self.side.controllers, len(BROKERS))
        self.java.wait_route(self.side.namesrv, members=len(BROKERS))

    def start_clients(self) -> None:
        """A topic, consumer and producer, the first acknowledgements, the first message consumed."""
        create_topic(self.java, self.side.namesrv, TOPIC)
        self.java.start_consumer(self.clients, namesrv=self.side.namesrv, topic=TOPIC)
        self.java.start_producer(
            self.clients, namesrv=self.side.namesrv, topic=TOPIC, route_poll_ms=self.plan.route_poll_ms
        )
        self.wait_acks(HEALTHY_ACKS)
        self._wait_for(
            lambda: bool(self.books.consumed), deadline_s=CONSUMED_DEADLINE_S, what="the first to be consumed"
        )
        self.say(f"{self.side.name}: three Java brokers in sync, producer and consumer at work")

    # --- faults ------------------------------------------------------------------------------------------------------

    def strike(self, number: int, kind: str) -> None:
        """One fault: do it, see it overcome, repair, wait until the fleet is whole."""
        seen = self.java.wait_in_sync(self.side.controllers, len(BROKERS), deadline_s=HEALED_DEADLINE_S)
        self.epochs.append(seen.master_epoch)
        self.wait_acks(HEALTHY_ACKS)
        master = self.java.name_of(seen.master_address or "")
        strike = Strike(
            number=number,
            kind=kind,
            victim=self.side.leader() if kind == LEADER else "all" if kind == EVERYTHING else master,
            at_ns=time.monotonic_ns(),
            epoch_before=seen.master_epoch,
        )
        self.strikes.append(strike)
        {KILL: self._kill, STOP: self._stop, LEADER: self._leader, EVERYTHING: self._everything}[kind](strike)
        repaired = time.monotonic()
        whole = self._whole(strike)
        strike.in_sync_s = time.monotonic() - repaired
        strike.epoch_after = whole.master_epoch
        self.epochs.append(whole.master_epoch)
        self.wait_acks(HEALTHY_ACKS)
        strike.gap_s = self.books.longest_gap_s(strike.at_ns)
        elected = "" if strike.elected_s is None else f"next after {strike.elected_s:.2f} s, "
        self.say(
            f"{number}. {kind} ({strike.victim}): {elected}gap {strike.gap_s:.2f} s, masterEpoch {strike.epoch_before} -> "
            f"{strike.epoch_after}, whole {strike.in_sync_s:.0f} s after the repair"
        )

    def _whole(self, strike: Strike) -> asking.SetSeen:
        """All in sync; with the help that the plan allows."""
        if self.plan.stuck_s is not None:
            with contextlib.suppress(DeadlineError):
                return self.java.wait_in_sync(self.side.controllers, len(BROKERS), deadline_s=self.plan.stuck_s)
            strike.started_again = start_again(self.side, self.java, self.say, after_s=self.plan.stuck_s)
        return self.java.wait_in_sync(self.side.controllers, len(BROKERS), deadline_s=HEALED_DEADLINE_S)

    def _kill(self, strike: Strike) -> None:
        self.java.kill(strike.victim)
        strike.elected_s = self._elected(strike)
        self._resumed(strike)
        self.java.restart(strike.victim)

    def _stop(self, strike: Strike) -> None:
        self.java.stop(strike.victim)
        strike.elected_s = self._elected(strike)
        self._resumed(strike)
        self.java.cont(strike.victim)

    def _leader(self, strike: Strike) -> None:
        self.side.kill(strike.victim)
        self.side.leader()
        strike.elected_s = (time.monotonic_ns() - strike.at_ns) / 1e9
        self.side.restart(strike.victim)

    def _everything(self, strike: Strike) -> None:
        self.java.terminate(*BROKERS)
        self.side.restart_all()
        for name in BROKERS:
            self.java.restart(name)
        self.java.wait_listening(*BROKERS)
        self._resumed(strike)

    def _elected(self, strike: Strike) -> float:
        def another() -> bool:
            seen = asking.set_of(self.side.controllers, SET)
            return (
                seen is not None
                and seen.master_epoch > strike.epoch_before
                and seen.master_address not in (None, self.java.address(strike.victim))
            )

        wait_until(another, deadline_s=ELECTED_DEADLINE_S, what=f"another master than {strike.victim}")
        return (time.monotonic_ns() - strike.at_ns) / 1e9

    # --- what the producer wrote -------------------------------------------------------------------------------------

    def _resumed(self, strike: Strike) -> None:
        """
        Acknowledgements flow again, and not those that were under way.

        A message that is acknowledged half a second after an election can only have come from the new master.
        """
        after_ns = strike.at_ns + int((strike.elected_s or 0.0) * 1e9) + 500_000_000
        self._wait_for(
            lambda: self.books.acked_since(after_ns) > 0,
            deadline_s=RESUMED_DEADLINE_S,
            what=f"acknowledgements after {strike.kind} of {strike.victim}",
        )

    def wait_acks(self, count: int) -> None:
        """``count`` more than now."""
        from_ns = time.monotonic_ns()
        self._wait_for(
            lambda: self.books.acked_since(from_ns) >= count,
            deadline_s=RESUMED_DEADLINE_S,
            what=f"{count} acknowledgements",
        )

    def _wait_for(self, condition: Callable[[], bool], *, deadline_s: float, what: str) -> None:
        """Wait as long as both clients run. Raises ``LauncherError`` with the log of one that ended."""

        def met() -> bool:
            self.java.require_running(PRODUCER, CONSUMER)
            return condition()

        wait_until(met, deadline_s=deadline_s, what=what)

    # --- the end -----------------------------------------------------------------------------------------------------

    def ids(self) -> dict[int, str]:
        """Controller id -> address of each replica."""
        return dict(self.java.wait_in_sync(self.side.controllers, len(BROKERS)).ids)

    def finish(self, ids_before: dict[int, str]) -> Audit:
        """Stop the producer, let the consumer read to the end, compare."""
        self.java.terminate(PRODUCER)

        def is_consumed() -> bool:
            self.java.require_running(CONSUMER)
            return not self.books.missing()

        try:
            wait_until(is_consumed, deadline_s=CONSUMED_DEADLINE_S, what="all to be consumed")
        except DeadlineError:
            self.say(f"{len(self.books.missing())} messages were not consumed within {CONSUMED_DEADLINE_S:.0f} s")
        acked, found, after = self.books.acked, self.books.consumed, self.ids()
        return Audit(
            acked=len(acked),
            consumed=len(found),
            lost=len(self.books.missing()),
            changed=sum(1 for key, body in acked.items() if key in found and set(found[key]) != {body}),
            twice=sum(1 for bodies in found.values() if sum(bodies.values()) > 1),
            epochs_fell=sum(1 for sooner, later in itertools.pairwise(self.epochs) if later < sooner),
            ids_changed=sum(1 for number, address in ids_before.items() if after.get(number) != address),
        )


def table(strikes: Sequence[Strike]) -> str:
    """One line per fault."""
    lines = [f"{'':>3}  {'FAULT':<24} {'VICTIM':<8} {'NEXT':>8} {'GAP':>8} {'WHOLE':>8}  MASTER EPOCH"]
    for strike in strikes:
        elected = "-" if strike.elected_s is None else f"{strike.elected_s:.2f} s"
        lines.append(
            f"{strike.number:>3}  {strike.kind:<24} {strike.victim:<8} {elected:>8} {strike.gap_s:>6.2f} s "
            f"{strike.in_sync_s:>6.1f} s  {strike.epoch_before} -> {strike.epoch_after}"
        )
    return "\n".join(lines)


# --- winners that were master before ---------------------------------------------------------------------------------

WARM = BROKERS[-1]
"""Master once in its process, and a slave since; never killed."""
PRIORITY = 500
KEY = SetKey(ClusterName(CLUSTER), BrokerName(SET))
SENDS = 200
TRY_EACH_S = 0.002
"""Between two tries: a refused one takes a winner the time in which it begins to serve."""
FIELDS = {
    "producerGroup": "rollcall-interop-winners", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
    "queueId": 0, "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "properties": "", "reconsumeTimes": 0,
    "unitMode": "false", "batch": "false",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """One kill, and what the next master was when it was elected."""

    is_warm: bool
    elected_ms: float
    acked_ms: float
    """From the election as the leader shows it to the first acknowledgement of its winner."""
    sends_ms: float
    """From there on: ``SENDS``, one after the other."""

    @property
    def felt_ms(self) -> float:
        """From the kill to the first acknowledgement."""
        return self.elected_ms + self.acked_ms


@dataclass
class Winners:
    """
    Kills of a master whose two slaves hold the same log. One of them was master before in its process and has the
    greater id: by turns it wins, because it is warm, and the other one, by a smaller priority.
    """

    side: RollcallSide
    java: JavaFleet
    say: Callable[[str], object]
    won: list[Won] = field(default_factory=list)

    def run(self, kills: int) -> None:
        """``kills`` of each kind. Raises ``LauncherError``."""
        for name in BROKERS:
            self._start(name, PRIORITY)
            self.java.wait_serving(name)
        self.java.wait_in_sync(self.side.controllers, len(BROKERS))
        create_topic(self.java, self.side.namesrv, TOPIC)
        for name in (WARM, BROKERS[0]):
            self._elect(name)
            self._send(self.java.address(name), SENDS)
            self.java.wait_in_sync(self.side.controllers, len(BROKERS))
        for number in range(2 * kills):
            self._kill(is_warm_next=number % 2 == 1)

    def _start(self, name: str, priority: int) -> None:
        settings, side = {"brokerElectionPriority": str(priority)}, self.side
        self.java.start_broker(name, controllers=side.controllers, namesrv=side.namesrv, settings=settings)

    def _elect(self, name: str) -> None:
        address = self.java.address(name)

        def is_member() -> bool:
            seen = asking.set_of(self.side.controllers, SET)
            return seen is not None and address in seen.in_sync.values()

        wait_until(is_member, deadline_s=HEALED_DEADLINE_S, what=f"{name} to be in sync")
        seen = self.java.wait_in_sync(self.side.controllers, 1)
        to = next(number for number, other in seen.in_sync.items() if other == address)
        if to != seen.master:
            self.side.fleet.client().order(ElectMaster(set_key=KEY, to=BrokerId(to), reason="to be killed as master"))

    def _kill(self, *, is_warm_next: bool) -> None:
        before = self.java.wait_in_sync(self.side.controllers, len(BROKERS))
        assert before.master_address is not None
        victim = self.java.name_of(before.master_address)
        self._send(before.master_address, SENDS)
        # Slaves are ranked by their last heartbeats, one a second: of equal ends only once all have told the last one.
        self._wait_equal()
        leader = asking.wait_leader(self.side.controllers, deadline_s=ELECTED_DEADLINE_S)
        killed = time.monotonic()
        self.java.kill(victim)
        while True:
            seen = asking.sets_at(leader, [SET]).get(SET)
            if seen is not None and seen.master_epoch > before.master_epoch and seen.master_address is not None:
                break
            if time.monotonic() - killed > ELECTED_DEADLINE_S:
                raise LauncherError(f"nobody was elected after {victim}: {seen}")
        elected = time.monotonic()
        acked = self._send(seen.master_address, 1)
        sent = self._send(seen.master_address, SENDS)
        winner = self.java.name_of(seen.master_address)
        won = Won(
            is_warm=winner == WARM,
            elected_ms=(elected - killed) * 1000,
            acked_ms=(acked - elected) * 1000,
            sends_ms=(sent - acked) * 1000,
        )
        self.say(
            f"{victim} killed, {winner} {'warm' if won.is_warm else 'cold'}: elected {won.elected_ms:.0f} ms, "
            f"acknowledged {won.acked_ms:.0f} ms later, {SENDS} sends {won.sends_ms:.0f} ms"
        )
        self.won.append(won)
        self._start(victim, PRIORITY if is_warm_next else 1)
        if won.is_warm:
            self._elect(next(name for name in BROKERS if name not in (victim, winner)))

    def _wait_equal(self) -> None:
        def is_equal() -> bool:
            replicas = self.side.fleet.client().set(KEY).set.replicas
            return len({(one.last_epoch, one.max_offset) for one in replicas}) == 1

        wait_until(is_equal, deadline_s=HEALED_DEADLINE_S, what="the controllers to have heard one end of all logs")

    def _send(self, address: str, count: int) -> float:
        """Send until ``count`` are acknowledged; when the last one was."""
        until = time.monotonic() + RESUMED_DEADLINE_S
        link: BlockingLink | None = None
        try:
            while count:
                with contextlib.suppress(OSError):
                    link = link or BlockingLink(address)
                    if link.ask(ClientCode.SEND_MESSAGE, FIELDS, b"x" * 256).code == 0:
                        count -= 1
                        continue
                if time.monotonic() > until:
                    raise LauncherError(f"{address} acknowledges nothing")
                time.sleep(TRY_EACH_S)
            return time.monotonic()
        finally:
            if link is not None:
                link.close()


def winners_table(won: Sequence[Won]) -> str:
    """Median, smallest and greatest of each kind."""
    lines = [
        f"{'WINNER':<6} {'KILLS':>5}  {'ELECTED':>20} {'ACKNOWLEDGED AFTER':>20} {'FELT':>20} {f'{SENDS} SENDS':>20}  ms"
    ]
    for kind, is_warm in (("cold", False), ("warm", True)):
        of_kind = [one for one in won if one.is_warm is is_warm]
        columns = zip(*((one.elected_ms, one.acked_ms, one.felt_ms, one.sends_ms) for one in of_kind), strict=True)
        cells = [f"{statistics.median(column):.0f} ({min(column):.0f}-{max(column):.0f})" for column in columns]
        lines.append(f"{kind:<6} {len(of_kind):>5}  " + " ".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)
