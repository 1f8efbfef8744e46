"""
The answers of reads: replicated state, soft state and the journal, joined and dated.

Here: pages of sets, one set, this controller, events, history, explanations, dry runs. Not here: HTTP (``api.rest``).
On the loop; files are read on one worker thread.

Rule 1: every answer says where it was read, at which index, how old that is, and whether it may be stale.
Rule 2: a linearizable read passes a barrier first, or raises ``NoAuthority``; a local one always answers.
Rule 3: no answer holds more than ``PAGE_SETS_MAX`` sets or ``PAGE_EVENTS_MAX`` events: a large one would hold the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TypeVar

import msgspec

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, OperatorCommand
from rollcall_ha.controller.contract.events import ClockStepped, EventRecord, MasterElected, is_asked_by
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, MasterEpoch, RequestId, SetKey
from rollcall_ha.controller.contract.labels import names_of
from rollcall_ha.controller.contract.names import refusal_of_texts
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.replies import Elected, Refused, SwitchoverAnswer
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import EventRef, made_from
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import (
    BROKERS_SHOWN_MAX,
    CLOCK_STEP_SHOWN_MS_MAX,
    PAGE_SETS_MAX,
    CertificatesAnswer,
    CertificateStatus,
    ControllerRole,
    ControllerStatus,
    ElectionPreview,
    EventPage,
    Explanation,
    FleetStatus,
    Freshness,
    HistoryPage,
    MaintenancesAnswer,
    OrderPreview,
    SetAnswer,
    SetPage,
    SetStatus,
    SettingsAnswer,
    TokensAnswer,
)
from rollcall_ha.controller.core.explain import explain
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.maintenance import in_maintenance
from rollcall_ha.controller.core.pauses import pause_of
from rollcall_ha.controller.core.preview import foresee
from rollcall_ha.controller.core.settings import settings_in_force, timing_in_force, version_in_force
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.stops import stops_of
from rollcall_ha.controller.core.switchovers import row_of, switchovers_of
from rollcall_ha.controller.replication.ports import Published
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown
from rollcall_ha.controller.runtime.event_journal import PAGE_EVENTS_MAX, EventJournal, Page
from rollcall_ha.controller.runtime.journal_segments import Gap
from rollcall_ha.controller.runtime.live_settings import brokers_told
from rollcall_ha.controller.runtime.metrics import Census, Reading
from rollcall_ha.controller.runtime.overview import Lines, Question
from rollcall_ha.controller.runtime.seating import told
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.views import set_status, token_status
from rollcall_ha.node.certificates_held import CertificatesHeld

T = TypeVar("T")

HISTORY_ROWS_MAX = 500
HISTORY_EVENTS_MAX = 50_000
"""Events of one set that one history or explanation looks through."""
EVENTS_WAIT_MS_MAX = 30_000
SETS_PER_TURN = 50
"""Whose status is taken in one turn of the loop for a scrape."""
SEARCH_PAGES_MAX = 10
"""Pages of the record that one question for a caller's events looks through."""


class Consistency(StrEnum):
    """How fresh an answer must be."""

    LINEARIZABLE = "linearizable"
    LOCAL = "local"


class NotFound(Exception):
    """There is no such set, epoch or page mark; ``what`` names it, ``hint`` is the remedy."""

    def __init__(self, *, what: str, hint: str) -> None:
        """Both are for people."""
        super().__init__(what)
        self.what = what
        self.hint = hint


