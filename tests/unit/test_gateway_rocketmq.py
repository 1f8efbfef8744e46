"""What RocketMQ brokers rely on without saying so: the traps of the controller protocol, on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rollcall_ha.controller.contract.commands import AnyCommand
from rollcall_ha.controller.contract.replies import AnyReply, Condition, Refused, Registered
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from tests.support.rocketmq_wire import JavaListener, JavaPeer, Port, address_of, on_port, silenced
from tests.support.runtime_controller import DEADLINE_S, until

NAMES = {"clusterName": "c1", "brokerName": "broker-z"}
ELECT = {**NAMES, "designateElect": False, "invokeTime": 1}
ALTER = {"brokerName": "broker-z", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}


def altered(members: str, epoch: int) -> bytes:
    return f'{{"syncStateSet":[{members}],"syncStateSetEpoch":{epoch}}}'.encode()


async def told(port: Port, *broker_ids: int) -> None:
    """Until each of them has told what it holds."""
    await until(lambda: all(r.positions is not None for r in port.set().replicas if r.broker_id in broker_ids))


async def in_sync(port: Port, addresses: tuple[str, str] | None = None) -> tuple[JavaPeer, JavaPeer]:
    """Broker 1 is master, both are in the set."""
    where = addresses or (address_of(1), address_of(2))
    first = await port.joined(1, address=where[0])
    first.beat(1, brokerAddr=where[0])
    await told(port, 1)
    assert (await first.request(1002, **ELECT, brokerId=1)).code == 0
    second = await port.joined(2, address=where[1])
    first.beat(1, epoch=1, brokerAddr=where[0])
    second.beat(2, brokerAddr=where[1])
    await told(port, 2)
    assert (await first.request(1001, altered("1,2", 1), **ALTER)).code == 0
    return first, second


async def second_leads(port: Port, *beats: Callable[[], None]) -> None:
    """
    Until broker 2 is elected and has entered; the living ones go on with their heartbeats.

    With one heartbeat each, a machine so busy that the master's end was found 3 s later left nobody who is ready.
    """
    async with asyncio.timeout(DEADLINE_S):
        while not (port.set().master == 2 and port.set().has_entered):
            for beat in beats:
                beat()
            await asyncio.sleep(0.05)


# --- first elections -------------------------------------------------------------------------------------------------


@on_port()
async def test_first_election_waits_for_the_first_heartbeat_of_its_asker(port: Port) -> None:
    """R8: RocketMQ sends 1002 and its first 904 at once; what the 904 tells belongs into the evidence."""
    peer = await port.joined(1)
    asking = asyncio.create_task(peer.request(1002, **ELECT, brokerId=1))
    await until(lambda: port.gateway.requests["ELECT_MASTER"])
    assert not asking.done()
    other = await port.peer()
    other.beat(1, epoch=-1, maxOffset=0)
    assert (await asking).code == 0
    assert port.set().replicas[0].positions is not None


@on_port()
async def test_broker_that_brings_records_waits_for_an_operator(port: Port) -> None:
    """R8: a log that no election here wrote is never made the truth by a broker's own request."""
    peer = await port.joined(1)
    peer.beat(1, epoch=4, maxOffset=900)
    await told(port, 1)
    answer = await peer.request(1002, **ELECT, brokerId=1)
    assert answer.code == 2012
    assert "bootstrap" in port.view().condition_reason


@on_port(expected_replicas=2)
async def test_first_election_waits_for_the_expected_number_of_replicas(port: Port) -> None:
    """One unless configured: then the first broker alone is refused, and asks again every 5 s."""
    first = await port.joined(1)
    assert (await first.request(1002, **ELECT, brokerId=1)).code == 2012
    second = await port.joined(2)
    second.beat(2)
    await told(port, 2)
    answer = await second.request(1002, **ELECT, brokerId=2)
    assert (answer.code, (answer.ext_fields or {})["masterBrokerId"]) == (0, "2")
    assert json.loads(answer.body)["syncStateSet"] == [2]


# --- restarts --------------------------------------------------------------------------------------------------------


