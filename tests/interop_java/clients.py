"""
RocketMQ's clients for Java and Go, and ours, that share topics at one set of brokers, while these are killed and stopped.

Here: the programs, the faults, what must hold after each. Not here: who is asked to run it (``__main__``), whose brokers these are
(``brokers``), the judgement of what clients wrote (``groups``), the programs themselves (``src``, ``tests/interop_go``, ``pair``).

Rule 1: a fault strikes a whole fleet, with every producer and group at work since the fault before.
Rule 2: the groups' offsets are asked for at the master before each fault, at the next one as soon as there is one, and again when
all are at work: none may be lower.
Rule 3: clients ask for routes (105) at plain ports.
Rule 4: clients have their own defaults; Java's look for routes more often in the short form.
Rule 5: what RocketMQ's brokers lose is counted and no longer waited for: the run goes on.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.deploy.local.processes import DeadlineError, LauncherError, python_module, wait_until
from rollcall_ha.node.remoting.asking import BlockingLink
from tests.interop_java.books import Books, longest_gap_s
from tests.interop_java.brokers import Brokers
from tests.interop_java.fleet import JavaFleet
from tests.interop_java.groups import PROMISED, Group, Log, Shared
from tests.interop_java.keys import BODY_BYTES
from tests.interop_java.story import EVERYTHING, KILL, LEADER, STOP, Plan, Strike

CHECKOUT = Path(__file__).resolve().parents[2]
TOPIC, ORDERED_TOPIC, QUEUES = "shared", "shared-ordered", 8
SENDERS, PAUSE_MS = 2, 40
"""Of each producer, besides the one that sends in order."""
HEALTHY_ACKS = 60
"""Of each producer."""
READ_DEADLINE_S = 60.0
ENDED_DEADLINE_S = 75.0
"""The last refused message comes again after 30 s at the latest."""
MISSED_S = 75.0
"""Behind as long a wait in which none of them came, messages are missed: Go's client asks a dead master for 30 s, and for routes
every 30 s."""
STOPPED_S = 4.0
"""A hang of the master: longer than the controllers wait for a silent one."""
SQL = "KEYS IS NOT NULL AND KEYS <> 'nobody'"
TAGS = "even || odd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The counts and faults of one run."""

    label: str
    """The brokers' name in the tables."""
    counts: dict[str, int]
    strikes: list[Strike]
    wrong: list[str]
    """What did not hold at our brokers, or never happened."""


