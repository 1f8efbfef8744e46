"""The broker port on real sockets: sessions, pushes, probes, and peers that talk nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.api.broker_port.port import FRAME_BYTES_MAX, PROBES_MAX, SPOKEN, BrokerPortServer
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import (
    ApplyBrokerId,
    RecordMilestones,
    RegisterReplica,
    SayGoodbye,
)
from rollcall_ha.controller.contract.events import MilestoneReached, ReplicaRegistered
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, RequestId, SessionOrdinal
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.replies import AnyReply, Done, IdGranted, Refused, Registered
from rollcall_ha.controller.contract.session import (
    SESSION_COMMANDS,
    BrokerState,
    Heartbeat,
    HeartbeatAck,
    LeaderHint,
    LinkReport,
    ProbeAnswer,
    RoleNotice,
)
from rollcall_ha.controller.contract.values import CleanMark, Milestone, Phase, RegisteredAs
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.controller.core.actions import SendProbe
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ProbeOutcome
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer, connect
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import CloseCause
from tests.support.frames import QuietHandler
from tests.support.runtime_controller import (
    NAMES,
    Controller,
    Group,
    broker_id_body,
    heartbeat_body,
    recorded,
    register_body,
    running_group,
    until,
)
from tests.support.runtime_world import set_key
from tests.support.scenarios import player

KEY = set_key()


@dataclass(slots=True)
class Peer(QuietHandler):
    """A broker's end of a link."""

    notices: list[RoleNotice] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        self.notices += [msgspec.json.decode(frame.body, type=RoleNotice) for frame in frames]

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        self.closed.append(reason)


@dataclass(slots=True, kw_only=True)
class Port:
    """One controller with its port open."""

    group: Group
    leader: Controller
    gateway: BrokerPortServer
    number: int

    async def link(self, peer: Peer | None = None) -> RemotingConnection:
        return await connect("127.0.0.1", self.number, peer or Peer(), timeout_ms=2_000)


def _run(directory: Path, scenario: Callable[[Port], Awaitable[None]]) -> None:
    async def main() -> None:
        gateways: list[BrokerPortServer] = []

        def make(service: ControllerService) -> BrokerPortServer:
            gateways.append(BrokerPortServer(service))
            return gateways[-1]

        async with running_group(directory, NAMES[:1], make_port=make) as group:
            member, (gateway,) = group["c1"], gateways
            (number,) = free_ports(1)
            await gateway.start(f"127.0.0.1:{number}")
            try:
                await scenario(Port(group=group, leader=member, gateway=gateway, number=number))
            finally:
                await gateway.stop()

    asyncio.run(main())


on_port = player(_run)


async def _ask(link: RemotingConnection, code: RequestCode, body: object) -> AnyReply:
    answer = await link.request(code, body=msgspec.json.encode(body), timeout_ms=2_000)
    reply: AnyReply = msgspec.json.decode(answer.body, type=AnyReply)
    return reply


async def _open_session(link: RemotingConnection, number: int, expected: int = 2) -> Registered:
    granted = await _ask(link, RequestCode.SESSION_APPLY_ID, broker_id_body(number))
    assert granted == IdGranted(broker_id=BrokerId(number))
    registered = await _ask(link, RequestCode.SESSION_REGISTER, register_body(number, expected=expected))
    assert isinstance(registered, Registered)
    return registered


@on_port()
async def test_r27_a_fleet_that_gave_its_certificates_up_keeps_its_brokers(port: Port) -> None:
    """Each id belonged to a certificate that nobody shows any more: every broker stayed outside."""
    await port.group.elect("c1")
    owner = Principal(name="b1", role=Role.BROKER, proved_by=ProvedBy.CERTIFICATE, serial="1", set_key=KEY)
    await broker_requests.submit(
        port.leader.service,
        msgspec.convert(broker_id_body(1), ApplyBrokerId),
        request_id=RequestId("with-certificate"),
        requested_by="broker",
        connection=None,
        principal=owner,
    )
    assert (await _open_session(await port.link(), 1)).broker_id == 1


