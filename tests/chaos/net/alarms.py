"""
The alarms of a round beside its log of faults: what each was for, and which were owed and did not come.

Here: which fault may raise which alarm, why, and which it has to raise, and the comparison, all pure. Not here: Prometheus and
the looks at the fleet (``watch``), faults (``faults``).

Each alarm is watched twice: hurried, with a wait of two seconds, and with the wait that we ship, so that a failover of three
seconds is no alarm of fifteen.

Rule 1: what an alarm is about began its whole wait before the alarm, and lasts as long as it fires. All of that time belongs to
faults of ``CAUSES``, each from its beginning to when the fleet is whole, and ``ENDS_S``. An alarm about a process belongs to a
fault of that process; one that only a master's or a leader's fault may raise, to that.
Rule 2: a fault that was there for as long as its alarm waits, and as the alarm may be late, has raised it by then.
Rule 3: so has what somebody saw who asked the controllers by REST all the time, whatever the fault was: a set without a
master, stopped writes, a last replica, no leader.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollcall_ha.node.disk_usage import INTERVAL_S
from tests.support.prometheus import Firing

NO_MASTER, STOPPED, EXPOSED = "RollcallSetWithoutMaster", "RollcallWritesStopped", "RollcallSetExposed"
NO_LEADER, MISSING, GONE = "RollcallNoLeader", "RollcallControllersMissing", "RollcallProcessGone"
ENDS_S = 5.0
"""After its fault an alarm may still begin, or fire: an answer that was waited for, a scrape, an evaluation."""
LATE_S = 4.0
"""An alarm comes so much later than its wait at most: two scrapes, one of which waits for its answer, and an evaluation."""
STAMP_S = 1.0
"""A scrape that waits for its answer has the time of its beginning."""
HELD_S = 8.0
"""A fault is there for as long at least: a set without a master, or controllers without a leader, may then be owed."""
SHIPPED_S_MAX = 15.0
"""Faults last for the shortest wait that is shipped; those of minutes and more are only watched for silence."""
LOOK_S_MAX = 3.0
"""Between two looks that saw the same, nothing else was to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One fault. Times are UTC."""

    scenario: str
    hit: str
    """The process or machine that the fault was about, in words."""
    victims: frozenset[str]
    """Names of the processes that the fault hit."""
    began_s: float
    there_s: float
    """When it was there for certain."""
    held_s: float
    """For how long from then on, at least."""
    whole_s: float
    """When the fleet was whole again."""

    def is_of(self, role: str) -> bool:
        """Whether it was about the ``role``, master, leader or controller; about anybody, if empty."""
        return re.search(rf"\b{role}\b", f"{self.scenario} {self.hit}") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was wrong with the fleet at one moment."""

    began_s: float
    ended_s: float
    wrong: frozenset[tuple[str, str]]
    """Alarms that are owed if it lasts, each with the controller by whose word: between two leaders it may begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Faults that may raise an alarm."""

    by: frozenset[str]
    why: str
    role: str = ""
    """Of the fault's victim: master, leader or controller; empty: whichever it is."""
    is_owed: bool = False
    """Whether they have to."""
    or_instead: str = ""
    """Another alarm about the same, which pays for this one."""
    is_of_victim: bool = False
    """Whether the alarm names the process that the fault was about."""
    ends_s: float = ENDS_S
    late_s: float = LATE_S


def _of(*kinds: str, whom: Sequence[str]) -> frozenset[str]:
    return frozenset(f"{kind} {one}" for kind in kinds for one in whom)


_BROKER, _CONTROLLER = ("broker", "both"), ("controller", "both")
_ROLLING = frozenset({"rolling restart", "rolling upgrade"})
_CLOCK_FORWARD = frozenset({"clock forward, leader", "clock forward, master"})
_CLOCK_BACK = frozenset({"clock back, leader", "clock back, master"})
_SHAPES = frozenset({"ring partition", "bridge partition"})

