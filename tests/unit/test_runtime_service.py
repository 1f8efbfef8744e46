"""The service's shell: what becomes of a duty whose task fails or cannot run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import AnnounceStop, ElectMaster, MarkSilent, Operation, ReportClockStep
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, RequestId, SessionOrdinal, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Elected, Refused, Registered
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck
from rollcall_ha.controller.contract.timing import NS_PER_MS, Preset
from rollcall_ha.controller.core.actions import Action, ProposeCommand
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown, Overloaded
from rollcall_ha.controller.runtime import background as module
from rollcall_ha.controller.runtime import broker_requests, service
from rollcall_ha.controller.runtime.background import BackgroundTasks
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ConnectionId
from tests.support.runtime_controller import (
    NAMES,
    SET,
    broker_id_body,
    heartbeat_body,
    make_set,
    register_body,
    running_group,
    until,
)


def _elects_a_first_master(directory: Path) -> None:
    async def story() -> None:
        async with running_group(directory, NAMES[:1]) as group:
            await make_set(await group.elect(NAMES[0]))

    asyncio.run(story())


def test_an_election_whose_proposal_failed_in_our_own_code_is_proposed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L7: the task died, the duty waited for its outcome for ever, and the set stayed without a master."""
    submit = ControllerService._submit
    faults = iter((True,))

    async def faulty(service: ControllerService, operation: Operation) -> AnyReply:
        if isinstance(operation.command, ElectMaster) and next(faults, False):
            raise LookupError("a fault of ours")
        return await submit(service, operation)

    monkeypatch.setattr(ControllerService, "_submit", faulty)
    _elects_a_first_master(tmp_path)
    assert next(faults, None) is None, "the fault was met"


