"""How a probe reaches a master: what it keeps of a slow handshake, and that it leaves a link which answers nothing."""

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


class MuteLink(Link):
    """It takes messages and answers none, as that of a master which is no longer one and lives on."""

    async def request(self, code: int, **_: object) -> Frame:
        return await asyncio.Event().wait() and Frame(code=code, opaque=0)


def sender_of(monkeypatch: pytest.MonkeyPatch, links: list[Link], dialled: list[str], *, timeout_ms: int) -> SetSender:
    """Each dial gives the next of ``links``, the last one again and again."""

    async def dial(address: str, **_: object) -> Link:
        dialled.append(address)
        return links[min(len(dialled), len(links)) - 1]

    monkeypatch.setattr(sending, "dial", dial)
    routes = RouteWatcher(())
    routes.route = ROUTE
    return SetSender(routes, None, timeout_ms=timeout_ms)


def test_a_link_that_answers_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master was cloned: the probe asked the mute link again and again, and felt 519 ms, a producer beside it 23."""
    mute, living, dialled = MuteLink(), Link(), list[str]()

    async def story() -> list[str]:
        sender = sender_of(monkeypatch, [Link(), mute, living], dialled, timeout_ms=50)
        told = [await sender.send()]
        assert sender._link is not None
        sender._link.close("the broker ends it")
        told += [await sender.send(), await sender.send(), await sender.send()]
        await sender.close()
        return told

    # The second link had a part of its first send's time for the handshake, so it has one send more.
    assert [bool(one) for one in asyncio.run(story())] == [False, True, True, False]
    assert (mute.is_open, dialled) == (False, ["a:1", "a:1", "a:1"])


def test_a_link_that_came_late_in_a_send_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake took all but a moment of a send: left for that, the link of a slow machine would never be asked."""

    class LateLink(MuteLink):
        asked = 0

        async def request(self, code: int, **told: object) -> Frame:
            self.asked += 1
            return await (super().request(code, **told) if self.asked == 1 else Link().request(code, **told))

    dialled = list[str]()

    async def story() -> list[str]:
        sender = sender_of(monkeypatch, [LateLink()], dialled, timeout_ms=50)
        return [await sender.send(), await sender.send()]

    assert [bool(one) for one in asyncio.run(story())] == [True, False]
    assert dialled == ["a:1"]


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
