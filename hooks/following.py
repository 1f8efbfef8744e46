"""
Reading the fleet's record on and on, of any controller, without missing an event in silence.

Here: the cursor, what a page is worth (pure), which controller is asked. Not here: what events mean (``notices``), the
durable cursor (``store``).

Rule 1: each event must continue the hash chain of the one before (``controller.core.verification``): a hole, a changed
event and another record under the same addresses all show there, whatever a controller says of itself.
Rule 2: what one controller lacks is asked of the others. Only what all of them lack is a gap, and it is said.
Rule 3: the leader is asked only while nobody else answers: hooks take nothing from decisions.
Rule 4: another fleet's record, or one that was taken back, is never read on from: ``RecordExchanged``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

import msgspec

from rollcall_ha.client.addresses import base_url
from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import BadAnswer, ClientError
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.contract.values import EventRef, Frozen
from rollcall_ha.controller.contract.views import Freshness
from rollcall_ha.controller.core.verification import link_of

PAGE_EVENTS = 200
WAIT_MS = 2_000
"""How long a controller holds an answer without events; a stop of this process takes as long."""
STALE_MS = 5_000
"""A controller that has heard of no other for so long may know nothing of what is decided."""
TAKEN_BACK_ROUNDS = 10
"""Rounds in which the leader's record ends before ours, each ``WAIT_MS`` long: its disk may be behind others'."""


class Cursor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last event that was read."""

    fleet: FleetIncarnation
    index: int
    ordinal: int
    chain: str
    """Hash of that event; the next one continues it."""

    @property
    def start(self) -> str:
        """Where reading goes on, as ``/v1/events`` takes it."""
        return f"0.{self.index}.{self.ordinal + 1}"


class _Page(msgspec.Struct, rename="camel"):
    """``EventPage``, with events as they were sent: a newer controller may know more fields and kinds."""

    freshness: Freshness
    events: list[msgspec.Raw]
    gap: str | None = None
    last: EventRef | None = None


class _Place(msgspec.Struct, rename="camel"):
    """The fields of an event that are read here; every version has them."""

    fleet_incarnation: FleetIncarnation
    term: int
    index: int
    ordinal: int
    chain: str = ""


decode_page = msgspec.json.Decoder(_Page).decode
_decode_place = msgspec.json.Decoder(_Place).decode
decode_record = msgspec.json.Decoder(EventRecord).decode


class Worth(Enum):
    """What a page is to a reader at a cursor."""

    FOLLOWS = auto()
    NOTHING_NEW = auto()
    BEHIND = auto()
    """Its record ends before ours."""
    HOLE = auto()
    """It says itself that it lacks events."""
    FOREIGN = auto()
    """Another fleet's, or another past of this one."""


class Judged(Frozen):
    """A page, by rule 1; ``cursor`` is where reading goes on after ``records``."""

    worth: Worth
    cursor: Cursor
    records: tuple[EventRecord, ...] = ()
    """Without those of a kind that this program does not know."""
    text: str = ""
    first: Cursor | None = None
    """HOLE, FOREIGN: the first event that there is."""
    first_line: bytes = b""
    by_leader: bool = False


class RecordExchanged(Exception):
    """The controllers have another record than the one that was read; ``found``: their fleet."""

    def __init__(self, reason: str, found: FleetIncarnation) -> None:
        super().__init__(reason)
        self.reason, self.found = reason, found


class EventsGone(Exception):
    """All controllers lack the next events; ``judged``: where the record begins again."""

    def __init__(self, judged: Judged) -> None:
        super().__init__(judged.text)
        self.judged = judged


def place_of(line: bytes) -> Cursor:
    """The cursor behind an event. Raises ``msgspec.MsgspecError``."""
    place = _decode_place(line)
    return Cursor(fleet=place.fleet_incarnation, index=place.index, ordinal=place.ordinal, chain=place.chain)


