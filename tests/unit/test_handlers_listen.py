"""The listen port: probes, routes, offsets, watches, and peers that talk nonsense."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.routes import decode_route
from rollcall_ha.broker.protocol.send import encode_send
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.epoch.model import EpochEntry, LogOffset
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame, decode_frame, encode_frame
from rollcall_ha.node.remoting.links import CloseCause
from tests.support.ha_replica import until
from tests.support.log_broker import LogBroker


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next answer, with a deadline."""
    async with asyncio.timeout(30):
        length = int.from_bytes(await reader.readexactly(4), "big")
        return decode_frame(await reader.readexactly(length))


def run(tmp_path: Path, test: object) -> None:
    """A broker that leads, and one raw connection to it."""
    assert callable(test)

    async def body() -> None:
        broker = LogBroker(tmp_path, 1)
        await broker.start()
        broker.lead(1)
        broker.set_route(1, 1, broker)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
        try:
            await test(broker, reader, writer)
        finally:
            writer.close()
            await broker.stop()

    asyncio.run(body())


def a_send(opaque: int, body: bytes = b"x") -> bytes:
    return encode_send(opaque=opaque, group="g", topic="T", queue_id=0, born_at_ms=1, properties="", body=body)


def test_frames_are_found_whatever_the_pieces_they_come_in(tmp_path: Path) -> None:
    """Byte by byte, and one that is larger than the receive buffer."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in a_send(1):
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await read_frame(reader)).opaque == 1
        writer.write(a_send(2, b"x" * 600_000) + a_send(3))
        assert {(await read_frame(reader)).opaque for _ in range(2)} == {2, 3}
        assert broker.put.counters.appended == 2

    run(tmp_path, test)


def test_probe_routes_offsets_and_unknown_codes_are_answered(tmp_path: Path) -> None:
    """Every request is answered, an unknown code too."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(a_send(1))
        await read_frame(reader)

        async def ask(code: int, **fields: str) -> Frame:
            writer.write(encode_frame(Frame(code=code, opaque=9, ext_fields=fields)))
            return await read_frame(reader)

        assert json.loads((await ask(RequestCode.PROBE)).body)["incarnation"] == "0" * 32
        assert (await ask(ClientCode.GET_MAX_OFFSET, topic="T", queueId="0")).ext_fields == {"offset": "1"}
        assert (await ask(ClientCode.GET_MIN_OFFSET, topic="T", queueId="0")).ext_fields == {"offset": "0"}
        assert (await ask(ClientCode.GET_MAX_OFFSET, topic="T")).code == 1
        assert b'"0":"127.0.0.1' in (await ask(ClientCode.GET_ROUTE_BY_TOPIC, topic="T")).body
        retry = (await ask(ClientCode.GET_ROUTE_BY_TOPIC, topic="%RETRY%g")).body
        assert b'"perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1' in retry
        broker.room.topics.creates = False
        assert (await ask(ClientCode.GET_ROUTE_BY_TOPIC, topic="unheard")).code == 17
        assert (await ask(4711)).code == 3
        assert (await ask(ClientCode.WATCH_ROUTE, masterEpoch="zz")).code == 1

    run(tmp_path, test)


