"""The judge of alarms in `make prove PARTS=chaos-net-short`: which it calls unexplained, which it misses."""

from __future__ import annotations

import pytest

from tests.chaos.net.alarms import (
    CAUSES,
    ENDS_S,
    EXPOSED,
    GONE,
    HELD_S,
    LATE_S,
    MISSING,
    NO_LEADER,
    NO_MASTER,
    STOPPED,
    Beside,
    Happened,
    Look,
    beside,
    held_s,
    victims_of,
)
from tests.chaos.net.faults import FAULTS
from tests.chaos.net.watch import WAITS_S
from tests.support.prometheus import EVALUATION_S_MAX, Firing, rules, spans

BEGAN_S, THERE_S, WHOLE_S = 100.0, 101.0, 112.0
NODES = ("c1", "c2", "broker-a-1", "broker-a-11")


def fault(scenario: str, hit: str, *, began_s: float = BEGAN_S, held_s: float = HELD_S) -> Happened:
    later_s = began_s - BEGAN_S
    return Happened(
        scenario=scenario, hit=hit, victims=victims_of(hit, NODES), began_s=began_s, there_s=THERE_S + later_s,
        held_s=held_s, whole_s=WHOLE_S + later_s,
    )  # fmt: skip


def alarm(
    name: str, about: str = "", *, since_s: float = BEGAN_S + 4, until_s: float = WHOLE_S, is_shipped: bool = False
) -> Firing:
    return Firing(alarm=name, about=about, is_shipped=is_shipped, since_s=since_s, until_s=until_s)


def judged(log: list[Happened], *fired: Firing, looks: tuple[Look, ...] = ()) -> Beside:
    return beside(log, fired, looks, WAITS_S)


def looks(wrong: frozenset[tuple[str, str]], *, since_s: float, until_s: float) -> tuple[Look, ...]:
    """One each half second, and a good one behind them."""
    count = int((until_s - since_s) * 2) + 1
    bad = [Look(began_s=since_s + n / 2, ended_s=since_s + n / 2, wrong=wrong) for n in range(count)]
    return (*bad, Look(began_s=until_s + 0.5, ended_s=until_s + 0.5, wrong=frozenset()))


def test_every_alarm_has_its_causes_and_every_cause_is_a_fault() -> None:
    assert set(CAUSES) == {rule["alert"] for rule in rules()} == {alarm for alarm, _ in WAITS_S}
    for cause in (one for causes in CAUSES.values() for one in causes):
        assert cause.by
        assert cause.by <= set(FAULTS)
        assert cause.why


def test_a_fault_lasts_until_the_alarms_that_it_owes_have_come() -> None:
    """Otherwise nothing would ever be missed."""
    owed = [(name, cause) for name, causes in CAUSES.items() for cause in causes if cause.is_owed]
    least = {name: WAITS_S[name, False] + cause.late_s for name, cause in owed}

    assert len(least) >= 6
    assert all(least_s <= held_s(scenario, WAITS_S) for name, cause in owed
               for scenario in cause.by for least_s in [least[name]])  # fmt: skip
    assert held_s("disk full", WAITS_S) > WAITS_S[STOPPED, True] + LATE_S
    assert held_s("slow wires", WAITS_S) == HELD_S


def test_alarms_of_their_faults_are_explained_and_nothing_is_missed() -> None:
    found = judged([fault("kill both", "broker-a-1, c1")], alarm(GONE, "broker-a-1"), alarm(GONE, "c1"), alarm(MISSING))

    assert (len(found.fired), found.unexplained, len(found.owed), found.missed) == (3, (), 3, ())


@pytest.mark.parametrize(
    "one",
    [
        alarm("RollcallDiskFull", "broker-a-1"),
        alarm(GONE, "broker-a-2"),
        alarm(GONE, "broker-a-1", since_s=BEGAN_S),
        alarm(GONE, "broker-a-1", since_s=WHOLE_S + ENDS_S + 3, until_s=WHOLE_S + ENDS_S + 4),
        alarm(GONE, "broker-a-1", until_s=WHOLE_S + ENDS_S + 1),
        alarm(GONE, "broker-a-1", is_shipped=True),
        alarm("RollcallControllersDiffer"),
        alarm(EXPOSED, "broker-a"),
    ],
    ids=[
        "another alarm", "another process", "before it", "behind it", "does not end", "did not wait as long as it has to",
        "nothing may raise it", "it was not the master",
    ],
)  # fmt: skip
def test_an_alarm_without_a_fault_of_its_own_is_unexplained(one: Firing) -> None:
    """Besides the one that is owed."""
    log = [fault("kill broker", "broker-a-1"), fault("loss broker", "broker-a-2")]
    found = judged(log, alarm(GONE, "broker-a-1"), one)

    assert found.unexplained == (one,)
    assert found.missed == ()


