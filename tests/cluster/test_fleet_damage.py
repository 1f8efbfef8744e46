"""
Disks that are full and disks that lost something, under a fleet of real processes.

R3 and R20; S12, S23, S34, S44.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollcall_ha.controller.contract.commands import CleanReplicas
from rollcall_ha.controller.contract.events import ReplicaRegistered
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import StopReason
from rollcall_ha.controller.contract.verdicts import ElectionKind, Intactness
from rollcall_ha.controller.contract.views import SetStatus, StopEnd
from rollcall_ha.deploy.local.faults import hanging
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.process import ExitCode
from tests.support.fleet_damage import enlarge, lose_tail, put_back_files, put_back_volume, small_disk, written_end
from tests.support.fleet_story import (
    SIGBUS,
    DirectSends,
    counted,
    ended_by,
    heal,
    judge,
    load,
    only_set,
    readiness,
    rollcall,
    running,
)

pytestmark = pytest.mark.cluster

SEGMENT_BYTES = 1024 * 1024
SMALL_DISK_BYTES = 5 * SEGMENT_BYTES
LARGE_DISK_BYTES = 64 * SEGMENT_BYTES
LOST_BYTES = 64 * 1024
LOST_JOURNAL_BYTES = 1_500
ROTTEN_AT = 120
"""In the body of a log's first record."""
FULL_DEADLINE_S = 60
LEFT_AFTER_MS = 2_000
LEFT_SLACK_MS = 2_000
"""The stop is told after 1 s and looked at each 0.1 s; the rest is for a machine at its limit."""
ATTEMPTS_MAX = 60
"""Of a slave with a full disk to go on, within some ten seconds; without a growing pause it made twenty a second."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three controllers and three brokers with small segments, for the tests of lost tails."""
    with running(tmp_path_factory.mktemp("damage") / "fleet", Layout(segment_bytes=SEGMENT_BYTES)) as found:
        yield found


def test_a_slave_that_lost_its_tail_leaves_the_set_and_comes_back_by_a_handshake(fleet: Fleet) -> None:
    """R3: what it acknowledged is gone, so it is no member any more; it copies it again, and nothing is missing."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    victim = next(name for name in fleet.brokers if name != master)
    with load(fleet) as work:
        work.wait_more(1_000)
        fleet.kill(victim)
        lost_from = lose_tail(fleet.data(victim), lost_bytes=LOST_BYTES)
        # At once: the master has not noticed anything, the dead one is still a member.
        fleet.restart(victim)
        back = registered_again(fleet, before.index)
        after = fleet.wait_redundant(key, deadline_s=30).view
        work.wait_more()
    found = judge(fleet)
    counted(
        lost_from=lost_from, registered_end=back.positions.max_offset, intactness=back.intactness,
        reason=back.intactness_reason, set_then=back.sync_state_set, audit=found,
    )  # fmt: skip
    assert 0 < back.positions.max_offset <= lost_from
    assert back.broker_id not in back.sync_state_set
    assert back.sync_state_set_epoch > before.sync_state_set_epoch
    assert after.master_epoch == before.master_epoch
    assert back.broker_id in after.sync_state_set
    assert written_end(fleet.data(victim)) > lost_from


def test_a_slave_that_lost_its_tail_is_not_elected_when_the_master_dies_before_its_handshake(fleet: Fleet) -> None:
    """S34: it registered while the master hung; then the master is gone, and only the whole replica may follow."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    victim, whole = (name for name in fleet.brokers if name != master)
    with load(fleet) as work:
        work.wait_more(1_000)
        with hanging(fleet, [master]):
            fleet.kill(victim)
            lose_tail(fleet.data(victim), lost_bytes=LOST_BYTES)
            fleet.restart(victim)
            back = registered_again(fleet, before.index)
            fleet.kill(master)
        status = fleet.wait_set(
            key,
            lambda status: status.view.master_epoch > before.master_epoch and status.view.has_entered,
            what="a new master",
        )
        winner = fleet.broker_by_id(key, status.view.master) if status.view.master is not None else None
        heal(fleet)
        work.wait_more()
    counted(winner=winner, whole=whole, intactness=back.intactness, audit=judge(fleet))
    assert back.broker_id not in back.sync_state_set
    assert winner == whole