def test_a_watch_is_answered_when_the_route_moves_or_its_time_is_over(tmp_path: Path) -> None:
    """And at once if it is newer already."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def watch(opaque: int, known: int, wait_ms: int) -> bytes:
            fields = {"masterEpoch": str(known), "waitMs": str(wait_ms)}
            return encode_frame(Frame(code=ClientCode.WATCH_ROUTE, opaque=opaque, ext_fields=fields))

        writer.write(watch(1, 0, 30_000))
        assert decode_route((await read_frame(reader)).body).master_epoch == 1
        writer.write(watch(2, 1, 10))
        assert (await read_frame(reader)).opaque == 2
        writer.write(watch(3, 1, 30_000) + encode_frame(Frame(code=4711, opaque=4)))
        assert (await read_frame(reader)).opaque == 4
        broker.set_route(2, 1, broker)
        moved = await read_frame(reader)
        assert (moved.opaque, decode_route(moved.body).master_epoch) == (3, 2)
        writer.write(watch(5, 2, 30_000))
        writer.write(encode_frame(Frame(code=4711, opaque=6)))
        await read_frame(reader)

    run(tmp_path, test)


def test_a_watch_that_lacks_the_master_of_its_epoch_hears_of_it_at_once(tmp_path: Path) -> None:
    """
    The epoch moves first and its master later: a watch asked again between the two waited for its whole time.
    """

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fields = {"masterEpoch": "1", "hasMaster": "false", "waitMs": "30000"}
        writer.write(encode_frame(Frame(code=ClientCode.WATCH_ROUTE, opaque=1, ext_fields=fields)))
        assert decode_route((await read_frame(reader)).body).master is not None
        fields["hasMaster"] = "true"
        writer.write(encode_frame(Frame(code=ClientCode.WATCH_ROUTE, opaque=2, ext_fields=fields)))
        writer.write(encode_frame(Frame(code=4711, opaque=3)))
        assert (await read_frame(reader)).opaque == 3, "who has it waits"

    run(tmp_path, test)


def test_nonsense_closes_that_link_only(tmp_path: Path) -> None:
    """Nonsense is counted under its cause; a bad send on a good link is only refused."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
        bad_writer.write(b"\xff" * 100)
        async with asyncio.timeout(30):
            try:
                assert await bad_reader.read() == b""
            except ConnectionResetError:
                pass
        bad_writer.close()
        assert broker.server.links.closed_by_cause == {CloseCause.FRAME_LENGTH: 1}
        writer.write(encode_frame(Frame(code=310, opaque=7, ext_fields={})))
        refused = await read_frame(reader)
        assert (refused.opaque, refused.code) == (7, 13)
        writer.write(a_send(8))
        assert (await read_frame(reader)).code == 0

    run(tmp_path, test)


def test_a_loop_never_waits_for_the_log_s_next_segment(tmp_path: Path) -> None:
    """The disk took a while, and heartbeats, probes and links stood still; now only who sends waits, and loses nothing."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_ready = False
        real = broker.log.is_room_ready
        broker.log.is_room_ready = lambda length: is_ready and real(length)  # type: ignore[method-assign]
        writer.write(a_send(1) + a_send(2, b"x" * 300_000))
        other_reader, other = await asyncio.open_connection("127.0.0.1", broker.server.port)
        await until(lambda: len(broker.service._held) == 1)
        other.write(encode_frame(Frame(code=RequestCode.PROBE, opaque=7)))
        assert (await read_frame(other_reader)).opaque == 7
        assert broker.put.counters.appended == 0

        is_ready = True
        broker.service.room_is_ready()

        assert [(await read_frame(reader)).opaque for _ in range(2)] == [1, 2]
        other.close()

    run(tmp_path, test)


def test_a_fault_in_a_handler_costs_the_link_that_met_it(tmp_path: Path) -> None:
    """Nobody heard why the link was gone, and everybody else goes on."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def faulty(connection: RemotingConnection, frame: Frame) -> None:
            raise LookupError("a fault of ours")

        broker.service._responders[4711] = faulty
        bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
        bad_writer.write(encode_frame(Frame(code=4711, opaque=1)))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(bad_reader)
        bad_writer.close()
        assert broker.server.links.closed_by_cause == {CloseCause.FAULT: 1}
        writer.write(encode_frame(Frame(code=RequestCode.PROBE, opaque=7)))
        assert (await read_frame(reader)).opaque == 7

    run(tmp_path, test)


