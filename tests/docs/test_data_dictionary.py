"""The dictionary is that of the tables as they are."""

from __future__ import annotations

from tests.docs.data_dictionary import PAGE, page


def test_the_dictionary_is_made_of_the_tables() -> None:
    """``python -m tests.docs.data_dictionary`` writes it anew."""
    assert PAGE.read_text() == page()
