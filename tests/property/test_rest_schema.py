"""The OpenAPI document and the answers of a real server agree, whatever is sent."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.runtime_controller import NAMES, make_set, running_group

MAX_EXAMPLES = 12


class _Server(threading.Thread):
    """One controller on a memory log behind uvicorn, on a loop of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(name="rest", daemon=True)
        self._directory = directory
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.ready = threading.Event()
        self._server: uvicorn.Server | None = None

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        async with running_group(self._directory, NAMES[:1]) as group:
            leader = await group.elect("c1")
            await make_set(leader)
            config = uvicorn.Config(leader.app, access_log=False, log_config=None, lifespan="off")
            self._server = uvicorn.Server(config)
            serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
            self.ready.set()
            await serving

    def stop(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self.join(10)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Server]:
    thread = _Server(tmp_path_factory.mktemp("rest"))
    thread.start()
    assert thread.ready.wait(10)
    yield thread
    thread.stop()


@schemathesis.hook
def map_query(_context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """A long-poll would be held for half a minute: that is what it is for."""
    if query and isinstance(query.get("waitMs"), int):
        query["waitMs"] = min(query["waitMs"], 5)
    return query


# The controllers of this process draw their election timeouts while Hypothesis draws its cases: it cannot tell who drew.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.slow
def test_answers_are_those_that_the_document_promises(server: _Server) -> None:
    """Status, media type and body of every answer are documented; nothing makes a 500."""
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json").exclude(path="/v1/events/stream")
    checked: Counter[str] = Counter()
    for found in document.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(max_examples=MAX_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            checked[case.operation.label] += 1
            # Apply may refuse what the schema allows: a negative id, an unknown register code.
            case.call_and_validate(timeout=5, excluded_checks=[positive_data_acceptance])

        check()

    assert len(checked) >= 18
    assert min(checked.values()) > 1 or "GET /livez" in checked