class Queries:
    """Reads of one controller."""

    def __init__(self, service: ControllerService, held: CertificatesHeld | None = None) -> None:
        """Starts its worker thread with the first read of the journal. ``held`` None: a fleet without certificates."""
        self._service = service
        self._held = held or CertificatesHeld(None, is_insecure=True)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-reader")
        self._sorted_keys: list[SetKey] = []
        self._sorted_index = -1
        self._lines = Lines(
            published=lambda: service.published,
            status_of=self._status_of,
            freshness=self.freshness,
            fleet_name=service.settings.fleet_name,
            now_ns=service.now_ns,
        )
        self._census = Census()

    def close(self) -> None:
        """Let the worker thread go."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def _on_reader(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def _published(self, consistency: Consistency) -> Published[FleetState]:
        if consistency is Consistency.LINEARIZABLE:
            await self._service.read_barrier()
        return self._service.published

    def freshness(self, published: Published[FleetState]) -> Freshness:
        """Where, at which index and how long ago the answer was read, and whether it may be stale (rule 1)."""
        is_held = self._service.authority().is_held
        return Freshness(
            read_from=self._service.settings.name,
            term=published.term,
            index=published.index,
            age_ms=self._service.contact_age_ms(),
            is_authoritative=is_held,
            is_stale=not is_held,
        )

    # --- sets --------------------------------------------------------------------------------------------------------

    async def status(self, consistency: Consistency, *, after: str | None, limit: int) -> FleetStatus:
        """This controller and a page of its sets. Raises ``NoAuthority``, ``NotFound``."""
        page = await self.sets(consistency, after=after, limit=limit)
        return made_from(
            page,
            FleetStatus,
            controller=self.controller(),
            fleet_name=self._service.settings.fleet_name,
            timing=self._service.settings.timing_name,
            pause=self._service.published.state.pauses.get(None),
        )

    async def sets(self, consistency: Consistency, *, after: str | None, limit: int) -> SetPage:
        """Sets in the order of their keys, those after ``after``. Raises ``NoAuthority``, ``NotFound``."""
        published = await self._published(consistency)
        keys = self._keys(published)
        first = _place_after(keys, after)
        page = keys[first : first + max(1, min(limit, PAGE_SETS_MAX))]
        has_more = first + len(page) < len(keys)
        return SetPage(
            freshness=self.freshness(published),
            sets=tuple(status for key in page if (status := self._status_of(key)) is not None),
            sets_total=len(keys),
            next_after=str(page[-1]) if has_more else None,
        )

    async def overview(self, question: Question, consistency: Consistency) -> bytes:
        """``Overview`` as JSON; a local one may be ``SHARED_MS`` old. Raises ``NoAuthority``."""
        await self._published(consistency)
        return await self._lines.answer(question, may_share=consistency is Consistency.LOCAL)

    async def set(self, key: SetKey, consistency: Consistency) -> SetAnswer:
        """One set. Raises ``NoAuthority``, ``NotFound``."""
        published = await self._published(consistency)
        status = self._status_of(key)
        if status is None:
            raise _no_set(key)
        return SetAnswer(freshness=self.freshness(published), set=status)

    def names(self, key: SetKey | None) -> dict[BrokerId, str]:
        """Of the brokers that a set has now, as far as this controller has applied; empty: there is no such set."""
        found = None if key is None else self._service.published.state.sets.get(key)
        return {} if found is None else names_of(found.replicas)

    def names_about(self, asked: object) -> dict[BrokerId, str]:
        """The names of the brokers of the set that an order is about, itself or by its scope."""
        key = getattr(asked, "set_key", None) or getattr(getattr(asked, "scope", None), "set_key", None)
        return self.names(key if isinstance(key, SetKey) else None)

    def _names_by_set(self, keys: Iterable[SetKey | None]) -> dict[str, dict[BrokerId, str]]:
        return {str(key): names for key in dict.fromkeys(keys) if (names := self.names(key))}

    def _keys(self, published: Published[FleetState]) -> list[SetKey]:
        if self._sorted_index != published.index:
            self._sorted_index = published.index
            if len(self._sorted_keys) != len(published.state.sets):
                # Sets are never removed (a cleaned one stays as a tombstone): equal counts are equal keys.
                self._sorted_keys = sorted(published.state.sets)
        return self._sorted_keys

    def _status_of(self, key: SetKey) -> SetStatus | None:
        service = self._service
        state, view = service.published.state.sets.get(key), service.view_of(key)
        if state is None or view is None:
            return None
        return set_status(
            view,
            service.duties.sessions,
            last_election_ms=state.last_elected_at_ms,
            now_ns=service.now_ns(),
            pause=pause_of(service.published.state, key),
            maintenances=in_maintenance(service.published.state, state),
            refused=service.refusals.of(view, service.now_ns()),
        )

    def controller(self) -> ControllerStatus:
        """This controller, by its own word."""
        settings, leadership = self._service.settings, self._service.log.leadership
        published, step = self._service.published, self._service.clock_step
        if step is not None and abs(self._service.ports.wall_ms() - step.stamped_at_ms) > CLOCK_STEP_SHOWN_MS_MAX:
            step = None
        members = told(self._service.log.members)
        return ControllerStatus(
            name=settings.name,
            role=ControllerRole(leadership.role.value),
            has_authority=self._service.authority().is_held,
            leader=leadership.leader,
            term=leadership.term,
            # Both are read without a lock; an applied entry is committed, even if the index of commits was read first.
            commit_index=max(leadership.commit_index, published.index),
            applied_index=published.index,
            rest_address=settings.own.rest,
            broker_address=settings.own.broker,
            raft_address=settings.own.raft,
            feature_level=FEATURE_LEVEL,
            fleet_incarnation=published.state.fleet_incarnation or None,
            fleet_level=published.state.feature_level,
            clock_step_ms=step.event.step_ms if step is not None and isinstance(step.event, ClockStepped) else None,
            lost_entries=self._service.lost_entries,
            lead_changes=self._service.lead.changes,
            missed=self._service.duties.sessions.missed_masters(self._service.now_ns()),
            late_ms=leadership.late_ms,
            refused=self._service.refusals.of_controllers(self._service.now_ns()),
            state_digest=published.state.state_digest,
            voters=members.voters,
            learners=members.learners,
            differing=self._service.states.differing,
            certificates_revoked=len(published.state.revoked),
            tokens_in_force=self._tokens_in_force(published.state),
            settings_version=self._service.live.version,
            clock_stepped_at_ms=step.stamped_at_ms if step is not None else None,
            is_insecure=self._held.is_insecure,
            certificates=self._certificates(),
            certificate_complaint=self._held.complaint,
        )

    def _certificates(self) -> tuple[CertificateStatus, ...]:
        now_ms = self._service.ports.wall_ms()
        return tuple(
            CertificateStatus(
                name=str(one.name),
                serial=one.serial,
                expires_at_ms=one.expires_at_ms,
                expires_in_ms=one.expires_at_ms - now_ms,
            )
            for one in self._held.certificates()
        )

    # --- dry runs ----------------------------------------------------------------------------------------------------

    async def preview_order(
        self,
        command: OperatorCommand,
        *,
        request_id: RequestId,
        requested_by: str,
        principal: Principal | None = None,
    ) -> ElectionPreview | OrderPreview | Refused:
        """The answer that the order would get now (S68). Raises ``NoAuthority``."""
        # Linearizable: a preview on an older state would promise an election that the real order then refuses.
        published = await self._published(Consistency.LINEARIZABLE)
        if refusal := refusal_of_texts(command):
            return refusal
        operation = self._service.operation(
            command,
            request_id=request_id,
            requested_by=requested_by,
            evidence=self._service.evidence_for(command),
            principal=principal,
        )
        reply, events = foresee(published.state, operation)
        if isinstance(reply, Refused):
            return reply
        freshness = self.freshness(published)
        if isinstance(reply, Elected):
            return ElectionPreview(
                freshness=freshness,
                verdict=reply.verdict,
                grade_note=_grade_note(reply),
                names=names_of(reply.view.members),
            )
        return OrderPreview(freshness=freshness, events=events, names=self.names_about(command))

    async def switchover(self, key: SetKey, order: RequestId, *, wait_ms: int) -> SwitchoverAnswer | Refused:
        """
        How an order that was taken goes on: its end, or where it is after ``wait_ms``.

        Raises ``EntryOutcomeUnknown``: this controller does not lead any more, and the order goes on under the next.
        """
        until_ns = self._service.now_ns() + wait_ms * NS_PER_MS
        while True:
            # Taken before the look: an end that is recorded between the look and the wait is not missed.
            synced = self._service.next_events_synced
            if not self._service.authority().is_held:
                raise EntryOutcomeUnknown(order, "another controller leads by now")
            view, set_state = self._service.view_of(key), self._service.published.state.sets.get(key)
            found = set_state.switchover if set_state is not None else None
            if view is None or found is None or found.order != order:
                return Refused(
                    code=RefusalCode.NO_SWITCHOVER,
                    reason=f"order {order} ended before the one that is known of {key} now",
                    hint=f"see its end with: rollcall history {key.name}",
                    requested=order,
                    current=None if found is None else found.order,
                )
            rest_ms = (until_ns - self._service.now_ns()) // NS_PER_MS
            if not found.is_under_way or rest_ms <= 0:
                return SwitchoverAnswer(row=row_of(found), view=view)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_ms / 1000):
                    await synced.wait()

    # --- who may what ------------------------------------------------------------------------------------------------

    async def certificates(self, consistency: Consistency) -> CertificatesAnswer:
        """The revoked certificates, oldest first. Raises ``NoAuthority``."""
        published = await self._published(consistency)
        return CertificatesAnswer(freshness=self.freshness(published), revoked=tuple(published.state.revoked.values()))

    async def settings(self, consistency: Consistency) -> SettingsAnswer:
        """Those in force, and the versions that are kept. Raises ``NoAuthority``."""
        published = await self._published(consistency)
        live, applied = self._service.live, settings_in_force(published.state)
        told = brokers_told(published.state, self._service.duties.sessions)
        behind = tuple(name for name, version in told if version != version_in_force(published.state))
        return SettingsAnswer(
            freshness=self.freshness(published),
            version=version_in_force(published.state),
            settings=live.founded if applied is None else applied.settings,
            worst_case_rto_ms=timing_in_force(published.state, live.file).worst_case_rto_ms(),
            file=live.founded,
            history=published.state.settings,
            brokers=len(told),
            brokers_behind=behind[:BROKERS_SHOWN_MAX],
        )

    async def tokens(self, consistency: Consistency) -> TokensAnswer:
        """Every token that is kept, oldest first, without its digest. Raises ``NoAuthority``."""
        published = await self._published(consistency)
        return TokensAnswer(
            freshness=self.freshness(published),
            tokens=tuple(token_status(token) for token in published.state.tokens.values()),
        )

    async def maintenances(self, consistency: Consistency) -> MaintenancesAnswer:
        """Those in force, oldest first. Raises ``NoAuthority``."""
        published = await self._published(consistency)
        return MaintenancesAnswer(
            freshness=self.freshness(published),
            maintenances=tuple(published.state.maintenances.values()),
            names=self._names_by_set(scope.set_key for scope in published.state.maintenances),
        )

    def _tokens_in_force(self, state: FleetState) -> int:
        now_ms = self._service.ports.wall_ms()
        return sum(token.revoked_at_ms is None and token.expires_at_ms > now_ms for token in state.tokens.values())

    # --- the record --------------------------------------------------------------------------------------------------

    async def events(
        self,
        start: EventRef | None,
        *,
        limit: int,
        wait_ms: int,
        set_key: SetKey | None = None,
        is_newest: bool = False,
        by: str | None = None,
    ) -> EventPage:
        """
        Events from ``start`` on, or the newest ones; with none there, the answer is held for up to ``wait_ms``.

        ``by``: only those that this caller asked for, from ``start`` on; an answer without any goes on at its
        ``next_from``, if it has one. Never raises.
        """

        def read() -> Page:
            journal = self._service.journal
            if is_newest:
                return journal.read_newest(limit=limit, set_key=set_key)
            if by is not None:
                return _read_asked_by(journal, by, start, limit=limit, set_key=set_key)
            return journal.read(start, limit=limit, set_key=set_key)

        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(0, min(wait_ms, EVENTS_WAIT_MS_MAX)) / 1000
        limit = max(1, min(limit, PAGE_EVENTS_MAX))
        while True:
            # Both BEFORE the page is read: an event that comes in between would else wake nobody, and a tail that
            # follows the record stand still until the next one.
            last, further = self._service.journal.last, self._service.next_events_synced
            page = await self._on_reader(read)
            left_ms = int((deadline - loop.time()) * 1000)
            if page.next_from is not None or left_ms <= 0:
                gap = _gap_text(page.gap) if page.gap is not None else None
                return EventPage(
                    freshness=self.freshness(self._service.published),
                    events=page.records,
                    next_from=page.next_from,
                    gap=gap,
                    last=last,
                    names=self._names_by_set(record.set_key for record in page.records),
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await further.wait()

    async def history(
        self, key: SetKey, consistency: Consistency, *, limit: int, before: MasterEpoch | None
    ) -> HistoryPage:
        """The reigns of one set, newest first. Raises ``NoAuthority``, ``NotFound``."""
        published = await self._published(consistency)
        if key not in published.state.sets:
            raise _no_set(key)
        limit = max(1, min(limit, HISTORY_ROWS_MAX))
        records = await self._set_records(key, wanted=limit, before=before)
        rows = [row for row in history_of(records) if before is None or row.master_epoch < before]
        shown = {row.master_epoch for row in rows[:limit]}
        return HistoryPage(
            freshness=self.freshness(published),
            set_key=key,
            rows=tuple(rows[:limit]),
            next_before=rows[limit - 1].master_epoch if len(rows) > limit else None,
            stops=tuple(stop for stop in stops_of(records) if stop.master_epoch in shown),
            switchovers=tuple(row for row in switchovers_of(records) if {row.from_epoch, row.epoch} & shown),
            names=self.names(key),
        )

    async def explanation(self, key: SetKey, epoch: MasterEpoch, consistency: Consistency) -> Explanation:
        """The decision record of one epoch. Raises ``NoAuthority``, ``NotFound``."""
        published = await self._published(consistency)
        if key not in published.state.sets:
            raise _no_set(key)
        records = await self._set_records(key, wanted=1, before=MasterEpoch(epoch + 1))
        explanation = explain(records, master_epoch=epoch, freshness=self.freshness(published))
        if explanation is None:
            raise NotFound(
                what=f"no election of masterEpoch {epoch} in {key} is on record here",
                hint="see the epochs with: rollcall history SET",
            )
        return msgspec.structs.replace(explanation, names=self.names(key))

    async def _set_records(self, key: SetKey, *, wanted: int, before: MasterEpoch | None) -> list[EventRecord]:
        """Newest events of a set that hold ``wanted`` elections below ``before``, and one more as their beginning."""

        def is_enough(found: list[EventRecord]) -> bool:
            elections = [record.event for record in found if isinstance(record.event, MasterElected)]
            older = [event for event in elections if before is None or event.master_epoch < before]
            return len(older) > wanted

        journal = self._service.journal
        return await self._on_reader(
            lambda: journal.read_set_backwards(key, is_enough=is_enough, limit=HISTORY_EVENTS_MAX)
        )

    async def fill(self, gap: Gap, records: list[EventRecord]) -> None:
        """Put a peer's events into the journal. Raises ``ValueError`` if they are not the missing ones."""
        await self._on_reader(lambda: self._service.journal.fill(gap, records))

    # --- metrics -----------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Take the status of every set for the next ``reading``, some at a time: sessions are served in between."""
        census = Census()
        keys = self._keys(self._service.published)
        for first in range(0, len(keys), SETS_PER_TURN):
            for key in keys[first : first + SETS_PER_TURN]:
                if (status := self._status_of(key)) is not None:
                    census.add(status)
            await asyncio.sleep(0)
        self._census = census

    def reading(self) -> Reading:
        """The values of the gauges at this moment; of sets, those of the last ``look``."""
        service, own = self._service, self.controller()
        state, authority, dropped = service.published.state, service.authority(), service.journal.dropped
        age_ms, heard = authority.majority_age_ms, self._controllers_heard() if authority.is_held else None
        missed = service.duties.sessions.missed_masters(service.now_ns())
        gauges = (
            ("rollcall_controller_authority", "1 if this controller answers with authority.", own.has_authority),
            ("rollcall_raft_term", "Raft term.", own.term),
            ("rollcall_raft_commit_index", "Highest committed index known.", own.commit_index),
            ("rollcall_raft_applied_index", "Highest applied index.", own.applied_index),
            ("rollcall_journal_synced_index", "Index up to which events are on disk.", service.journal.synced_index),
            ("rollcall_majority_age_seconds", "Since a majority was asked.", age_ms and age_ms / 1000),
            ("rollcall_settings_version", "Of the settings in force; 0 = the file's.", own.settings_version),
            ("rollcall_feature_level", "In force.", own.fleet_level),
            ("rollcall_controllers", "Controllers that vote, by the log.", len(own.voters)),
            (
                "rollcall_controllers_heard",
                "Voting controllers that the leader has heard lately, itself included; of the leader alone.",
                heard,
            ),
            ("rollcall_sets", "Broker sets.", len(state.sets)),
            (
                "rollcall_sets_wanting_master",
                "Sets that the leader tries to elect for.",
                service.duties.elections.pending_count,
            ),
            (
                "rollcall_sets_missing_master",
                "Sets whose masters fell silent together with all others: the leader's own network is suspected.",
                0 if missed is None else missed.sets,
            ),
            (
                "rollcall_controllers_differing",
                "Controllers that made another state of the same entries; anything but 0 is an alarm.",
                len(own.differing),
            ),
            (
                "rollcall_lost_entries",
                "Entries that brokers have seen and the log lacks; anything but 0 is an alarm; of the leader alone.",
                own.lost_entries,
            ),
            ("rollcall_lead_changes", "Terms with a leader that began within ten minutes, here.", own.lead_changes),
            (
                "rollcall_raft_late_seconds",
                "By which two turns of Raft in a row were late within the last seconds.",
                own.late_ms / 1000,
            ),
            ("rollcall_certificates_revoked", "Certificates that nobody believes any more.", own.certificates_revoked),
            ("rollcall_tokens_in_force", "Tokens neither revoked nor expired.", own.tokens_in_force),
            ("rollcall_election_pauses", "Pauses of elections in force, of sets or the fleet.", len(state.pauses)),
            ("rollcall_maintenances", "Maintenances in force, of replicas or hosts.", len(state.maintenances)),
            ("rollcall_sessions_open", "Broker sessions on a connection.", service.duties.sessions.open_count),
        )
        return Reading(
            role=own.role.value,
            gauges=gauges,
            events_dropped=dropped.events if dropped is not None else 0,
            graces=service.duties.sessions.graces,
            census=self._census,
        )

    def _controllers_heard(self) -> int:
        limit_ms = self._service.live.timing.raft_connection_timeout_ms
        ages = [one.answer_age_ms for one in self._service.log.followers() if one.is_linked and one.is_voter]
        return 1 + sum(age is not None and age < limit_ms for age in ages)


