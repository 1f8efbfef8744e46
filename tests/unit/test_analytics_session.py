"""Options of the driver's Java, beside those that a user has given."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.analytics.lake.session import (
    COLLECTOR,
    JAVA_VARIABLES,
    OF_FEW_COLLECTOR,
    SMALL_BYTES,
    WITHOUT_LINES,
    are_few,
    java_options,
)

OWN = "-Xss4m -XX:+UseSerialGC"


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Also by whoever runs the tests; the folder of Spark's settings."""
    for name in JAVA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_without_a_users_collector_ours_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    assert COLLECTOR in java_options({})


@pytest.mark.parametrize("place", [*JAVA_VARIABLES, "settings", "spark-defaults.conf"])
def test_java_did_not_start_with_ours_beside_a_users_collector(
    place: str, nothing_given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was given: Java ended before Spark had its port."""
    settings = {}
    if place in JAVA_VARIABLES:
        monkeypatch.setenv(place, OWN)
    elif place == "settings":
        settings["spark.driver.extraJavaOptions"] = OWN
    else:
        (nothing_given / place).write_text(f"spark.driver.extraJavaOptions {OWN}\n")
    for is_few in (False, True):
        assert {COLLECTOR, OF_FEW_COLLECTOR}.isdisjoint(java_options(settings, is_few=is_few))


def test_few_are_journals_and_events_together(tmp_path: Path) -> None:
    """
    Events count without their lines, which no run reads again. A file that is not there, a lake that was not made and what is no table
    count nothing.
    """
    journal, events = tmp_path / "journal.jsonl", tmp_path / "bronze"
    nothing = [tmp_path / "other.jsonl", tmp_path / "none"]
    (events / "events").mkdir(parents=True)
    journal.write_bytes(b"x" * (SMALL_BYTES // 2))
    (events / "events" / "0.parquet").write_bytes(b"x" * (SMALL_BYTES // 2 * WITHOUT_LINES))
    (events / "0.crc").write_bytes(b"x")
    assert are_few([journal, events, *nothing])
    journal.write_bytes(b"x" * (SMALL_BYTES // 2 + 1))
    assert not are_few([journal, events, *nothing])
