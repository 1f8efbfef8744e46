"""
What people at consoles cost the leading controller of a thousand sets, and how soon they see what happens.

    python -m tests.perf.bench_console [--runs 3]

``console``: 500 events a second, without viewers, with twenty at a follower, with twenty at the leader, again and again:
the leader's CPU and its elections, as ratios. Those at a follower take as much of this machine and nothing of the leader:
what their ratios are above 1 is the machine's. ``console-browser``: one real Chromium: the first paint, and how long after
the stamp of its entry an election is to be seen. Stamps are older than commits, so it is later than what a person would
count.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import our_environment, wait_until
from tests.perf.bench_sets import SETS, crowds, register
from tests.perf.machine import ROOT, cpu_s
from tests.perf.results import Measure, percentile
from tests.perf.section import Context, Section

VIEWERS = 20
ORDER_SETS = SETS * 4 // 5
"""Those that the load pauses; elections are held in the others."""
EVENTS_PER_S = 500
SETTLE_S = 2.0
SLICE_S = 6.0
ELECTIONS = 15
"""In one slice, each in a set of its own: its loser has left the SyncStateSet."""
PLACES = ("nobody", "follower", "leader")
"""Where the viewers are in the slices of a round."""
ROUNDS = 4
"""Every other one in reverse: of a machine that gets slower, or a state that grows, each place has the same share."""
BROWSER_ELECTIONS = 10
PAINTS = 5
KILLS = 3
DEADLINE_S = 60.0
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TOO_EARLY = (
    b"not heard by the leading controller yet", b"its store is recovering or refuses a role", b"silent (timeout)"
)  # fmt: skip
"""A machine that starts a browser may change the leader: two thousand sessions move longer than one heartbeat timeout."""
WATCH = """
window.__seen = [];
window.__row = 0;
new MutationObserver(() => {
  if (!__row && document.querySelector("tr[data-set]")) requestAnimationFrame(() => { __row ||= performance.now(); });
  for (const line of document.querySelectorAll("#changes li.fresh[data-kind=master-elected]:not([data-met])")) {
    line.dataset.met = "1";
    const stamp = Date.parse(line.querySelector("time").dateTime);
    requestAnimationFrame(() => __seen.push(Date.now() - stamp));
  }
}).observe(document, {childList: true, subtree: true});
"""


def why_no_browser() -> str:
    """Empty: there is one, and what drives it."""
    if BROWSER is None:
        return "no Chromium on the PATH: apt-get install chromium"
    return "" if find_spec("playwright") else "playwright is not installed: make setup"


def token(fleet: Fleet, role: str) -> Path:
    """A file with a token, the same for all of a role."""
    path = fleet.directory / f"token-{role}"
    if path.exists():
        return path
    told = ("tokens", "issue", "--role", role, "--name", role, "--out", str(path))
    environment = fleet.commands_environment() or our_environment()
    subprocess.run(fleet.command(*told), env=environment, capture_output=True, check=True, timeout=60)
    return path


class People:
    """A running ``console_people``."""

    def __init__(self, fleet: Fleet, controller: str, what: str, role: str, *numbers: int) -> None:
        address, authority = fleet.rest(controller).address, str(fleet.identity().authority)
        program = [sys.executable, "-m", "tests.perf.console_people", what, address, authority]
        self.process = subprocess.Popen(
            [*program, str(token(fleet, role)), *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._line() != "ready":
            raise RuntimeError(f"{what} did not begin")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def told(self) -> int:
        """Its count."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self._line())


@contextmanager
def people(fleet: Fleet, controller: str, what: str, role: str, *numbers: int) -> Iterator[People]:
    """At ``controller``; gone at the end."""
    found = People(fleet, controller, what, role, *numbers)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def others_of(fleet: Fleet) -> list[tuple[SetKey, BrokerId]]:
    """Sets whose elections are not paused by the load, each with the replica that is not master."""
    found = []
    for status in fleet.client().sets().sets:
        view = status.view
        if int(view.set_key.name[1:]) >= ORDER_SETS and view.master is not None:
            found.append((view.set_key, next(one.broker_id for one in view.members if one.broker_id != view.master)))
    return found


