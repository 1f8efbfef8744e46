"""Bad neighbours on the port: each is counted under its cause, honest brokers are answered, and nothing of them stays."""

from __future__ import annotations

import asyncio
import struct

import pytest

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from rollcall_ha.node.remoting.links import CloseCause
from tests.support.rocketmq_wire import Port, on_port
from tests.support.runtime_controller import until

IDLE, HALF, GARBAGE, HUGE, DEEP, PROBES = 200, 10, 15, 15, 5, 40
POLLS = 50
DEEP_HEADER = b'{"code":1,"opaque":1,"x":' + b"[" * 50_000


async def _closed_after(port: Port, data: bytes) -> None:
    """Send this on a link of its own; the controller ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    writer.write(data)
    assert await reader.read() == b""
    writer.close()


@pytest.mark.slow
@on_port()
async def test_bad_neighbours_cost_honest_brokers_nothing(port: Port) -> None:
    """Garbage, huge lengths, deep JSON, half frames, idle links and probes, all at once; a broker polls all along."""
    broker = await port.joined(1)
    broker.beat(1)
    names = {"clusterName": "c1", "brokerName": "broker-z"}
    assert (await broker.request(1002, **names, brokerId=1, designateElect=False, invokeTime=1)).code == 0
    links = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(IDLE + HALF)]
    for _, writer in links[:HALF]:
        writer.write(struct.pack(">iI", 100_000, 50) + b"{")
    probes = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(PROBES)]
    for _, writer in probes:
        writer.close()
    header = struct.pack(">iI", 4 + len(DEEP_HEADER), len(DEEP_HEADER)) + DEEP_HEADER
    polling = asyncio.create_task(_poll(port))
    async with asyncio.TaskGroup() as group:
        for data, count in ((b"\xff" * 400, GARBAGE), (struct.pack(">i", 2**31 - 1), HUGE), (header, DEEP)):
            for _ in range(count):
                group.create_task(_closed_after(port, data))
    deep = encode_frame(Frame(code=RequestCode.SESSION_HEARTBEAT, opaque=5, body=b'{"a":' * 50_000))
    for reader, writer in links[-DEEP:]:
        writer.write(deep)
        assert await reader.read(20)
    await polling
    await until(lambda: port.gateway.links.closed_by_cause[CloseCause.PROBE] == PROBES)
    assert port.gateway.links.closed_by_cause == {
        CloseCause.FRAME_LENGTH: GARBAGE + HUGE,
        CloseCause.FRAME: DEEP,
        CloseCause.PROBE: PROBES,
    }
    assert port.gateway.requests["malformed"] == DEEP
    assert port.gateway.links.unfinished_bytes == HALF * 9
    assert port.view().master == 1
    for _, writer in links:
        writer.transport.abort()
    await until(lambda: len(port.gateway.links) == 2)
    assert port.gateway.links.unfinished_bytes == 0


async def _poll(port: Port) -> None:
    """A broker's 1004, again and again: each is answered within what a Java broker waits."""
    peer = await port.peer()
    for _ in range(POLLS):
        answer = await peer.request(1004, brokerName="broker-z")
        assert answer.code == 0