def test_the_end_of_a_queue_counted_messages_that_a_failover_may_take_away(tmp_path: Path) -> None:
    """Who begins at the end began behind messages that nobody had acknowledged; the next master used the number again."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def end_of(queue_id: int, **fields: str) -> Frame:
            asked = {"topic": "T", "queueId": str(queue_id), **fields}
            other_writer.write(encode_frame(Frame(code=ClientCode.GET_MAX_OFFSET, opaque=9, ext_fields=asked)))
            return await read_frame(other_reader)

        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
        writer.write(a_send(1) + a_send(2))
        await read_frame(reader)
        broker.confirms_at_once = False
        writer.write(a_send(3) + a_send(4, b"x" * 2000) + a_send(5))
        await until(lambda: broker.put.counters.appended == 5)

        assert (await end_of(0)).ext_fields == {"offset": "2"}
        assert (await end_of(1)).ext_fields == {"offset": "0"}
        assert (await end_of(0, committed="false")).ext_fields == {"offset": "5"}
        broker.log.note_confirm(LogOffset(broker.log.max_offset - 1), LogOffset(0))
        assert (await end_of(0)).ext_fields == {"offset": "4"}, "half a record is confirmed, it counts as none"
        broker.put.release(broker.log.max_offset)
        assert (await end_of(0)).ext_fields == {"offset": "5"}
        other_writer.close()

    run(tmp_path, test)


def test_a_new_master_told_the_end_of_a_queue_that_the_one_before_had_moved_on(tmp_path: Path) -> None:
    """R19: what it heard as confirmed was less than the master before had confirmed, and consumers went back."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def end_of(code: int) -> Frame:
            asked = {"topic": "T", "queueId": "0", "consumerGroup": "g", "setZeroIfNotFound": "false"}
            other_writer.write(encode_frame(Frame(code=code, opaque=9, ext_fields=asked)))
            return await read_frame(other_reader)

        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
        writer.write(a_send(1) + a_send(2))
        await read_frame(reader)
        broker.confirms_at_once = False
        writer.write(a_send(3))
        await until(lambda: broker.put.counters.appended == 3)
        broker.log.record_epoch(EpochEntry(epoch=MasterEpoch(2), start_offset=broker.log.max_offset))
        broker.lead(2)
        for code in (ClientCode.GET_MAX_OFFSET, ClientCode.QUERY_CONSUMER_OFFSET):
            assert (await end_of(code)).code == ClientResult.SYSTEM_BUSY
        broker.log.note_confirm(broker.log.max_offset, LogOffset(0))
        assert (await end_of(ClientCode.GET_MAX_OFFSET)).ext_fields == {"offset": "3"}
        assert (await end_of(ClientCode.QUERY_CONSUMER_OFFSET)).code == ClientResult.QUERY_NOT_FOUND
        other_writer.close()

    run(tmp_path, test)


def test_a_queue_before_the_first_byte_of_a_learners_log_was_told_to_be_empty(tmp_path: Path) -> None:
    """It began at the last segment: a consumer would have begun at 0 again."""

    async def test(broker: LogBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def ask(code: int, topic: str) -> Frame:
            fields = {"topic": topic, "queueId": "0"}
            writer.write(encode_frame(Frame(code=code, opaque=9, ext_fields=fields)))
            return await read_frame(reader)

        start = LogOffset(2 * broker.log.segment_bytes)
        broker.log.set_aside(start, "a blank learner begins at the master's last segment")
        broker.folds.cut(start, is_new=True)
        writer.write(a_send(1))
        await read_frame(reader)
        assert (await ask(ClientCode.GET_MAX_OFFSET, "T")).ext_fields == {"offset": "1"}
        for code in (ClientCode.GET_MAX_OFFSET, ClientCode.GET_MIN_OFFSET):
            refused = await ask(code, "Older")
            assert refused.code == ClientResult.SYSTEM_ERROR
            assert f"begins at {start}" in (refused.remark or "")
            assert "ask the master" in (refused.remark or "")

    run(tmp_path, test)
