"""A broker that is told other settings while it runs: which parts work by them, and from when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import msgspec
from msgspec.structs import replace

from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.consuming.room import ConsumerRoom
from rollcall_ha.broker.core.session import Beat, SessionMachine, SessionState
from rollcall_ha.broker.core.write_watch import WriteWatch
from rollcall_ha.broker.following import Following
from rollcall_ha.broker.ha_ends import HaEnds
from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.replica import Replica
from rollcall_ha.broker.session import ControllerSession, SessionOwner
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import ControllerName, Incarnation, SessionOrdinal
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck, LeaderHint, SettingsTold
from rollcall_ha.controller.contract.settings import settings_of, timing_with
from rollcall_ha.controller.contract.timing import PRESETS, Preset, Timing
from rollcall_ha.ha.catch_up import CatchUpLimits
from rollcall_ha.ha.ports import MasterLinkEvents
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame
from tests.support.runtime_controller import heartbeat_body
from tests.support.runtime_world import set_key
from tests.unit.test_broker_session import NOW_MS, machine

FILE = PRESETS[Preset.SAFE]
TOLD = SettingsTold(version=4, settings=replace(settings_of(FILE), heartbeat_interval_ms=250, handover_ms=700))

_C1 = ControllerName("c1")
LEADS = LeaderHint(controller=_C1, leader=_C1, leader_broker_address="c1:1", term=1)


def test_a_version_is_taken_once_and_another_number_is_another_version() -> None:
    """Controllers that were restored from a backup begin lower, and theirs are in force."""
    heard: list[Timing] = []
    live = LiveSettings(FILE, lambda timing, _settings: heard.append(timing))
    assert (live.version, live.timing) == (0, FILE)
    live.take(TOLD)
    live.take(TOLD)
    assert (live.version, live.timing) == (4, timing_with(TOLD.settings, FILE))
    assert heard == [live.timing]
    assert live.timing.raft_append_period_ms == FILE.raft_append_period_ms
    live.take(replace(TOLD, version=2, settings=settings_of(FILE)))
    assert (live.version, live.timing) == (2, FILE)


def opened() -> SessionMachine:
    """Open, its first heartbeat under way."""
    made = machine()
    made.dialled(made.connection)
    made.hinted(made.connection, LEADS, NOW_MS)
    assert made.state is SessionState.OPEN
    return made


def test_the_next_heartbeat_leaves_by_the_new_interval() -> None:
    """Left as it was, a long pause would end when a leader that waits less has long found us silent."""
    made = opened()
    ack = HeartbeatAck(view=None, controllers=())
    made.retime(FILE, NOW_MS)
    made.beat_answered(made.connection, ack, NOW_MS)
    assert made.next_due_ms == NOW_MS + FILE.heartbeat_interval_ms
    made.retime(replace(FILE, heartbeat_interval_ms=300), NOW_MS + 100)
    assert made.next_due_ms == NOW_MS + 300
    late = made.retime(replace(FILE, heartbeat_interval_ms=100), NOW_MS + 200)
    assert [type(action) for action in late] == [Beat]


class _Machine:
    connection = 0
    state = SessionState.OPEN
    next_due_ms = None
    session_ordinal = SessionOrdinal(1)

    def __init__(self) -> None:
        self.lost_for: list[str] = []

    def lost(self, _number: int, reason: str, _now_ms: int, *, is_silent: bool = False) -> list[object]:
        self.lost_for.append(reason)
        return []

    def beat_answered(self, *_told: object) -> list[object]:
        return []


class _Link:
    """The controller's end: answers heartbeats with these settings."""

    def __init__(self) -> None:
        self.known: list[int | None] = []

    async def request(self, _code: int, *, body: bytes, timeout_ms: int) -> Frame:
        del timeout_ms
        self.known.append(msgspec.json.decode(body, type=Heartbeat).known_settings)
        ack = HeartbeatAck(view=None, controllers=(), settings=replace(TOLD, version=5))
        return Frame(code=0, opaque=1, body=msgspec.json.encode(ack))


