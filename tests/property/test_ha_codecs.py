"""Laws of the HA codecs: any chunking gives the same frames, any bytes give frames or a declared error."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SetKey,
)
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.ha.codec_native import (
    BODY_BYTES_MAX,
    EPOCH_MAX,
    NUMBER_MAX,
    PAYLOAD_BYTES_MAX,
    PREFIX_BYTES,
    NativeDecoder,
    encode,
)
from rollcall_ha.ha.errors import ErrorCode, FrameTooLarge, HaProtocolError
from rollcall_ha.ha.frames import Ack, Handshake, HandshakeReply, LinkError, NativeFrame, Transfer
from rollcall_ha.ha.sniff import sniff

numbers = st.integers(min_value=0, max_value=NUMBER_MAX)
offsets = numbers.map(LogOffset)
epochs = st.integers(min_value=0, max_value=EPOCH_MAX).map(MasterEpoch)
epochs_or_none = st.integers(min_value=-1, max_value=EPOCH_MAX).map(MasterEpoch)
words = st.text(max_size=40)
keys = st.builds(SetKey, words.map(ClusterName), words.map(BrokerName))
entries = st.builds(EpochEntry, epoch=epochs, start_offset=offsets)
histories = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6).map(
    lambda steps: EpochHistory(
        EpochEntry(
            epoch=MasterEpoch(sum(step[0] + 1 for step in steps[: i + 1])),
            start_offset=LogOffset(sum(step[1] + 1 for step in steps[: i + 1])),
        )
        for i in range(len(steps))
    )
)
common: dict[str, Any] = {"set_key": keys, "fleet_incarnation": words.map(FleetIncarnation), "master_epoch": epochs}
frames: st.SearchStrategy[NativeFrame] = st.one_of(
    st.builds(
        Handshake,
        **common,
        broker_id=numbers.map(BrokerId),
        incarnation=words.map(Incarnation),
        expected_master=numbers.map(BrokerId),
        expected_master_incarnation=words.map(Incarnation),
        is_learner=st.booleans(),
        last_epoch=epochs_or_none,
        max_offset=offsets,
        segment_bytes=numbers,
    ),
    st.builds(
        HandshakeReply,
        **common,
        broker_id=numbers.map(BrokerId),
        incarnation=words.map(Incarnation),
        link_generation=numbers,
        min_offset=st.just(LogOffset(0)),
        max_offset=offsets,
        confirm_offset=offsets,
        history=histories,
        unclean_epoch=epochs_or_none,
    ),
    st.builds(
        Transfer,
        master_epoch=epochs,
        link_generation=numbers,
        entry=entries,
        offset=offsets,
        body_length=st.integers(0, 20),
        confirm_offset=offsets,
    ),
    st.builds(
        Transfer,
        master_epoch=epochs,
        link_generation=numbers,
        entry=st.none(),
        offset=offsets,
        body_length=st.just(0),
        confirm_offset=offsets,
    ),
    st.builds(
        Ack,
        master_epoch=epochs,
        link_generation=numbers,
        incarnation=words.map(Incarnation),
        offset=st.integers(0, 100).map(LogOffset),
        log_end=st.integers(100, NUMBER_MAX).map(LogOffset),
        is_promise_durable=st.booleans(),
    ),
    st.builds(
        LinkError,
        code=st.sampled_from(ErrorCode),
        master_epoch=epochs_or_none,
        expected=words,
        actual=words,
        broker_id=numbers.map(BrokerId),
        incarnation=words.map(Incarnation),
    ),
)


def read(decoder: Any, data: bytes, cuts: list[int]) -> tuple[list[Any], bytes]:
    """Feed in pieces; bodies are collected apart."""
    found, bodies = [], bytearray()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        view = memoryview(data)[start:end]
        while view:
            if decoder.body_left:
                taken = min(decoder.body_left, len(view))
                bodies += view[:taken]
                decoder.body_taken(taken)
            else:
                frame, taken = decoder.feed(view)
                if frame is not None:
                    found.append(frame)
            view = view[taken:]
    return found, bytes(bodies)


@pytest.mark.slow
@given(st.lists(frames, max_size=4), st.lists(st.integers(min_value=0), max_size=12))
def test_native_frames_survive_any_chunking(sent: list[NativeFrame], cuts: list[int]) -> None:
    """Decoding and encoding again gives the same bytes, too."""
    stream, bodies = bytearray(), bytearray()
    for number, frame in enumerate(sent):
        body = bytes([number]) * getattr(frame, "body_length", 0)
        stream += encode(frame) + body
        bodies += body
    found, collected = read(NativeDecoder(), bytes(stream), cuts)
    assert (found, collected) == (sent, bytes(bodies))
    assert [encode(frame) for frame in found] == [encode(frame) for frame in sent]


@pytest.mark.slow
@given(frames, st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_no_changed_byte_of_a_header_passes(frame: NativeFrame, at: int, change: int) -> None:
    damaged = bytearray(encode(frame))
    damaged[at % len(damaged)] ^= change
    try:
        found, _ = read(NativeDecoder(), bytes(damaged), [])
    except HaProtocolError:
        return
    assert found == [], "a longer announced payload waits for more bytes; nothing else may pass"


@pytest.mark.slow
@given(st.binary(max_size=400), st.lists(st.integers(min_value=0), max_size=6))
def test_any_bytes_are_frames_or_a_declared_error(data: bytes, cuts: list[int]) -> None:
    """And the same ones, however they are cut."""
    results: list[object] = []
    for chosen in ([], cuts):
        try:
            results.append(read(NativeDecoder(), data, chosen))
        except HaProtocolError as error:
            results.append((type(error), str(error)))
    assert results[0] == results[1]


@given(st.integers(min_value=0, max_value=2**32 - 1), st.integers(min_value=0, max_value=2**32 - 1), st.integers(0, 8))
def test_announced_lengths_above_the_limit_are_refused_before_anything_is_kept(
    payload: int, body: int, kind: int
) -> None:
    prefix = b"RCHA\x01" + bytes([kind, 0, 0]) + payload.to_bytes(4, "big") + body.to_bytes(4, "big")
    decoder = NativeDecoder()
    try:
        decoder.feed(memoryview(prefix))
    except HaProtocolError:
        return
    assert decoder.header_wanted <= PAYLOAD_BYTES_MAX + 4
    assert payload <= PAYLOAD_BYTES_MAX
    assert body <= BODY_BYTES_MAX
    assert len(prefix) == PREFIX_BYTES


@given(st.binary(min_size=4, max_size=4))
def test_the_first_bytes_are_a_protocol_or_a_declared_error(first: bytes) -> None:
    try:
        sniff(first)
    except HaProtocolError:
        assert first[0] >= 0x80


def test_a_body_above_the_limit_is_not_sent() -> None:
    header = Transfer(
        master_epoch=MasterEpoch(1),
        link_generation=1,
        entry=EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)),
        offset=LogOffset(0),
        body_length=BODY_BYTES_MAX + 1,
        confirm_offset=LogOffset(0),
    )
    with pytest.raises(FrameTooLarge, match="limit is 4194304"):
        encode(header)


@pytest.mark.parametrize("epoch", [EPOCH_MAX + 1, 2**60])
def test_an_epoch_that_no_controller_can_issue_is_no_frame(epoch: int) -> None:
    """2**60 in a handshake ended the reign of a healthy master, and its promise kept it out of every real epoch."""
    shake = Handshake(
        set_key=SetKey(ClusterName("c"), BrokerName("b")),
        fleet_incarnation=FleetIncarnation("f"),
        master_epoch=MasterEpoch(epoch),
        broker_id=BrokerId(2),
        incarnation=Incarnation("i2"),
        expected_master=BrokerId(1),
        expected_master_incarnation=Incarnation("i1"),
        is_learner=False,
        last_epoch=MasterEpoch(1),
        max_offset=LogOffset(0),
        segment_bytes=1,
    )
    with pytest.raises(HaProtocolError, match=f"masterEpoch {epoch}"):
        NativeDecoder().feed(memoryview(encode(shake)))
