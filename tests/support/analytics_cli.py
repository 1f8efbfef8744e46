"""``rollcall analytics`` inside this process: what it prints goes where the test's own output goes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rollcall_ha.analytics.cli import app


def code_of(arguments: Sequence[str]) -> int:
    """The exit code of ``rollcall analytics`` with these arguments."""
    with pytest.raises(SystemExit) as ended:
        app(list(arguments), prog_name="rollcall analytics")
    assert isinstance(ended.value.code, int)
    return ended.value.code
