"""A command imports the modules that it needs. Half of the time of `rollcall status` went into others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from rollcall_ha.controller.contract.views import ElectionPreview, EventPage, HistoryPage
from tests.support.fake_controllers import (
    KEY,
    SET_PATH,
    fleet_status,
    freshness,
    history_row,
    set_page,
    set_status,
    verdict,
)

UNUSED = {
    "annotated_types", "asyncio", "click", "cryptography", "multiprocessing", "psutil", "pydantic", "pygments", "rich",
    "structlog", "yaml",
}  # fmt: skip
PROGRAM = f"""
import atexit, sys
atexit.register(lambda: print("imported:", sorted(sys.modules.keys() & {UNUSED}), file=sys.stderr))
from rollcall_ha.cli.entry import main
main()
"""
ANSWERS: dict[str, object] = {
    "/v1/status": fleet_status(),
    "/v1/sets": set_page(set_status()),
    f"{SET_PATH}/history": HistoryPage(freshness=freshness(), set_key=KEY, rows=(history_row(),), next_before=None),
    f"{SET_PATH}/elect": ElectionPreview(freshness=freshness(), verdict=verdict(), grade_note=""),
    "/v1/events": EventPage(freshness=freshness(), events=(), next_from=None),
}


class Answering(BaseHTTPRequestHandler):
    """A controller in plain HTTP that says the same to everybody."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = msgspec.json.encode(ANSWERS[urlsplit(self.path).path])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """A line for each request would hide the one that counts."""


@contextmanager
def controller() -> Iterator[str]:
    """A controller that answers until the block ends; gives HOST:PORT."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("sets", "-o", "wide"),
        ("history", "broker-a", "--limit", "5"),
        ("events", "--limit", "5"),
        ("controllers",),
        ("elect", "broker-a", "--to", "2", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_command_imported_models_and_tables_that_it_never_used(words: tuple[str, ...], tmp_path: Path) -> None:
    """Typer brings pydantic for each option, also one that was not typed; httpx brings rich for its own command line."""
    with controller() as address:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "--controllers", address, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
            # Not where a demo has left its fleet file: its certificates would be shown to this controller.
            cwd=tmp_path,
        )

    assert (done.returncode, done.stderr) == (0, "imported: []\n"), done.stdout
