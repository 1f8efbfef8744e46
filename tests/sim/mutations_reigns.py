"""
Mutants of one reign: what ends a union, and what is never entered again.

Here: rows of ``mutations``. Not here: running them (``mutants``), their cases (``directed_reigns``).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.sim.mutation import Function, Mutation


def _same_version_is_news(original: Function) -> Function:
    def mutated(self: Any, view: Any, now_ms: int) -> Any:
        if view.sync_state_set_epoch == self._local_epoch:
            view = replace(view, sync_state_set_epoch=view.sync_state_set_epoch + 1)
        return original(self, view, now_ms)

    return mutated


def _left_epoch_is_forgotten(original: Function) -> Function:
    def mutated(self: Any) -> None:
        known = self._left_epoch
        original(self)
        self._left_epoch = known

    return mutated


REIGNS: tuple[Mutation, ...] = (
    Mutation(
        name="R2-same-version-ends-the-union",
        what="a view of the version that the alter was proposed on ends its union",
        target="rollcall_ha.ha.sync_state:SyncState.authoritative_state",
        mutate=_same_version_is_news,
        case="view-of-the-same-version",
        tests=("tests/unit/test_ha_sync_state.py::test_r2_a_view_of_the_same_version_ends_no_union",),
        once_unnoticed="a view of the same version ends the union",
    ),
    Mutation(
        name="W3-left-epoch-forgotten",
        what="an epoch that this process left is entered again by a late view",
        target="rollcall_ha.broker.core.role:RoleMachine._end_other_reign",
        mutate=_left_epoch_is_forgotten,
        case="epoch-left-and-shown-again",
        tests=("tests/unit/test_broker_role_memory.py::test_w3_an_epoch_that_was_left_is_not_entered_again",),
        once_unnoticed="an epoch is entered again after it was left",
    ),
)
"""Parts of ``MUTATIONS``."""
