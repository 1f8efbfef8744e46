"""SQL92 expressions over properties: what passes, what is unknown, what is no expression."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.consuming.sql import DEPTH_MAX, EXPRESSION_CHARS_MAX, NUMBER_CHARS_MAX, SqlError, compile_sql

PROPERTIES = b"a\x015\x02f\x012.5\x02s\x01text\x02yes\x01TRUE\x02no\x01false\x02neg\x01-3\x02q\x01it's\x02$x_1\x01x"


def passes(expression: str, properties: bytes = PROPERTIES) -> bool:
    return compile_sql(expression)(properties)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5", "a <> 6", "a > 4", "a >= 5", "a < 6", "a <= 5", "5 = a", "4 < a", "a = 5.0", "a < 5.5", "f = 2.5",
        "f > 2", "f = 25e-1", "neg = -3", "neg < -2.5", "a > +4", "a BETWEEN 5 AND 6", "a between 4 and 5",
        "a NOT BETWEEN 6 AND 7", "s = 'text'", "'text' = s", "s <> 'other'", "q = 'it''s'", "s IN ('x', 'text')",
        "s NOT IN ('x')", "s IN ('text')", "s IS NOT NULL", "gone IS NULL", "s CONTAINS 'ex'", "s STARTSWITH 'te'",
        "s ENDSWITH 'xt'", "s NOT CONTAINS 'zz'", "s NOT STARTSWITH 'x'", "s NOT ENDSWITH 'x'", "yes = TRUE",
        "no = FALSE", "yes", "NOT no", "TRUE", "NOT FALSE", "NOT NOT TRUE", "$x_1 = 'x'", "(a) = 5", "(((a))) > (4)",
        "(a = 5) = TRUE", "a > 4 AND s = 'text'", "a > 9 OR s = 'text'", "NOT a > 9", "NOT a BETWEEN 6 AND 7",
        "NOT (a = 1 OR a = 2)", "a = 1 OR a = 5 AND s = 'text'", "(a = 5 OR gone = 1) AND TRUE", "a = a", "neg < a",
        "a -- five\n = 5", "a /* or\n six */ = 5", "a=5AND(s='text')", "s IS NOT NULL AND a IS NOT NULL",
        "gone = 1 OR TRUE", "TRUE OR gone = 1", "yes = 'TRUE'", "a = '5'", "a = .5e1", "a = 5.",
    ],
)  # fmt: skip
def test_what_is_true_passes(expression: str) -> None:
    assert passes(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 6", "a <> 5", "a > 5", "a NOT BETWEEN 5 AND 6", "a BETWEEN 6 AND 4", "s = 'TEXT'", "s IN ('x')",
        "s NOT IN ('text')", "s IS NULL", "gone IS NOT NULL", "s CONTAINS 'zz'", "no = TRUE", "no", "NOT yes", "FALSE",
        "a = 1 AND a = 5 OR a = 2", "A = 5", "NOT a = 5", "TRUE AND FALSE", "s = TRUE",
    ],
)  # fmt: skip
def test_what_is_not_true_does_not(expression: str) -> None:
    assert not passes(expression)


@pytest.mark.parametrize(
    "condition",
    [
        "gone = 1", "gone <> 1", "gone > 1", "1 < gone", "gone BETWEEN 1 AND 2", "gone NOT BETWEEN 1 AND 2", "gone = gone",
        "gone IN ('x')", "gone NOT IN ('x')", "gone CONTAINS 'x'", "gone NOT CONTAINS 'x'", "gone", "gone = TRUE",
        "s > 1", "s <> 1", "s = 1", "TRUE = 1", "a BETWEEN 1 AND gone",
        "s = 1 AND gone = 2 OR s = 2",
    ],
)  # fmt: skip
def test_what_is_unknown_passes_neither_as_it_is_nor_negated(condition: str) -> None:
    """As SQL has it: a property that is missing, or is no number where one is asked for."""
    assert not passes(condition)
    assert not passes(f"NOT ({condition})")
    assert not passes(f"({condition}) AND TRUE")
    assert not passes(f"({condition}) OR FALSE")
    assert not passes(f"({condition}) AND FALSE")
    assert passes(f"NOT (({condition}) AND FALSE)")
    assert passes(f"({condition}) OR TRUE")


def test_two_properties_are_compared_as_texts() -> None:
    properties = b"a\x0110\x02b\x019\x02"

    assert passes("a < b", properties)


@pytest.mark.parametrize(
    ("expression", "where"),
    [
        ("", "'the end' at character 0"), ("a =", "'the end' at character 3"), ("a = 5 b", "'b' at character 6, where end"),
        ("(a = 5", "where ) is expected"), ("a = 5)", "')' at character 5"), ("a ; b", "'; b' at character 2"),
        ("'open", "at character 0"), ("a IN ()", "where text is expected"), ("a IN (5)", "where text is expected"),
        ("a IN ('x' 'y')", "where , or ) is expected"), ("a BETWEEN 1", "where AND is expected"),
        ("a NOT 5", "where BETWEEN or IN or"), ("a IS 5", "where NULL is expected"), ("AND", "'AND' at character 0"),
        ("a CONTAINS b", "where text is expected"), ("5", "a number at character 0 is no condition"),
        ("'x' OR TRUE", "a text at character 0 is no condition"), ("NOT 5", "no condition"), ("a > 'x'", "> of a text"),
        ("a < TRUE", "< of a TRUE at character 4"), ("a BETWEEN 'x' AND 'y'", ">= of a text"), ("(a = 1) > 5", "> of a"),
        ("a = - 5", "'- 5' at character 4"), ("a /* open", "'/* open'"), ("日 = 1", "at character 0"),
        ("aNd IS NULL", "'aNd' at character 0"),
        ("a = " + "1" * (NUMBER_CHARS_MAX + 1), f"{NUMBER_CHARS_MAX} are possible"),
        ("a = 1" + " " * EXPRESSION_CHARS_MAX, f"{EXPRESSION_CHARS_MAX + 5} characters"),
        ("(" * (DEPTH_MAX + 1) + "a", f"more than {DEPTH_MAX} parentheses"),
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_its_place(expression: str, where: str) -> None:
    with pytest.raises(SqlError) as refused:
        compile_sql(expression)

    assert where in str(refused.value)


def test_the_longest_and_deepest_expression_is_run() -> None:
    assert passes("(" * DEPTH_MAX + "a = 5" + ")" * DEPTH_MAX)
    assert passes(" OR ".join(["a = 6"] * 200 + ["a = 5"]))
    assert passes("NOT " * 500 + "TRUE")


@pytest.mark.parametrize(
    "properties",
    [b"", b"a", b"a\x01", b"\x01\x02\x01", b"\xff\x01\xfe\x02", b"a\x01" + b"9" * 32_000, b"a\x01NaN", b"a\x011_0"],
)
def test_a_record_whose_properties_are_nonsense_does_not_pass(properties: bytes) -> None:
    assert not passes("a > 5 OR a < 6", properties)