@pytest.mark.parametrize("put_back", [put_back_files, put_back_volume])
def test_a_copy_of_a_running_slave_that_is_put_back_is_not_elected(
    fleet: Fleet, tmp_path: Path, put_back: Callable[[Path, Path], None]
) -> None:
    """
    All brokers die, the copy is back first, on the same boot: it was elected without what was acknowledged since.

    Then the two whole replicas isolated themselves, and nobody acknowledged anything until a person acted.
    """
    key = only_set(fleet)
    before = heal(fleet).view
    victim = next(name for name in fleet.brokers if name != fleet.master(key))
    copy = tmp_path / "copy"
    with load(fleet) as work:
        work.wait_more(500)
        with hanging(fleet, [victim]):
            shutil.copytree(fleet.data(victim), copy)
        end = written_end(copy)
        fleet.wait_set(
            key,
            lambda status: any(one.is_master and (one.confirm_offset or 0) > end for one in status.replicas),
            what="a leader that has heard of more than the copy holds",
        )
        for name in fleet.brokers:
            fleet.kill(name)
        put_back(copy, fleet.data(victim))
        fleet.restart(victim)
        back = registered_again(fleet, before.index)
        status = heal(fleet)
        work.wait_more()
    alarmed = "the data directory is a copy" in fleet.processes.tail(victim, lines=200)
    counted(intactness=back.intactness_reason, winner=status.view.master, audit=judge(fleet))
    assert back.intactness is Intactness.NOT_INTACT
    assert back.broker_id not in back.sync_state_set
    assert alarmed == (put_back is put_back_files)


def test_a_log_whose_synced_bytes_are_gone_is_refused_with_the_remedy_and_the_remedy_works(fleet: Fleet) -> None:
    """The disk lied: the replica does not start on a log with a hole, says what to do, and a wiped one comes back."""
    key = only_set(fleet)
    before = heal(fleet).view
    victim = next(name for name in fleet.brokers if name != fleet.master(key))
    old_id = id_of(fleet, victim)
    with load(fleet) as work:
        work.wait_more(1_000)
    # Level and at rest, a clean stop syncs everything; then the clean mark is what a crash takes away.
    fleet.terminate(victim)
    data = fleet.data(victim)
    lose_tail(data, lost_bytes=LOST_BYTES, was_synced=True)
    fleet.restart(victim)
    wait_until(lambda: fleet.pid(victim) is None, deadline_s=20, what=f"{victim} to refuse to start")
    (said,) = [line for line in fleet.processes.tail(victim, lines=50).splitlines() if '"cannot_start"' in line][-1:]
    exit_status = ended_by(fleet, victim)
    shutil.rmtree(data)
    after = heal(fleet).view
    wait_silent(fleet, old_id)
    # An empty directory is another replica; the one that is gone for good is forgotten by an operator's word.
    fleet.client().order(CleanReplicas(set_key=key, broker_ids=(old_id,), reason="its disk is gone"))
    counted(said=said, exit_status=exit_status, audit=judge(fleet))
    assert exit_status == ExitCode.DIRECTORY
    assert f"wipe {data}" in said
    assert after.master_epoch == before.master_epoch
    assert old_id not in after.sync_state_set
    assert id_of(fleet, victim) not in before.sync_state_set, "an empty replica took a full one's place"