def goodbye(number: int) -> SayGoodbye:
    mark = CleanMark(nonce="n", end_offset=LogOffset(0))
    beat = msgspec.convert(heartbeat_body(number), Heartbeat)
    return SayGoodbye(
        set_key=KEY,
        broker_id=beat.broker_id,
        incarnation=beat.incarnation,
        session_ordinal=beat.session_ordinal,
        clean_mark=mark,
    )


def link_report(number: int, *, master: int) -> LinkReport:
    beat = msgspec.convert(heartbeat_body(number), Heartbeat)
    return LinkReport(
        set_key=KEY,
        broker_id=beat.broker_id,
        incarnation=beat.incarnation,
        session_ordinal=beat.session_ordinal,
        master=BrokerId(master),
        master_epoch=MasterEpoch(1),
        is_open=False,
    )


def milestones(number: int | None) -> RecordMilestones:
    beat = msgspec.convert(heartbeat_body(number or 1), Heartbeat)
    one = Milestone(
        master_epoch=MasterEpoch(1),
        phase=Phase.SERVING,
        elapsed_us=1,
        broker_id=beat.broker_id if number is not None else None,
        incarnation=beat.incarnation if number is not None else None,
    )
    return RecordMilestones(set_key=KEY, milestones=(one,))


@on_port()
async def test_session_hears_of_its_election_at_once(port: Port) -> None:
    """Register, beat, and the notice of the first election comes without being asked for."""
    await port.group.elect("c1")
    peers = [Peer(), Peer()]
    links = [await port.link(peer) for peer in peers]
    for number, link in enumerate(links, start=1):
        await _open_session(link, number)
        answer = await link.request(
            RequestCode.SESSION_HEARTBEAT, body=msgspec.json.encode(heartbeat_body(number)), timeout_ms=2_000
        )
        assert msgspec.json.decode(answer.body, type=HeartbeatAck).controllers
    await until(lambda: all(peer.notices and peer.notices[-1].view.master for peer in peers))
    assert {peer.notices[-1].view.master_epoch for peer in peers} == {1}
    assert port.leader.service.duties.sessions.open_count == 2
    stale = heartbeat_body(1)
    answer = await links[0].request(RequestCode.SESSION_HEARTBEAT, body=msgspec.json.encode(stale), timeout_ms=2_000)
    view = msgspec.json.decode(answer.body, type=HeartbeatAck).view
    assert view is not None
    assert view.master_epoch == 1


@on_port()
async def test_the_record_of_a_reign_does_not_count_how_long_its_report_waited(port: Port) -> None:
    """A report of an hour ago, as the broker says, ends the outage at the commit of the election: not when it arrives."""
    await port.group.elect("c1")
    peer = Peer()
    link = await port.link(peer)
    await _open_session(link, 1, expected=1)
    await link.request(RequestCode.SESSION_HEARTBEAT, body=msgspec.json.encode(heartbeat_body(1)), timeout_ms=2_000)
    await until(lambda: peer.notices and peer.notices[-1].view.master)
    (told,) = milestones(1).milestones
    command = RecordMilestones(set_key=KEY, milestones=(replace(told, age_us=3_600_000_000),))
    assert await _ask(link, RequestCode.SESSION_MILESTONES, command) == Done()

    def reached(phase: Phase) -> list[Milestone]:
        events = [record.event for record in port.leader.journal.read(None, limit=100).records]
        found = [event.milestone for event in events if isinstance(event, MilestoneReached)]
        return [one for one in found if one.phase is phase]

    await until(lambda: reached(Phase.COMMITTED))
    await recorded(port.leader)
    (committed,), (serving,) = reached(Phase.COMMITTED), reached(Phase.SERVING)
    assert (serving.observed_us, serving.age_us) == (committed.observed_us, None)


