"""
A control plane's ``/v1/events`` without a control plane: for readers of the record.

Here: ``Journal``, which answers as ``controller.runtime.event_journal`` does, and ``serving``, the same over HTTP on a port of
the system's choice.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec

from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.contract.views import EventPage, Freshness

PAGE_EVENTS_MAX = 500


class Journal:
    """One controller's record; ``gap`` is what it says where its hole is."""

    def __init__(self, records: Sequence[EventRecord], *, gap: str | None = None) -> None:
        self.records = list(records)
        self.gap = gap
        self.pages = 0

    def page(self, start: EventRef | None, limit: int) -> EventPage:
        self.pages += 1
        assert start is None or (start.index < 10**18 and start.ordinal < 10**9), "the route takes no longer numbers"
        places = [(record.index, record.ordinal) for record in self.records]
        first = bisect_left(places, (start.index, start.ordinal)) if start is not None else 0
        found = tuple(self.records[first : first + min(limit, PAGE_EVENTS_MAX)])
        after = found[-1].ref if found else None
        return EventPage(
            freshness=Freshness(
                read_from=ControllerName("c1"),
                term=1,
                index=0,
                age_ms=0,
                is_authoritative=True,
                is_stale=False,
            ),
            events=found,
            next_from=None if after is None else msgspec.structs.replace(after, ordinal=after.ordinal + 1),
            gap=self.gap,
            last=self.records[-1].ref if self.records else None,
        )


@contextmanager
def serving(journal: Journal) -> Iterator[str]:
    """The journal's address while it is served."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            start = None
            if "from" in asked:
                term, index, ordinal = (int(part) for part in asked["from"][0].split("."))
                start = EventRef(term=term, index=index, ordinal=ordinal)
            body = msgspec.json.encode(journal.page(start, int(asked["limit"][0])))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
