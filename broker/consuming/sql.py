"""
RocketMQ's SQL92 expressions over the properties of a message: text to a function.

Here: words, grammar, values. Not here: which records are asked (``reading``), filters by tags (``filters``).

    a > -5 AND (b IN ('x', 'y') OR c IS NULL) AND NOT d BETWEEN 1 AND 9 AND e STARTSWITH 'it''s' AND f = TRUE

Rule 1: text that is no expression raises ``SqlError``, which shows the place; a compiled one never raises.
Rule 2: a property is text, and becomes a number or a truth value where it meets one. Where it cannot, or is missing,
the outcome is unknown, and so may be NOT, AND and OR of it, as SQL has them. Only what is true passes.
Rule 3: length and depth are bounded: an expression of a peer is compiled and run on the loop.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from rollcall_ha.broker.protocol.properties import decode_properties

EXPRESSION_CHARS_MAX: Final = 2048
"""Compiled, each character takes up to 100 bytes."""
DEPTH_MAX: Final = 32
NUMBER_CHARS_MAX: Final = 64

Value = str | int | float | bool | None
"""None = unknown."""
Run = Callable[[dict[str, str]], Any]
"""A ``Value`` by the properties of a message; of a condition a truth value, or None."""

_DIGITS: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER: Final = re.compile(_DIGITS, re.ASCII)
_TOKEN: Final = re.compile(
    rf"(?P<blank>\s+|--[^\n]*|/\*.*?\*/)|(?P<number>{_DIGITS})|(?P<text>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)|(?P<sign><>|<=|>=|[=<>(),])",
    re.DOTALL | re.ASCII,
)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_WORDS: Final = frozenset(("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", *_TEXT_TESTS))


class SqlError(ValueError):
    """A text that is no expression; the message shows where."""


class _Token(msgspec.Struct, frozen=True):
    kind: str
    """"name", "number", "text", "end", or a word or sign itself."""
    text: str
    at: int


class _Node(msgspec.Struct, frozen=True):
    """A part of an expression: a "condition", or a value by the kind of its token."""

    run: Run
    kind: str
    at: int


def compile_sql(expression: str) -> Callable[[bytes], bool]:
    """Whether a record with these properties (``name 0x01 value 0x02`` repeated) passes. Raises ``SqlError``."""
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise SqlError(f"{len(expression)} characters; {EXPRESSION_CHARS_MAX} are possible")
    run = _Parser(_tokens(expression)).parse()
    return lambda properties: run(decode_properties(properties)) is True


def _tokens(expression: str) -> list[_Token]:
    found, at = [], 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise SqlError(f"{expression[at : at + 20]!r} at character {at} is no word of an expression")
        kind, text = str(match.lastgroup), match.group()
        if kind == "sign" or (kind == "name" and text.upper() in _WORDS):
            kind = text.upper()
        if kind != "blank":
            found.append(_Token(kind, text, at))
        at = match.end()
    return [*found, _Token("end", "the end", at)]


class _Parser:
    """OR binds least, then AND, NOT, and comparisons."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def parse(self) -> Run:
        run = _condition(self._or())
        self._expect("end")
        return run

    def _take(self, *kinds: str) -> _Token | None:
        """The next token if it is one of these."""
        token = self._tokens[self._next]
        if token.kind not in kinds:
            return None
        self._next += 1
        return token

    def _expect(self, *kinds: str) -> _Token:
        token, found = self._tokens[self._next], self._take(*kinds)
        if found is None:
            raise SqlError(f"{token.text[:20]!r} at character {token.at}, where {' or '.join(kinds)} is expected")
        return found

    def _or(self) -> _Node:
        return self._joined("OR", self._and, is_or=True)

    def _and(self) -> _Node:
        return self._joined("AND", self._not, is_or=False)

    def _joined(self, word: str, part: Callable[[], _Node], *, is_or: bool) -> _Node:
        nodes = [part()]
        while self._take(word):
            nodes.append(part())
        # One alone may be a value, of which a comparison is about to be made: (a) > 5.
        return (
            nodes[0] if len(nodes) == 1 else _Node(_join([_condition(node) for node in nodes], is_or), "condition", 0)
        )

    def _not(self) -> _Node:
        count, at = 0, self._tokens[self._next].at
        while self._take("NOT"):
            count += 1
        node = self._comparison()
        return _Node(_negate(_condition(node), count % 2 == 1), "condition", at) if count else node

    def _comparison(self) -> _Node:
        left = self._value()
        sign = self._take("IS", *_COMPARISONS)
        if sign is not None and sign.kind != "IS":
            return _Node(_compare(left, self._value(), sign.kind), "condition", left.at)
        is_negated = self._take("NOT") is not None
        if sign is not None:
            self._expect("NULL")
            run = left.run
            return _Node(lambda values: (run(values) is None) is not is_negated, "condition", left.at)
        kinds = ("BETWEEN", "IN", *_TEXT_TESTS)
        token = self._expect(*kinds) if is_negated else self._take(*kinds)
        return (
            left if token is None else _Node(_negate(self._among(left, token.kind), is_negated), "condition", left.at)
        )

    def _among(self, left: _Node, kind: str) -> Run:
        if kind == "BETWEEN":
            low = _compare(left, self._value(), ">=")
            self._expect("AND")
            return _join([low, _compare(left, self._value(), "<=")], is_or=False)
        if kind == "IN":
            self._expect("(")
            texts = {_unquote(self._expect("text"))}
            while self._expect(",", ")").kind == ",":
                texts.add(_unquote(self._expect("text")))
            return _test_text(left.run, texts.__contains__)
        part, is_so = _unquote(self._expect("text")), _TEXT_TESTS[kind]
        return _test_text(left.run, lambda text: is_so(text, part))

    def _value(self) -> _Node:
        token = self._expect("(", "name", "number", "text", "TRUE", "FALSE")
        if token.kind == "name":
            return _Node(operator.methodcaller("get", token.text), "name", token.at)
        if token.kind != "(":
            value = _unquote(token) if token.kind == "text" else _number(token.text)
            if value is None and token.kind == "number":
                raise SqlError(
                    f"a number of {len(token.text)} characters at {token.at}; {NUMBER_CHARS_MAX} are possible"
                )
            value = token.kind == "TRUE" if value is None else value
            return _Node(lambda _: value, token.kind, token.at)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SqlError(f"more than {DEPTH_MAX} parentheses within each other, at character {token.at}")
        node = self._or()
        self._expect(")")
        self._depth -= 1
        return node