@on_port()
async def test_a_session_that_opens_hears_what_the_rest_of_its_entry_changed(port: Port) -> None:
    """
    A master opened its session in the entry in which its slave registered as another process.

    The reply was of its own place in the entry, and the notice of the entry went out before the session had a
    connection: the master refused the living slave for ever, as a process that it had never heard of.
    """
    await port.group.elect("c1")
    for number in (1, 2):
        await _open_session(await port.link(), number)
    service = port.leader.service
    again = [msgspec.convert(register_body(number), RegisterReplica) for number in (1, 2)]
    present = {
        number: RegisteredAs(incarnation=Incarnation(f"{number:032x}"), session_ordinal=SessionOrdinal(1))
        for number in (1, 2)
    }
    again[0] = replace(again[0], replaces=present[1])
    again[1] = replace(again[1], replaces=present[2], incarnation=Incarnation("another"))
    first, second = await asyncio.gather(
        *(
            broker_requests.submit(
                service, command, request_id=service.ports.new_request_id(), requested_by="broker", connection=None
            )
            for command in again
        )
    )
    assert isinstance(first, Registered)
    assert isinstance(second, Registered)
    assert first.view.index == second.view.index, "both are in one entry"
    assert {member.broker_id: member.incarnation for member in first.view.members}[BrokerId(2)] == "another"


@on_port()
async def test_a_copy_that_is_registered_is_measured_by_what_its_set_had_told_the_leader(port: Port) -> None:
    """R3: replicated state knew of no confirm since the election; the master's heartbeats had told of 3,000."""
    await port.group.elect("c1")
    service, links = port.leader.service, {}
    for number in (1, 2):
        links[number] = await port.link()
        await _open_session(links[number], number)
        await links[number].request(
            RequestCode.SESSION_HEARTBEAT, body=msgspec.json.encode(heartbeat_body(number)), timeout_ms=2_000
        )
    await until(lambda: service.published.state.sets[KEY].master)
    reigning = service.published.state.sets[KEY]
    assert reigning.master is not None
    told = heartbeat_body(reigning.master, epoch=reigning.master_epoch)
    told["positions"] = {"lastEpoch": 1, "maxOffset": 3_000, "confirmOffset": 3_000}
    await links[reigning.master].request(
        RequestCode.SESSION_HEARTBEAT, body=msgspec.json.encode(told), timeout_ms=2_000
    )

    other = 3 - reigning.master
    copied = register_body(other) | {"incarnation": "copy", "previousIncarnations": [f"{other:032x}"]}
    copied["replaces"] = {"incarnation": f"{other:032x}", "sessionOrdinal": 1}
    copied["positions"] = {"lastEpoch": 1, "maxOffset": 1_600, "confirmOffset": 1_600}
    registered = await _ask(await port.link(), RequestCode.SESSION_REGISTER, copied)

    assert isinstance(registered, Registered), registered
    assert registered.intactness is Intactness.NOT_INTACT
    assert not registered.is_in_sync


@on_port()
async def test_the_heartbeats_of_a_session_tell_how_many_entries_a_controller_that_was_put_back_lacks(
    port: Port,
) -> None:
    await port.group.elect("c1")
    service, link = port.leader.service, await port.link()
    await _open_session(link, 1, expected=1)
    ends = []
    for seen in (5_000, 0):
        ends.append(service.published.index)
        beat = msgspec.json.encode(heartbeat_body(1) | {"seenIndex": seen})
        await link.request(RequestCode.SESSION_HEARTBEAT, body=beat, timeout_ms=2_000)
    assert 5_000 - ends[1] <= service.lost_entries <= 5_000 - ends[0], "the most that was lost stays told"


