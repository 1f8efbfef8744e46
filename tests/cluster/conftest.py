"""One fleet for every file of this folder that needs an ordinary one: founded once by each worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.fleet_story import running


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """
    Three controllers and three brokers on the normal preset.

    Each test begins with ``heal``, and leaves no setting, pause or maintenance behind. A file that founds its fleet in
    another way has a fixture of the same name.
    """
    with running(tmp_path_factory.mktemp("shared") / "fleet") as found:
        yield found
