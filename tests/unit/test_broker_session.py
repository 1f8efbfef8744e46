"""The session: how long it pauses, whom it dials, which links it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from rollcall_ha.broker.core.registration import Ended, Opened, Registration, RegistrationAction
from rollcall_ha.broker.core.session import (
    VACATED_MS_MIN,
    Beat,
    BeginAnew,
    Dial,
    SessionAction,
    SessionMachine,
    SessionState,
)
from rollcall_ha.broker.session import ControllerSession, SessionOwner
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import RecordMilestones
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    ControllerName,
    Incarnation,
    MasterEpoch,
    SessionOrdinal,
    SetKey,
)
from rollcall_ha.controller.contract.replies import AnyReply, Done, Refused, Registered, SetView
from rollcall_ha.controller.contract.session import HeartbeatAck, LeaderHint
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import Milestone, Phase, Positions, RegisteredAs, StoredView, Value
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.node.certified import PeerCertificate, PeerKind
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.links import CloseCause
from rollcall_ha.node.tls import Credentials
from tests.support.fleet_certs import FleetCertificates
from tests.support.ha_replica import until

TIMING = PRESETS[Preset.FAST]
NOW_MS = 1_000
REGISTERED = Registered(
    broker_id=BrokerId(1),
    session_ordinal=SessionOrdinal(1),
    intactness=Intactness.NEW,
    is_in_sync=False,
    view=cast("SetView", None),
)


class OpensAtOnce:
    """A registration that the leader takes without a question."""

    def connected(self, positions: Positions, stored: StoredView | None) -> list[RegistrationAction]:
        return [Opened(registered=REGISTERED)]

    def disconnected(self) -> None:
        """Nothing to forget."""


class HasEnded(OpensAtOnce):
    """A registration that is refused: another process has the id, and lives or is gone."""

    is_vacated = False

    def connected(self, positions: Positions, stored: StoredView | None) -> list[RegistrationAction]:
        vacated = RegisteredAs(incarnation=Incarnation("other"), session_ordinal=SessionOrdinal(2))
        refused = Refused(code=RefusalCode.FENCED_INCARNATION, reason="", hint="")
        return [Ended(refusal=replace(refused, registered=vacated if self.is_vacated else None))]


def machine(*addresses: str, registration: OpensAtOnce | None = None) -> SessionMachine:
    """Started: the first address is being dialled."""
    made = SessionMachine(
        addresses=addresses or ("c1:1",),
        registration=cast("Registration", registration or OpensAtOnce()),
        timing=TIMING,
        holdings=lambda: (cast("Positions", None), None),
    )
    made.start()
    return made


def hint(leader: str) -> LeaderHint:
    """The word of a controller of that name, or of another one."""
    name = ControllerName(leader)
    return LeaderHint(
        controller=ControllerName("c1"),
        leader=name,
        leader_broker_address=f"{leader}:1",
        term=1,
    )


def opened(session: SessionMachine) -> SessionMachine:
    """The dialled controller leads, and registers."""
    session.dialled(session.connection)
    session.hinted(session.connection, hint("c1"), NOW_MS)
    assert session.state is SessionState.OPEN
    return session


def beating() -> SessionMachine:
    """Open, its first heartbeat answered."""
    session = opened(machine())
    session.beat_answered(session.connection, HeartbeatAck(view=None, controllers=()), NOW_MS)
    return session


def pause_ms(session: SessionMachine) -> int:
    """Lose the connection now; how long until the next one is dialled."""
    session.lost(session.connection, "reset", NOW_MS)
    due_ms = session.next_due_ms
    assert due_ms is not None
    (dial,) = session.tick(due_ms)
    assert isinstance(dial, Dial)
    return due_ms - NOW_MS


def test_a_session_that_opens_and_breaks_at_once_was_opened_again_without_end() -> None:
    """A registration per shortest pause is a burden for everybody, and an entry in the log each: pauses double."""
    session = machine()

    pauses = [pause_ms(opened(session)) for _ in range(20)]

    assert pauses[:2] == [TIMING.reconnect_delay_ms, 2 * TIMING.reconnect_delay_ms]
    assert pauses[-1] == TIMING.reconnect_delay_ms_max


def test_an_answered_heartbeat_makes_the_next_pause_the_shortest_again() -> None:
    """Only a session that works says that the trouble is over."""
    session = machine()
    for _ in range(5):
        pause_ms(opened(session))

    opened(session).beat_answered(session.connection, HeartbeatAck(view=None, controllers=()), NOW_MS)

    assert pause_ms(session) == TIMING.reconnect_delay_ms


def test_controllers_that_name_each_other_after_they_registered_us_get_a_pause() -> None:
    """Rule 2: the limit of hints in a row began anew with every opened session."""
    session = machine()
    dials = 0
    while session.state is not SessionState.PAUSED:
        opened(session)
        session.hinted(session.connection, hint(f"c{dials + 2}"), NOW_MS)
        dials += 1
        assert dials < 10, "dialled without a pause"

    assert session.next_due_ms is not None


def test_r21_a_higher_epoch_of_a_peer_is_asked_after_at_once_but_not_without_end() -> None:
    """A master believed the peer, left its epoch, and made the promise of 2**60 durable; now it asks, in a bounded way."""
    session = beating()
    soon_ms = NOW_MS + TIMING.reconnect_delay_ms

    assert session.look_up(NOW_MS) == [], "one heartbeat has just left"
    assert session.next_due_ms == soon_ms
    assert [type(action) for action in session.look_up(soon_ms)] == [Beat]
    assert session.look_up(soon_ms) == [], "one is in flight"
    session.lost(session.connection, "reset", soon_ms)
    assert session.look_up(soon_ms) == [], "there is nobody to ask"
    assert session.next_due_ms != soon_ms


def test_the_loser_of_an_identity_stayed_isolated_for_ever_although_the_winner_was_gone() -> None:
    """It asks once per longest pause, and begins anew when the winner was gone for as long as a start takes, in a row."""
    winner = HasEnded()
    session = machine(registration=winner)
    session.dialled(session.connection)
    session.hinted(session.connection, hint("c1"), NOW_MS)
    now_ms = NOW_MS

    def said_within(limit_ms: int) -> list[SessionAction]:
        nonlocal now_ms
        said: list[SessionAction] = []
        end_ms = now_ms + limit_ms
        while session.next_due_ms is not None and session.next_due_ms <= end_ms:
            assert session.next_due_ms - now_ms == TIMING.reconnect_delay_ms_max
            now_ms = session.next_due_ms
            said += session.tick(now_ms)
        return said

    assert BeginAnew() not in said_within(2 * VACATED_MS_MIN)
    winner.is_vacated = True
    assert BeginAnew() not in said_within(VACATED_MS_MIN)
    winner.is_vacated = False
    assert said_within(1_000)
    winner.is_vacated = True
    assert BeginAnew() not in said_within(VACATED_MS_MIN)
    assert said_within(1_000)[-1] == BeginAnew()
    assert session.state is SessionState.OVER


def test_a_dead_controller_costs_no_pause_while_another_was_not_tried() -> None:
    """Leader and master died together: each pause ended at the dead controller, and the next one was twice as long."""
    session = machine("c1:1", "c2:1", "c3:1")
    opened(session)
    session.beat_answered(session.connection, HeartbeatAck(view=None, controllers=()), NOW_MS)

    session.lost(session.connection, "reset", NOW_MS)
    dialled = [
        action.address for action in session.tick(NOW_MS + TIMING.reconnect_delay_ms) if isinstance(action, Dial)
    ]
    for _ in range(2):
        dialled += [a.address for a in session.lost(session.connection, "refused", NOW_MS) if isinstance(a, Dial)]
    nobody = session.lost(session.connection, "refused", NOW_MS)

    assert dialled == ["c1:1", "c2:1", "c3:1"]
    assert not [action for action in nobody if isinstance(action, Dial)], "all were tried: a pause is due"
    assert session.state is SessionState.PAUSED


def test_a_controller_that_hung_was_asked_again_before_those_that_answer() -> None:
    """The leader hung: two seconds until a heartbeat was given up, two more at the same door, and a living master fell."""
    session = machine("c1:1", "c2:1", "c3:1")
    opened(session)
    session.beat_answered(session.connection, HeartbeatAck(view=None, controllers=()), NOW_MS)

    session.lost(session.connection, "no answer to code 3103 within 2000 ms", NOW_MS, is_silent=True)
    dialled = [a.address for a in session.tick(NOW_MS + TIMING.reconnect_delay_ms) if isinstance(a, Dial)]

    assert dialled == ["c2:1"]


# --- certificates -----------------------------------------------------------------------------------------------------


class HungLink:
    """A link to a controller that shows a certificate; it remembers why it was closed."""

    def __init__(self, certificate: PeerCertificate) -> None:
        self.certificate = certificate
        self.close_cause: CloseCause | None = None

    def close(self, reason: str, cause: CloseCause) -> None:
        self.close_cause = cause


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda own, peer: None, None),
        (lambda own, peer: own.revoke({peer.own.serial}), CloseCause.REVOKED),
        (lambda own, peer: own.revoke({own.own.serial}), None),
        (lambda own, peer: own.renew_if_changed(), CloseCause.HANDLER),
    ],
)
def test_a_session_leaves_a_link_that_shows_an_old_certificate(
    tmp_path: Path, change: Callable[[Credentials, Credentials], object], cause: CloseCause | None
) -> None:
    """It stayed until the old certificate ended, and then all brokers of a fleet lost their sessions together."""
    certificates = FleetCertificates(tmp_path)
    own, peer = certificates.credentials("own"), certificates.credentials("c1")
    session = ControllerSession(
        machine=machine(),
        owner=cast("SessionOwner", None),
        set_key=SetKey(ClusterName("demo"), BrokerName("broker-a")),
        timing=TIMING,
        now_us=lambda: 0,
        held_since_us=0,
        credentials=own,
        wall_ms=lambda: peer.own.expires_at_ms - 1,
    )
    link = HungLink(peer.own)
    session._link, session._shown = cast("RemotingConnection", link), own.own.serial
    certificates.issue(PeerKind.CONTROLLER, "own")
    change(own, peer)
    session._judge_again()
    assert link.close_cause is cause
    if cause is None:
        session._wall_ms = lambda: peer.own.expires_at_ms
        session._judge_again()
        assert link.close_cause is CloseCause.EXPIRED


def test_a_milestone_that_waits_for_the_batch_before_it_says_for_how_long() -> None:
    """SERVING waited until PROMISED was committed, and the controllers took the wait for a part of the outage."""

    async def story() -> None:
        now_us, answered = 1_000, asyncio.Event()
        sent: list[list[tuple[Phase, object]]] = []
        session = ControllerSession(
            machine=beating(), owner=cast("SessionOwner", None),
            set_key=SetKey(ClusterName("demo"), BrokerName("broker-a")),
            timing=TIMING, now_us=lambda: now_us, held_since_us=0,
        )  # fmt: skip

        async def ask(command: Value) -> AnyReply:
            assert isinstance(command, RecordMilestones)
            sent.append([(one.phase, one.age_us) for one in command.milestones])
            await answered.wait()
            return Done()

        session.ask = ask  # type: ignore[method-assign]
        for phase, reached_at_us in ((Phase.PROMISED, 900), (Phase.SERVING, 1_000)):
            milestone = Milestone(master_epoch=MasterEpoch(1), phase=phase, elapsed_us=1)
            session.report(milestone, reached_at_us=reached_at_us)
            await until(lambda: len(sent) == 1)
        now_us = 41_000
        answered.set()
        await until(lambda: len(sent) == 2)

        assert sent == [[(Phase.PROMISED, 100)], [(Phase.SERVING, 40_000)]]

    asyncio.run(story())
