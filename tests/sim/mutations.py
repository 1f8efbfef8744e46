"""
The fixed list of mutants: which rule, what goes wrong without it, and the one function that is replaced.

Here: the whole list. Not here: its parts (``mutations_*``), running it (``mutants``), cases that one machine is enough
for (``directed``).
"""

from __future__ import annotations

from tests.sim.mutation import Mutation
from tests.sim.mutations_alters import ALTERS
from tests.sim.mutations_callers import CALLERS
from tests.sim.mutations_disks import DISKS
from tests.sim.mutations_elections import ELECTIONS
from tests.sim.mutations_folds import FOLDS
from tests.sim.mutations_members import MEMBERS
from tests.sim.mutations_policies import POLICIES
from tests.sim.mutations_quorum import QUORUM
from tests.sim.mutations_reigns import REIGNS
from tests.sim.mutations_replicas import REPLICAS
from tests.sim.mutations_sets import SETS
from tests.sim.mutations_surroundings import SURROUNDINGS
from tests.sim.mutations_switchovers import SWITCHOVERS

MUTATIONS: tuple[Mutation, ...] = (
    *ALTERS,
    *SETS,
    *ELECTIONS,
    *REPLICAS,
    *REIGNS,
    *DISKS,
    *QUORUM,
    *CALLERS,
    *SWITCHOVERS,
    *MEMBERS,
    *POLICIES,
    *FOLDS,
    *SURROUNDINGS,
)
