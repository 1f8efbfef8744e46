"""
What every check of the simulation raises.
"""

from __future__ import annotations


class Violation(AssertionError):
    """A promise was broken. The text begins with the name of the rule."""