@pytest.mark.parametrize(("hit", "unexplained"), [("c2 (controller)", 0), ("broker-a-2", 1)])
def test_a_controller_whose_plug_flaps_was_missing_and_the_alarm_belonged_to_no_fault(
    hit: str, unexplained: int
) -> None:
    """Its plug was out for 0.4 s of each 1.2: measured, the leader heard two of three for up to 1.6 s, again and again."""
    assert len(judged([fault("flapping plug", hit)], alarm(MISSING)).unexplained) == unexplained


def test_an_alarm_with_the_wait_that_is_shipped_is_owed_by_a_fault_that_lasts_and_too_late_it_is_missed() -> None:
    log = [fault("disk full", "broker-a-1 (master)", held_s=held_s("disk full", WAITS_S))]
    full, hurried = alarm("RollcallDiskFull", "broker-a-1"), alarm(STOPPED, "broker-a")
    due_s = THERE_S + WAITS_S[STOPPED, True] + LATE_S

    assert judged(log, full, hurried).missed == (f"{STOPPED} as shipped disk full for 20.0 s",)
    for late_s, missed in ((0, 0), (1, 1)):
        shipped = alarm(STOPPED, "broker-a", since_s=due_s + late_s, until_s=due_s + 2, is_shipped=True)
        assert len(judged(log, full, hurried, shipped).missed) == missed


def test_an_alarm_may_go_on_over_faults_that_each_may_raise_it() -> None:
    log = [
        fault("loss broker", "broker-a-1 (master)"),
        fault("controllers from brokers", "all", began_s=WHOLE_S + 1),
    ]

    assert judged(log, alarm(NO_MASTER, "broker-a", until_s=WHOLE_S + 9)).unexplained == ()


@pytest.mark.parametrize(
    ("scenario", "held_s", "missed"),
    [("kill broker", HELD_S, 1), ("kill broker", WAITS_S[GONE, False] + LATE_S - 0.1, 0), ("slow wires", HELD_S, 0)],
)
def test_a_fault_that_lasts_has_raised_its_alarm(scenario: str, held_s: float, missed: int) -> None:
    found = judged([fault(scenario, "broker-a-1", held_s=held_s)], alarm(GONE, "broker-a-2"))

    assert len(found.missed) == missed


def test_an_alarm_of_the_fault_before_that_had_not_ended_paid_for_the_next_one() -> None:
    log = [fault("kill controller", "c1"), fault("partition controller", "c2", began_s=WHOLE_S + 1)]
    first = alarm(MISSING, until_s=WHOLE_S + 2)

    assert len(judged(log, alarm(GONE, "c1"), first).missed) == 1
    assert judged(log, alarm(GONE, "c1"), alarm(MISSING, until_s=WHOLE_S + 9)).missed == ()


def test_what_was_seen_for_long_enough_has_raised_its_alarm_whatever_the_fault_was() -> None:
    seen = looks(frozenset({(NO_MASTER, "c1")}), since_s=BEGAN_S, until_s=BEGAN_S + 7)

    assert judged([], looks=seen).missed == (f"{NO_MASTER} hurried seen for 7.0 s by the word of c1",)
    assert judged([fault("ring partition", "")], alarm(NO_MASTER, "broker-a"), looks=seen).missed == ()


def test_what_was_seen_for_a_moment_owes_nothing_nor_does_the_word_of_two_leaders_nor_a_gap() -> None:
    short = looks(frozenset({(NO_LEADER, "")}), since_s=BEGAN_S, until_s=BEGAN_S + 4)
    first = looks(frozenset({(NO_MASTER, "c1")}), since_s=BEGAN_S, until_s=BEGAN_S + 4)[:-1]
    second = looks(frozenset({(NO_MASTER, "c2")}), since_s=BEGAN_S + 4.5, until_s=BEGAN_S + 9)
    later = looks(frozenset({(NO_MASTER, "c1")}), since_s=BEGAN_S + 9, until_s=BEGAN_S + 12)

    for seen in (short, first + second, first + later):
        assert judged([], looks=seen).owed == ()


def test_names_are_read_out_of_the_words_about_whom_a_fault_was() -> None:
    assert victims_of("broker-a-1 (master), c2 (leader)", NODES) == {"broker-a-1", "c2"}
    assert victims_of("all, from level 3", NODES) == set(NODES)
    assert victims_of("", NODES) == frozenset()
    assert fault("kill both", "broker-a-1 (master), c2").is_of("master")
    assert not fault("kill both", "broker-a-1 (master), c2").is_of("leader")
    assert fault("leader hears nobody", "c1").is_of("leader")


def test_evaluations_of_an_alarm_are_one_until_one_is_missing() -> None:
    assert spans([]) == []
    assert spans([1, 2, 3, 3 + EVALUATION_S_MAX + 1]) == [(1, 3), (8, 8)]
