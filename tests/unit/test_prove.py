"""The ledger of ``make prove``: what is called proved, failed and skipped, and the page that is made of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.perf.machine import Machine
from tests.prove import ledger
from tests.prove.__main__ import chosen, run_command
from tests.prove.parts import PARTS

MACHINE = Machine(
    cores=2, memory_gib=8.0, system="Linux 6", python="3.11.9", commit="abc1234", date="2026-11-25T12:00Z", sync_ms=0.4
)


@pytest.mark.parametrize(
    ("code", "output", "outcome", "why"),
    [
        (0, 'RESULT {"seeds": 100, "failed": 0}', "ok", ""),
        (0, "RESULT {}\n", "failed", "it counted nothing"),
        (0, 'RESULT {"seeds": 0, "seconds": 3, "skipped": 4}', "failed", "it counted nothing"),
        (0, "", "failed", "it counted nothing"),
        (1, 'FAILED make sim SEED=4\nRESULT {"seeds": 100}', "failed", "FAILED make sim SEED=4"),
        (2, 'RESULT {"seeds": 100}', "failed", "exit code 2"),
        (None, 'RESULT {"seeds": 100}', "failed", "not done in its time"),
        (0, 'RESULT {"skipped_because": "no Java"}', "skipped", "no Java"),
        (0, "3 passed, 1 skipped in 2.11s", "ok", ""),
        (0, "SKIPPED [2] somewhere.py:3: needs root\n2 skipped in 0.11s", "skipped", "needs root"),
    ],
)
def test_only_what_counted_something_and_ended_well_is_proved(
    code: int | None, output: str, outcome: str, why: str
) -> None:
    """A part that does nothing, or says nothing, would be green for ever."""
    assert ledger.judge(code, output)[:2] == (outcome, why)


def proof(outcome: ledger.Outcome, *, part: str = "sim", is_dirty: bool = False) -> ledger.Proof:
    return ledger.Proof(
        part=part, outcome=outcome, counts={"seeds": 1200}, seconds=3.0, seed=4, is_dirty=is_dirty, java="", machine=MACHINE
    )  # fmt: skip


def test_the_page_says_when_a_part_was_last_proved_and_counts_skips_apart(tmp_path: Path) -> None:
    """What is proved must not be older, nor more often, than the ledger says."""
    file = tmp_path / "proofs.jsonl"
    for one in (proof("ok"), proof("ok", is_dirty=True), proof("failed"), proof("skipped", part="drain")):
        ledger.append(one, file)

    page = ledger.page(ledger.read(file))

    assert "| `sim` | 2026-11-25, abc1234+; failed 2026-11-25, abc1234 | seeds 1,200 | 2 | 1 | 0 |" in page
    assert "| `drain` | never; skipped 2026-11-25, abc1234 |  | 0 | 0 | 1 |" in page
    assert "| `attacks` | never |  | 0 | 0 | 0 |" in page


def test_the_page_is_that_of_the_ledger() -> None:
    """docs/proof.md is made from tests/proofs.jsonl: python -m tests.prove --page."""
    assert ledger.PAGE.read_text() == ledger.page(ledger.read())


def test_parts_are_chosen_by_name_and_run_in_the_order_of_the_table() -> None:
    """A name that is not there would prove nothing, and end well."""
    assert [part.name for part in chosen("sim, drain")] == ["drain", "sim"]
    assert chosen("") == list(PARTS)
    with pytest.raises(ValueError, match="no part simm; there are"):
        chosen("sim,simm")


def test_a_part_that_hangs_is_ended_and_what_it_said_is_kept(tmp_path: Path) -> None:
    """One that never ends would keep all the others from being tried."""
    script = "import time\ntry: print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('stopped')"

    output = tmp_path / "out.txt"

    code = run_command([sys.executable, "-c", script], output, 1.0, clock=lambda: 9.0 * ("begun" in output.read_text()))

    assert (code, output.read_text()) == (None, "begun\nstopped\n")
