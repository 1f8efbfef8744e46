"""Laws of the frame codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.node.remoting.codes import LANGUAGES
from rollcall_ha.node.remoting.frame import Frame, FrameError, HeaderForm, encode_frame
from tests.support.frames import FrameDecoder

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
FRAMES = st.builds(
    Frame,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    remark=st.none() | TEXT.filter(bool),
    ext_fields=st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=5),
    body=st.binary(max_size=200),
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 500),
    form=st.sampled_from(HeaderForm),
)


@pytest.mark.slow
@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_decoding_does_not_depend_on_chunking(frames: list[Frame], sizes: list[int]) -> None:
    """Whole or in pieces of any size: the same frames come out, and nothing is left over."""
    data = b"".join(encode_frame(frame) for frame in frames)
    decoder = FrameDecoder()

    found: list[Frame] = []
    offset = 0
    turn = 0
    while offset < len(data):
        size = sizes[turn % len(sizes)]
        found += decoder.feed(data[offset : offset + size])
        offset += size
        turn += 1

    assert found == frames
    assert decoder.buffered_bytes == 0


@given(st.binary(max_size=300))
def test_garbage_raises_frame_error_and_nothing_else(data: bytes) -> None:
    """Fuzz: any bytes either wait for more, decode, or raise the declared error."""
    try:
        FrameDecoder(frame_bytes_max=1024).feed(data)
    except FrameError:
        pass


@pytest.mark.slow
@given(FRAMES, st.data())
def test_a_damaged_header_raises_frame_error_and_nothing_else(frame: Frame, data: st.DataObject) -> None:
    """Fuzz: one flipped byte anywhere in a good frame."""
    raw = bytearray(encode_frame(frame))
    raw[data.draw(st.integers(4, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        FrameDecoder().feed(bytes(raw))
    except FrameError:
        pass


@pytest.mark.parametrize("length", [0, 3, 1021, 2**31 - 1, -1])
def test_a_huge_or_tiny_length_is_refused_before_memory_is_spent(length: int) -> None:
    """The length word is checked as soon as it is there."""
    with pytest.raises(FrameError, match="frame length"):
        FrameDecoder(frame_bytes_max=1024).feed(length.to_bytes(4, "big", signed=True))