def elections_ms(fleet: Fleet, chosen: Sequence[tuple[SetKey, BrokerId]]) -> list[float]:
    """Orders to elect another replica, one after the other: until each is answered."""
    connection, took = fleet.rest(fleet.leader()).connection(timeout_s=10), []
    for key, target in chosen:
        path = f"/v1/sets/{key.cluster}/{key.name}/elect"
        until_s = time.monotonic() + DEADLINE_S
        while True:
            began = time.perf_counter()
            connection.request("POST", path, f'{{"to":{target}}}', {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            # Registered, and its first heartbeat is still to come: no order that is measured.
            is_early = any(why in content for why in TOO_EARLY)
            if not is_early or time.monotonic() > until_s:
                break
        if answer.status != 200:
            raise RuntimeError(f"{key}: {answer.status} {content!r}")
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(SLICE_S / ELECTIONS / 2)
    connection.close()
    return took


@dataclass(slots=True)
class Spent:
    """Measurements of one slice, with the viewers at one place."""

    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0
    elections_ms: list[float] = field(default_factory=list)
    viewers_cpu_s: float = 0.0
    heard_bytes: int = 0

    @property
    def cpu_percent(self) -> float:
        """Of a core, by the leader."""
        return self.cpu_s / self.elapsed_s * 100

    @property
    def event_us(self) -> float:
        """The leader's CPU for each event: a machine that is busy gives fewer of them in one slice than in the other."""
        return self.cpu_s / self.events * 1e6

    @property
    def election_ms(self) -> float:
        """Median wait for an election by order, in ms."""
        return statistics.median(self.elections_ms)


def watch_slice(spent: Spent, fleet: Fleet, orders: People, chosen: Sequence[Any], viewers: People | None) -> None:
    """Add ``SLICE_S`` to what was spent."""
    pid = fleet.pid(fleet.leader())
    assert pid is not None
    time.sleep(SETTLE_S)
    watching = [] if viewers is None else [viewers.process.pid]
    before, seen, done, began = cpu_s([pid]), cpu_s(watching), orders.told(), time.monotonic()
    heard = 0 if viewers is None else viewers.told()
    spent.elections_ms += elections_ms(fleet, chosen)
    time.sleep(max(0.0, SLICE_S - (time.monotonic() - began)))
    spent.cpu_s += cpu_s([pid]) - before
    spent.events += orders.told() - done
    spent.elapsed_s += time.monotonic() - began
    spent.viewers_cpu_s += cpu_s(watching) - seen
    spent.heard_bytes += 0 if viewers is None else viewers.told() - heard


def _until(page: Any, expression: str) -> None:
    """Until it is true in the page. Asked from here: what Playwright would evaluate there again and again, the policy forbids."""
    wait_until(lambda: page.evaluate(expression), deadline_s=DEADLINE_S, what=expression)


def run_console(context: Context) -> dict[str, float]:
    """Slices of ``SLICE_S``, and their sums for each place of the viewers."""
    spent = {place: Spent() for place in PLACES}
    with crowds(context, is_insecure=False) as (fleet, slaves, masters):
        register(context, slaves, masters, SETS)
        leader, targets = fleet.leader(), iter(others_of(fleet))
        controllers = {"leader": leader, "follower": next(name for name in fleet.controllers if name != leader)}
        with people(fleet, leader, "orders", "operator", EVENTS_PER_S, ORDER_SETS) as orders:
            for turn in range(ROUNDS):
                for place in PLACES[:: -1 if turn % 2 else 1]:
                    chosen = list(itertools.islice(targets, ELECTIONS))
                    if len(chosen) < ELECTIONS:
                        raise RuntimeError(f"{ROUNDS * len(PLACES) * ELECTIONS} sets to elect in are needed")
                    with ExitStack() as open_tabs:
                        at = (fleet, controllers[place], "viewers", "viewer", VIEWERS) if place in controllers else None
                        viewers = open_tabs.enter_context(people(*at)) if at is not None else None
                        watch_slice(spent[place], fleet, orders, chosen, viewers)
        if fleet.leader() != leader:
            raise RuntimeError(f"{leader} lost the lead meanwhile")
    for place, one in spent.items():
        context.detail[f"elections_{place}_ms"] = one.elections_ms
        context.say(
            f"viewers at {place}: {one.events / one.elapsed_s:.0f} events/s, leader {one.cpu_percent:.1f} % of a core, "
            f"{one.event_us:.0f} us for each event, election {one.election_ms:.1f} ms"
        )
    alone, beside, watched = (spent[place] for place in PLACES)
    return {
        "cpu_ratio": watched.event_us / alone.event_us,
        "election_ratio": watched.election_ms / alone.election_ms,
        "cpu_ratio_follower": beside.event_us / alone.event_us,
        "election_ratio_follower": beside.election_ms / alone.election_ms,
        "cpu_alone": alone.cpu_percent,
        "cpu_watched": watched.cpu_percent,
        "rate_alone": alone.events / alone.elapsed_s,
        "rate_watched": watched.events / watched.elapsed_s,
        "election_alone_ms": alone.election_ms,
        "election_watched_ms": watched.election_ms,
        "viewers_cpu": watched.viewers_cpu_s / watched.elapsed_s * 100,
        "heard_mb_s": watched.heard_bytes / 1e6 / watched.elapsed_s,
    }


def run_browser(context: Context) -> dict[str, float]:
    """First paint and elections with a thousand sets; then failovers of a master that is killed, in a small fleet."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        with crowds(context, is_insecure=False) as (fleet, slaves, masters):
            register(context, slaves, masters, SETS)
            paints, rows = [], []
            for _ in range(PAINTS):
                page = _opened(browser, fleet)
                paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                _until(page, "window.__row > 0")
                paints.append(float(page.evaluate(paint)))
                rows.append(float(page.evaluate("window.__row")))
                page.context.close()
            page = _opened(browser, fleet)
            _until(page, "window.__row > 0 && !!document.querySelector('#link[data-state=live]')")
            time.sleep(SETTLE_S)
            elections_ms(fleet, others_of(fleet)[:BROWSER_ELECTIONS])
            _until(page, f"window.__seen.length >= {BROWSER_ELECTIONS}")
            seen = [float(one) for one in page.evaluate("window.__seen")]
            page.context.close()
        killed = _failovers(context, browser)
        browser.close()
    context.detail |= {"paint_ms": paints, "rows_ms": rows, "seen_ms": seen, "failover_seen_ms": killed}
    context.say(
        f"first paint {max(paints):.0f} ms, rows {max(rows):.0f} ms, seen {max(seen):.0f} and {max(killed):.0f} ms"
    )
    return {
        "paint_ms": max(paints),
        "rows_ms": max(rows),
        "seen_p50_ms": percentile(seen, 0.5),
        "seen_max_ms": max(seen),
        "failover_seen_max_ms": max(killed),
    }


def _failovers(context: Context, browser: Any) -> list[float]:
    with context.fleet() as fleet:
        (key,) = fleet.set_keys()
        fleet.wait_redundant(key)
        page = _opened(browser, fleet)
        _until(page, "window.__row > 0 && !!document.querySelector('#link[data-state=live]')")
        for number in range(1, KILLS + 1):
            dead = fleet.master(key)
            fleet.kill(dead)
            _until(page, f"window.__seen.length >= {number}")
            fleet.restart(dead)
            fleet.wait_redundant(key, deadline_s=DEADLINE_S)
        seen = [float(one) for one in page.evaluate("window.__seen")]
        page.context.close()
    return seen


def _opened(browser: Any, fleet: Fleet) -> Any:
    """A tab that is signed in, cold."""
    tokens = fleet.directory / "token-viewer"
    text = (tokens if tokens.exists() else token(fleet, "viewer")).read_text().strip()
    tab = browser.new_context(ignore_https_errors=True, viewport={"width": 1440, "height": 900})
    tab.add_init_script(f"sessionStorage.setItem('rollcall.token', '{text}');{WATCH}")
    page = tab.new_page()
    page.goto(f"https://{fleet.rest(fleet.leader()).address}/console")
    return page


CONSOLE = Section(
    name="console",
    title="twenty people at consoles, 1,000 sets, 500 events/s",
    measures=(
        Measure(key="cpu_ratio", what="leader's CPU for each event, with 20 viewers to without", unit="", aim=1.1),
        Measure(key="election_ratio", what="election, with to without", unit="", aim=1.1),
        Measure(key="cpu_ratio_follower", what="  CPU, if the 20 viewers are at a follower", unit=""),
        Measure(key="election_ratio_follower", what="  election, likewise", unit=""),
        Measure(key="cpu_alone", what="  leader's CPU without viewers", unit="%"),
        Measure(key="cpu_watched", what="  with", unit="%"),
        Measure(key="rate_alone", what="  events without viewers", unit="/s"),
        Measure(key="rate_watched", what="  with", unit="/s"),
        Measure(key="election_alone_ms", what="  election by order without viewers, median", unit="ms"),
        Measure(key="election_watched_ms", what="  with", unit="ms"),
        Measure(key="viewers_cpu", what="  the viewers' own program", unit="%"),
        Measure(key="heard_mb_s", what="  heard by all viewers", unit="MB/s"),
    ),
    run=run_console,
)
CONSOLE_BROWSER = Section(
    name="console-browser",
    title="one console in Chromium, 1,000 sets",
    measures=(
        Measure(key="paint_ms", what="first paint of five, the slowest", unit="ms", aim=1_000),
        Measure(key="rows_ms", what="  until the worst sets are there", unit="ms", aim=1_000),
        Measure(key="seen_max_ms", what="election seen after its stamp, 1,000 sets, the slowest", unit="ms", aim=200),
        Measure(key="seen_p50_ms", what="  median", unit="ms"),
        Measure(key="failover_seen_max_ms", what="failover of a killed master, the slowest", unit="ms", aim=200),
    ),
    run=run_browser,
)


if __name__ == "__main__":
    from tests.perf.__main__ import main

    sections = [CONSOLE]
    if reason := why_no_browser():
        print(f"SKIPPED 1 section, {CONSOLE_BROWSER.name}: {reason}")
    else:
        sections.append(CONSOLE_BROWSER)
    sys.exit(main(["--json", str(ROOT / "out" / "console.json"), *sys.argv[1:]], sections))
