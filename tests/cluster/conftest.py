"""An ordinary fleet for each file of this folder that needs one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.fleet_story import running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """
    Three controllers and three brokers on the normal preset; a fleet that waits for a later file takes as much of a core in
    fifteen seconds as to found another one.

    Each test begins with ``heal``, and leaves no setting, pause or maintenance behind. A file that founds its fleet in
    another way has a fixture of the same name.
    """
    with running(tmp_path_factory.mktemp("shared") / "fleet") as found:
        yield found