def test_a_push_and_the_answer_of_a_heartbeat_bring_settings() -> None:
    async def story() -> None:
        link, broken, live = _Link(), _Machine(), LiveSettings(FILE, lambda _timing, _settings: None)
        owner = SimpleNamespace(heartbeat=lambda _ordinal: msgspec.convert(heartbeat_body(1), Heartbeat))
        session = ControllerSession(
            machine=cast("SessionMachine", broken),
            owner=cast("SessionOwner", owner),
            set_key=set_key(),
            timing=FILE,
            now_us=lambda: 0,
            held_since_us=0,
            settings=live,
        )
        session._link = cast("RemotingConnection", link)
        push = Frame(code=RequestCode.SESSION_SETTINGS, opaque=1, body=msgspec.json.encode(TOLD))
        session.pushed(0, [push])
        assert (live.version, session.settings_version) == (4, 4)
        await session._beat(Beat(connection=0, session_ordinal=SessionOrdinal(1)))
        assert (link.known, live.version, broken.lost_for) == ([4], 5, [])
        session.pushed(0, [Frame(code=RequestCode.SESSION_SETTINGS, opaque=1, body=b'{"version":"x"}')])
        assert (len(broken.lost_for), live.version) == (1, 5)

    asyncio.run(story())


def test_open_links_wait_by_the_shorter_timeout_only_when_their_other_end_knows_it() -> None:
    """At once, a healthy link would break between two heartbeats of the interval before."""

    async def story() -> None:
        config = cast("BrokerConfig", SimpleNamespace(timing=FILE, catch_up=CatchUpLimits()))
        ends = HaEnds(
            config=config,
            incarnation=Incarnation("i"),
            log=cast("CommitLog", None),
            parts=cast("Parts", SimpleNamespace(credentials=None)),
            as_master=cast("MasterLinkEvents", None),
            as_slave=cast("Following", None),
            opened=lambda _registered, _view: None,
            failed=lambda _error: None,
        )
        links = ends._settings
        ends.retime(replace(FILE, heartbeat_interval_ms=20, heartbeat_timeout_ms=60))
        assert (links.heartbeat_interval_ms, links.idle_timeout_ms) == (20, FILE.heartbeat_timeout_ms)
        deadline_s = asyncio.get_running_loop().time() + 30
        while links.idle_timeout_ms != 60:
            assert asyncio.get_running_loop().time() < deadline_s
            await asyncio.sleep(0.01)
        ends.limit(CatchUpLimits(copies_max=3))
        assert ends._catch_up.copies_max == 3, "for links that open later"
        ends.retime(FILE)
        assert links.idle_timeout_ms == FILE.heartbeat_timeout_ms
        await ends.stop()

    asyncio.run(story())


def test_a_replica_hands_the_settings_of_sends_to_its_put_path_and_its_topics() -> None:
    """Told by controllers that do not know the key, it goes by the default."""
    put, topics = SimpleNamespace(ack_timeout_ms=0), SimpleNamespace(creates=None)
    parts = {name: Mock() for name in ("machine", "session", "ends", "writes")}
    room = SimpleNamespace(topics=topics, standing=SimpleNamespace(slave_reads=None))
    room.set_by = lambda settings: ConsumerRoom.set_by(cast("ConsumerRoom", room), settings)
    replica = cast("Replica", SimpleNamespace(put=put, consuming=room, _reign=None, **parts))
    other = replace(TOLD.settings, ack_timeout_ms=3_000, auto_create_topics=0, slave_reads=1)
    for settings, taken in ((other, (3_000, False, True)), (TOLD.settings, (5_000, True, False))):
        Replica._retimed(replica, FILE, settings)
        assert (put.ack_timeout_ms, topics.creates, room.standing.slave_reads) == taken


def test_a_stop_of_writes_is_told_by_the_new_limit() -> None:
    watch = WriteWatch(stall_ms=2_000, heartbeat_interval_ms=1_000)
    watch.retime(stall_ms=500, heartbeat_interval_ms=100)
    assert (watch._stall_us, watch._quiet_us) == (500_000, 500_000)
