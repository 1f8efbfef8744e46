"""
The room of consumers: what one replica answers to them, and how its parts hang together.

Here: making the parts, their codes, their clock. Not here: what they do (``pulls``, ``queries``, ``groups``,
``offsets``, ``send_back``, ``broker.delaying``).

Rule: the parts look at the replica's standing whenever they answer; those that wait look again when it changes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from rollcall_ha.broker.consuming.assignments import Assignments
from rollcall_ha.broker.consuming.group_settings import GroupSettings
from rollcall_ha.broker.consuming.groups import Groups
from rollcall_ha.broker.consuming.lag import Lags
from rollcall_ha.broker.consuming.offsets import Offsets
from rollcall_ha.broker.consuming.offsets_log import ConsumerLog
from rollcall_ha.broker.consuming.pulls import Pulls
from rollcall_ha.broker.consuming.queries import Queries
from rollcall_ha.broker.consuming.reads_core import Place, gives_as_slave, next_reader
from rollcall_ha.broker.consuming.relay import Relay
from rollcall_ha.broker.consuming.send_back import SendBack
from rollcall_ha.broker.consuming.tools import About, Tools
from rollcall_ha.broker.consuming.topics import Topics
from rollcall_ha.broker.delaying.deliveries import Deliveries
from rollcall_ha.broker.delaying.records import Limits
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.handlers.own_sends import OwnSends
from rollcall_ha.broker.handlers.ports import Gate, Responder
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.topics import data_version
from rollcall_ha.controller.contract.ids import MasterEpoch, SetKey
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.node.remoting.connection import RemotingConnection

TICK_MS: Final = 1_000
NEAR_BYTES: Final = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 5
"""Records so near to the end count as being in memory, as RocketMQ guesses it: 40 % of the machine's."""


class GateStanding:
    """The standing that the gate of sends says; implements ``ports.Standing``."""

    def __init__(self, gate: Gate, set_key: SetKey, place: Callable[[], Place]) -> None:
        self.slave_reads = False
        """Whether the live setting of this name is 1 (docs/settings.md)."""
        self._gate = gate
        self._place = place
        self.broker_name = str(set_key.name)
        self.cluster = str(set_key.cluster)

    @property
    def is_master(self) -> bool:
        return self._gate.state.is_serving

    @property
    def master_epoch(self) -> MasterEpoch:
        return self._gate.state.master_epoch

    @property
    def serves_reads(self) -> bool:
        """A master that hands over still has all that is confirmed, and there is no other yet."""
        return self._gate.state.is_serving or self._gate.state.is_draining

    @property
    def gives_as_slave(self) -> bool:
        return gives_as_slave(self._place(), is_on=self.slave_reads)

    @property
    def knows_master(self) -> bool:
        return bool(self._gate.state.master_address)

    def next_reader(self, wished: int, *, is_far: bool) -> int:
        state = self._gate.state
        in_sync = state.in_sync if state.is_serving else ()
        return next_reader(self._place(), in_sync, is_on=self.slave_reads, is_far=is_far, wished=wished)


