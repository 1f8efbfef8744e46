"""A blank learner that begins at its master's last segment, on real processes, judged from outside."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from rollcall_ha.controller.contract.views import ReplicaStatus, SetStatus
from rollcall_ha.deploy.local import audit
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.config import FLEET_FILE_NAME
from tests.support.fleet_story import HEAL_DEADLINE_S, load, only_set, running

pytestmark = pytest.mark.cluster

SEGMENT_BYTES = 256 * 1024


def settle(fleet: Fleet, name: str, *, is_learner: bool) -> None:
    """Say of a broker that is down what it is; the others read the file when they are started."""
    file = fleet.directory / FLEET_FILE_NAME
    text = file.read_text().replace("is_learner = true\n", "").replace("is_learner = false\n", "")
    head = f"[brokers.{name}]\n"
    assert head in text
    text = text.replace(head, f"{head}is_learner = {str(is_learner).lower()}\n")
    if "[replication]" not in text:
        text += "\n[replication]\nlearners_begin_at_last_segment = true\n"
    file.write_text(text)


def learner_of(status: SetStatus) -> ReplicaStatus | None:
    return next((one for one in status.replicas if one.is_learner and one.is_alive), None)


def is_level(status: SetStatus) -> bool:
    """All living replicas have the same confirmed end, the learner included."""
    alive = [one for one in status.replicas if one.is_alive]
    ends = {one.max_offset for one in alive} | {one.confirm_offset for one in alive}
    return len(ends) == 1 and None not in ends and learner_of(status) is not None


def test_a_blank_learner_copies_the_last_segment_and_is_taken_for_no_member(tmp_path: Path) -> None:
    """What it holds is the master's, byte for byte; as a member it is refused before it says a word."""
    with running(tmp_path / "fleet", Layout(segment_bytes=SEGMENT_BYTES)) as fleet:
        key = only_set(fleet)
        name = next(one for one in fleet.brokers if one != fleet.master(key))

        def has_segments(count: int) -> bool:
            return len(audit.segments(fleet.data(name))) >= count

        with load(fleet, body_bytes=4_096):
            wait_until(lambda: has_segments(4), deadline_s=HEAL_DEADLINE_S, what="four segments")
        fleet.kill(name)
        shutil.rmtree(fleet.data(name))
        fleet.wait_set(key, lambda status: len(status.view.sync_state_set) == 2, what="to have removed the slave")
        settle(fleet, name, is_learner=True)
        fleet.restart(name)
        with load(fleet):
            found = fleet.wait_set(
                key, lambda status: learner_of(status) is not None, what="a learner", deadline_s=HEAL_DEADLINE_S
            )
        found = fleet.wait_set(key, is_level, what="all replicas level", deadline_s=HEAL_DEADLINE_S)
        learner = learner_of(found)
        assert learner is not None
        (start, _), *_ = audit.segments(fleet.data(name))
        assert 0 < start == learner.min_offset
        assert learner.broker_id not in found.view.sync_state_set
        with audit.Promises(audit.read_ledger(audit.ledger_file(fleet.directory))) as promises:
            sets = audit.broker_directories(fleet.directory)
            wait_until(
                lambda: {audit.read_confirm(path) for path in sets["broker-a"].values()} == {learner.max_offset},
                deadline_s=HEAL_DEADLINE_S,
                what="the confirmed end on every disk",
            )
            totals, troubles = audit.audit(sets, promises)
        sys.stdout.write(f"learner from {start} of {learner.max_offset}, audit {totals}, {dict(troubles.counts)}\n")
        assert (dict(troubles.counts), totals["audited_replicas"]) == ({}, 3)

        fleet.kill(name)
        settle(fleet, name, is_learner=False)
        fleet.restart(name)
        wait_until(lambda: fleet.pid(name) is None, deadline_s=HEAL_DEADLINE_S, what="the broker to refuse its log")
        assert f"begins at {start}, as a learner's may" in fleet.processes.tail(name)
