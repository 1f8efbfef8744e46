"""
A fleet on machines: what ``rollcall init`` is told, and who gets which bundle.

Here: names of machines, options, the way of a bundle to its disk. Not here: machines (``machines``), processes
(``fleet``).

Rule: a disk has a bundle that ``init`` wrote and nothing else; nothing is shared but the network.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from rollcall_ha.deploy.local.machines import Machines

DISKS = "disks"
CLIENT = "client"
"""The machine of producers: it has the ledger."""
OPERATOR = "operator"
_BUNDLES = "machines"


def founding_options(machines: Machines, sets: Mapping[str, int]) -> list[str]:
    """Options of ``rollcall init`` that lay a fleet out over all machines but the client's and the operator's."""
    of_nodes = [name for name in machines.names if name not in (CLIENT, OPERATOR)]
    placed = [("--machine", f"{name}={machines.address(name)}") for name in of_nodes]
    placed += [("--brokers", f"{name}={count}") for name, count in sets.items()]
    return [text for option in placed for text in option]


def hand_out(founding: Path, machines: Machines) -> None:
    """Copy each bundle of a founded fleet to its disk, as an operator does it by scp."""
    for name in machines.names:
        bundle = founding / name if name in (CLIENT, OPERATOR) else founding / _BUNDLES / name
        shutil.copytree(bundle, machines.disk(name), dirs_exist_ok=True)