class ConsumerRoom:
    """All that one replica does for consumers. On the loop thread."""

    def __init__(
        self,
        *,
        log: CommitLog,
        folds: Dispatcher,
        appender: OwnSends,
        standing: GateStanding,
        limits: Limits,
        about: About,
        broker_id: Callable[[], int],
        put_total: Callable[[], int],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """
        ``limits``: of delayed messages; ``put_total``: messages since the start; ``now_ms`` is monotonic, ``wall_ms``
        UTC.
        """
        self.appender, self.standing = appender, standing
        self._folds = folds
        self._was_serving = standing.is_master, standing.serves_reads
        since_ms = about.wall_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        at = Around(
            folds=folds,
            appender=appender,
            standing=standing,
            near_bytes=NEAR_BYTES,
            now_ms=now_ms,
            on_damaged=folds.build_anew,
            version=lambda changes: data_version(changes, standing.master_epoch, since_ms),
        )
        self.consumers = consumers = ConsumerLog(at, after=_after)
        self.topics = topics = Topics(at, consumers)
        self.offsets = Offsets(
            at,
            consumers,
            topics=topics,
            wake=lambda keys: self.pulls.waiting.wake(keys),  # noqa: PLW0108 (pulls are made with these offsets)
        )
        self._settings = GroupSettings(at, consumers)
        self.groups = groups = Groups(at, consumers, self._settings)
        self.pulls = Pulls(at, subscriptions=groups, topics=topics, offsets=self.offsets, log_ends=lambda: log.queues)
        folds.is_awaited = lambda: bool(self.pulls.waiting)
        folds.on_whole = self.pulls.waiting.wake_all
        self.lags = Lags(at, consumers, groups=groups, topics=topics)
        self.pulls.on_pull = self.lags.note_pull
        self.assignments = Assignments(at, groups=groups, topics=topics, follow=consumers.follow)
        self._queries = Queries(folds.index, folds)
        self._tools = Tools(
            at,
            consumers,
            groups=groups,
            topics=topics,
            about=about,
            history=lambda: (broker_id(), log.history, log.max_offset),
            put_total=put_total,
            pulled_total=lambda: self.pulls.messages,
        )
        self._relay = Relay(at, groups)
        self._back = SendBack(at, limits=limits, absence=groups.absence, retry_times_max=self.retry_times_max)
        self.deliveries = Deliveries(at, folds=folds, limits=limits, now_ms=wall_ms)

    @property
    def responders(self) -> dict[int, Responder]:
        """The codes that are answered here."""
        parts = (
            self.pulls,
            self.offsets,
            self.groups,
            self.assignments,
            self._queries,
            self.topics,
            self._settings,
            self._tools,
            self._relay,
            self.lags,
            self._back,
        )
        return {code: answer for part in parts for code, answer in part.responders().items()}

    @property
    def values(self) -> list[tuple[str, str, float]]:
        """For the health address: name, meaning, value."""
        pulls, consumers = self.pulls, self.consumers
        return [
            ("folds_behind_bytes", "Confirmed, and not visible to readers yet.", self._folds.behind_bytes),
            ("folds_stand_still", "1 if consume queues, index or offsets cannot be read or written.", self._is_stuck),
            ("messages_pulled_total", "Given to consumers since the start.", pulls.messages),
            ("pulls_waiting", "Pulls that wait for a message.", len(pulls.waiting)),
            ("pulls_damaged_total", "Looks at queues whose units name other records.", pulls.damaged),
            ("messages_given_back_total", "Refused by their groups since the start.", self._back.given_back),
            (
                "dead_letters_total",
                "Of these, refused too often (others: dead_letters_sent_total).",
                self._back.dead_letters,
            ),
            ("consumer_groups", "Groups that the log knows.", len(consumers.known.groups)),
            ("queues_stuck", "Of groups; they have had messages and stood still for a minute.", self.lags.stuck_queues),
            ("topics_ordered", "Topics that an order made or deleted.", len(consumers.known.topics)),
            *self.deliveries.values,
        ]

    @property
    def _is_stuck(self) -> bool:
        return bool(self._folds.trouble or self.consumers.trouble)

    def retry_times_max(self, group: str) -> int:
        """How often a group is given a message again that it refuses, unless it says a number."""
        return self._settings.of(group).retry_max_times

    def set_by(self, settings: Settings) -> None:
        """The controllers' settings are in force."""
        self.topics.creates = settings.value("auto_create_topics") == 1
        self.standing.slave_reads = settings.value("slave_reads") == 1

    def start(self) -> None:
        """The clock of what expires."""
        self._tick()

    def close(self) -> None:
        self._is_closed = True
        self.deliveries.close()
        if self._timer is not None:
            self._timer.cancel()

    def disconnected(self, connection: RemotingConnection) -> None:
        """A link is gone, and what waited on it."""
        self.pulls.waiting.forget(connection)
        self.groups.disconnected(connection)

    def standing_moved(self) -> None:
        """The replica leads now, or no more."""
        serving = self.standing.is_master, self.standing.serves_reads
        if serving != self._was_serving:
            self._was_serving = serving
            self.groups.tick()
            self.pulls.waiting.wake_all()
            if self._timer is not None:
                self.deliveries.standing_moved()

    def _tick(self) -> None:
        if not self._is_closed:
            # First: a fault of one tick would end the clock for good.
            self._timer = _after(TICK_MS, self._tick)
            self.consumers.tick()
            self.groups.tick()
            self._tools.tick()
            self.lags.tick()
            # A handover that was given up leaves the role as it was: nobody says that it serves again.
            self.deliveries.standing_moved()


def _after(delay_ms: int, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_ms / 1000, call)
