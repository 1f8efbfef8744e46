"""HA frames of the wire document and of real Java processes: decoding and encoding again gives the same bytes."""

from __future__ import annotations

from typing import Any

import pytest

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from rollcall_ha.ha.codec_rocketmq import (
    AutoSwitchMasterDecoder,
    AutoSwitchSlaveDecoder,
    ClassicMasterDecoder,
    ClassicSlaveDecoder,
    Protocol,
    encode_autoswitch,
    encode_classic,
    sniff,
)
from rollcall_ha.ha.decoder import HeaderDecoder
from rollcall_ha.ha.frames import (
    AutoSwitchHandshake,
    AutoSwitchHandshakeReply,
    AutoSwitchReport,
    AutoSwitchTransfer,
    ClassicReport,
    ClassicTransfer,
)
from tests.support.ha_logs import history

RECORD = (
    "000000c2daa320a7575e6f2a00000000000000000000000000000005000000000000181b00000000000001a1fb87d4247f0000010000abcc"
    "000001a1fb87d4267f00000100007ca70000000000000000000000000000000570726f626506546f70696341005c4d53475f524547494f4e"
    "0144656661756c74526567696f6e02554e49515f4b4559013030303030303030303030303030303030313845394538444435334338373744"
    "02434c55535445520163310254524143455f4f4e017472756502"
)
FIVE_EPOCHS = (
    "000000010000003c0000000000001be50000000600000001000000000000000000000002000000000000181b0000000400000000000018dd"
    "000000050000000000001a61000000060000000000001b23"
)


def reply(max_offset: int, last: int, *pairs: tuple[int, int]) -> AutoSwitchHandshakeReply:
    entries = history(*pairs).entries
    return AutoSwitchHandshakeReply(max_offset=LogOffset(max_offset), last_epoch=last, entries=entries)  # type: ignore[arg-type]


def transfer(body: int, offset: int, epoch: int, start: int, confirm: int) -> AutoSwitchTransfer:
    return AutoSwitchTransfer(
        body_length=body,
        offset=offset,
        epoch=epoch,  # type: ignore[arg-type]
        epoch_start=LogOffset(start),
        confirm_offset=LogOffset(confirm),
    )


SHAKE = AutoSwitchHandshake(broker_id=BrokerId(2))
SLAVE, MASTER = AutoSwitchSlaveDecoder, AutoSwitchMasterDecoder
FIXTURES: dict[str, tuple[type[HeaderDecoder[Any]], str, Any, str]] = {
    "7.5 slave handshake": (SLAVE, "00000001000000000000000000000002", SHAKE, ""),
    "7.6 master handshake": (
        MASTER,
        "000000010000001800000000000003e800000002000000010000000000000000000000020000000000000258",
        reply(1000, 2, (1, 0), (2, 600)),
        "",
    ),
    "7.7 slave report": (SLAVE, "0000000200000000000003e8", AutoSwitchReport(offset=LogOffset(1000)), ""),
    "7.8 transfer header": (
        MASTER,
        "000000020000008200000000000003e8000000020000000000000258000000000000046a",
        transfer(130, 1000, 2, 600, 1130),
        "",
    ),
    "7.8 heartbeat": (
        MASTER,
        "000000020000000000000000000003e800000002000000000000025800000000000003e8",
        transfer(0, 1000, 2, 600, 1000),
        "",
    ),
    "capture: slave handshake, id 2": (SLAVE, "00000001000000000000000000000002", SHAKE, ""),
    "capture: master handshake, empty log": (
        MASTER,
        "000000010000000c000000000000000000000001000000010000000000000000",
        reply(0, 1, (1, 0)),
        "",
    ),
    "capture: master handshake, five epochs": (
        MASTER,
        FIVE_EPOCHS,
        reply(7141, 6, (1, 0), (2, 6171), (4, 6365), (5, 6753), (6, 6947)),
        "",
    ),
    "capture: slave report 0": (SLAVE, "000000020000000000000000", AutoSwitchReport(offset=LogOffset(0)), ""),
    "capture: heartbeat of an empty log": (
        MASTER,
        "0000000200000000ffffffffffffffff0000000100000000000000000000000000000000",
        transfer(0, -1, 1, 0, 0),
        "",
    ),
    "capture: transfer of one record": (
        MASTER,
        "00000002000000c2000000000000181b00000002000000000000181b000000000000181b",
        transfer(194, 6171, 2, 6171, 6171),
        RECORD,
    ),
    "capture: slave report after it": (SLAVE, "0000000200000000000018dd", AutoSwitchReport(offset=LogOffset(6365)), ""),
    "capture: master heartbeat, epoch 2": (
        MASTER,
        "0000000200000000000000000000181b00000002000000000000181b000000000000181b",
        transfer(0, 6171, 2, 6171, 6171),
        "",
    ),
}


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_autoswitch_frames_round_trip(name: str, chunk: int) -> None:
    """In pieces of any size; a body stays outside."""
    decoder_type, header, expected, body = FIXTURES[name]
    data = memoryview(bytes.fromhex(header + body))
    decoder, frame, position = decoder_type(), None, 0
    while frame is None:
        frame, taken = decoder.feed(data[position : min(position + chunk, len(data))])
        position += taken
    assert frame == expected
    assert position == len(bytes.fromhex(header))
    assert decoder.body_left == getattr(expected, "body_length", 0)
    assert encode_autoswitch(frame).hex() == header


def test_classic_frames_round_trip() -> None:
    """7.8, classic: 12 bytes before the body, 8 in the report."""
    header, report = "00000000000003e800000082", "000000000000046a"
    master, slave = ClassicMasterDecoder(), ClassicSlaveDecoder()
    frame, _ = master.feed(memoryview(bytes.fromhex(header)))
    assert frame == ClassicTransfer(offset=LogOffset(1000), body_length=130)
    assert master.body_left == 130
    assert encode_classic(frame).hex() == header
    answer, _ = slave.feed(memoryview(bytes.fromhex(report)))
    assert answer == ClassicReport(offset=LogOffset(1130))
    assert encode_classic(answer).hex() == report


def test_java_s_answer_in_two_writes_is_one_frame() -> None:
    """Java sends 20 bytes, then the list."""
    data = bytes.fromhex(FIXTURES["capture: master handshake, five epochs"][1])
    decoder = AutoSwitchMasterDecoder()
    assert decoder.feed(memoryview(data[:20])) == (None, 20)
    frame, taken = decoder.feed(memoryview(data[20:]))
    assert (frame, taken) == (reply(7141, 6, (1, 0), (2, 6171), (4, 6365), (5, 6753), (6, 6947)), 60)


def test_the_first_bytes_tell_the_protocol() -> None:
    assert sniff(b"RCHA") is Protocol.NATIVE
    assert sniff(bytes.fromhex("00000001")) is sniff(bytes.fromhex("00000002")) is Protocol.AUTOSWITCH
    assert sniff(bytes.fromhex("00000000")) is Protocol.CLASSIC
