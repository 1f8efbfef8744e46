"""The notebook of docs/ on a lake: its cells run in their order in one process, as in Jupyter, and answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")
pytest.importorskip("duckdb", reason="duckdb is not installed: the notebook asks it")

from rollcall_ha.analytics.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.prove]

ROOT = Path(__file__).resolve().parents[2]
PAGE, NOTEBOOK = ROOT / "docs/analytics.md", ROOT / "docs/analytics.ipynb"
QUESTIONS = 5


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return found


def code() -> list[str]:
    return ["".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"]


@pytest.mark.usefixtures("spark")
def test_the_cells_run_and_answer(
    batch: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By themselves: nothing of ours is imported; the lake of the story has three failovers of two causes."""
    monkeypatch.setenv("LAKE", str(batch.root))
    monkeypatch.chdir(NOTEBOOK.parent)
    texts, said, names = code(), list[str](), dict[str, Any]()
    assert "rollcall_ha" not in "".join(texts)
    for number, text in enumerate(texts):
        exec(compile(text, f"cell {number}", "exec"), names)
        said.append(capsys.readouterr().out)
    assert 5 <= len(cells()) <= 8
    assert all(said), "each cell shows something"
    assert str(len(batch.snapshot().rows)) in said[0]
    assert "dead-at-once" in said[1]
    assert "broker-a" in said[2]
    assert "3 failovers" in said[4]
    assert names["spans_ms"] == [row["total_us"] / 1000 for row in failovers(names["spark"], batch)]


def failovers(spark: Any, lake: Lake) -> list[Any]:
    from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS

    rows: list[Any] = lake.read(spark, GOLD_FAILOVERS).where("total_us is not null").orderBy("elected_at").collect()
    return rows


def test_it_asks_the_questions_of_the_page() -> None:
    """Its first five. No output is kept in the file."""
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    asked = " ".join("\n".join(code()).split())
    assert len(queries) >= QUESTIONS
    for query in queries[:QUESTIONS]:
        assert " ".join(query.split()) in asked
    assert not any(cell.get("outputs") for cell in cells())
