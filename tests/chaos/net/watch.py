"""
Who looks at the fleet of a round: a Prometheus with our rules, and somebody who asks the controllers by REST.

Here: both beside the faults, and what they saw. Not here: what an alarm is for (``alarms``).

Rule: both are on the operator's machine, which no fault cuts off, and their clock is the computer's, which no fault moves.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from rollcall_ha.controller.contract.codes import LEADER_HEADER
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.views import SetAnswer, SetStatus
from rollcall_ha.controller.runtime.views import is_exposed, is_served
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.chaos.net.alarms import ENDS_S, EXPOSED, NO_LEADER, NO_MASTER, STOPPED, Beside, Look, beside, held_s
from tests.chaos.net.faults import Stage
from tests.support.fleet_story import curl, set_path
from tests.support.prometheus import patience_s, scraping

FACTOR = 150
"""Each hurried ``for`` is divided by it, and is two seconds at least: five minutes are two seconds, ten are four."""
WAITS_S: dict[tuple[str, bool], float] = {
    (alarm, factor == 1): wait_s for factor in (FACTOR, 1) for alarm, wait_s in patience_s(factor).items()
}
"""Of each alarm, hurried and as it is shipped."""
CALM_S = 30.0
PAUSE_S = 0.5
ANSWER_S_MAX = 0.7


@contextmanager
def watched(stage: Stage) -> Iterator[Callable[[], Beside]]:
    """What is called inside the block says what was seen of the faults of ``stage`` so far, each of which lasts longer."""
    stage.kept_s = partial(held_s, waits_s=WAITS_S)
    with scraping(stage.fleet, factor=FACTOR, is_shipped_too=True) as prometheus, _looking(stage) as looks:
        # Until it has scraped for the first time, nobody leads by its word.
        wait_until(
            lambda: not prometheus.firing() | prometheus.pending(), deadline_s=CALM_S, what="no alarm before the faults"
        )
        began_s = time.time()

        def found() -> Beside:
            # A rule that Prometheus cannot judge is silent, as one is that has nothing to say.
            if (count := prometheus.evaluated()) != len(WAITS_S):
                raise LauncherError(f"Prometheus judged {count} rules, and has {len(WAITS_S)}: see its log")
            # The newest fault may raise an alarm a little later: until then it would go unseen.
            time.sleep(ENDS_S)
            fired = [one for one in prometheus.fired(last_s=time.time() - began_s) if one.until_s > began_s]
            return beside(stage.log, fired, list(looks), WAITS_S)

        yield found


@contextmanager
def _looking(stage: Stage) -> Iterator[list[Look]]:
    """A thread, on the machine of the one that begins it."""
    looks: list[Look] = []
    enough = threading.Event()

    def look() -> None:
        names = list(stage.fleet.controllers)
        while not enough.wait(PAUSE_S):
            began_s = time.time()
            wrong = _wrong(stage, names)
            looks.append(Look(began_s=began_s, ended_s=time.time(), wrong=wrong))

    thread = threading.Thread(target=look, name="looks", daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        enough.set()
        thread.join()


def _wrong(stage: Stage, names: list[str]) -> frozenset[tuple[str, str]]:
    """By the first of ``names`` that answers with authority, or for a leader; it comes to the front."""
    for name in list(names):
        try:
            answer = curl(stage.fleet.rest(name), set_path(stage.fleet), limit_s=ANSWER_S_MAX)
        except (OSError, ValueError, http.client.HTTPException):
            continue
        if answer.status == http.HTTPStatus.OK:
            names.remove(name)
            names.insert(0, name)
            leader = answer.headers.get(LEADER_HEADER.lower(), name)
            return frozenset((alarm, leader) for alarm in owed_by(msgspec.convert(answer.document, SetAnswer).set))
    return frozenset({(NO_LEADER, "")})


def owed_by(status: SetStatus) -> Iterator[str]:
    """Alarms of a set that is seen like this."""
    if not is_served(status):
        yield NO_MASTER
    elif is_exposed(status.view):
        yield EXPOSED
    if status.view.condition is Condition.WRITES_STOPPED:
        yield STOPPED
