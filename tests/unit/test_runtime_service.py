"""The service's shell: what becomes of a duty whose task fails or cannot run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollcall_ha.controller.contract.commands import ElectMaster, Operation
from rollcall_ha.controller.contract.replies import AnyReply
from rollcall_ha.controller.runtime import background as module
from rollcall_ha.controller.runtime.background import BackgroundTasks
from rollcall_ha.controller.runtime.service import ControllerService
from tests.support.runtime_controller import NAMES, make_set, running_group


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