def _read_asked_by(
    journal: EventJournal[FleetState], by: str, start: EventRef | None, *, limit: int, set_key: SetKey | None
) -> Page:
    """
    Up to ``limit`` events that ``by`` asked for, from ``start`` on, of ``SEARCH_PAGES_MAX`` pages. Blocking.

    ``next_from`` is behind the last event that was looked at; None: there was none.
    """
    found: list[EventRecord] = []
    position, following, gap = start, None, None
    # Not the whole record at once: of somebody who never asked for anything, every file of the journal would be read,
    # and all other reads wait behind this one.
    for _ in range(SEARCH_PAGES_MAX):
        page = journal.read(position, limit=PAGE_EVENTS_MAX, set_key=set_key)
        gap = gap or page.gap
        for record in page.records:
            following = msgspec.structs.replace(record.ref, ordinal=record.ordinal + 1)
            if is_asked_by(record, by):
                found.append(record)
            if len(found) == limit:
                return Page(records=tuple(found), next_from=following, gap=gap)
        if page.next_from is None:
            break
        position = page.next_from
    return Page(records=tuple(found), next_from=following, gap=gap)


def _place_after(keys: list[SetKey], after: str | None) -> int:
    if after is None:
        return 0
    mark = parse_set_key(after)
    return next((place for place, key in enumerate(keys) if key > mark), len(keys))


def parse_set_key(text: str) -> SetKey:
    """``cluster/set`` as a key. Raises ``NotFound``."""
    cluster, slash, name = text.partition("/")
    if not slash or not cluster or not name:
        raise NotFound(what=f"{text!r} is not cluster/set", hint="pass what nextAfter named, or cluster/set")
    return SetKey(ClusterName(cluster), BrokerName(name))


def _no_set(key: SetKey) -> NotFound:
    return NotFound(what=f"set {key} does not exist", hint="list the sets with: rollcall sets")


def _gap_text(gap: Gap) -> str:
    return f"events up to index {gap.to_index} are missing on this controller: {gap.reason}"


def _grade_note(reply: Elected) -> str:
    verdict = reply.verdict
    if verdict.kind is ElectionKind.UNCLEAN:
        return f"about {verdict.estimated_loss_bytes} bytes, unknown"
    return f"0 bytes, proven once {verdict.winner} has entered epoch {verdict.master_epoch}"
