"""Bytes of real Java processes and of docs/wire.md: decoding and encoding again gives the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollcall_ha.node.remoting.frame import Frame, HeaderForm, encode_frame
from tests.support.frames import FrameDecoder

CAPTURES = json.loads((Path(__file__).parent / "captures.json").read_text())
FRAMES = [
    pytest.param(bytes.fromhex(entry["hex"]), id=f"{entry['section']}: {entry['title']}")
    for entry in CAPTURES
    if entry["section"] in "1234569" and not entry["title"].endswith(("body only", "heartbeat: body"))
]

WIRE_DOCUMENT = {
    "7.1": "00000066000000627b22636f6465223a313030352c22666c6167223a302c226c616e6775616765223a224a415641222c"
    "226f7061717565223a372c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3437397d",
    "7.3": "000000310100002d03ec0001df00000008000000000000000000000018000a62726f6b65724e616d650000000862726f6b65722d61",
    "7.4": "000000230100001f07d703000000000008000000010000000a6e6f74206c656164657200000000",
}


def test_there_are_captures_to_test() -> None:
    """A check that passes because the fixture is empty would prove nothing."""
    assert len(FRAMES) >= 65


@pytest.mark.parametrize("data", FRAMES)
def test_captured_frame_survives_decode_and_encode(data: bytes) -> None:
    """What Java wrote is what we write."""
    (frame,) = FrameDecoder().feed(data)

    assert encode_frame(frame) == data


@pytest.mark.parametrize(("name", "text"), WIRE_DOCUMENT.items())
def test_example_of_the_wire_document_survives(name: str, text: str) -> None:
    """Frames that were worked out by hand from docs/wire.md, frame and header forms."""
    data = bytes.fromhex(text)

    (frame,) = FrameDecoder().feed(data)

    assert encode_frame(frame) == data, name


def test_example_7_2_json_response_with_body() -> None:
    """The answer to 1004 that docs/wire.md spells out."""
    frame = Frame(
        code=0,
        opaque=8,
        flag=1,
        ext_fields={"masterBrokerId": "1", "masterAddress": "10.0.0.1:10911", "masterEpoch": "2"},
        body=b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}',
    )

    data = encode_frame(frame)

    assert data[:8] == bytes.fromhex("000000c400000094")
    assert len(data) == 200


def test_example_7_3_means_what_the_document_says() -> None:
    """Binary header: 1004 for broker-a."""
    (frame,) = FrameDecoder().feed(bytes.fromhex(WIRE_DOCUMENT["7.3"]))

    assert (frame.code, frame.opaque, frame.version, frame.language) == (1004, 8, 479, "JAVA")
    assert frame.ext_fields == {"brokerName": "broker-a"}
    assert frame.form is HeaderForm.BINARY