class Clients:
    """One run before one set of brokers."""

    def __init__(
        self, brokers: Brokers, java: JavaFleet, go: Path | None, plan: Plan, say: Callable[[str], object]
    ) -> None:
        """``go``: the program of ``tests.interop_go``; None: there is none here."""
        self.strikes: list[Strike] = []
        self.epochs: list[int] = []
        self.offsets_asked = self.offsets_fell = 0
        """When all were at work again."""
        self.offsets_asked_at_once = self.offsets_fell_at_once = 0
        self.started_again = 0
        self._brokers, self._java, self._go, self._plan, self._say = brokers, java, go, plan, say
        self._folder = java.directory / "books"
        self._missed: set[tuple[str, str]] = set()
        """(group, key) that are no longer waited for (rule 5)."""
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

    def run(self) -> Outcome:
        """Everything. Raises ``LauncherError``: something did not come back in time."""
        self._create_topics()
        for name in sorted(self._programs):
            self._start(name)
        self.until_at_work()
        # One of each, then again: no fault meets a fleet that knows that fault only.
        rows = itertools.zip_longest(*([kind] * count for kind, count in self._plan.counts().items()))
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
        # Anew: the part that a later master does not have would count as kept.
        self.shared.log = Log()
        wait_until(self._read_log, deadline_s=READ_DEADLINE_S, what="all of the log to be confirmed")
        for name, keys in self.shared.owed().items():
            self._say(f"{name} misses {len(keys)}: {', '.join(sorted(keys)[:5])}")
        return self._outcome()

    def _outcome(self) -> Outcome:
        counts = self.shared.counts([strike.at_ns for strike in self.strikes])
        struck = Counter(strike.kind for strike in self.strikes)
        counts |= {
            "kills": struck[KILL],
            "stops": struck[STOP],
            "leaders": struck[LEADER],
            "restarts": struck[EVERYTHING],
        }
        counts |= {"faults": len(self.strikes), "offsets_asked": self.offsets_asked, "offsets_fell": self.offsets_fell}
        counts |= {
            "offsets_asked_at_once": self.offsets_asked_at_once,
            "offsets_fell_at_once": self.offsets_fell_at_once,
        }
        fell = sum(later < sooner for sooner, later in itertools.pairwise(self.epochs))
        counts |= {"epochs_fell": fell, "go_started_again": self.started_again}
        wanted = self._plan.counts().items()
        wrong = self.shared.absent()
        wrong += [f"{kind}: {struck[kind]} instead of {count}" for kind, count in wanted if struck[kind] != count]
        wrong += [f"{name} is 0" for name in ("offsets_asked", "offsets_asked_at_once") if not counts[name]]
        never = (*PROMISED, "offsets_fell", "offsets_fell_at_once") if self._brokers.is_ours else ()
        wrong += [f"{name} is {counts[name]}, not 0" for name in (*never, "epochs_fell") if counts[name]]
        return Outcome(label=self._brokers.label, counts=counts, strikes=self.strikes, wrong=wrong)

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
        self._brokers.wait_made((TOPIC, ORDERED_TOPIC), QUEUES)

    def _start(self, name: str) -> None:
        language, _, role = name.partition("-")
        if language == "java":
            self._start_java(name)
            return
        books = self._folder / language if role == "producer" else self._folder
        books.mkdir(parents=True, exist_ok=True)
        groups = [group.name for group in self.shared.groups if group.name.startswith(language)]
        verb = "produce" if role == "producer" else "consume"
        common = [verb, self._brokers.names, TOPIC, ORDERED_TOPIC, str(books)]
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
                namesrv=self._brokers.names,
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
        self._java.start_consumer(self._folder, namesrv=self._brokers.names, topic=TOPIC, name=name, groups=groups)

    def _stop(self, *names: str) -> None:
        self._java.require_running(*names)
        self._java.terminate(*names)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def until_at_work(self) -> None:
        """Each producer's messages are acknowledged, and each group has taken all that were until then."""
        producers = self.shared.producers.items()
        goals = {name: len(books.acked) + HEALTHY_ACKS for name, books in producers}
        self._wait_for(lambda: [name for name, books in producers if len(books.acked) < goals[name]])
        # Not what was owed at the beginning: while nobody could send that is nothing, and a group that hangs owes nothing.
        before = self.shared.owed_soon()
        left_before, since = -1, 0.0

        def lagging() -> list[str]:
            nonlocal left_before, since
            waits = {(group.name, key) for group, keys in before for key in keys & group.owed} - self._missed
            if len(waits) != left_before:
                left_before, since = len(waits), time.monotonic()
            elif not self._brokers.is_ours and time.monotonic() - since > MISSED_S:
                self._missed |= waits
                self._say(f"missed, and no longer waited for: {_summary(waits)}")
                return []
            return sorted({name for name, _ in waits})

        self._wait_for(lagging)

    def _wait_for(self, lagging: Callable[[], list[str]]) -> None:
        """Raises ``LauncherError``: a program has ended, or somebody lags for too long."""
        late: list[str] = []

        def is_none() -> bool:
            self.shared.read()
            late[:] = lagging()
            return not late

        self._java.require_running(*self._programs)
        try:
            wait_until(is_none, deadline_s=self._brokers.resumed_deadline_s, what="all to be at work")
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
        return self._brokers.read_log(self.shared.log)

    # --- faults ------------------------------------------------------------------------------------------------------

    def _strike(self, kind: str) -> None:
        brokers, before = self._brokers, self._offsets()
        epoch, master = self._epoch(), brokers.master()
        strike = Strike(
            number=len(self.strikes) + 1, kind=kind, victim=master, at_ns=time.monotonic_ns(), epoch_before=epoch
        )
        self.strikes.append(strike)
        if kind == KILL:
            brokers.kill(master)
        elif kind == STOP:
            brokers.hang(master, is_hanging=True)
            time.sleep(STOPPED_S)
            brokers.hang(master, is_hanging=False)
        elif kind == LEADER:
            strike.victim = brokers.fleet.leader()
            brokers.kill(strike.victim)
        else:
            strike.victim = "all"
            for name in (*brokers.replicas, *brokers.fleet.controllers):
                brokers.kill(name)
        brokers.start_dead()
        repaired = time.monotonic()
        if kind in (KILL, EVERYTHING):
            brokers.wait_elected(epoch)
        self._compare_at_once(before)
        brokers.wait_whole()
        strike.in_sync_s = time.monotonic() - repaired
        strike.epoch_after = self._epoch()
        self.until_at_work()
        stamps = {f"{name}-producer": books.stamps for name, books in self.shared.producers.items()}
        stamps |= {group.name: group.stamps for group in self.shared.groups}
        strike.gaps = {name: longest_gap_s(found, strike.at_ns) for name, found in stamps.items()}
        strike.gap_s = max(gap for name, gap in strike.gaps.items() if name.endswith("producer"))
        after = self._offsets()
        self.offsets_asked += len(before)
        self.offsets_fell += sum(after.get(place, -1) < offset for place, offset in before.items())
        self._say(
            f"{strike.number}. {kind} ({strike.victim}): gaps {', '.join(f'{name} {gap:.2f} s' for name, gap in strike.gaps.items())}, "
            f"masterEpoch {epoch} -> {strike.epoch_after}, at work again after {(time.monotonic_ns() - strike.at_ns) / 1e9:.0f} s"
        )

    def _compare_at_once(self, before: dict[tuple[str, int], int]) -> None:
        """Whoever does not answer, or is not ready to, has told nothing."""
        with suppress(OSError):
            told = self._offsets(absent=-1)
            self.offsets_asked_at_once += len(told.keys() & before.keys())
            self.offsets_fell_at_once += sum(told.get(place, offset) < offset for place, offset in before.items())

    def _epoch(self) -> int:
        self.epochs.append(self._brokers.epoch())
        return self.epochs[-1]

    def _at_master(self) -> BlockingLink:
        return BlockingLink(self._brokers.address(self._brokers.master()))

    def _offsets(self, *, absent: int | None = None) -> dict[tuple[str, int], int]:
        """Acknowledged offsets by group and queue, as clients would ask the master; ``absent``: where it has none."""
        places = [(group, queue_id) for group in self.shared.groups for queue_id in range(QUEUES)]
        with self._at_master() as link:
            answers = link.ask_all([_offset_question(group, queue_id) for group, queue_id in places])
        found: dict[tuple[str, int], int] = {}
        for (group, queue_id), answer in zip(places, answers, strict=True):
            if answer.code == 0:
                found[group.name, queue_id] = int((answer.ext_fields or {})["offset"])
            elif answer.code == ClientResult.QUERY_NOT_FOUND and absent is not None:
                found[group.name, queue_id] = absent
        return found


def _offset_question(group: Group, queue_id: int) -> tuple[int, dict[str, object], bytes]:
    fields = {"consumerGroup": group.name, "topic": group.topic, "queueId": queue_id, "setZeroIfNotFound": "false"}
    return ClientCode.QUERY_CONSUMER_OFFSET, fields, b""


def _summary(waits: Iterable[tuple[str, str]]) -> str:
    """How many of each group."""
    return ", ".join(f"{name} {count}" for name, count in Counter(sorted(name for name, _ in waits)).most_common())
