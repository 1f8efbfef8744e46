"""
Programs of Prometheus, where they are installed: promtool, and a server that scrapes one fleet.

Here: finding and running them, our rules and panels as values, questions to the server. Not here: rules and dashboard
themselves (``deploy/prometheus``, ``deploy/grafana``), what a test expects. ``deploy/setup.sh prometheus`` gets the programs.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import free_ports, wait_until

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = _DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = _DEPLOY / "grafana" / "rollcall.json"
NAME = "prometheus"
SHORTEST_S = 2
"""Of a ``for`` that is shortened: two scrapes."""
START_DEADLINE_S = 60.0
ANSWER_S_MAX = 10.0
EVALUATION_S_MAX = 4.0
"""Between two evaluations of rules, each second, on a busy machine."""
_ABOUT = ("name", "set", "instance")
"""Labels that say whom an alarm is about."""
_SHIPPED = "is_shipped"
_UNITS_S = {"s": 1, "m": 60, "h": 3600}


def program(name: str) -> str:
    """Path of promtool or prometheus; empty = it is not here."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent)) or ""


def why_not(name: str) -> str:
    """Why a test that needs this program is skipped; empty = it is not."""
    return "" if program(name) else f"{name} is not installed here: deploy/setup.sh prometheus"


def rules() -> list[dict[str, Any]]:
    """Our alarms, as the file has them."""
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def patience_s(factor: int) -> dict[str, int]:
    """For how long what an alarm is about has to last, by its name; each ``for`` is divided by ``factor``."""
    found = {rule["alert"]: re.fullmatch(r"(\d+)([smh])", rule.get("for", "")) for rule in rules()}
    return {
        name: 0 if one is None else max(SHORTEST_S, int(one[1]) * _UNITS_S[one[2]] // factor)
        for name, one in found.items()
    }


def shortened(factor: int) -> str:
    """Our rules file with ``patience_s``: a test has no five minutes."""
    document, patience = yaml.safe_load(RULES.read_text()), patience_s(factor)
    for rule in _each_second(document):
        if "for" in rule:
            rule["for"] = f"{patience[rule['alert']]}s"
    return yaml.safe_dump(document, sort_keys=False)


def shipped() -> str:
    """Our rules file as it is, for a server that has it shortened too: its alarms have a label of their own."""
    document = yaml.safe_load(RULES.read_text())
    for rule in _each_second(document):
        rule["labels"][_SHIPPED] = "yes"
    return yaml.safe_dump(document, sort_keys=False)


def _each_second(document: Any) -> Iterator[dict[str, Any]]:
    for group in document["groups"]:
        group["interval"] = "1s"
        yield from group["rules"]


def panels() -> list[tuple[str, str]]:
    """(title of the panel, query) of each query of the dashboard."""
    document = json.loads(DASHBOARD.read_text())
    return [(panel["title"], target["expr"]) for panel in document["panels"] for target in panel.get("targets", ())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """An alarm, from its first evaluation that fired to its last. Times are UTC."""

    alarm: str
    about: str
    """The certificate, set or process; empty: the fleet."""
    is_shipped: bool
    """Whether it waited as long as the rules say that we ship."""
    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A server that runs, and scrapes every process of a fleet each second."""

    address: str

    def _answer(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=ANSWER_S_MAX) as response:
            return json.load(response)["data"]

    def is_ready(self) -> bool:
        """Whether it answers, and has scraped every target."""
        try:
            targets = self._answer("/api/v1/targets?state=active")["activeTargets"]
        except (OSError, ValueError):
            return False
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def values(self, query: str) -> list[float]:
        """Of each series of an instant query, without those that are no number."""
        found = self._answer(f"/api/v1/query?query={urllib.parse.quote(query)}")["result"]
        return [value for one in found if math.isfinite(value := float(one["value"][1]))]

    def firing(self) -> set[str]:
        """Names of the alarms that fire now."""
        return {
            one["labels"]["alertname"] for one in self._answer("/api/v1/alerts")["alerts"] if one["state"] == "firing"
        }

    def pending(self) -> set[str]:
        """Names of the alarms whose time has not come yet."""
        return {
            one["labels"]["alertname"] for one in self._answer("/api/v1/alerts")["alerts"] if one["state"] == "pending"
        }

    def evaluated(self) -> int:
        """How many rules are judged and well."""
        groups = self._answer("/api/v1/rules")["groups"]
        return sum(rule["health"] == "ok" for group in groups for rule in group["rules"])

    def fired(self, *, last_s: float) -> list[Firing]:
        """Each time that an alarm fired in the last seconds, oldest first; one that fires now ends with its newest evaluation."""
        query = urllib.parse.quote(f'ALERTS{{alertstate="firing"}}[{math.ceil(last_s)}s]')
        stamps: dict[tuple[str, str, bool], set[float]] = {}
        for series in self._answer(f"/api/v1/query?query={query}")["result"]:
            labels = series["metric"]
            about = next((labels[name] for name in _ABOUT if name in labels), "")
            key = labels["alertname"], about, _SHIPPED in labels
            stamps.setdefault(key, set()).update(float(at) for at, _ in series["values"])
        found = [Firing(alarm=key[0], about=key[1], is_shipped=key[2], since_s=since, until_s=until)
                 for key, those in stamps.items() for since, until in spans(sorted(those))]  # fmt: skip
        return sorted(found, key=lambda one: one.since_s)


def spans(stamps_s: Sequence[float]) -> list[tuple[float, float]]:
    """Beginning and end of each run of stamps, sorted, of which none is ``EVALUATION_S_MAX`` behind the one before."""
    found: list[tuple[float, float]] = []
    for at in stamps_s:
        since = found.pop()[0] if found and at - found[-1][1] <= EVALUATION_S_MAX else at
        found.append((since, at))
    return found


@contextmanager
def scraping(fleet: Fleet, *, factor: int, is_shipped_too: bool = False) -> Iterator[Prometheus]:
    """A server on ``fleet``, with our rules ``shortened``, and ``shipped``; everything of it lies in the fleet's directory."""
    directory = fleet.directory / NAME
    directory.mkdir()
    files = {"rules.yml": shortened(factor)} | ({"shipped.yml": shipped()} if is_shipped_too else {})
    for name, text in files.items():
        (directory / name).write_text(text)
    jobs = {"rollcall-controllers": fleet.controllers, "rollcall-brokers": fleet.brokers}
    document = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": list(files),
        "scrape_configs": [_job(fleet, job, names) for job, names in jobs.items()],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(document))
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    arguments = [
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    fleet.processes.start(NAME, [program("prometheus"), *arguments], ports=[("127.0.0.1", port)])
    server = Prometheus(address=address)
    try:
        wait_until(server.is_ready, deadline_s=START_DEADLINE_S, what="Prometheus to scrape every process")
        yield server
    finally:
        fleet.processes.terminate(NAME)


def _job(fleet: Fleet, job: str, names: Sequence[str]) -> dict[str, Any]:
    identity = fleet.identity()
    assert identity.certificate is not None, "a fleet with certificates"
    shown = {"cert_file": str(identity.certificate), "key_file": str(identity.certificate.with_suffix(".key"))}
    trusted = {"ca_file": str(identity.authority)} if "controllers" in job else {"insecure_skip_verify": True}
    targets = [{"targets": [fleet.health(name).address], "labels": {"instance": name}} for name in names]
    return {"job_name": job, "scheme": "https", "tls_config": shown | trusted, "static_configs": targets}
