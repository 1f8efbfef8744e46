"""
The states that are being backed up: read page by page from one controller, leading or not.

Here: which are open, one page of one of them. Not here: what a backup has of a state (``controller.core.backups``),
HTTP (``api.rest.backups``), the file (``cli.backup``).

Rule 1: a state is taken by reference, it is frozen: every page of a backup tells of one index, however long it takes.
Rule 2: an open state keeps sets of long ago in memory. So there are at most ``OPEN_MAX``, and one that nobody reads on
for ``IDLE_MS_MAX`` is closed, or makes room for the next.
Rule 3: a page can be asked for twice, for its answer may be lost; pages before it cannot.
Rule 4: encoding is done on a worker thread, a page at a time: of 10,000 sets it takes half a second.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import msgspec

from rollcall_ha.controller.contract.backups import BackupHeader, BackupPage
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.core.backups import backed_up, header_of
from rollcall_ha.controller.core.snapshot import encode_state
from rollcall_ha.controller.runtime.queries import NotFound
from rollcall_ha.controller.runtime.service import ControllerService

PAGE_BYTES = 256 * 1024
"""An item is not divided: a page is longer by at most one set."""
OPEN_MAX = 4
IDLE_MS_MAX = 60_000


class _OpenBackup:
    """One state while it is read."""

    def __init__(self, header: BackupHeader, items: Iterator[bytes], now_ns: int) -> None:
        self.header = header
        self.used_at_ns = now_ns
        self.lock = asyncio.Lock()
        self.name = secrets.token_hex(8)
        self._items = items
        self._held = next(items, None)
        self._page: BackupPage | None = None

    @property
    def is_over(self) -> bool:
        """Its last page was read."""
        return self._page is not None and self._page.is_last

    def page(self, number: int) -> BackupPage | None:
        """The page that was read last, or the next one; None: neither. Blocks."""
        if self._page is not None and number == self._page.page:
            return self._page
        if number != (0 if self._page is None else self._page.page + 1) or self.is_over:
            return None
        taken: list[msgspec.Raw] = []
        size_bytes = 0
        while self._held is not None and size_bytes < PAGE_BYTES:
            taken.append(msgspec.Raw(self._held))
            size_bytes += len(self._held)
            self._held = next(self._items, None)
        self._page = BackupPage(
            backup=self.name, page=number, header=self.header, items=tuple(taken), is_last=self._held is None
        )
        return self._page


class Backups:
    """Those of one controller; of the loop."""

    def __init__(self, service: ControllerService) -> None:
        """None is open."""
        self._service = service
        self._open: dict[str, _OpenBackup] = {}

    async def page(self, name: str | None, number: int, *, has_secrets: bool) -> BackupPage:
        """
        A page; ``name`` None: the first one of the state as it is now.

        Raises ``NotFound``, ``ValueError``: the state cannot be had without secrets.
        """
        now_ns = self._service.now_ns()
        for one in [one for one in self._open.values() if now_ns - one.used_at_ns > IDLE_MS_MAX * NS_PER_MS]:
            del self._open[one.name]
        found = self._begin(now_ns, has_secrets=has_secrets) if name is None else self._open.get(name)
        page = None
        if found is not None:
            found.used_at_ns = now_ns
            async with found.lock:
                page = await asyncio.to_thread(found.page, number)
        if page is None or found is None:
            raise NotFound(
                what=f"page {number} of backup {name} is not here: it was read, or nobody asked for {IDLE_MS_MAX} ms, "
                f"or it made room: {OPEN_MAX} others were begun",
                hint="begin the backup again",
            )
        return page

    def _begin(self, now_ns: int, *, has_secrets: bool) -> _OpenBackup:
        if len(self._open) >= OPEN_MAX:
            # Those that were read to their end are kept for an answer that was lost, as long as there is room.
            self._open = {name: one for name, one in self._open.items() if not one.is_over}
        if len(self._open) >= OPEN_MAX:
            # Four commands that died a moment ago would keep the next one out for a minute.
            del self._open[min(self._open.values(), key=lambda one: one.used_at_ns).name]
        published, service = self._service.published, self._service
        header = header_of(
            published.state,
            fleet_name=service.settings.fleet_name,
            taken_by=service.settings.name,
            taken_at_ms=service.ports.wall_ms(),
            contact_age_ms=service.contact_age_ms(),
            has_secrets=has_secrets,
        )
        found = _OpenBackup(header, encode_state(backed_up(published.state, has_secrets=has_secrets)), now_ns)
        self._open[found.name] = found
        return found