# --- values ----------------------------------------------------------------------------------------------------------


def _unquote(token: _Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _number(text: str) -> int | float | None:
    # A number of 32,000 digits would take longer than all else of its record.
    if len(text) > NUMBER_CHARS_MAX or not _NUMBER.fullmatch(text):
        return None
    return float(text) if any(mark in text for mark in ".eE") else int(text)


def _alike(value: Value, other: Value) -> Value:
    """``value`` as one that can be compared with ``other``; None: it cannot."""
    if isinstance(other, str):
        return value
    if isinstance(value, str):
        return value.lower() == "true" if isinstance(other, bool) else _number(value)
    return value if isinstance(value, bool) is isinstance(other, bool) else None


def _compare(left: _Node, right: _Node, sign: str) -> Run:
    for node in (left, right):
        if sign not in ("=", "<>") and node.kind not in ("name", "number"):
            raise SqlError(f"{sign} of a {node.kind} at character {node.at}; numbers and names can be compared so")
    one, another, is_so = left.run, right.run, _COMPARISONS[sign]

    def compare(values: dict[str, str]) -> bool | None:
        first, second = one(values), another(values)
        if first is None or second is None:
            return None
        first, second = _alike(first, second), _alike(second, first)
        return None if first is None or second is None else is_so(first, second)

    return compare


def _test_text(run: Run, is_so: Callable[[str], bool]) -> Run:
    def test(values: dict[str, str]) -> bool | None:
        text = run(values)
        return is_so(text) if isinstance(text, str) else None

    return test


def _condition(node: _Node) -> Run:
    if node.kind in ("number", "text"):
        raise SqlError(f"a {node.kind} at character {node.at} is no condition")
    run = node.run
    return (lambda values: _alike(run(values) or None, True)) if node.kind == "name" else run


def _negate(run: Run, is_negated: bool) -> Run:
    return (lambda values: None if (found := run(values)) is None else not found) if is_negated else run


def _join(runs: Sequence[Run], is_or: bool) -> Run:
    def join(values: dict[str, str]) -> bool | None:
        outcome: bool | None = not is_or
        for run in runs:
            found: bool | None = run(values)
            # One truth decides OR, one untruth decides AND; else one unknown makes either unknown.
            if found is is_or:
                return is_or
            if found is None:
                outcome = None
        return outcome

    return join