@on_port()
async def test_restarted_master_never_gets_its_old_epoch(port: Port) -> None:
    """W3, R9: by 1003 on a new connection its process has ended; it hears of no master, and of a new epoch then."""
    first = await port.joined(1)
    assert (await first.request(1002, **ELECT, brokerId=1)).code == 0
    again = await port.peer()
    registered = await again.request(1003, **NAMES, brokerId=1, brokerAddress=address_of(1), invokeTime=2)
    assert registered.code == 0
    assert "masterBrokerId" not in (registered.ext_fields or {})
    again.beat(1, epoch=1, maxOffset=100)
    elected = await again.request(1002, **ELECT, brokerId=1)
    assert elected.code in (0, 2011)
    assert (elected.ext_fields or {})["masterEpoch"] == "2"


@on_port()
async def test_repeated_registration_of_one_process_keeps_its_place(port: Port) -> None:
    """An answer that was slow is asked for again on the same connection: that is no restart."""
    _, second = await in_sync(port)
    again = await second.request(1003, **NAMES, brokerId=2, brokerAddress=address_of(2), invokeTime=2)
    assert again.code == 0
    assert port.set().sync_state_set == (1, 2)


@on_port()
async def test_of_two_processes_with_one_id_the_registered_one_is_heard(port: Port) -> None:
    """A copied data directory: the heartbeats of the other address count for nobody."""
    await in_sync(port)
    copy = await port.peer()
    copy.beat(2, brokerAddr="127.0.0.1:9", epoch=1, maxOffset=7_000)
    await until(lambda: port.rocketmq.replicas.ignored["another address or cluster"])
    session = port.leader.service.duties.sessions.get(port.set().set_key, port.set().replicas[1].broker_id)
    assert session is not None
    assert session.positions is not None
    assert session.positions.max_offset == 0


# --- 1001 ------------------------------------------------------------------------------------------------------------


@on_port()
async def test_alters_are_refused_in_the_order_of_rocketmq(port: Port) -> None:
    """A demoted master already shows the new epoch with its own id: the id is compared first."""
    first, _ = await in_sync(port)
    cases = (
        (2013, ALTER, altered("1,2", 2)),
        (2002, ALTER | {"masterBrokerId": 2}, altered("2", 1)),
        # An epoch that was never issued here: these controllers were restored, and wait for reports. Busy, not stale.
        (2, ALTER | {"masterEpoch": 9}, altered("1", 2)),
        (2001, ALTER, altered("1", 1)),
        (2003, ALTER, altered("1,2,3", 2)),
        (2013, ALTER, altered("2", 2)),
        (2013, ALTER | {"brokerName": "nobody"}, altered("1", 2)),
        (2005, ALTER, b"[]"),
    )
    for code, fields, body in cases:
        answer = await first.request(1001, body, **fields)
        assert (answer.code, answer.ext_fields) == (code, {"newSyncStateSetEpoch": "0"}), (code, answer.remark)
    assert (await first.request(1001, altered("1", 2), **ALTER)).code == 0


@on_port()
async def test_refused_alter_is_decided_anew_when_it_comes_again(port: Port) -> None:
    """RocketMQ repeats it every 5 s; a stored refusal would keep the slave out for ever."""
    first, _ = await in_sync(port)
    assert (await first.request(1001, altered("1", 2), **ALTER)).code == 0
    again = await port.peer()
    await again.request(1003, **NAMES, brokerId=2, brokerAddress=address_of(2), invokeTime=1)
    wanted = altered("1,2", 3)
    assert (await first.request(1001, wanted, **ALTER)).code == 2006
    again.beat(2)
    await told(port, 2)
    assert (await first.request(1001, wanted, **ALTER)).code == 0
    assert port.set().sync_state_set == (1, 2)


@on_port()
async def test_alter_to_what_is_already_so_leaves_no_trace(port: Port) -> None:
    """
    A Java master queues a proposal for each acknowledgement of a slave that is not in the set yet, and sends those that
    are left with the new epoch: up to seven refusals stood in the record of each join, each with a commit of its own.
    """
    first, _ = await in_sync(port)
    before = port.set()

    for _ in range(3):
        answer = await first.request(1001, altered("1,2", 2), **ALTER)
        assert (answer.code, answer.ext_fields) == (2013, {"newSyncStateSetEpoch": "0"})
        assert answer.remark == "the set is (1, 2) already"

    assert port.set() == before