def test_a_proposal_for_which_there_is_no_task_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S43: with every task taken the proposal was dropped in silence, and its set was never elected."""
    propose = ControllerService._propose
    dropped: list[int] = []
    spawn = BackgroundTasks.spawn

    def full_once(tasks: BackgroundTasks, work: object) -> bool:
        if not dropped and getattr(work, "cr_code", None) is propose.__code__:
            dropped.append(1)
            with monkeypatch.context() as patch:
                patch.setattr(module, "BACKGROUND_TASKS_MAX", 0)
                return spawn(tasks, work)  # type: ignore[arg-type]
        return spawn(tasks, work)  # type: ignore[arg-type]

    monkeypatch.setattr(BackgroundTasks, "spawn", full_once)
    _elects_a_first_master(tmp_path)
    assert dropped, "a proposal was dropped"


def test_a_cleaned_broker_that_asks_again_and_again_writes_no_entry(tmp_path: Path) -> None:
    """R24: each of its registrations was an entry and an event, 86,400 a day; now it is a count."""

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            await make_set(leader, size=3)
            cleaned = await leader.http.post(f"{SET}/clean", json={"brokerIds": [3], "isUnclean": True})
            assert cleaned.status_code == 200
            await until(lambda: leader.service.published.state.chain_head != "")
            chain = leader.service.published.state.chain_head
            codes = set()
            for _ in range(5):
                answer = await leader.http.post("/v1/replicas", json=register_body(3, expected=3))
                codes.add(msgspec.json.decode(answer.content)["code"])
            assert codes == {"TOMBSTONED"}
            assert leader.service.published.state.chain_head == chain, "a refusal was put on record"
            counted = await leader.http.get("/metrics")
            assert 'rollcall_commands_refused_total{code="TOMBSTONED"} 5.0' in counted.text

    asyncio.run(story())


def test_an_order_that_somebody_asked_for_is_refused_on_record(tmp_path: Path) -> None:
    """R24: an operator's election and a master's alter, also where the applied state refuses them already."""

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            await make_set(leader)
            alter = {
                "command": "AlterSyncStateSet",
                "setKey": {"cluster": "demo", "name": "broker-a"},
                "brokerId": 1,
                "incarnation": f"{1:032x}",
                "masterEpoch": 7,
                "seq": 1,
                "syncStateSetEpoch": 1,
                "newSet": [1],
            }
            for path, body in ((f"{SET}/elect", {"expectedEpoch": 7}), ("/v1/sync-state-set", alter)):
                chain = leader.service.published.state.chain_head
                answer = await leader.http.post(path, json=body)
                assert answer.status_code == 409, answer.text
                assert leader.service.published.state.chain_head != chain, f"{path} was refused on no record"

    asyncio.run(story())


def test_a_request_that_was_done_is_answered_by_its_id_and_not_decided_anew(tmp_path: Path) -> None:
    """R24: decided on the state that it made, a registration that was done would be refused: its evidence has moved."""

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            await leader.http.post("/v1/broker-ids", json=broker_id_body(1))
            header = {"X-Request-Id": "again"}
            first, second = [
                msgspec.json.decode(
                    (await leader.http.post("/v1/replicas", json=register_body(1), headers=header)).content,
                    type=Registered,
                )
                for _ in range(2)
            ]
            assert first.session_ordinal == second.session_ordinal == 1
            # The view is the newest one each time, as of the entry in which the request came.
            assert second.view.index > first.view.index
            assert (
                msgspec.structs.replace(second, view=msgspec.structs.replace(second.view, index=first.view.index))
                == first
            )

    asyncio.run(story())


def test_a_leader_without_a_majority_found_every_broker_silent_that_it_had_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elected again, it put the silence on record from before the master's end: 7.9 s of outage, of which 5.3 were felt."""

    async def story() -> None:
        async with running_group(tmp_path) as group:
            leader = await group.elect(NAMES[0])
            await make_set(leader)
            service, ticks = leader.service, 0
            tick = service.duties.tick

            def counted(now_ns: int) -> list[Action]:
                nonlocal ticks
                ticks += 1
                return tick(now_ns)

            async def scans(count: int) -> None:
                """Return when it was time for ``count`` further looks at the sessions."""
                for _ in range(count):
                    due_ns = service._next_scan_ns
                    await until(lambda: service._next_scan_ns > due_ns)  # noqa: B023 - awaited here

            monkeypatch.setattr(service.duties, "tick", counted)
            group.memory.cut_off_leader()
            await until(lambda: not service.authority().is_held)
            before, graces = ticks, service.duties.sessions.graces
            # Longer than the gap between two looks that is a standstill.
            await scans(2 + service.live.timing.stall_ms // service.live.timing.scan_interval_ms)
            assert ticks == before
            group.memory.rejoin_leader()
            await until(lambda: ticks > before)
            assert service.duties.sessions.graces > graces, "its brokers have a whole timeout to come back"

    asyncio.run(story())


def test_a_leader_that_was_cut_off_proposed_the_silence_of_the_brokers_that_it_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its log it waits for a majority, and is committed when the cut ends, whoever was heard meanwhile."""

    async def story() -> None:
        async with running_group(tmp_path, timing=Preset.FAST) as group:
            leader = await group.elect(NAMES[0])
            await make_set(leader)
            service, proposed = leader.service, list[Action]()
            monkeypatch.setattr(service, "do", proposed.extend)
            group.memory.cut_off_leader()
            await until(lambda: not service.authority().is_held)
            over_ns = service.now_ns() + 2 * service.live.timing.heartbeat_timeout_ms * NS_PER_MS
            await until(lambda: service.now_ns() > over_ns)
            commands = [action.command for action in proposed if isinstance(action, ProposeCommand)]
            assert not any(isinstance(command, MarkSilent) for command in commands)

    asyncio.run(story())


HISTORY_DEADLINE_S = 30.0


def test_a_handover_is_an_outage_from_when_its_master_took_no_sends(tmp_path: Path) -> None:
    """It drained for 250 ms before it asked: counted from the election, the record would be shorter than the wait."""

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            await make_set(leader, size=3)
            view = leader.service.view_of(SetKey(cluster=ClusterName("demo"), name=BrokerName("broker-a")))
            assert view is not None
            assert view.master is not None
            assert view.master_incarnation is not None
            command = AnnounceStop(
                set_key=view.set_key,
                broker_id=view.master,
                incarnation=view.master_incarnation,
                session_ordinal=SessionOrdinal(1),
                master_epoch=view.master_epoch,
                drained_us=250_000,
            )
            lie = msgspec.structs.replace(command, drained_us=-1)
            for asked, kind in ((lie, Refused), (command, Elected)):
                reply = await broker_requests.submit(
                    leader.service, asked, request_id=RequestId(kind.__name__), requested_by="broker:1", connection=None
                )
                assert isinstance(reply, kind), reply
            assert isinstance(reply, Elected)
            assert reply.view.master != view.master
            row: dict[str, Any] = {"kind": ""}
            async with asyncio.timeout(HISTORY_DEADLINE_S):
                # An event is shown when its journal is synced, which is later than the reply.
                while row["kind"] != "handover":
                    row = next(iter((await leader.http.get(f"{SET}/history")).json()["rows"]), row)
            assert row["cause"] == "handed over: asked to stop"
            assert "fault" not in row["missing"]
            spans = {span["phase"]: span["durationUs"] for span in row["phases"]}
            assert (spans["detected"], spans["proposed"]) == (0, 250_000)

    asyncio.run(story())


def test_a_leader_that_meets_a_session_again_tells_it_the_view_whatever_epochs_it_knows(tmp_path: Path) -> None:
    """
    A leader that lost its leadership and took it again knows no connection before the first heartbeat on it.

    Replica 2 registers in a new incarnation meanwhile: that view is pushed to nobody, and raises no epoch. A master that
    is never told refuses replica 2 for ever, as one whom the controllers do not name.
    """

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            await make_set(leader)
            view = leader.service.view_of(SetKey(cluster=ClusterName("demo"), name=BrokerName("broker-a")))
            assert view is not None
            known = {"knownMasterEpoch": view.master_epoch, "knownSetEpoch": view.sync_state_set_epoch}
            beat = msgspec.convert({**heartbeat_body(1), **known}, Heartbeat)
            told = [broker_requests.handle_heartbeat(leader.service, beat, ConnectionId(7)) for _ in range(2)]

            assert isinstance(told[0], HeartbeatAck)
            assert told[0].view is not None
            assert isinstance(told[1], HeartbeatAck)
            assert told[1].view is None

    asyncio.run(story())


def test_a_fault_in_the_decision_before_the_entry_leaves_it_to_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raised, it would end the request without an answer; apply turns the same fault into a refusal."""

    def faulty(*_: object) -> NoReturn:
        raise LookupError("a fault of ours")

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            monkeypatch.setattr(broker_requests, "decide", faulty)
            answer = await leader.http.post("/v1/broker-ids", json=broker_id_body(1))
            assert answer.status_code == 200

    asyncio.run(story())


def test_a_step_of_the_clock_whose_report_was_lost_never_came_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R14: an outage over it had wrong bounds. Repeated under one request id, it is on record once."""
    submit = ControllerService._submit
    attempts: list[Operation] = []

    async def losing(service: ControllerService, operation: Operation) -> AnyReply:
        if not isinstance(operation.command, ReportClockStep):
            return await submit(service, operation)
        attempts.append(operation)
        if len(attempts) == 1:
            raise Overloaded("too many wait already")
        reply = await submit(service, operation)
        if len(attempts) == 2:
            raise EntryOutcomeUnknown(operation.request_id, "the answer was lost")
        return reply

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect(NAMES[0])
            ports = leader.service.ports
            leader.service.ports = replace(ports, wall_ms=lambda: ports.wall_ms() + 3_600_000)
            await until(lambda: len(attempts) == 3)
            await until(lambda: not leader.service._background._tasks)
            assert abs(leader.service.published.state.stepped_ms - 3_600_000) < 1_000
            assert len({attempt.request_id for attempt in attempts}) == 1

    monkeypatch.setattr(ControllerService, "_submit", losing)
    monkeypatch.setattr(service, "CLOCK_REPORT_PAUSE_MS", 1)
    asyncio.run(story())