CAUSES: dict[str, tuple[Cause, ...]] = {
    # Not by a master's end alone: another member is elected in less than a second once it is found gone.
    NO_MASTER: (
        Cause(by=_of("loss", whom=_BROKER), role="master", why="another member is elected by answers that come too late"),
        Cause(by=frozenset({"controllers from brokers"}), why="the controllers hear no broker"),
        Cause(by=_SHAPES, why="the leader may not hear the master, nor one who could follow it"),
    ),
    STOPPED: (
        Cause(by=frozenset({"disk full"}), is_owed=True, why="its master has no room for a write"),
        Cause(by=_of("hang", "loss", "partition", whom=_BROKER), why="a member does not acknowledge, until it is removed"),
        Cause(by=frozenset({"master is not heard", "master hears nobody"}), why="its members cannot acknowledge"),
        Cause(by=_SHAPES, why="the master may be cut off from its members"),
    ),
    EXPOSED: (
        Cause(by=_of("loss", whom=_BROKER), role="master", why="both members come too late, and are removed"),
        Cause(by=_SHAPES, why="the master may be cut off from both members"),
    ),
    "RollcallSetBlocked": (),
    NO_LEADER: (
        Cause(
            by=_of("kill", "hang", "loss", "partition", whom=_CONTROLLER) | {"leader is not heard", "leader hears nobody"},
            role="leader", why="until another one is elected",
        ),
        Cause(by=_SHAPES, why="it may cut every majority"),
    ),
    MISSING: (
        # Of the leader, it waits for the next one's scrape.
        Cause(
            by=_of("kill", "hang", "partition", whom=_CONTROLLER) | {"leader is not heard", "leader hears nobody"},
            is_owed=True, late_s=LATE_S + 1.5, why="the leader hears one of two",
        ),
        Cause(by=_of("loss", whom=_CONTROLLER), why="answers come too late"),
        # Heard for two seconds of each three and a half: three looks in a row may fall into what is left of them.
        Cause(by=frozenset({"flapping plug"}), role="controller", why="its link breaks, and is made anew in the next cut"),
        Cause(by=_SHAPES, why="the leader hears one of two at the most"),
        Cause(by=_ROLLING, why="one is down while it is restarted"),
    ),
    "RollcallControllersDiffer": (),
    "RollcallEntriesLost": (),
    "RollcallLeadUnstable": (
        Cause(
            by=_of("kill", "hang", "loss", "partition", whom=_CONTROLLER)
            | {"leader is not heard", "leader hears nobody", "flapping plug"} | _SHAPES | _ROLLING,
            ends_s=600.0, why="the lead has changed for the sixth time within ten minutes",
        ),
    ),
    GONE: (
        Cause(
            by=_of("kill", "hang", whom=("broker", "controller", "both")) | {"wiped broker"},
            is_of_victim=True, is_owed=True, why="it does not answer",
        ),
        Cause(by=_ROLLING, is_of_victim=True, why="down while it is restarted"),
        Cause(by=_CLOCK_BACK, is_of_victim=True, why="it takes no certificate from after its time, nor that of Prometheus"),
    ),
    "RollcallCertificateExpires": (
        Cause(by=frozenset({"certificate expires"}), is_of_victim=True, is_owed=True, why="its last four seconds"),
    ),
    "RollcallDiskFull": (
        Cause(
            by=frozenset({"disk full"}), is_of_victim=True, is_owed=True, late_s=LATE_S + INTERVAL_S, ends_s=ENDS_S + INTERVAL_S,
            why="nothing is left of it",
        ),
    ),
    "RollcallClockOff": (
        Cause(by=_CLOCK_FORWARD, is_of_victim=True, is_owed=True, why="an hour off"),
        # A link that was open before goes on being asked: a broker's is closed behind each answer.
        Cause(by=_CLOCK_BACK, is_of_victim=True, is_owed=True, or_instead=GONE, why="an hour off"),
    ),
    "RollcallLoopStalls": (),
    "RollcallRetentionHeld": (),
    "RollcallGroupLags": (),
}  # fmt: skip
"""Of each alarm of ``deploy/prometheus/rules.yml``; an empty row: no fault of a round may raise it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Alarms that fired beside faults: explained and not, owed and missed."""

    fired: tuple[Firing, ...]
    unexplained: tuple[Firing, ...]
    owed: tuple[str, ...]
    missed: tuple[str, ...]

    def counts(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {
            "fired": len(self.fired), "with_the_wait_that_is_shipped": sum(one.is_shipped for one in self.fired),
            "explained": len(self.fired) - len(self.unexplained), "unexplained": len(self.unexplained),
            "owed": len(self.owed), "missed": len(self.missed), "by_alarm": dict(Counter(one.alarm for one in self.fired)),
        }  # fmt: skip


def held_s(scenario: str, waits_s: Mapping[tuple[str, bool], float]) -> float:
    """How long a fault has to be there, so that what it owes within ``SHIPPED_S_MAX`` is owed."""
    takes_s = [
        wait_s + cause.late_s + 1
        for (alarm, is_shipped), wait_s in waits_s.items()
        for cause in CAUSES[alarm]
        if cause.is_owed and scenario in cause.by and (not is_shipped or wait_s <= SHIPPED_S_MAX)
    ]
    return max([HELD_S, *takes_s])


def victims_of(hit: str, nodes: Sequence[str]) -> frozenset[str]:
    """Names out of the words that say whom a fault was about."""
    if re.match(r"all\b", hit):
        return frozenset(nodes)
    return frozenset(name for name in nodes if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", hit))


def beside(
    log: Sequence[Happened], fired: Sequence[Firing], looks: Sequence[Look], waits_s: Mapping[tuple[str, bool], float]
) -> Beside:
    """
    ``fired`` beside ``log`` and ``looks``.

    Args:
        waits_s: How long each alarm waits before it fires, by its name and whether that is the wait which is shipped.
    """
    debts = [*_owed_by_faults(log, waits_s), *_owed_by_looks(looks, waits_s)]
    return Beside(
        fired=tuple(fired),
        unexplained=tuple(one for one in fired if not is_explained(one, log, waits_s[one.alarm, one.is_shipped])),
        owed=tuple(str(debt) for debt in debts),
        missed=tuple(str(debt) for debt in debts if not any(debt.is_paid_by(one) for one in fired)),
    )


def is_explained(one: Firing, log: Sequence[Happened], wait_s: float) -> bool:
    """Whether one fault of the log may raise the alarm, over its whole time (rule 1); times in s."""
    began_s = reached_s = one.since_s - wait_s
    for fault in sorted(log, key=lambda fault: fault.began_s):
        for cause in CAUSES[one.alarm]:
            is_about = one.about in fault.victims or not cause.is_of_victim
            ended_s = fault.whole_s + cause.ends_s
            is_then = fault.began_s - STAMP_S <= reached_s <= ended_s
            if fault.scenario in cause.by and fault.is_of(cause.role) and is_about and is_then:
                reached_s = ended_s
    # An alarm that none explains has reached nothing but its own beginning.
    return reached_s > began_s and reached_s >= one.until_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Debt:
    alarms: tuple[str, ...]
    """Each of which pays it."""
    about: str
    """Empty: whoever it is about."""
    is_shipped: bool
    why: str
    since_s: float
    """When it can fire by that at the earliest: one of the fault before, which is about to end, pays nothing."""
    deadline_s: float

    def is_paid_by(self, one: Firing) -> bool:
        is_meant = one.alarm in self.alarms and one.is_shipped is self.is_shipped and self.about in ("", one.about)
        return is_meant and one.since_s <= self.deadline_s and one.until_s >= self.since_s

    def __str__(self) -> str:
        words = (" or ".join(self.alarms), "as shipped" if self.is_shipped else "hurried", self.about, self.why)
        return " ".join(filter(None, words))


def _owed_by_faults(log: Sequence[Happened], waits_s: Mapping[tuple[str, bool], float]) -> Iterator[_Debt]:
    """Alarms that the faults must raise, each with its deadline in s (rule 2)."""
    for fault in log:
        for (alarm, is_shipped), wait_s in waits_s.items():
            for cause in CAUSES[alarm]:
                takes_s = wait_s + cause.late_s
                if cause.is_owed and fault.scenario in cause.by and fault.is_of(cause.role) and fault.held_s >= takes_s:
                    for about in sorted(fault.victims) if cause.is_of_victim else ("",):
                        yield _Debt(
                            alarms=tuple(filter(None, (alarm, cause.or_instead))), about=about, is_shipped=is_shipped, why=f"{fault.scenario} for {fault.held_s:.1f} s",
                            since_s=fault.began_s + wait_s, deadline_s=fault.there_s + takes_s,
                        )  # fmt: skip


def _owed_by_looks(looks: Sequence[Look], waits_s: Mapping[tuple[str, bool], float]) -> Iterator[_Debt]:
    """Alarms that sets without a master, as REST told, must raise, with deadlines in s (rule 3)."""
    open_: dict[tuple[str, str], tuple[Look, Look]] = {}
    last: Look | None = None
    for look in [*looks, Look(began_s=float("inf"), ended_s=float("inf"), wrong=frozenset())]:
        goes_on = last is not None and look.began_s - last.ended_s <= LOOK_S_MAX
        for alarm, by in [one for one in open_ if not goes_on or one not in look.wrong]:
            first, newest = open_.pop((alarm, by))
            seen_s = newest.began_s - first.ended_s
            for is_shipped in (False, True):
                wait_s = waits_s[alarm, is_shipped]
                takes_s = wait_s + LATE_S
                if seen_s >= takes_s:
                    yield _Debt(
                        alarms=(alarm,), about="", is_shipped=is_shipped, since_s=first.began_s + wait_s,
                        deadline_s=first.ended_s + takes_s, why=f"seen for {seen_s:.1f} s {f'by the word of {by}' if by else ''}".strip(),
                    )  # fmt: skip
        for one in look.wrong:
            open_[one] = (open_[one][0] if one in open_ else look, look)
        last = look