# --- answers ---------------------------------------------------------------------------------------------------------


@on_port()
async def test_name_of_one_cluster_is_refused_to_another(port: Port) -> None:
    """1001 and 1004 carry no cluster: a second set of that name would be taken for the first."""
    await port.joined(1)
    peer = await port.peer()
    names = NAMES | {"clusterName": "c2"}
    for code, fields in (
        (1012, {}),
        (1013, {"appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:9;1"}),
        (1003, {"brokerId": 1, "brokerAddress": "127.0.0.1:9"}),
    ):
        answer = await peer.request(code, **names, **fields)
        assert answer.code == 2005
        assert "belongs to cluster c1" in (answer.remark or "")
    assert (await peer.request(1002, **names, brokerId=1, designateElect=True)).code == 2010
    assert (await peer.request(1011, **names, isCleanLivingBroker=True)).code == 2009
    assert len(port.set().replicas) == 1


@pytest.mark.parametrize("code", [1001, 1002, 1003, 1004, 1005, 1006, 1009, 1010, 1011, 1012, 1013, 904, 999])
@on_port()
async def test_everything_that_is_asked_is_answered(port: Port, code: int) -> None:
    """Missing fields, fields that are no numbers, bodies that are no JSON: an answer each, and the link stays."""
    await port.joined(1)
    peer = await port.peer()
    odd = {"brokerId": "x", "masterBrokerId": "", "masterEpoch": "1.5", "appliedBrokerId": "1" * 30}
    for fields in ({}, NAMES, odd, NAMES | odd):
        for body in (b"", b"\xff", b"{", b"[[", b'{"syncStateSet":null}', b"[1]", b"null"):
            assert (await peer.request(code, body, **fields)).is_response


@on_port()
async def test_heartbeat_is_answered_only_to_who_wants_that(port: Port) -> None:
    """A 904 is one-way; sent as a request it has RocketMQ's own words."""
    peer = await port.joined(1)
    peer.beat(1)
    answer = await peer.request(904, **NAMES, brokerId=1, brokerAddr=address_of(1))
    assert (answer.code, answer.remark) == (0, "Heart beat success")
    assert (await peer.request(904, **NAMES)).code == 2005


@on_port(leads=False)
async def test_without_a_leader_nobody_is_named_and_nothing_is_decided(port: Port) -> None:
    """1005 is answered with success and no leader: the broker asks the next controller. The rest says 2007."""
    peer = await port.peer()
    found = await peer.request(1005)
    assert (found.code, (found.ext_fields or {})["isLeader"]) == (0, "false")
    assert "controllerLeaderAddress" not in (found.ext_fields or {})
    for code in (1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013):
        assert (await peer.request(code, b'["a"]', **NAMES)).code == 2007
    assert (await peer.request(1010)).code == 0


@on_port()
async def test_settings_of_the_fleet_file_are_not_changed_by_mqadmin(port: Port) -> None:
    """Unknown keys do nothing and succeed, as in RocketMQ; what would pretend to change ours is refused."""
    peer = await port.peer()
    for body, code in (
        (b"", 0), (b"nonsense=1\n", 0), (b"enableElectUncleanMaster=false", 0), (b"rocketmqHome=/x", 16),
        (b"enableElectUncleanMaster=true", 16), (b"\xff", 1),
    ):  # fmt: skip
        assert (await peer.request(1009, body)).code == code, body


@on_port()
async def test_cleaning_honours_ids_and_leaves_a_tombstone(port: Port) -> None:
    """W29, W30: a cleaned id is never given again, and a cleaned set goes on above its epochs."""
    _, second = await in_sync(port)
    fields = {**NAMES, "brokerControllerIdsToClean": "2"}
    assert (await second.request(1011, **fields, isCleanLivingBroker=False)).code == 2009
    assert (await second.request(1011, **fields | {"brokerControllerIdsToClean": "x"})).code == 2009
    assert (await second.request(1011, **fields | {"brokerControllerIdsToClean": "7"})).code == 0
    assert (await second.request(1011, **fields, isCleanLivingBroker=True)).code == 0
    assert [replica.broker_id for replica in port.set().replicas] == [1]
    registered = await second.request(1003, **NAMES, brokerId=2, brokerAddress=address_of(2))
    assert registered.code == 2010
    assert (await second.request(1012, **NAMES)).ext_fields == {**NAMES, "nextBrokerId": "3"}
    assert (await second.request(1011, **NAMES, isCleanLivingBroker=True)).code == 0
    assert (await second.request(1004, brokerName="broker-z")).code == 2008


