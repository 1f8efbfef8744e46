"""
Whether everything that can be asked says the same while it happens: status, sets, metrics, /readyz and the CLI.

Here: a thread that asks by HTTP, and the count of disagreements. Not here: whether what they say is true
(``recorded``).

Rule 1: an answer is compared only where the set's condition was the same before and after it; a question takes
milliseconds, and a failover happens between two of them.
Rule 2: what does not fit is asked a second time at once, and counts if it does not fit again. A broker's gate opens 5 ms
after its entry is committed; nobody can ask two processes in the same millisecond.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.deploy.local.endpoints import Endpoint

PERIOD_S = 0.1
LIMIT_S = 0.5
UNREGISTERED = tuple(state.encode() for state in (BrokerState.BOOT, BrokerState.RECOVERING, BrokerState.REGISTERING))
"""Of a process that has not registered; what its /readyz begins with."""
CLI_EVERY = 20
"""Samples of an unhealthy set between two questions to the CLI: it takes a second of a core."""


def get(endpoint: Endpoint, path: str) -> tuple[int, bytes]:
    """Status and body; (0, b"") if there is no answer."""
    connection = endpoint.connection(timeout_s=LIMIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


@dataclass(slots=True, kw_only=True)
class Sampled:
    """What was asked, and what did not fit. ``disagreements`` say which two."""

    samples: int = 0
    conditions: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    disagreements: Counter[str] = field(default_factory=Counter)
    passing: int = 0
    """Did not fit, and did at once afterwards."""


class Sampler:
    """Asks every ``PERIOD_S`` between ``start`` and ``stop``."""

    def __init__(
        self, *, controllers: list[Endpoint], health: dict[str, Endpoint], path: str, check: Callable[[], int]
    ) -> None:
        """``health``: health address by listen address of each broker; ``check`` runs ``status --check``."""
        self.result = Sampled()
        self._controllers, self._health, self._path, self._check = controllers, health, path, check
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Sampled:
        self.is_over.set()
        self._thread.join(timeout=30)
        return self.result

    def _run(self) -> None:
        unhealthy = 0
        while not self.is_over.wait(PERIOD_S):
            with_check = unhealthy >= CLI_EVERY
            seen = self._look(with_check=with_check)
            if seen is None:
                continue
            condition, heard = seen
            unhealthy = 0 if with_check or condition == "serving" else unhealthy + 1
            self.result.samples += 1
            self.result.conditions[condition] += 1
            self.result.compared.update(heard.keys())
            found = _misfits(condition, heard)
            if found:
                again = self._look(with_check=with_check)
                lasting = found & _misfits(*again) if again is not None else set()
                self.result.disagreements.update(lasting)
                self.result.passing += len(found - lasting)

    def _look(self, *, with_check: bool) -> tuple[str, dict[str, str]] | None:
        """The condition of the set, and what each other says at the same time; None if it changed meanwhile."""
        leader, before = self._set()
        if leader is None:
            return None
        condition: str = before["view"]["condition"]
        heard = {
            "status": _status(leader, before["view"]["setKey"]),
            "metrics": _metrics(leader),
            "readyz": self._readyz(before),
        }
        if with_check:
            heard["status --check"] = "serving" if self._check() == 0 else ""
        again, after = self._set()
        names = ("condition", "master")
        if again != leader or any(after["view"][name] != before["view"][name] for name in names):
            return None
        return condition, {name: value for name, value in heard.items() if value is not None}

    def _set(self) -> tuple[Endpoint | None, Any]:
        for address in self._controllers:
            status, body = get(address, self._path)
            if status == 200:
                answer = json.loads(body)
                if answer["freshness"]["isAuthoritative"]:
                    return address, answer["set"]
        return None, None

    def _readyz(self, found: Any) -> str | None:
        """``serving`` if the master's own /readyz says so; None if nobody is named master, or it cannot be compared."""
        for replica in found["replicas"]:
            # Controllers that have lost their memory do not know whether the master still serves (R7). Nor do those that
            # were put back know who reigns since, before the first broker comes: they say that they have not heard it.
            is_known = replica["state"] is not None and found["view"]["condition"] != "waiting-for-reports"
            if replica["isMaster"] and is_known:
                status, body = get(self._health[replica["address"]], "/readyz")
                # A master that is dead does not answer, and its next process has told nobody yet that it does not
                # serve: that controllers take a while to find this out is the outage's time, which is judged elsewhere.
                if status == 0 or body.startswith(UNREGISTERED):
                    return None
                # Ready slaves are 200, too: who is master by controllers of before the last reign may be one by now.
                return "serving" if status == 200 and body.startswith(b"master") else ""
        return None


def _misfits(condition: str, heard: Mapping[str, str]) -> set[str]:
    """In words. The master's /readyz and ``status --check`` know only serving or not, "" here."""
    told = {"readyz", "status --check"}
    ready = condition if condition == "serving" else ""
    return {
        f"sets {condition}, {name} {value or 'not serving'}"
        for name, value in heard.items()
        if value != (ready if name in told else condition)
    }


def _status(leader: Endpoint, key: dict[str, str]) -> str | None:
    status, body = get(leader, "/v1/status")
    if status != 200:
        return None
    return next(
        (one["view"]["condition"] for one in json.loads(body)["sets"] if one["view"]["setKey"] == key), "absent"
    )


def _metrics(leader: Endpoint) -> str | None:
    """There is one set in this fleet."""
    status, body = get(leader, "/metrics")
    if status != 200:
        return None
    found = re.findall(r'rollcall_sets_by_condition\{condition="([a-z-]+)"\} ([0-9.]+)', body.decode())
    return next((condition for condition, count in found if float(count) == 1), None)
