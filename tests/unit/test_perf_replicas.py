"""The replicas that a bench plays are as stubborn as brokers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.commands import ApplyBrokerId
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.replies import IdGranted
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.frame import Frame
from tests.perf import replicas


class _BusyLink:
    """A controller that knows the outcome of the third question only."""

    def __init__(self, granted: IdGranted) -> None:
        self._answers = [Frame(code=SystemCode.SYSTEM_BUSY, opaque=1)] * 2
        self._answers.append(Frame(code=0, opaque=1, body=msgspec.json.encode(granted)))

    async def request(self, code: int, *, body: bytes, timeout_ms: int) -> Frame:
        del code, body, timeout_ms
        return self._answers.pop(0)


def test_an_order_of_unknown_outcome_was_not_given_again_and_a_run_waited_for_its_replica(monkeypatch: Any) -> None:
    """The answer has no body: reading it ended the replica's task, and "1,000 to be registered" never came true."""
    monkeypatch.setattr(replicas, "PAUSE_S", 0.0)
    crowd = replicas.Crowd(cluster="perf", names=("s0",), priority=1, controller="")
    replica = replicas.Replica(crowd, "s0", "127.0.0.1:1", None)
    granted = IdGranted(broker_id=BrokerId(7))
    replica._link = _BusyLink(granted)  # type: ignore[assignment]
    command = ApplyBrokerId(set_key=replica.key, register_code=replica.code, address="127.0.0.1:1")
    assert asyncio.run(replica._ask(RequestCode.SESSION_APPLY_ID, command)) == granted
