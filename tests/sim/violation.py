"""
What every check of the simulation raises.
"""

from __future__ import annotations


class Violation(AssertionError):
    """A promise was broken. The text begins with the name of the rule."""


def must(holds: object, rule: str) -> None:
    """Or the rule is broken."""
    if not holds:
        raise Violation(rule)