def test_a_rotten_record_of_the_master_is_copied_by_nobody_and_its_master_says_so(fleet: Fleet) -> None:
    """It went onto every replica that came back: bodies were not checked on the way."""
    key = only_set(fleet)
    heal(fleet)
    master = fleet.master(key)
    assert master is not None
    victim = next(name for name in fleet.brokers if name != master)
    old_id = id_of(fleet, victim)
    with load(fleet) as work:
        work.wait_more(500)
    first = min((fleet.data(master) / "commitlog").glob("[0-9]*"))
    fleet.kill(victim)
    shutil.rmtree(fleet.data(victim))
    flip(first, ROTTEN_AT)
    try:
        fleet.restart(victim)
        wait_until(lambda: "on this disk" in readiness(fleet, master)[1], deadline_s=30, what="the master's alarm")
        said = readiness(fleet, master)[1]
        wait_until(
            lambda: "master_sends_damaged_record" in fleet.processes.tail(victim, lines=200),
            deadline_s=10,
            what=f"{victim} to say why it follows nobody",
        )
        copied = written_end(fleet.data(victim))
    finally:
        flip(first, ROTTEN_AT)
    heal(fleet)
    wait_silent(fleet, old_id)
    fleet.client().order(CleanReplicas(set_key=key, broker_ids=(old_id,), reason="its disk is gone"))
    counted(said=said, copied=copied, audit=judge(fleet))
    assert "does not match its CRC" in said
    assert copied <= ROTTEN_AT


def test_a_lone_controller_whose_journal_lost_its_end_says_so_and_goes_on_by_an_operators_word(tmp_path: Path) -> None:
    """It led from what was left, and said that a write had never been completed."""
    with running(tmp_path / "fleet", Layout(controllers=1, sets={"broker-a": 1})) as fleet:
        (name,), (broker,) = fleet.controllers, fleet.brokers
        fleet.kill(name)
        # A start rewrites the journal as one batch; what is committed after it can be lost without that.
        fleet.restart(name)
        fleet.kill(broker)
        fleet.restart(broker)
        fleet.wait_ready([broker])
        fleet.kill(name)
        journal = fleet.data(name) / "raft" / "journal"
        written = journal.read_bytes().rstrip(b"\0")
        journal.write_bytes(written[:-LOST_JOURNAL_BYTES])
        fleet.restart(name)
        wait_until(lambda: fleet.pid(name) is None, deadline_s=20, what=f"{name} to refuse to start")
        said = fleet.processes.tail(name, lines=3)
        exit_status = ended_by(fleet, name)
        (fleet.data(name) / "events").rename(tmp_path / "events")
        fleet.restart(name)
        leader = fleet.leader(deadline_s=30)
    counted(said=said, exit_status=exit_status)
    assert exit_status == ExitCode.DIRECTORY
    assert "committed entries are gone" in said
    assert leader == name


def wait_silent(fleet: Fleet, broker_id: BrokerId) -> None:
    """The new process on its address may be whole before the old id's timeout is over: alive, it is not cleaned."""

    def is_silent(status: SetStatus) -> bool:
        return not any(one.broker_id == broker_id and one.is_alive for one in status.replicas)

    fleet.wait_set(only_set(fleet), is_silent, what=f"to find replica {broker_id} silent")


