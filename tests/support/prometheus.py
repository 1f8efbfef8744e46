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


def shortened(factor: int) -> str:
    """Our rules file, each ``for`` divided by ``factor``: a test has no five minutes."""
    document = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if (found := re.fullmatch(r"(\d+)([smh])", rule.get("for", ""))) is not None:
                rule["for"] = f"{max(SHORTEST_S, int(found[1]) * _UNITS_S[found[2]] // factor)}s"
    return yaml.safe_dump(document, sort_keys=False)


def panels() -> list[tuple[str, str]]:
    """(title of the panel, query) of each query of the dashboard."""
    document = json.loads(DASHBOARD.read_text())
    return [(panel["title"], target["expr"]) for panel in document["panels"] for target in panel.get("targets", ())]


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


@contextmanager
def scraping(fleet: Fleet, *, factor: int) -> Iterator[Prometheus]:
    """A server on ``fleet``, with our rules ``shortened``; everything of it lies in the fleet's directory."""
    directory = fleet.directory / NAME
    directory.mkdir()
    (directory / "rules.yml").write_text(shortened(factor))
    jobs = {"rollcall-controllers": fleet.controllers, "rollcall-brokers": fleet.brokers}
    document = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
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