def judge(text: bytes, cursor: Cursor) -> Judged:
    """What a page from ``cursor`` on is worth. Raises ``BadAnswer``: it is no page."""
    try:
        page = decode_page(text)
        places = [place_of(line) for line in page.events]
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"not a page of events: {error}") from error
    by_leader = page.freshness.is_authoritative
    if not places:
        if page.gap is not None:
            return Judged(worth=Worth.HOLE, cursor=cursor, text=page.gap, by_leader=by_leader)
        last = page.last
        # Cut off from the others, it would answer "nothing new" for as long as the others decide without it.
        is_cut_off = page.freshness.age_ms > STALE_MS
        is_behind = last is None or (last.index, last.ordinal) < (cursor.index, cursor.ordinal) or is_cut_off
        told = f"its record ends at {last.index}.{last.ordinal}" if last is not None else "it has no events"
        told += f", and it has heard of no other for {page.freshness.age_ms} ms" if is_cut_off else ""
        worth = Worth.BEHIND if is_behind else Worth.NOTHING_NEW
        return Judged(worth=worth, cursor=cursor, text=told, by_leader=by_leader)
    found: list[EventRecord] = []
    at = cursor
    for line, place in zip(page.events, places, strict=True):
        text_of_line = bytes(line)
        link = link_of(text_of_line, term=0, index=place.index, ordinal=place.ordinal)
        continues = link.chain == link.hash_after(at.chain.encode())
        # Before it is founded, a fleet has no name.
        is_same = at.fleet in ("", place.fleet)
        if not is_same or not continues:
            worth = Worth.FOREIGN if not is_same or page.gap is None else Worth.HOLE
            told = (
                page.gap or f"event {place.index}.{place.ordinal} does not continue {at.index}.{at.ordinal}"
                if is_same
                else f"fleet {place.fleet} in place of {at.fleet}"
            )
            if at is cursor:
                return Judged(
                    worth=worth, cursor=cursor, text=told, first=place, first_line=text_of_line, by_leader=by_leader
                )
            # What came before the break is sound; the break is met again as the first event of the next page.
            break
        at = place
        try:
            found.append(decode_record(text_of_line))
        except msgspec.ValidationError:
            # A newer controller wrote it: nothing here knows what it means, and the chain goes on through it.
            continue
    return Judged(worth=Worth.FOLLOWS, cursor=at, records=tuple(found), by_leader=by_leader)


class Follower:
    """Reads pages. Blocking; of one thread at a time."""

    def __init__(self, client: Client, addresses: Sequence[str], *, draw: Callable[[int], int]) -> None:
        """``draw``: an index below its argument, of the controller that is asked first."""
        self._client = client
        self._addresses = [base_url(one) if "://" in one else one for one in addresses]
        self._next = draw(len(self._addresses))
        self._taken_back_rounds = 0
        self.troubles: dict[str, str] = {}
        """Why controllers gave nothing in the last round, by address."""

    def read(self, cursor: Cursor, *, wait_ms: int = WAIT_MS) -> Judged | None:
        """
        The next events; without any, after at most ``wait_ms``; None: no controller could be asked.

        Raises ``RecordExchanged`` and ``EventsGone`` (rules 2, 4).
        """
        self.troubles = {}
        judged: list[Judged] = []
        for _ in self._addresses:
            address = self._addresses[self._next]
            one = self._ask(address, cursor, wait_ms=wait_ms)
            if one is not None and one.worth in (Worth.FOLLOWS, Worth.NOTHING_NEW):
                self._taken_back_rounds = 0
                # Rule 3: the next page is another controller's, if one can be had.
                self._next = (self._next + one.by_leader) % len(self._addresses)
                return one
            self._next = (self._next + 1) % len(self._addresses)
            if one is not None:
                self.troubles[address] = one.text
                judged.append(one)
                # The next one is asked at once: what holds this one up is known.
                wait_ms = 0 if one.worth in (Worth.HOLE, Worth.FOREIGN) else wait_ms
        self._conclude(judged, cursor)
        return None

    def _ask(self, address: str, cursor: Cursor, *, wait_ms: int) -> Judged | None:
        params = {"from": cursor.start, "limit": str(PAGE_EVENTS)}
        try:
            return judge(self._client.text_from(address, "/v1/events", params, wait_ms=wait_ms), cursor)
        except ClientError as error:
            self.troubles[address] = str(error)
            return None

    def _conclude(self, judged: Sequence[Judged], cursor: Cursor) -> None:
        """What a round without any events means. Raises ``RecordExchanged``, ``EventsGone``."""
        foreign = [one for one in judged if one.worth is Worth.FOREIGN]
        # A majority, not one: the journal of one machine may be damaged, and not all, for one may be gone for good.
        if len(foreign) * 2 > len(self._addresses):
            assert foreign[0].first is not None
            raise RecordExchanged(foreign[0].text, foreign[0].first.fleet)
        leaders = [one for one in judged if one.worth is Worth.BEHIND and one.by_leader]
        self._taken_back_rounds = self._taken_back_rounds + 1 if leaders else 0
        if self._taken_back_rounds >= TAKEN_BACK_ROUNDS:
            raise RecordExchanged(
                f"the leader's record was taken back: {leaders[0].text}, and {cursor.index}.{cursor.ordinal} was read",
                FleetIncarnation(""),
            )
        holes = [one for one in judged if one.worth is Worth.HOLE and one.first is not None]
        # All, and each by its own word: what one controller that is down still has is not given up for it.
        if len(holes) == len(self._addresses):
            raise EventsGone(min(holes, key=lambda one: (one.first.index, one.first.ordinal) if one.first else (0, 0)))


def newest(client: Client) -> Cursor | None:
    """The end of the record of a controller; None: it is empty. Raises ``ClientError``."""
    try:
        page = decode_page(client.events_text(limit=1, is_newest=True))
        return place_of(page.events[-1]) if page.events else None
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"not a page of events: {error}") from error
