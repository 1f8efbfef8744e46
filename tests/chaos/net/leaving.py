"""
Faults for which a living master has to be left, on a fleet whose policies say so: `make prove PARTS=chaos-policies`.

Here: the policies, the faults, and how long each hand-over took. Not here: making the fleet (``stage``), the load, the
audit and the record (``__main__``), masters that must not be left (``tests.chaos.false_handovers``).

Rule 1: a hand-over counts from when the fault is there to when another master serves, by the clock of this program. It must
be one by policy: a master that a fault kept from being heard would be replaced anyhow, and prove nothing.
Rule 2: the time that is allowed is the one that is set, and ``NOTICE_MS``: to be told, to elect, to enter, and to be seen
on cores that nine processes share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.deploy.local.partitions import bridge, two_way
from rollcall_ha.deploy.local.processes import LauncherError
from tests.chaos.net.devices import throttled, why_no_slow_device
from tests.chaos.net.faults import Fault, NotHere, Stage, cut, disk_full, knob
from tests.support.knobs import set_knob

ON = {
    "handover_disk_full_after_ms": 3_000,
    "handover_writes_stopped_after_ms": 5_000,
    "handover_pause_ms": 1_000,
}
"""Of the fleet of these faults; the pause is short because one fault follows the other."""
DISK_FULL, STOPPED = "handover_disk_full_after_ms", "handover_writes_stopped_after_ms"
NOTICE_MS = 2_500
SYNC_MS = 4_000
"""Of a slow disk: longer than ``catch_up_timeout_ms``, so that its broker is removed once it is a slave."""
BYTES_PER_S = 2_048
"""Of a slow device: a sync of a few pages takes seconds."""
LEFT_DEADLINE_S = 30.0
BY_POLICY = "handed over by policy"


def left_within(policy: str, fault: Fault) -> Fault:
    """``fault``, and inside of it the hand-over. Raises ``LauncherError``: there was none, too late, or another one."""

    @contextmanager
    def leaving(stage: Stage) -> Iterator[None]:
        old = stage.fleet.wait_redundant(stage.key).view
        with fault(stage):
            began = time.monotonic()
            stage.fleet.wait_set(
                stage.key,
                lambda found: found.view.master_epoch > old.master_epoch and found.view.condition is Condition.SERVING,
                what="to have another master", deadline_s=LEFT_DEADLINE_S,
            )  # fmt: skip
            took_ms = (time.monotonic() - began) * 1000
            stage.hit.append(f"left after {took_ms:,.0f} ms, {ON[policy]:,} set")
            cause = stage.fleet.client().history(stage.key).rows[0].cause
            if not cause.startswith(BY_POLICY):
                raise LauncherError(f"its master was replaced, and not by policy: {cause}")
            if took_ms > ON[policy] + NOTICE_MS:
                raise LauncherError(
                    f"left after {took_ms:,.0f} ms; {policy} is {ON[policy]:,}, {NOTICE_MS:,} more are allowed"
                )
            yield

    return leaving


@contextmanager
def slow_sync(stage: Stage) -> Iterator[None]:
    """Each sync of the master's process takes four seconds longer."""
    name = stage.fleet.master(stage.key)
    file = knob(stage, name, "sync")
    stage.hit.append(f"{name} (master)")
    set_knob(file, SYNC_MS)
    try:
        yield
    finally:
        set_knob(file, 0)


@contextmanager
def slow_device(stage: Stage) -> Iterator[None]:
    """The master's block device writes two kilobytes in a second."""
    if reason := why_no_slow_device():
        raise NotHere(reason)
    name = stage.fleet.master(stage.key)
    stage.hit.append(f"{name} (master)")
    with throttled(stage.machines.disk(stage.fleet.machine(name)), BYTES_PER_S):
        yield


@contextmanager
def cut_from_slaves(stage: Stage) -> Iterator[None]:
    """The master hears and reaches every controller, and no other broker."""
    name = stage.fleet.master(stage.key)
    stage.hit.append(f"{name} (master)")
    slaves = [stage.fleet.machine(one) for one in stage.fleet.brokers if one != name]
    with cut(stage, two_way([stage.fleet.machine(name)], slaves)):
        yield


@contextmanager
def over_the_leader(stage: Stage) -> Iterator[None]:
    """Two sides, the master on one and its slaves on the other; the leading controller alone hears both."""
    name, leader = stage.fleet.master(stage.key), stage.fleet.leader()
    others = [one for one in stage.fleet.controllers if one != leader]
    slaves = [one for one in stage.fleet.brokers if one != name]
    stage.hit.append(f"{name} (master), over {leader}")
    site = stage.fleet.machine
    left, right = [name, *others[:1]], [*slaves, *others[1:]]
    with cut(stage, bridge([site(one) for one in left], site(leader), [site(one) for one in right])):
        yield


LEAVING: dict[str, Fault] = {
    "full disk, left": left_within(DISK_FULL, disk_full),
    "slow device, left": left_within(STOPPED, slow_device),
    "slow sync, left": left_within(STOPPED, slow_sync),
    "cut from its slaves, left": left_within(STOPPED, cut_from_slaves),
    "bridge over the leader, left": left_within(STOPPED, over_the_leader),
}
