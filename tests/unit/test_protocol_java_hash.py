"""Java's hash of a string: the numbers that a JVM computes."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.protocol.java_hash import java_hash, tags_code


def plain(text: str) -> int:
    """By the definition, unit for unit."""
    found = 0
    raw = text.encode("utf-16-be")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        found = (found * 31 + high * 256 + low) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("The quick brown fox jumps over the lazy dog", -609428141),
    ],
)
def test_known_strings_have_the_hashes_that_java_gives_them(text: str, expected: int) -> None:
    """Constants that are printed in books, the least of all int32 among them."""
    assert plain(text) == expected
    assert java_hash(text.encode()) == expected


@pytest.mark.parametrize(
    "text", ["标签", "Ünïcode", "\U0001f680 rocket", "é" * 200, "x" * 63, "x" * 64, "x" * 65, "x" * 32_767]
)
def test_units_are_those_of_utf16_whatever_the_length(text: str) -> None:
    """A character outside of the first plane is two units; lengths around a step."""
    assert java_hash(text.encode()) == plain(text)


@pytest.mark.parametrize(
    ("first", "second"), [("TopicA#", "key-1"), ("", "k"), ("Ü#", "k" * 70), ("T#" * 50, "\U0001f680")]
)
def test_a_beginning_that_was_hashed_once_is_gone_on_from(first: str, second: str) -> None:
    """``topic#`` is hashed once for all keys of a topic."""
    assert java_hash(second.encode(), java_hash(first.encode())) == plain(first + second)


def test_bytes_that_are_no_utf8_are_hashed_as_java_reads_them() -> None:
    """One replacement character for each byte that begins nothing."""
    assert java_hash(b"a\xff\xfeb") == plain("a\ufffd\ufffdb")


def test_the_tags_code_of_no_tags_is_0_and_a_negative_hash_stays_negative() -> None:
    """An int64 of a unit is the int32 with its sign."""
    assert tags_code(b"") == 0
    assert tags_code(b"tagA") == plain("tagA")
    assert tags_code(b"polygenelubricants") == -2147483648
