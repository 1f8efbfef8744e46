"""``rollcall drain`` and ``rebalance``: which orders they give, how many at a time, and what stops them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.cli import moving
from rollcall_ha.cli.moving import Batch, Outcome, Runner
from rollcall_ha.cli.options import BatchOptions
from rollcall_ha.cli.plans import plan_drain
from rollcall_ha.client.errors import ClientError, NoLeader, OutcomeUnknown, RefusedError
from rollcall_ha.controller.contract.commands import OrderSwitchover
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, MasterEpoch, RequestId, SetKey
from rollcall_ha.controller.contract.replies import SwitchoverAnswer, SwitchoverRow
from rollcall_ha.controller.contract.values import ElectionPause, EventRef, MaintenanceScope, SwitchoverEnd
from rollcall_ha.controller.contract.views import SetAnswer, SetPage, SetStatus
from tests.support.fake_controllers import freshness, problem, set_status

HOST = "10.0.0.11"
OPTIONS = BatchOptions(at_a_time=3, budget_least=1, deadline_ms=5_000, max_lag_bytes=1_000)
PAUSE = ElectionPause(set_key=None, expires_at_ms=2, reason="", paused_at_ms=1, paused_by="operator:ann")


class Leader:
    """Answers as the client would, and carries orders out: the part of ``Client`` that a batch uses."""

    def __init__(self, count: int) -> None:
        keys = [SetKey(ClusterName("c"), BrokerName(f"s{number:03}")) for number in range(count)]
        self.held = {key: replace(set_status(), view=replace(set_status().view, set_key=key)) for key in keys}
        self.orders: list[tuple[SetKey, RequestId, OrderSwitchover]] = []
        self.troubles: dict[SetKey, list[ClientError | SwitchoverEnd]] = {}
        self.at_once = self.at_once_most = 0
        self.meet: threading.Barrier | None = None
        self.lock = threading.Lock()
        self.then: Callable[[SetKey], None] = lambda _key: None

    def sets(self) -> SetPage:
        return SetPage(
            freshness=freshness(), sets=tuple(self.held.values()), sets_total=len(self.held), next_after=None
        )

    def set(self, key: SetKey) -> SetAnswer:
        return SetAnswer(freshness=freshness(), set=self.held[key])

    def order(self, order: OrderSwitchover, *, request_id: RequestId) -> SwitchoverAnswer:
        key = order.set_key
        assert order.to is not None
        with self.lock:
            self.orders.append((key, request_id, order))
            self.at_once += 1
            self.at_once_most = max(self.at_once_most, self.at_once)
        if self.meet is not None:
            self.meet.wait(10)
        with self.lock:
            self.at_once -= 1
            trouble = self.troubles[key].pop(0) if self.troubles.get(key) else SwitchoverEnd.DONE
            if isinstance(trouble, ClientError):
                raise trouble
            if trouble is SwitchoverEnd.DONE:
                self.move(key, order.to)
        self.then(key)
        return SwitchoverAnswer(row=_row(request_id, order, trouble), view=self.held[key].view)

    def move(self, key: SetKey, to: BrokerId) -> None:
        status = self.held[key]
        view = replace(status.view, master=to, master_epoch=MasterEpoch(status.view.master_epoch + 1))
        replicas = tuple(replace(one, is_master=one.broker_id == to) for one in status.replicas)
        self.held[key] = replace(status, view=view, replicas=replicas)


def _row(order: RequestId, wanted: OrderSwitchover, end: SwitchoverEnd) -> SwitchoverRow:
    assert wanted.expected_master is not None
    assert wanted.to is not None
    assert wanted.expected_epoch is not None
    return SwitchoverRow(
        order=order,
        requested_by="admin",
        from_master=wanted.expected_master,
        to_master=wanted.to,
        from_epoch=wanted.expected_epoch,
        epoch=None,
        ordered_at_ms=1,
        end=end,
        reason="told",
        drained_us=None,
        elected_ms=None,
        entered_ms=None,
        took_ms=1,
        event=EventRef(term=1, index=1, ordinal=0),
    )


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PAUSE_S", 0.0)


def _runner(leader: Leader) -> Runner:
    def plan(sets: list[SetStatus]) -> Any:
        return plan_drain(sets, MaintenanceScope(host=HOST))

    return Runner(leader, f"drain {HOST}", plan, "new kernel", OPTIONS, say=lambda _line: None)  # type: ignore[arg-type]


def drained(leader: Leader) -> Batch:
    return _runner(leader).run()


def outcomes(batch: Batch) -> dict[str, Outcome]:
    return {one.set_key.name: one.outcome for one in batch.moved}


def refused(code: str) -> RefusedError:
    return RefusedError(problem(409, code))


def test_every_set_is_switched_over_once_with_its_master_and_epoch_and_some_at_a_time() -> None:
    leader = Leader(12)
    leader.meet = threading.Barrier(3)

    batch = drained(leader)
    assert (set(outcomes(batch).values()), len(batch.moved), batch.missed) == ({Outcome.DONE}, 12, ())
    assert leader.at_once_most == 3
    assert len({request_id for _, request_id, _ in leader.orders}) == len(leader.orders) == 12
    for _, _, order in leader.orders:
        assert (order.expected_master, order.expected_epoch, order.to) == (1, 7, 2)
        assert order.reason == f"drain {HOST}: new kernel"
        assert (order.deadline_ms, order.max_lag_bytes) == (5_000, 1_000)


def test_an_order_whose_answer_was_lost_is_repeated_under_its_request_id() -> None:
    """A controller that dies with an order may have taken it: a second order would be refused, or move it twice."""
    leader = Leader(1)
    (key,) = leader.held
    leader.troubles[key] = [OutcomeUnknown(RequestId("r"), "it died"), NoLeader("none"), SwitchoverEnd.DONE]

    assert outcomes(drained(leader)) == {"s000": Outcome.DONE}
    assert len(leader.orders) == 3
    assert len({request_id for _, request_id, _ in leader.orders}) == 1


def test_a_refusal_that_passes_is_asked_again_under_a_new_request_id() -> None:
    """Under the old one the remembered refusal would be the answer for ever."""
    leader = Leader(1)
    (key,) = leader.held
    leader.troubles[key] = [refused("EVIDENCE_MOVED"), refused("NOT_ELIGIBLE"), SwitchoverEnd.DONE]

    assert outcomes(drained(leader)) == {"s000": Outcome.DONE}
    assert len({request_id for _, request_id, _ in leader.orders}) == 3


def test_a_set_that_rolls_back_is_tried_in_the_next_plan_and_in_the_end_told_with_its_reason() -> None:
    leader = Leader(2)
    first, second = leader.held
    leader.troubles[first] = [SwitchoverEnd.DEADLINE]
    leader.troubles[second] = [SwitchoverEnd.TARGET_LOST] * 9

    batch = drained(leader)
    assert outcomes(batch) == {"s000": Outcome.DONE, "s001": Outcome.ROLLED_BACK}
    assert [one.reason for one in batch.missed] == ["target-lost: told"]
    assert len([key for key, _, _ in leader.orders if key == second]) == moving.ROUNDS


def test_a_set_that_changed_since_the_plan_is_not_ordered_by_it() -> None:
    leader = Leader(4)
    keys = list(leader.held)

    def change(key: SetKey) -> None:
        if key == keys[0]:
            leader.move(keys[3], BrokerId(3))

    leader.then = change
    runner = _runner(leader)
    runner._options = BatchOptions(at_a_time=1, budget_least=1, deadline_ms=5_000, max_lag_bytes=1_000)
    batch = runner.run()
    assert outcomes(batch) == dict.fromkeys(("s000", "s001", "s002"), Outcome.DONE) | {"s003": Outcome.ELSEWHERE}
    assert batch.missed == ()
    assert keys[3] not in {key for key, _, _ in leader.orders}


def test_a_set_whose_budget_is_spent_meanwhile_is_left_and_told() -> None:
    leader = Leader(2)
    keys = list(leader.held)

    def lose(key: SetKey) -> None:
        status = leader.held[keys[1]]
        if key == keys[0]:
            gone = tuple(replace(one, is_alive=one.broker_id != 3) for one in status.replicas)
            leader.held[keys[1]] = replace(status, replicas=gone)

    leader.then = lose
    runner = _runner(leader)
    runner._options = BatchOptions(at_a_time=1, budget_least=1, deadline_ms=5_000, max_lag_bytes=1_000)
    batch = runner.run()
    assert outcomes(batch) == {"s000": Outcome.DONE, "s001": Outcome.LEFT}
    assert "may lose 0 more replicas, at least 1 are wanted" in batch.missed[0].reason


@pytest.mark.parametrize("how", ["stop", "pause"])
def test_a_batch_that_is_stopped_gives_no_further_order_and_the_next_one_goes_on(how: str) -> None:
    leader = Leader(20)
    runner = _runner(leader)

    def stop(_key: SetKey) -> None:
        if how == "stop":
            runner.stop("Ctrl-C")
            return
        for key, status in leader.held.items():
            leader.held[key] = replace(status, pause=PAUSE)

    leader.then = stop
    batch = runner.run()
    assert "Ctrl-C" in batch.stopped or "operator:ann" in batch.stopped
    done = list(outcomes(batch).values()).count(Outcome.DONE)
    assert 1 <= done <= 3
    assert len(batch.missed) == 20 - done
    assert len(leader.orders) == done

    leader.then = lambda _key: None
    for key, status in leader.held.items():
        leader.held[key] = replace(status, pause=None)
    again = drained(leader)
    assert (len(again.moved), again.missed) == (20 - done, ())
