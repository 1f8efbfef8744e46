"""Imports without what a library brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rollcall_ha.node.left_out import left_out

PROGRAM = """
import sys
from rollcall_ha.node.left_out import left_out
try:
    with left_out("colorsys"):
        try:
            import colorsys
        except ImportError:
            print("left out")
        raise LookupError
except LookupError:
    import colorsys
with left_out("colorsys"):
    import colorsys
print(colorsys.__name__)
"""


def test_it_is_left_out_within_and_can_be_imported_behind_it() -> None:
    """Also behind an error; and who has imported it keeps it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["left out", "colorsys"]


def test_what_is_imported_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rollcall_test_module", sys)
    with left_out("rollcall_test_module"):
        assert sys.modules["rollcall_test_module"] is sys
    assert sys.modules["rollcall_test_module"] is sys
