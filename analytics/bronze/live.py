"""
Reading the event record of a live control plane page by page: every event once, or an error with the reason.

Here: positions, ranges, the choice of a controller, waiting for one that is behind, holes. Not here: Spark
(``datasource``), HTTP (``client.client``).
Rule 1: an event's place is (Raft index, ordinal); it is the same on every controller and for ever. A ``Mark`` is the
place where reading goes on: everything before it was read.
Rule 2: a range is read when an event at or after its end was seen, or when a controller whose record reaches that far
gives no more. An empty page alone proves nothing: that controller may be behind.
Rule 3: a hole in one controller's record is looked for in another's; a hole in all of them is an error, never a skip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import BadAnswer, ClientError
from rollcall_ha.client.identity import Identity
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import EventRef, Frozen

PAGE_EVENTS = 500
"""As many as a controller gives at once."""

BEHIND_WAIT_MS = 2_000
"""How long a controller that is behind is asked to hold its answer."""

ROUNDS_MAX = 15
"""Times that all controllers are asked for one page before the read fails."""

INDEX_MAX = 10**18 - 1
"""The greatest Raft index that ``/v1/events`` takes in a mark."""


class ReadFailed(RuntimeError):
    """A range cannot be read in full; nothing of it counts as read. The message has the remedy."""


class Mark(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """Where reading goes on."""

    index: int = 0
    ordinal: int = 0


BEGINNING = Mark()


class Page(msgspec.Struct, rename="camel"):
    """``EventPage``, with events as they were sent."""

    events: list[msgspec.Raw]
    gap: str | None = None
    last: EventRef | None = None


class Place(msgspec.Struct, rename="camel"):
    """The fields that an event is known by; every version has them."""

    version: int
    fleet_incarnation: str
    term: int
    index: int
    ordinal: int
    set_key: SetKey | None = None


class Found(Frozen):
    """One event as it was sent."""

    line: bytes
    cluster: str | None


class End(Frozen):
    """How far a record reaches."""

    mark: Mark
    """Just after its newest event."""
    fleet: str
    """Fleet incarnation of that event; empty: there is none."""


decode_page = msgspec.json.Decoder(Page).decode
decode_place = msgspec.json.Decoder(Place).decode


class LiveRecord:
    """The record of one control plane. Blocking; of one thread. Close it, or use it in a ``with`` statement."""

    def __init__(
        self,
        endpoints: Sequence[str],
        identity: Identity | None = None,
        *,
        client_of: Callable[[str], Client] | None = None,
    ) -> None:
        """``endpoints`` are the controllers' REST addresses; each is asked for itself, as ``identity``."""
        make = client_of or (lambda where: Client([where], identity=identity))
        self._clients = [make(endpoint) for endpoint in endpoints]

    def __enter__(self) -> LiveRecord:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()

    def end(self) -> End:
        """
        How far the controller that is farthest has its record on disk.

        Raises ``ReadFailed`` if none answers.
        """
        last: EventRef | None = None
        troubles: list[str] = []
        for client in self._clients:
            try:
                found = self._ask(client, Mark(INDEX_MAX, 0), limit=1, wait_ms=0).last
            except ClientError as error:
                troubles.append(str(error))
                continue
            # The farthest one: by the controller that is behind, a batch would end before events that are on record.
            if found is not None and (last is None or (found.index, found.ordinal) > (last.index, last.ordinal)):
                last = found
        # One answer is enough, none is an error: "no events" would let a batch over a dead control plane succeed.
        if len(troubles) == len(self._clients):
            raise ReadFailed(f"no controller answers: {'; '.join(troubles)}")
        if last is None:
            return End(mark=BEGINNING, fleet="")
        newest = next(iter(self.read(Mark(last.index, last.ordinal), Mark(last.index, last.ordinal + 1))))
        return End(mark=Mark(last.index, last.ordinal + 1), fleet=decode_place(newest.line).fleet_incarnation)

    def read(self, start: Mark, end: Mark) -> Iterator[Found]:
        """
        Every event from ``start`` on and before ``end``, in order.

        Raises ``ReadFailed`` if some of them cannot be had.
        """
        mark = start
        while mark < end:
            page = self._page(mark, end)
            if page is None:
                return
            for line in page.events:
                place = decode_place(line)
                at = Mark(place.index, place.ordinal)
                # A page goes on beyond the range: the next task reads those, and would give them twice.
                if at >= end:
                    return
                # A confused server that starts over would feed the same events for ever, each counted as new.
                if at < mark:
                    raise ReadFailed(
                        f"asked from {mark} on, a controller sent an event of {at}: it is not to be trusted"
                    )
                mark = Mark(at.index, at.ordinal + 1)
                cluster = None if place.set_key is None else place.set_key.cluster
                yield Found(line=bytes(line), cluster=cluster)

    def _page(self, mark: Mark, end: Mark) -> Page | None:
        """The next page that has events; None: there is none before ``end`` (rule 2)."""
        trouble = "no controller was asked"
        for attempt in range(ROUNDS_MAX * len(self._clients)):
            client = self._clients[attempt % len(self._clients)]
            wait_ms = 0 if attempt < len(self._clients) else BEHIND_WAIT_MS
            try:
                page = self._ask(client, mark, limit=PAGE_EVENTS, wait_ms=wait_ms)
            except ClientError as error:
                trouble = f"{type(error).__name__}: {error}"
                continue
            # BEFORE the events: a page with a hole has events behind it, and to take them is to skip the hole.
            if page.gap is not None:
                trouble = f"a hole: {page.gap}"
                continue
            if page.events:
                return page
            # Empty, and its record reaches the end: there is none. Empty, and shorter: controller 3 restarted and reads
            # its log, and to believe it would lose 5,000 events.
            if page.last is not None and Mark(page.last.index, page.last.ordinal + 1) >= end:
                return None
            trouble = f"its record ends at {page.last}"
        raise ReadFailed(
            f"no controller gives the events from {mark.index}.{mark.ordinal} to {end.index}.{end.ordinal}: {trouble}. "
            "Start the other controllers, or read from a later index"
        )

    @staticmethod
    def _ask(client: Client, mark: Mark, *, limit: int, wait_ms: int) -> Page:
        start = EventRef(term=0, index=mark.index, ordinal=mark.ordinal)
        text = client.events_text(start=start, limit=limit, wait_ms=wait_ms)
        try:
            return decode_page(text)
        except msgspec.DecodeError as error:
            raise BadAnswer(f"not a page of events: {error}") from error


def split(start: Mark, end: Mark, parts: int) -> list[tuple[Mark, Mark]]:
    """At most ``parts`` ranges that together are start .. end, cut between Raft indexes."""
    # Cut between indexes: events of one entry stay in one task, and a cut needs no event to be there.
    indexes = end.index - start.index + 1
    wanted = max(1, min(parts, indexes))
    cuts = [start, *(Mark(start.index + indexes * part // wanted, 0) for part in range(1, wanted)), end]
    return [(low, high) for low, high in pairwise(cuts) if low < high]
