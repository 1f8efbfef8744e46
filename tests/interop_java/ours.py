"""
RocketMQ's clients for Java and Go, and ours, that share topics at our brokers, while these are killed and stopped.

Here: the programs, the faults, what must hold after each. Not here: who is asked to run it (``__main__``), the judgement of what
they wrote (``groups``), the programs themselves (``src``, ``tests/interop_go``, ``pair``).

Rule 1: a fault strikes a whole fleet, with every producer and group at work since the fault before.
Rule 2: the groups' offsets are asked for at the master before and behind each fault: none may be lower.
Rule 3: clients find brokers by asking the brokers themselves for routes (105): their ports are plain here.
Rule 4: clients have their own defaults; Java's look for routes more often in the short form.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import DeadlineError, LauncherError, python_module, wait_until
from rollcall_ha.node.remoting.asking import BlockingLink
from tests.interop_java.books import Books
from tests.interop_java.fleet import JavaFleet
from tests.interop_java.groups import Group, Shared
from tests.interop_java.keys import BODY_BYTES
from tests.interop_java.story import EVERYTHING, KILL, LEADER, STOP, Plan, Strike

CHECKOUT = Path(__file__).resolve().parents[2]
TOPIC, ORDERED_TOPIC, QUEUES = "shared", "shared-ordered", 8
SENDERS, PAUSE_MS = 2, 40
"""Of each producer, besides the one that sends in order."""
HEALTHY_ACKS = 60
"""Of each producer."""
RESUMED_DEADLINE_S = 120.0
HEALED_DEADLINE_S = 60.0
ENDED_DEADLINE_S = 75.0
"""The last refused message comes again after 30 s at the latest."""
STOPPED_S = 4.0
"""A hang of the master: longer than the fast preset waits for a silent one."""
SQL = "KEYS IS NOT NULL AND KEYS <> 'nobody'"
TAGS = "even || odd"


class Ours:
    """One run."""

    def __init__(
        self, fleet: Fleet, java: JavaFleet, go: Path | None, plan: Plan, say: Callable[[str], object]
    ) -> None:
        """``go``: the program of ``tests.interop_go``; None: there is none here."""
        self.strikes: list[Strike] = []
        self.epochs: list[int] = []
        self.offsets_fell = self.offsets_asked = self.started_again = 0
        self._fleet, self._java, self._go, self._plan, self._say = fleet, java, go, plan, say
        self._key = fleet.set_keys()[0]
        self._folder = java.directory / "books"
        self._names = ";".join(fleet.file.broker(name).listen for name in fleet.brokers)
        languages = ("java", *(() if go is None else ("go",)), "python")
        self._programs = {f"{language}-{role}": language for language in languages for role in ("producer", "consumer")}
        self.shared = Shared(
            producers={language: Books(self._folder / language) for language in languages},
            topics={False: TOPIC, True: ORDERED_TOPIC},
            groups=[group for language in languages for group in self._groups(language)],
        )

    def _groups(self, language: str) -> list[Group]:
        def group(name: str, topic: str) -> Group:
            is_plain = topic == TOPIC
            # Our own client has no limit of its own: what it refuses is dead behind 16 times, which is hours.
            return Group(self._folder / name, topic, refuses=is_plain, buries=is_plain and language != "python")

        plain = ("java-by-tag", "java-by-sql") if language == "java" else (f"{language}-push",)
        return [group(name, TOPIC) for name in plain] + [group(f"{language}-in-order", ORDERED_TOPIC)]

    def run(self) -> dict[str, int]:
        """What was counted. Raises ``LauncherError``: something did not come back in time."""
        self._create_topics()
        for name in sorted(self._programs):
            self._start(name)
        self._until_at_work()
        plan = self._plan
        faults = {KILL: plan.kills, STOP: plan.stops, LEADER: plan.leaders, EVERYTHING: plan.restarts}
        # One of each, then again: no fault meets a fleet that knows that fault only.
        rows = itertools.zip_longest(*([kind] * count for kind, count in faults.items()))
        for kind in (kind for row in rows for kind in row if kind is not None):
            self._strike(kind)
        self._stop(*(name for name in self._programs if name.endswith("producer")))
        with suppress(DeadlineError):
            self._until_all_taken()
        if "go" in self._programs.values() and any(name.startswith("go") for name in self.shared.owed()):
            # Where its route had no master when it gave a message back, its handler panics inside: it holds that message until
            # it is started again. What it acknowledged to nobody comes again then.
            self.started_again += 1
            self._say("the Go consumer holds messages back, and is started again")
            self._stop("go-consumer")
            self._start("go-consumer")
            with suppress(DeadlineError):
                self._until_all_taken()
        self._stop(*(name for name in self._programs if name.endswith("consumer")))
        wait_until(self._read_log, deadline_s=HEALED_DEADLINE_S, what="all of the log to be confirmed")
        for name, keys in self.shared.owed().items():
            self._say(f"{name} misses {len(keys)}: {', '.join(sorted(keys)[:5])}")
        return self.shared.counts([strike.at_ns for strike in self.strikes])

    # --- programs ----------------------------------------------------------------------------------------------------

    def _create_topics(self) -> None:
        """Go's consumer ends where there is no route of its topic yet."""
        with self._at_master() as link:
            for topic in (TOPIC, ORDERED_TOPIC):
                fields = {
                    "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
                    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
                }  # fmt: skip
                answer = link.ask(ClientCode.UPDATE_AND_CREATE_TOPIC, fields)
                if answer.code != 0:
                    raise LauncherError(f"topic {topic}: {answer.code} {answer.remark}")

    def _start(self, name: str) -> None:
        language, _, role = name.partition("-")
        if language == "java":
            self._start_java(name)
            return
        books = self._folder / language if role == "producer" else self._folder
        books.mkdir(parents=True, exist_ok=True)
        groups = [group.name for group in self.shared.groups if group.name.startswith(language)]
        verb = "produce" if role == "producer" else "consume"
        common = [verb, self._names, TOPIC, ORDERED_TOPIC, str(books)]
        load = [str(SENDERS), str(PAUSE_MS)]
        if language == "go":
            load.insert(1, str(BODY_BYTES))
            argv = [str(self._go), *common, *(load if role == "producer" else [groups[0], TAGS, groups[1]])]
        else:
            module = python_module("tests.interop_java.pair", *common, *(load if role == "producer" else groups))
            argv = ["env", f"PYTHONPATH={CHECKOUT / 'src'}{os.pathsep}{CHECKOUT}", *module]
        self._java.processes.forget(name)
        self._java.processes.start(name, argv)

    def _start_java(self, name: str) -> None:
        if name == "java-producer":
            self._java.start_producer(
                self._folder / "java",
                namesrv=self._names,
                topic=TOPIC,
                ordered_topic=ORDERED_TOPIC,
                threads=SENDERS,
                body_bytes=BODY_BYTES,
                pause_ms=PAUSE_MS,
                route_poll_ms=self._plan.route_poll_ms,
                name=name,
            )
            return
        groups = [
            ("java-by-tag", TOPIC, "tag", TAGS),
            ("java-by-sql", TOPIC, "sql", SQL),
            ("java-in-order", ORDERED_TOPIC, "ordered", "*"),
        ]
        self._java.start_consumer(self._folder, namesrv=self._names, topic=TOPIC, name=name, groups=groups)

    def _stop(self, *names: str) -> None:
        self._java.require_running(*names)
        self._java.terminate(*names)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _until_at_work(self) -> None:
        """Each producer's messages are acknowledged, and each group has taken all that were until then."""
        producers = self.shared.producers.items()
        goals = {name: len(books.acked) + HEALTHY_ACKS for name, books in producers}
        self._wait_for(lambda: [name for name, books in producers if len(books.acked) < goals[name]])
        # Not what was owed at the beginning: while nobody could send that is nothing, and a group that hangs owes nothing.
        before = self.shared.owed_soon()
        self._wait_for(lambda: [group.name for group, keys in before if keys & group.owed])

    def _wait_for(self, lagging: Callable[[], list[str]]) -> None:
        """Raises ``LauncherError``: a program has ended, or somebody lags for too long."""
        late: list[str] = []

        def is_none() -> bool:
            self.shared.read()
            late[:] = lagging()
            return not late

        self._java.require_running(*self._programs)
        try:
            wait_until(is_none, deadline_s=RESUMED_DEADLINE_S, what="all to be at work")
        except DeadlineError as error:
            self._java.require_running(*self._programs)
            raise DeadlineError(f"{error}; late: {', '.join(late)}") from None

    def _until_all_taken(self) -> None:
        """Raises ``DeadlineError``."""

        def is_taken() -> bool:
            # The log is looked into only when nothing else is missing.
            if not self.shared.owed_but_dead():
                self._read_log()
            return not self.shared.owed()

        wait_until(is_taken, deadline_s=ENDED_DEADLINE_S, what="everything to be taken by each group")

    def _read_log(self) -> bool:
        """Whether to its end."""
        return self.shared.log.read(self._fleet.data(self._fleet.master(self._key)))

    # --- faults ------------------------------------------------------------------------------------------------------

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
        gaps = {name: books.longest_gap_s(strike.at_ns) for name, books in self.shared.producers.items()}
        strike.gap_s = max(gaps.values())
        after = self._offsets()
        self.offsets_asked += len(before)
        self.offsets_fell += sum(after.get(place, -1) < offset for place, offset in before.items())
        self._say(
            f"{strike.number}. {kind} ({strike.victim}): gaps {', '.join(f'{name} {gap:.2f} s' for name, gap in gaps.items())}, "
            f"masterEpoch {epoch} -> {strike.epoch_after}, at work again after {(time.monotonic_ns() - strike.at_ns) / 1e9:.0f} s"
        )

    def _epoch(self) -> int:
        self.epochs.append(self._fleet.client().set(self._key).set.view.master_epoch)
        return self.epochs[-1]

    def _at_master(self) -> BlockingLink:
        return BlockingLink(self._fleet.file.broker(self._fleet.master(self._key)).listen)

    def _offsets(self) -> dict[tuple[str, int], int]:
        """Acknowledged offsets by group and queue, as clients would ask the master."""
        places = [(group, queue_id) for group in self.shared.groups for queue_id in range(QUEUES)]
        with self._at_master() as link:
            answers = link.ask_all([_offset_question(group, queue_id) for group, queue_id in places])
        return {
            (group.name, queue_id): int((answer.ext_fields or {})["offset"])
            for (group, queue_id), answer in zip(places, answers, strict=True)
            if answer.code == 0
        }


def _offset_question(group: Group, queue_id: int) -> tuple[int, dict[str, object], bytes]:
    fields = {"consumerGroup": group.name, "topic": group.topic, "queueId": queue_id, "setZeroIfNotFound": "false"}
    return ClientCode.QUERY_CONSUMER_OFFSET, fields, b""


def epochs_fell(epochs: Sequence[int]) -> int:
    """How often a masterEpoch was seen lower than before."""
    return sum(later < sooner for sooner, later in itertools.pairwise(epochs))


@contextmanager
def our_fleet(directory: Path) -> Iterator[Fleet]:
    """Three controllers and three brokers with plain ports, up."""
    with Fleet.create(directory, Layout(name="ours", is_insecure=True)) as fleet:
        fleet.up()
        yield fleet
