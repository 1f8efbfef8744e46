"""The dictionary is that of the tables as they are, and of their codes."""

from __future__ import annotations

import pytest

from rollcall_ha.analytics.codes import CAUSES, CODES, ELECTION_KINDS, GRADES, STOP_REASONS
from tests.docs.data_dictionary import PAGE, page

WORDS = (
    ("silver/reigns", "kind", ELECTION_KINDS),
    ("silver/reigns", "cause", CAUSES),
    ("silver/reigns", "grade", GRADES),
    ("silver/silences", "cause", CAUSES),
    ("silver/stops", "reason", STOP_REASONS),
    ("gold/failovers", "found_by", CAUSES),
)


def row(section: str, column: str) -> str:
    """The line of a column on the page."""
    body = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return next(line for line in body.splitlines() if line.startswith(f"| {column} |"))


def test_the_dictionary_is_made_of_the_tables() -> None:
    """``python -m tests.docs.data_dictionary`` writes it anew."""
    assert PAGE.read_text() == page()


@pytest.mark.parametrize(("section", "column", "codes"), WORDS)
def test_words_were_missing_in_the_dictionary(section: str, column: str, codes: dict[str, int]) -> None:
    """``own-disk``, ``switchover``, ``drained`` came into the events, and their readers did not hear of them."""
    assert [word for word in codes if word not in row(section, column)] == []


@pytest.mark.parametrize("column", CODES)
def test_a_number_of_bronze_has_its_word_in_the_dictionary(column: str) -> None:
    assert [word for word, code in CODES[column].items() if f"{code} {word}" not in row("codes", column)] == []