def flip(path: Path, at: int) -> None:
    """One bit, as a running process sees it: its map and the file share their pages."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ 1,)))


def registered_again(fleet: Fleet, after_index: int) -> ReplicaRegistered:
    """The first registration of a new incarnation after an index."""
    found: list[ReplicaRegistered] = []

    def registered() -> bool:
        start = None
        while not found:
            page = fleet.client().events(start=start, key=only_set(fleet), limit=500)
            found.extend(
                record.event
                for record in page.events
                if record.index > after_index and isinstance(record.event, ReplicaRegistered)
            )
            if not page.events or page.next_from is None:
                break
            start = page.next_from
        return bool(found)

    wait_until(registered, deadline_s=20, what="the restarted replica to be registered")
    return found[0]


@pytest.fixture
def cramped(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Fleet, str, str]]:
    """A fleet, the broker whose disk is small, and the one that was started first: the lowest id is master."""
    with Fleet.create(tmp_path / "fleet", Layout(segment_bytes=SEGMENT_BYTES)) as fleet:
        first, victim = request.param
        with small_disk(fleet.data(victim), size_bytes=SMALL_DISK_BYTES):
            try:
                fleet.up_controllers(deadline_s=60)
                fleet.start(first)
                fleet.wait_set(only_set(fleet), lambda status: len(status.replicas) == 1, what=f"{first} to register")
                fleet.up(deadline_s=60)
                assert fleet.master(only_set(fleet)) == first
                yield fleet, victim, first
            finally:
                fleet.down()


@pytest.mark.prove
@pytest.mark.root
@pytest.mark.parametrize("cramped", [("broker-a-1", "broker-a-3")], indirect=True, ids=["slave"])
def test_a_full_disk_of_a_slave_is_survived_and_explained(cramped: tuple[Fleet, str, str]) -> None:
    """The set serves without it; it does not crash; it says what to do; with room again it is in sync again."""
    fleet, victim, _ = cramped
    key = only_set(fleet)
    victim_id = id_of(fleet, victim)
    before = fleet.wait_redundant(key).view
    with load(fleet, body_bytes=4096) as work:
        left = fleet.wait_set(
            key,
            lambda status: victim_id not in status.view.sync_state_set,
            what=f"{victim} to leave the SyncStateSet",
            deadline_s=FULL_DEADLINE_S,
        )
        work.wait_more(1_000)
        wait_until(
            lambda: readiness(fleet, victim)[0] == 503, deadline_s=10, what=f"{victim} to say that it is not ready"
        )
        said = readiness(fleet, victim)[1]
        attempts = fleet.processes.tail(victim, lines=100_000).count("LOG_FAILED: expected room in the log")
        exit_status = ended_by(fleet, victim)
        enlarge(fleet.data(victim), size_bytes=LARGE_DISK_BYTES)
        after = fleet.wait_redundant(key, deadline_s=60).view
        work.wait_more()
        wait_until(lambda: readiness(fleet, victim)[0] == 200, deadline_s=10, what=f"{victim} to be ready again")
    logged = [line for line in fleet.processes.tail(victim, lines=100_000).splitlines() if '"disk_trouble"' in line]
    counted(set_then=left.view.sync_state_set, said=said, attempts=attempts, logged=len(logged), audit=judge(fleet))
    assert exit_status is None, f"it ended with {exit_status} (SIGBUS is {SIGBUS})"
    assert "No space left" in said
    assert f"free space in {fleet.data(victim)}" in said
    assert logged
    assert '"error"' in logged[0]
    assert 0 < attempts < ATTEMPTS_MAX, "it dialled its master without a pause while its disk was full"
    assert (after.master, after.master_epoch) == (before.master, before.master_epoch)


@pytest.mark.root
@pytest.mark.parametrize("cramped", [("broker-a-1", "broker-a-1")], indirect=True, ids=["master"])
def test_a_full_disk_of_the_master_is_explained_and_ends_by_an_election(cramped: tuple[Fleet, str, str]) -> None:
    """It refuses, definitely, and says what to do; an operator elects another one, and the set serves again."""
    fleet, victim, _ = cramped
    key = only_set(fleet)
    before = fleet.wait_redundant(key).view
    with load(fleet, body_bytes=4096) as work:

        def is_refused() -> bool:
            direct = DirectSends(fleet, victim)
            direct.send(1, body_bytes=SEGMENT_BYTES // 4)
            fates = direct.settle(limit_s=5)
            return fates.reasons == {"disk"} and fates.refused == 1

        wait_until(is_refused, deadline_s=FULL_DEADLINE_S, what="the master to refuse for its disk")
        wait_until(
            lambda: readiness(fleet, victim)[0] == 503, deadline_s=10, what=f"{victim} to say that it is not ready"
        )
        said = readiness(fleet, victim)[1]
        stopped = fleet.wait_set(
            key, lambda status: status.view.condition is Condition.WRITES_STOPPED, what="to say that writes are stopped"
        )
        other = next(one for one in before.sync_state_set if one != before.master)
        elected = rollcall(fleet, "elect", key.name, "--to", str(other), "--yes", "--reason", "disk full")
        print(elected.stdout, elected.stderr)
        work.wait_more(500)
        exit_status = ended_by(fleet, victim)
        served = fleet.wait_set(key, lambda status: status.view.has_entered, what="to serve").view
        enlarge(fleet.data(victim), size_bytes=LARGE_DISK_BYTES)
        if fleet.pid(victim) is None:
            fleet.restart(victim)
        fleet.wait_redundant(key, deadline_s=60)
        work.wait_more()
    # Not the newest of all: the next master may wait for this one while it comes back.
    stop = next(one for one in fleet.client().history(key).stops if one.master_epoch == before.master_epoch)
    counted(
        said=said, stopped=stopped.view.condition_reason, exit_status=exit_status, master=served.master,
        audit=judge(fleet),
    )  # fmt: skip
    assert (stop.reason, stop.end) == (StopReason.DISK_FULL, StopEnd.ELECTION)
    assert "No space left" in stop.detail
    assert exit_status is None or exit_status > 0, f"it ended with {exit_status} (SIGBUS is {SIGBUS})"
    assert "No space left" in said
    assert f"free space in {fleet.data(victim)}" in said
    assert elected.returncode == 0
    assert served.master == other
    assert served.master_epoch == before.master_epoch + 1


@pytest.mark.prove
@pytest.mark.root
@pytest.mark.parametrize("cramped", [("broker-a-1", "broker-a-1")], indirect=True, ids=["master"])
def test_a_master_whose_disk_is_full_is_left_by_policy_within_its_time(cramped: tuple[Fleet, str, str]) -> None:
    """Nobody gives an order: the leader elects another member when the stop is as old as the setting says."""
    fleet, victim, _ = cramped
    key = only_set(fleet)
    before = fleet.wait_redundant(key).view
    policy = (f"handover_disk_full_after_ms={LEFT_AFTER_MS}", "handover_pause_ms=1000")
    applied = rollcall(fleet, "config", "apply", *policy, "--yes", "--reason", "full disks")
    assert applied.returncode == 0, applied.stderr
    with load(fleet, body_bytes=4096) as work:
        left = fleet.wait_set(
            key,
            lambda status: status.view.master_epoch > before.master_epoch and status.view.has_entered,
            what="another master",
            deadline_s=FULL_DEADLINE_S,
        ).view
        work.wait_more(500)
        exit_status = ended_by(fleet, victim)
        enlarge(fleet.data(victim), size_bytes=LARGE_DISK_BYTES)
        if fleet.pid(victim) is None:
            fleet.restart(victim)
        fleet.wait_redundant(key, deadline_s=60)
        work.wait_more()
    page = fleet.client().history(key)
    stop = next(one for one in page.stops if one.master_epoch == before.master_epoch)
    row = next(one for one in page.rows if one.master_epoch == before.master_epoch + 1)
    lasted_ms = row.elected_at_ms - stop.began_at_ms
    counted(lasted_ms=lasted_ms, cause=row.cause, outage_us=row.total_us, exit_status=exit_status, audit=judge(fleet))
    assert left.master != before.master
    assert (stop.reason, stop.end) == (StopReason.DISK_FULL, StopEnd.ELECTION)
    assert row.kind is ElectionKind.HANDOVER
    assert row.requested_by.startswith("controller:")
    assert "handed over by policy" in row.cause
    assert "No space left" in row.cause
    assert LEFT_AFTER_MS <= lasted_ms < LEFT_AFTER_MS + LEFT_SLACK_MS


def id_of(fleet: Fleet, name: str) -> BrokerId:
    """The id that a broker registered as."""
    replicas = fleet.wait_redundant(only_set(fleet)).replicas
    (found,) = [one.broker_id for one in replicas if one.address == fleet.file.broker(name).listen]
    return found