@on_port()
async def test_registration_whose_connection_closed_meanwhile_ended_the_next_process(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: a late 1003 of an earlier life was made anew against the later one; nobody waits for it any more."""
    await port.joined(1)
    submit = broker_requests.submit
    arrived, go_on = asyncio.Event(), asyncio.Event()
    replies: list[AnyReply] = []

    async def held(service: ControllerService, command: AnyCommand, **rest: Any) -> AnyReply:
        if not arrived.is_set():
            arrived.set()
            await go_on.wait()
        replies.append(await submit(service, command, **rest))
        return replies[-1]

    monkeypatch.setattr(broker_requests, "submit", held)
    fields = {**NAMES, "brokerId": 1, "brokerAddress": address_of(1), "invokeTime": 1}
    late = await port.peer()
    lost = asyncio.create_task(late.request(1003, **fields))
    await arrived.wait()
    links = len(port.gateway.links)
    late.close()
    await until(lambda: len(port.gateway.links) < links and lost.done())
    assert lost.exception() is not None
    assert (await (await port.peer()).request(1003, **fields)).code == 0
    living = port.set().replicas[0].incarnation
    go_on.set()
    await until(lambda: len(replies) >= 2)
    assert [type(reply) for reply in replies[:2]] == [Registered, Refused]

    await port.joined(2)
    assert port.set().replicas[0].incarnation == living


# --- death and pushes ------------------------------------------------------------------------------------------------


@on_port()
async def test_killed_master_is_replaced_and_everybody_told_at_once(port: Port) -> None:
    """Connection closed, probe refused twice; then 1008 to the new master, and 1008 and 906 to the slave, in order."""
    dead, winner, slave = JavaListener(), JavaListener(ha_address="127.0.0.1:7"), JavaListener()
    addresses = [await port.listener(listener) for listener in (dead, winner, slave)]
    peers = list(await in_sync(port, (addresses[0], addresses[1])))
    third = await port.joined(3, address=addresses[2])
    third.beat(3, brokerAddr=addresses[2])
    await told(port, 3)
    assert (await peers[0].request(1001, altered("1,2,3", 2), **ALTER)).code == 0
    await until(lambda: port.rocketmq.pushes.sent["given up"] or winner.pushed)
    winner.pushed.clear()
    slave.pushed.clear()
    await dead.stop()
    peers[0].close()

    await second_leads(
        port,
        partial(peers[1].beat, 2, brokerAddr=addresses[1], epoch=1, maxOffset=50),
        partial(third.beat, 3, brokerAddr=addresses[2], epoch=1, maxOffset=40),
    )
    await until(lambda: len(slave.pushed) == 2)

    role = {"masterAddress": addresses[1], "masterBrokerId": "2", "masterEpoch": "2", "syncStateSetEpoch": "4"}
    for listener in (winner, slave):
        assert (listener.pushed[0].code, listener.pushed[0].ext_fields) == (1008, role)
        assert json.loads(listener.pushed[0].body) == {"syncStateSet": [2], "syncStateSetEpoch": 4}
    assert slave.pushed[1].code == 906
    assert (slave.pushed[1].ext_fields or {})["masterHaAddress"] == "127.0.0.1:7"
    assert port.view().condition is Condition.SERVING


@on_port()
async def test_closed_connection_of_a_living_broker_means_nothing(port: Port) -> None:
    """RocketMQ closes the shared connection whenever an answer is late: its listener still answers."""
    living = JavaListener(ha_address="127.0.0.1:7")
    address = await port.listener(living)
    first, _ = await in_sync(port, (address, address_of(2)))
    service = port.leader.service
    key = port.set().set_key
    session = service.duties.sessions.get(key, port.set().replicas[0].broker_id)
    assert session is not None
    first.close()
    await until(lambda: session.connection is None and session.probes and not session.is_probing)
    assert (session.cause, session.refusals) == (None, 0)
    assert port.set().master == 1


@on_port()
async def test_master_that_was_stopped_and_goes_on_is_told_at_once(port: Port) -> None:
    """It would learn of its successor by its own poll only, after 5 s in which it takes messages."""
    stopped, winner = JavaListener(), JavaListener(ha_address="127.0.0.1:7")
    addresses = await port.listener(stopped), await port.listener(winner)
    first, second = await in_sync(port, addresses)
    await silenced(port, port.set().replicas[0])
    await second_leads(port, partial(second.beat, 2, brokerAddr=addresses[1], epoch=1))
    assert "2" not in [(frame.ext_fields or {}).get("masterEpoch") for frame in stopped.pushed]

    first.beat(1, brokerAddr=addresses[0], epoch=1)
    await until(lambda: any((frame.ext_fields or {}).get("masterEpoch") == "2" for frame in stopped.pushed))
    await until(lambda: stopped.pushed[-1].code == 906)


@on_port()
async def test_slave_that_is_told_too_early_is_not(port: Port) -> None:
    """
    A slave that heard of its master before that one was master connected too early, and came back 5 s later.

    The order is read from what arrives: the slave's 1008 comes after the master's answer to 906.
    """
    order: list[str] = []

    class Listener(JavaListener):
        def handle_requests(self, connection: object, frames: object) -> None:
            order.extend(f"{'master' if self.ha_address else 'slave'} {frame.code}" for frame in frames)  # type: ignore[attr-defined]
            super().handle_requests(connection, frames)  # type: ignore[arg-type]

    master, slave = Listener(ha_address="127.0.0.1:7"), Listener()
    addresses = await port.listener(master), await port.listener(slave)
    await in_sync(port, addresses)
    await until(lambda: order.count("slave 906"))
    told_at = [order.index(what) for what in ("master 1008", "master 906", "slave 1008", "slave 906")]
    assert told_at == sorted(told_at)


@on_port()
async def test_load_balancers_cost_nothing(port: Port) -> None:
    """Connections that are opened and closed without a word leave nothing behind."""
    for _ in range(50):
        _, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.close()
    peer = await port.peer()
    await peer.request(1005)
    await until(lambda: len(port.gateway.links) == 1)
    assert port.rocketmq.replicas._incarnations == {}


@on_port()
async def test_failover_of_a_java_fleet_is_on_record_like_any_other(port: Port) -> None:
    """Phases that the wire shows are timed, the others unknown; the grade is unknown; explain finds the decision."""
    dead, winner = JavaListener(), JavaListener(ha_address="127.0.0.1:7")
    addresses = await port.listener(dead), await port.listener(winner)
    first, second = await in_sync(port, addresses)
    await dead.stop()
    # Heard just before: of a close that comes 1.5 s after the last heartbeat the fault's own time would be missing.
    first.beat(1, brokerAddr=addresses[0], epoch=1)
    first.close()
    await second_leads(port, partial(second.beat, 2, brokerAddr=addresses[1], epoch=1, maxOffset=50))
    http = port.leader.http

    async def newest() -> dict[str, Any]:
        answer = await http.get("/v1/sets/c1/broker-z/history")
        rows = answer.json()["rows"]
        return dict(rows[0]) if rows else {}

    async with asyncio.timeout(30):
        while len((row := await newest()).get("missing", ())) != 3:  # noqa: ASYNC110 - HTTP
            await asyncio.sleep(0.01)
    assert (row["masterEpoch"], row["kind"], row["grade"]) == (2, "failover", "unknown")
    assert set(row["missing"]) == {"promised", "serving", "first-ack"}
    assert row["totalUs"] is None
    known = {span["phase"] for span in row["phases"] if span["durationUs"] is not None}
    assert known == {"detected", "proposed", "committed", "notified", "role-applied"}


@on_port()
async def test_half_a_frame_from_a_broker_costs_nobody_else(port: Port) -> None:
    """Another link is answered meanwhile."""
    peer, other = await port.peer(), await port.peer()
    whole = encode_frame(Frame(code=1005, opaque=5, language="JAVA"))
    peer.writer.write(whole[:20])
    assert (await other.request(1005)).code == 0
    peer.writer.write(whole[20:])
    assert (await peer.answer(5)).code == 0
