"""
What is proved by programs that take long or draw their faults: name, what each proves, how it is run, how long it may take.

Here: the table of ``make prove``, short parts first. Not here: running them (``__main__``), the ledger and its page
(``ledger``).
Rule 1: a part ends by itself and prints a line ``RESULT`` with its counts as JSON; of a run of pytest its last line is read.
Rule 2: a part that cannot run here prints ``RESULT {"skipped_because": "why"}`` and ends well: it is counted as skipped.
Rule 3: what a part draws, it draws from the seed of the run, which stands where ``SEED`` stands in its command.
"""

from __future__ import annotations

import msgspec

SEED = "{seed}"


class Part(msgspec.Struct, frozen=True):
    """One program."""

    name: str
    proves: str
    minutes: float
    """What it took on two cores; an estimate before a run, and twice of it and five minutes end it."""
    command: tuple[str, ...]
    """Behind ``python``."""
    setup: tuple[str, ...] = ()
    """What ``deploy/setup.sh`` sees to before it."""

    @property
    def seconds_max(self) -> float:
        """A part that is not done by then is ended, and has failed."""
        return 120 * self.minutes + 300


def _tests(*arguments: str) -> tuple[str, ...]:
    drawn = ("--hypothesis-profile=fresh", f"--hypothesis-seed={SEED}", f"--randomly-seed={SEED}")
    return ("-m", "pytest", "-q", "-p", "no:cacheprovider", *drawn, *arguments)


def _program(text: str) -> tuple[str, ...]:
    return ("-m", *text.split())


MACHINES = ("machines",)
ALARMS = ("machines", "prometheus .venv")
JAVA = ("interop",)

PARTS = (
    Part("analytics-recount", "gold, counted a second time in plain Python from the lines of journals, row by row", 2,
         _program("tests.recount")),
    Part("chaos-policies", "full and slow disks, masters cut from their slaves: left by policy", 3,
         _program("tests.chaos.net --policies --may-skip"), MACHINES),
    Part("kill-controllers", "kill -9 of all controllers under load, ten times", 3,
         _program("tests.chaos.kill_controllers --rounds 10")),
    Part("retention", "a disk of three segments under ten times its size, its slave hours behind; kill -9 at every step of a deletion", 3,
         _tests("-s", "tests/chaos/test_retention.py")),
    Part("property", "laws, by examples that nobody drew before", 4, _tests("-n", "2", "tests/property")),
    Part("record-truth", "the record of outages beside a stopwatch outside, and by Spark: 24 kinds of ends", 8,
         _program("tests.truth"), MACHINES),
    Part("switchovers", "twenty switchovers by order under 1,000 sends/s, and five that fail: nothing lost", 4,
         _program("tests.chaos.switchovers --rounds 20"), MACHINES),
    Part("port-abuse", "elections while bad neighbours abuse the broker ports", 4, _program("tests.perf.port_abuse")),
    Part("drain", "a host with 200 masters is drained under load; the command and the leader die on the way", 5,
         _program("tests.chaos.drain")),
    Part("chaos", "faults of fleets and of lakes that are being written", 6, _tests("tests/chaos")),
    Part("interop-short", "a few faults and questions of mqadmin before our controllers", 6, _program("tests.interop_java short"), JAVA),
    Part("interop-move", "a live RocketMQ fleet moves to our controllers and back under load", 6,
         _program("tests.interop_java move"), JAVA),
    Part("chaos-net-short", "five minutes of drawn faults, with the alarms of a Prometheus beside them", 7,
         _program(f"tests.chaos.net --seconds 300 --may-skip --alarms --seed {SEED}"), ALARMS),
    Part("machines-test", "a page typed as printed, and every command, on machines of their own", 8, _tests("tests/machines"), MACHINES),
    Part("attacks", "attacks on every port of a fleet under load: refused, counted, not felt", 10, _program("tests.attacks")),
    Part("stories", "what is built installs without the checkout; pages as typed, alarms of a Prometheus, readers of lakes", 10,
         _tests("-n", "2", "--dist", "loadfile", "-m", "prove", "tests"), ALARMS),
    Part("hooks-proof", "1,000 failovers told to a receiver that fails, hangs and restarts", 10,
         _program("tests.perf.hooks_proof --runs 1")),
    Part("false-handovers", "twice as many busy processes as cores, all policies on: nobody is left", 11,
         _program("tests.chaos.false_handovers --minutes 10")),
    Part("starved", "forty busy processes a core: the controllers keep their leader, and find a killed master", 14,
         _program("tests.chaos.starved --minutes 10 --per-core 40")),
    Part("interop-admin", "mqadmin at our brokers beside RocketMQ's: equal, or explained", 15, _program("tests.interop_java brokers"), JAVA),
    Part("console-bench", "what twenty consoles cost the leader of 1,000 sets, and one in Chromium", 15,
         _program("tests.perf.bench_console")),
    Part("bench", "what Rollcall claims about its speed, three runs", 20, _program("tests.perf")),
    Part("bench-vs-rocketmq", "Rollcall beside RocketMQ on this machine, one run", 30, _program("tests.perf.versus --runs 1"), JAVA),
    Part("bench-analytics", "what bronze, silver and gold cost beside a bare scan", 20,
         _program("tests.perf.lake --events-m 5,10 --parts sizes,flapping")),
    Part("chaos-net", "every fault of a network, disk, clock and certificate, once", 25,
         _program(f"tests.chaos.net --rounds 1 --may-skip --seed {SEED}"), MACHINES),
    Part("chaos-field", "48 faults of a minute on the scale of RocketMQ's authors: up to all nodes, 80 % loss", 25,
         _program(f"tests.chaos.net --field --rounds 4 --fleets 4 --may-skip --seed {SEED}"), MACHINES),
    Part("sim", "the whole cluster under a seeded clock, network and disk: 100 seeds as ever, and 900 fresh ones", 30,
         _program(f"tests.sim --seeds 100 --fresh 900 --drawn-from {SEED}")),
    Part("interop-clients", "clients of RocketMQ for Java and Go, and ours, share topics at our brokers: kills, stops, a restart of all", 16,
         _program("tests.interop_java ours"), JAVA),
    Part("interop-clients-java", "the same clients and faults before our brokers and before RocketMQ's behind our controllers: what differs", 20,
         _program("tests.interop_java clients"), JAVA),
    Part("interop", "real RocketMQ brokers, clients and mqadmin before our controllers", 30, _program("tests.interop_java all"), JAVA),
    Part("analytics-truth", "a million synthetic failovers through the pipeline, beside what really happened", 30,
         _program("tests.perf.analytics_truth")),
    Part("sim-mutants", "one rule after the other switched off: each is noticed in two ways", 40, _program("tests.sim --mutants")),
)  # fmt: skip
