"""Alarms and dashboard: judged by promtool, each with a page for its person, and of metrics that we have."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcall_ha.controller.contract.problems import PROBLEMS
from tests.support.prometheus import RULES, panels, program, rules, shortened, why_not

ROOT = Path(__file__).resolve().parents[2]
ALARMS_PAGE = ROOT / "docs/alarms.md"
CASES = ROOT / "tests/unit/alarms/rules_test.yml"
SUFFIX = re.compile(r"_(?:total|bucket|count|sum)$")


@cache
def our_metrics() -> frozenset[str]:
    """Names that the code gives, without what the library adds to them."""
    found: set[str] = set()
    for folder in ("node", "controller", "broker", "api"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            found |= set(re.findall(r'"(rollcall_[a-z_]+)"', text))
            if path.name in ("status.py", "room.py") or path.parent.name == "retention":
                found |= {f"rollcall_broker_{name}" for name in re.findall(r'\(\s*"([a-z_]+)", *\n? *"', text)}
    return frozenset(SUFFIX.sub("", name) for name in found)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not("promtool")), reason=why_not("promtool"))
@pytest.mark.parametrize(
    "command", [("check", "rules", str(RULES)), ("test", "rules", str(CASES))], ids=["check", "test"]
)
def test_promtool_takes_the_rules_and_their_cases(command: tuple[str, ...]) -> None:
    done = subprocess.run([program("promtool"), *command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alarm_has_a_severity_a_sentence_and_a_section_that_says_what_to_do() -> None:
    assert {kind.alarm for kind in PROBLEMS.values()} - {""} <= {rule["alert"] for rule in rules()}
    sections = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", ALARMS_PAGE.read_text()))
    assert sorted(sections) == sorted(rule["alert"] for rule in rules())
    (site,) = re.findall(r"(?m)^  docs_url: (https://\S+/)$", (ROOT / "mkdocs.yml").read_text())
    for rule in rules():
        name = rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        # Alertmanager's templates make a link of a whole address only; the section is checked above by its heading.
        assert rule["annotations"]["runbook_url"] == f"{site}{ALARMS_PAGE.stem}.html#{name.lower()}"
        assert rule["annotations"]["summary"], name
        assert all(f"**{word}**" in sections[name] for word in ("Means", "See", "Do")), name


def test_every_alarm_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    document = yaml.safe_load(CASES.read_text())
    checks = [check for test in document["tests"] for check in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {check["alertname"] for check in checks if check.get("exp_alerts")} == names
    well = document["tests"][-1]
    assert {check["alertname"] for check in well["alert_rule_test"] if not check.get("exp_alerts")} == names


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    """A metric that is renamed makes an alarm silent for ever."""
    asked = [rule["expr"] for rule in rules()] + [expression for _, expression in panels()]
    names = {SUFFIX.sub("", name) for text in asked for name in re.findall(r"\brollcall_[a-z_]+\b", text)}
    assert len(names) > 30
    assert names - our_metrics() == set()


def test_the_dashboard_has_an_id_for_each_panel_and_its_data_source_as_a_variable() -> None:
    document: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "rollcall.json").read_text())
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    sources = {panel["datasource"]["uid"] for panel in document["panels"] if panel["type"] != "row"}
    assert sources == {"${datasource}"}
    assert all(expression for _, expression in panels())


def test_the_dashboard_shows_who_does_not_read_and_no_panel_lies_over_another() -> None:
    shown = dict(panels())
    assert "by (group) (rollcall_broker_group_lag_messages)" in shown["Messages behind a group"]
    assert "rollcall_broker_queues_stuck" in shown["Queues that are stuck"]
    document: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "rollcall.json").read_text())
    places = [panel["gridPos"] for panel in document["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)


def test_rules_are_shortened_for_a_test_and_nothing_else_of_them_changes() -> None:
    short = yaml.safe_load(shortened(10))
    assert [rule["expr"] for group in short["groups"] for rule in group["rules"]] == [rule["expr"] for rule in rules()]
    waits = {rule["alert"]: rule.get("for") for group in short["groups"] for rule in group["rules"]}
    assert waits["RollcallSetExposed"] == "6s"
    assert waits["RollcallSetWithoutMaster"] == "2s"
    assert waits["RollcallSetBlocked"] is None