@on_port()
async def test_a_copy_on_the_same_boot_ends_a_master_when_the_leader_heard_it_last(port: Port) -> None:
    """A file system that tells no births: the copy has the original's store, and a lock of its own since an hour."""
    await port.group.elect("c1")
    link = await port.link()
    await _open_session(link, 1, expected=1)
    beat = msgspec.json.encode(heartbeat_body(1))
    await link.request(RequestCode.SESSION_HEARTBEAT, body=beat, timeout_ms=2_000)
    await until(lambda: port.leader.service.published.state.sets[KEY].master)
    copied = register_body(1, expected=1) | {"incarnation": "copy", "previousIncarnations": [f"{1:032x}"]}
    copied |= {"replaces": {"incarnation": f"{1:032x}", "sessionOrdinal": 1}, "heldUs": 3_600_000_000}
    registered = await _ask(await port.link(), RequestCode.SESSION_REGISTER, copied)
    assert isinstance(registered, Registered), registered
    assert registered.intactness is Intactness.SAME_BOOT

    await recorded(port.leader)
    records = port.leader.journal.read(None, limit=100).records
    (ended,) = [one.event.ended for one in records if isinstance(one.event, ReplicaRegistered) and one.event.ended]
    assert ended.first_sign_age_us < 60_000_000


@on_port()
async def test_closed_session_is_probed_and_a_refusal_is_told_from_silence(port: Port) -> None:
    """R13: only the operating system's own refusal counts; an answer carries the incarnation."""
    await port.group.elect("c1")
    (dead,) = free_ports(1)

    def probe_of(number: int) -> SendProbe:
        return SendProbe(
            set_key=KEY,
            broker_id=BrokerId(1),
            incarnation=Incarnation("x"),
            session_ordinal=SessionOrdinal(1),
            address=f"127.0.0.1:{number}",
        )

    assert await port.gateway.probe(probe_of(dead)) == (ProbeOutcome.REFUSED, None)
    answer = ProbeAnswer(set_key=KEY, broker_id=BrokerId(1), incarnation=Incarnation("y"), state=BrokerState.BOOT)
    for body, outcome in ((msgspec.json.encode(answer), ProbeOutcome.ANSWERED), (b"{", ProbeOutcome.NO_ANSWER)):
        broker = RemotingServer(_Answers(body))
        (number,) = free_ports(1)
        await broker.start("127.0.0.1", number)
        found = await port.gateway.probe(probe_of(number))
        await broker.stop()
        assert found == (outcome, answer if outcome is ProbeOutcome.ANSWERED else None)


@on_port()
async def test_a_thousand_sessions_that_close_at_once_are_all_probed(port: Port) -> None:
    """Probes above the limit were taken for unanswered at once, five times in a row: those masters waited for 3 s."""
    await port.group.elect("c1")
    (dead,) = free_ports(1)
    probes = [
        SendProbe(
            set_key=KEY,
            broker_id=BrokerId(number),
            incarnation=Incarnation("x"),
            session_ordinal=SessionOrdinal(1),
            address=f"127.0.0.1:{dead}",
        )
        for number in range(2 * PROBES_MAX + 1)
    ]
    found = await asyncio.gather(*(port.gateway.probe(probe) for probe in probes))
    assert {outcome for outcome, _ in found} == {ProbeOutcome.REFUSED}


@dataclass(slots=True)
class _Answers(QuietHandler):
    """A listen port that answers everything with one body."""

    body: bytes

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            connection.respond(frame, 0, body=self.body)


@on_port()
async def test_follower_names_the_leader_or_says_that_it_knows_none(port: Port) -> None:
    """S40: Every session request without authority is answered NOT_LEADER with a hint, at once."""
    link = await port.link()
    for code in (RequestCode.SESSION_HEARTBEAT, RequestCode.SESSION_REGISTER):
        body = heartbeat_body(1) if code is RequestCode.SESSION_HEARTBEAT else register_body(1)
        answer = await link.request(code, body=msgspec.json.encode(body), timeout_ms=500)
        assert answer.code == RefusalCode.NOT_LEADER
        assert msgspec.json.decode(answer.body, type=LeaderHint).leader is None
    await port.group.elect("c1")
    answer = await link.request(RequestCode.FIND_LEADER, timeout_ms=500)
    hint = msgspec.json.decode(answer.body, type=LeaderHint)
    assert (hint.leader, hint.leader_broker_address) == ("c1", "127.0.0.1:2000")


