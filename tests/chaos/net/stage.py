"""
The fleet of one round of `make prove PARTS=chaos-net`: machines, and a disk for each broker that can be filled.

Here: making it, and taking it away. Not here: faults (``faults``), load and verdicts (``__main__``).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rollcall_ha.deploy.local import sites
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.machines import Machines
from tests.chaos.false_handovers import switch_on
from tests.chaos.net import faults
from tests.chaos.net.devices import mount_device, why_no_slow_device
from tests.chaos.net.faults import HEAL_S, MIN_IN_SYNC, Stage
from tests.support.two_versions import TwoVersions

NAMESPACE = "CHAOS_NAMESPACE"
DISK_BYTES = 256 << 20
SEGMENT_BYTES = 256 << 10
"""Of two seconds: a full disk is felt when the segment is full that was made before. A slow disk has time to make one."""


@contextmanager
def staged(directory: Path, seed: int, *, policies: Mapping[str, int] | None = None) -> Iterator[Stage]:
    """
    A new fleet on machines; the caller is the operator.

    ``policies``: settings that it has from the beginning. Its syncs are waited for then, and its disks are devices.
    """
    shutil.rmtree(directory, ignore_errors=True)
    flush = "async" if policies is None else "sync"
    layout = Layout(name="chaos", segment_bytes=SEGMENT_BYTES, min_in_sync=MIN_IN_SYNC, flush=flush)
    names = (*(f"m{number}" for number in range(1, 7)), sites.CLIENT, sites.OPERATOR)
    disks = (directory / sites.DISKS).resolve()
    with contextlib.ExitStack() as stack:
        machines = stack.enter_context(Machines(names, disks=disks))
        for name in names[3:6]:  # those of the brokers
            if NAMESPACE in os.environ:
                disk = machines.disk(name)
                if policies is not None and not why_no_slow_device():
                    mount_device(directory.resolve() / "devices" / f"{name}.img", disk, DISK_BYTES)
                else:
                    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
                    subprocess.run(command, check=True, timeout=10)
                stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=False, timeout=10)
        fleet = stack.enter_context(TwoVersions.create(directory, layout, machines))
        stack.enter_context(machines.on(sites.OPERATOR))
        tools = directory.resolve() / "tools"
        faults.make_tools(tools, (*fleet.controllers, *fleet.brokers))
        for name in fleet.controllers:
            with faults.tooled(tools, name):
                fleet.start(name)
        fleet.up_controllers(deadline_s=HEAL_S)
        for number, name in enumerate(fleet.brokers, start=1):
            with faults.tooled(tools, name):
                fleet.start(name)
            _await_replicas(fleet, number)
        (key,) = fleet.set_keys()
        fleet.wait_redundant(key, deadline_s=HEAL_S)
        if policies is not None:
            switch_on(fleet, **policies)
        yield Stage(fleet=fleet, machines=machines, key=key, draw=random.Random(seed), tools=tools)


def _await_replicas(fleet: Fleet, count: int) -> None:
    """Ids are granted in the order of asking: one at a time, so that broker-a-1 is replica 1."""
    (key,) = fleet.set_keys()
    fleet.wait_set(key, lambda found: len(found.replicas) >= count, what=f"to have {count} replicas", deadline_s=HEAL_S)
