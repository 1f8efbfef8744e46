"""How a probe reaches a master: a handshake that is slower than a send may take is not begun anew by each send."""

from __future__ import annotations

import asyncio

import pytest

from rollcall_ha.broker.client.routes import RouteWatcher
from rollcall_ha.broker.protocol.routes import RouteBroker, RouteState
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.probe import sending
from rollcall_ha.probe.sending import SetSender

ROUTE = RouteState(
    cluster="c",
    broker_name="broker-a",
    master_epoch=MasterEpoch(1),
    master=BrokerId(1),
    replicas=(RouteBroker(broker_id=BrokerId(1), address="a:1"),),
)


class Link:
    is_open = True

    async def request(self, code: int, **_: object) -> Frame:
        return Frame(code=0, opaque=0) if code else Frame(code=1, opaque=0)

    def close(self, reason: str) -> None:
        self.is_open = not reason


def test_a_dial_that_takes_longer_than_a_send_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each send began a handshake and gave it up: on a busy machine a gap of 0.1 s was told as one of 4 s."""
    dialled: list[str] = []

    async def story() -> list[str]:
        is_through = asyncio.Event()

        async def dial(address: str, **_: object) -> Link:
            dialled.append(address)
            await is_through.wait()
            return Link()

        monkeypatch.setattr(sending, "dial", dial)
        routes = RouteWatcher(())
        routes.route = ROUTE
        sender = SetSender(routes, None, timeout_ms=1)
        told = [await sender.send(), await sender.send()]
        is_through.set()
        await asyncio.sleep(0)
        told.append(await sender.send())
        await sender.close()
        return told

    told = asyncio.run(story())
    assert [bool(one) for one in told] == [True, True, False]
    assert dialled == ["a:1"]


def test_a_dial_that_timed_out_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[str] = []

    async def dial(address: str, **_: object) -> Link:
        dialled.append(address)
        if len(dialled) == 1:
            raise TimeoutError
        return Link()

    async def story() -> tuple[str, str]:
        monkeypatch.setattr(sending, "dial", dial)
        routes = RouteWatcher(())
        routes.route = ROUTE
        sender = SetSender(routes, None, timeout_ms=60_000)
        return await sender.send(), await sender.send()

    first, second = asyncio.run(story())
    assert (bool(first), second, dialled) == (True, "", ["a:1", "a:1"])