@on_port()
async def test_a_question_for_the_leader_during_an_election_is_held_until_one_leads(port: Port) -> None:
    """Leader and master died together: brokers heard "nobody", paused 800 ms, and found the leader a second late."""
    link = await port.link()
    question = asyncio.create_task(link.request(RequestCode.FIND_LEADER, timeout_ms=2_000))
    await until(lambda: port.gateway.requests["FIND_LEADER"] == 1)
    assert not question.done()
    await port.group.elect("c1")
    answer = await question
    assert msgspec.json.decode(answer.body, type=LeaderHint).leader == "c1"
    assert port.gateway.requests["FIND_LEADER"] == 1


@on_port()
async def test_nonsense_is_refused_and_the_link_stays(port: Port) -> None:
    """Unknown codes, codes of a later version and bodies that are no values: an answer each, nothing else."""
    await port.group.elect("c1")
    link = await port.link()
    for number in (7, RequestCode.GET_REPLICA_INFO):
        answer = await link.request(number, timeout_ms=500)
        assert answer.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED
    for code in (RequestCode.SESSION_REGISTER, RequestCode.SESSION_HEARTBEAT, RequestCode.SESSION_ALTER):
        for body in (b"", b"{}", b"\xff\x00", b"[1]", b'{"x":' * 100_000, b"[" * 100_000):
            answer = await link.request(code, body=body, timeout_ms=500)
            reply = msgspec.json.decode(answer.body, type=AnyReply)
            assert isinstance(reply, Refused)
            assert reply.code is RefusalCode.INVALID_ARGUMENT
    assert link.is_open
    assert port.gateway.requests["unsupported"] == 2


@on_port()
async def test_greedy_frame_closes_its_link_only(port: Port) -> None:
    """A frame above the port's limit ends that link, counted; others go on."""
    await port.group.elect("c1")
    peer = Peer()
    greedy, honest = await port.link(peer), await port.link()
    greedy.send_bytes((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    await until(lambda: peer.closed)
    answer = await honest.request(RequestCode.FIND_LEADER, timeout_ms=500)
    assert answer.code == SystemCode.SUCCESS
    assert port.gateway.links.closed_by_cause[CloseCause.FRAME_LENGTH] == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (RequestCode.SESSION_GOODBYE, lambda: goodbye(1)),
        (RequestCode.SESSION_HEARTBEAT, lambda: msgspec.convert(heartbeat_body(1), Heartbeat)),
        (RequestCode.SESSION_LINKS, lambda: link_report(2, master=1)),
        (RequestCode.SESSION_MILESTONES, lambda: milestones(1)),
        (RequestCode.SESSION_MILESTONES, lambda: milestones(None)),
    ],
)
@on_port()
async def test_a_link_that_speaks_for_a_replica_of_another_link_counts_for_nothing_and_is_closed(
    port: Port, code: RequestCode, said: Callable[[], object]
) -> None:
    """A goodbye in the name of a live master, with its incarnation from a probe, made it gone for the controllers."""
    await port.group.elect("c1")
    real = [await port.link() for _ in range(2)]
    for number, link in enumerate(real, start=1):
        await _open_session(link, number)
    before = port.leader.service.published.index
    peer = Peer()
    stranger = await port.link(peer)
    stranger.send_one_way(code, body=msgspec.json.encode(said()))
    await until(lambda: bool(peer.closed))
    assert port.gateway.links.closed_by_cause == {CloseCause.STRANGER: 1}
    assert port.leader.service.published.index == before
    view = port.leader.service.view_of(KEY)
    assert view is not None
    assert all(member.is_alive for member in view.members)
    assert all(link.is_open for link in real)


def test_every_order_of_a_session_needs_a_registration_on_its_link_but_the_two_that_lead_to_one() -> None:
    """Else a new order could be given by anybody."""
    assert set(get_args(SPOKEN)) == set(SESSION_COMMANDS.values()) - {ApplyBrokerId, RegisterReplica}


def test_session_commands_are_those_of_the_contract() -> None:
    """The registration that opens a session is the contract's command, tag included."""
    body = register_body(1)

    assert msgspec.convert(body, RegisterReplica).broker_id == 1
