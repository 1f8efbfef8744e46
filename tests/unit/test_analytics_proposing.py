"""
The synthetic leading controller proposes the elections that the product's would.

``analytics.synthetic.proposing`` does on simulated time what ``controller.runtime.election_duty`` does; the arrows keep
analytics from importing it. Here both see the same states of a fleet full of faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rollcall_ha.analytics.synthetic.broker_set import SyntheticSet
from rollcall_ha.analytics.synthetic.fleet import SyntheticFleet
from rollcall_ha.analytics.synthetic.plan import Mix, Plan
from rollcall_ha.analytics.synthetic.processes import SyntheticOperation
from rollcall_ha.analytics.synthetic.proposing import ElectionProposer
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ElectMaster, MarkSilent
from rollcall_ha.controller.contract.events import ElectionFailed, EventRecord
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import Elected, Refused, SetView
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.controller.runtime.actions import Action, ProposeCommand
from rollcall_ha.controller.runtime.election_duty import ElectionDuty
from tests.support.analytics_plans import ROUGH

pytestmark = pytest.mark.slow

NS_PER_US = 1_000


class Sessions:
    """The evidence that the synthetic controller would gather of the same set."""

    def __init__(self, twin: Twin) -> None:
        self._twin = twin

    def get(self, *_: object) -> Any:
        """A session that was heard; detection stamps are not compared."""
        return SimpleNamespace(positions=(), stamps=lambda: None)

    def stamps_of_lost(self, *_: object) -> None:
        """They are not compared."""

    def evidence(self, view: SetView, *, now_ns: int, **_: object) -> Evidence:
        proposer = self._twin.fleet._sets[view.set_key].proposer
        command = ElectMaster(set_key=view.set_key, reason="")
        evidence = proposer._operation(command, now_ns // NS_PER_US, None).evidence
        assert evidence is not None
        return evidence


class Twin:
    """The product's machine beside the synthetic one; ``compared`` counts decisions, all of them equal."""

    def __init__(self, fleet: SyntheticFleet) -> None:
        self.fleet = fleet
        self.compared: Counter[str] = Counter()
        self._expected: dict[SetKey, list[ElectMaster]] = {}
        self._ahead: dict[SetKey, list[ElectMaster]] = {}
        self.duty = ElectionDuty(
            timing=ROUGH.timing,
            view_of=lambda key: view_of(fleet.state, key),
            sessions=Sessions(self),  # type: ignore[arg-type]  # the methods that the duty calls
            preview=self._preview,
            draw_epoch_jump=lambda: 0,
        )

    def _preview(self, command: ElectMaster, evidence: Evidence) -> Elected | Refused:
        operation = self.fleet.leader.proposes(command, evidence)
        reply = preview(self.fleet.state, self.fleet._stamped(operation, 0, "dry-run"))
        assert isinstance(reply, Elected | Refused)
        return reply

    def silenced(self, key: SetKey, operations: Sequence[SyntheticOperation], now_us: int) -> None:
        """A silence is proposed: the duty proposes the election of the master's successor with it."""
        for operation in operations:
            assert isinstance(operation.command, MarkSilent)
            self._ahead[key] = elections(self.duty.silence_proposed(operation.command, now_us * NS_PER_US))

    def applied(self, key: SetKey, records: Sequence[EventRecord], applied_us: int) -> None:
        """An entry changed the set: the duty's decision on the new state is what the proposer must come to."""
        refused = any(isinstance(record.event, ElectionFailed) for record in records)
        reply = Refused(code=RefusalCode.NO_ELIGIBLE_REPLICA, reason="", hint="") if refused else None
        for command in self._expected.pop(key, ()):
            assert self.duty.proposed(command, reply, applied_us * NS_PER_US) == []
        now = elections(self.duty.set_changed(key, records[-1].ref, applied_us * NS_PER_US))
        ahead = self._ahead.pop(key, [])
        assert not (ahead and now)
        self._expected[key] = ahead or now
        self.compared["ahead"] += bool(ahead)

    def looked(self, key: SetKey, operations: Sequence[SyntheticOperation], now_us: int) -> None:
        """The proposer looked at the set, now or at a retry: it proposes what the duty does."""
        expected = self._expected.get(key)
        if not expected:
            # A replica may have become ready since the entry. The product hears of it, and its pause ends.
            expected = elections(self.duty.became_ready(key, now_us * NS_PER_US))
            self._expected[key] = expected
        assert wanted(operation.command for operation in operations) == wanted(expected)
        self.compared["proposed" if operations else "kept back"] += 1


def elections(actions: Sequence[Action]) -> list[ElectMaster]:
    return [action.command for action in actions if isinstance(action, ProposeCommand)]  # type: ignore[misc]


def wanted(commands: Iterable[Any]) -> list[tuple[Any, ...]]:
    """What an election is conditional on, and why it is proposed."""
    return [(each.set_key, each.expected_master, each.expected_epoch, each.reason) for each in commands]


def around(method: Callable[..., Any], then: Callable[..., None]) -> Callable[..., Any]:
    """``method``, and ``then`` with its result."""

    def called(self: Any, *arguments: Any) -> Any:
        result = method(self, *arguments)
        then(self, result, *arguments)
        return result

    return called


LONELY = msgspec.structs.replace(ROUGH, replicas=2, mix=Mix(crash=40, stop=40, power=40, member_crash=60))
"""Two replicas of which both are often gone: many elections without an eligible replica."""


@pytest.mark.parametrize(
    ("plan", "least"),
    [
        (ROUGH, {"proposed": 500, "ahead": 400}),
        (LONELY, {"proposed": 500, "ahead": 400, "kept back": 40}),
    ],
    ids=["rough", "lonely"],
)
def test_the_synthetic_controller_proposes_as_the_product_does(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, least: dict[str, int]
) -> None:
    """Which election, on which epoch, with which reason; and none where the product would keep it back."""
    fleet = SyntheticFleet(plan, 0)
    twin = Twin(fleet)

    def applied(proposer: Any, _: None, records: Sequence[EventRecord], __: int, applied_us: int) -> None:
        twin.applied(proposer._set.key, records, applied_us)

    def looked(proposer: Any, operations: Sequence[SyntheticOperation], now_us: int) -> None:
        twin.looked(proposer._set.key, operations, now_us)

    def silenced(broker_set: Any, operations: Sequence[SyntheticOperation], *rest: Any) -> None:
        twin.silenced(broker_set.key, operations, rest[-1])

    monkeypatch.setattr(SyntheticSet, "_silent", around(SyntheticSet._silent, silenced))
    monkeypatch.setattr(ElectionProposer, "applied", around(ElectionProposer.applied, applied))
    monkeypatch.setattr(ElectionProposer, "_elect", around(ElectionProposer._elect, looked))
    for _ in fleet.entries():
        pass

    assert {name: twin.compared[name] for name in least if twin.compared[name] < least[name]} == {}
