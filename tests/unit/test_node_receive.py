"""The receive buffer of a link: nothing for idle links, as much as has come for unfinished frames."""

from __future__ import annotations

import struct
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.node.remoting import receive
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX, Frame, decode_frame, encode_frame
from rollcall_ha.node.remoting.receive import SMALL_REST_BYTES, ReceiveBuffer


class Reader:
    """Reads one link; ``budget`` frames are taken, then they are refused."""

    def __init__(self) -> None:
        self.buffer = ReceiveBuffer(frame_bytes_max=FRAME_BYTES_MAX, header_bytes_max=FRAME_BYTES_MAX)
        self.bodies: list[bytes] = []
        self.budget = 1_000_000

    def take(self, part: memoryview, to_come_bytes: int) -> bool:
        assert to_come_bytes >= 4 + len(part)
        if not self.budget:
            return False
        self.budget -= 1
        self.bodies.append(decode_frame(part).body)
        return True

    def read(self, data: bytes) -> None:
        """As a loop does: as many bytes at a time as there is room."""
        while data:
            room = self.buffer.room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.buffer.cut(count, self.take)
            self.buffer.keep()
            data = data[count:]

    def again(self) -> None:
        self.buffer.cut(None, self.take)
        self.buffer.keep()


def a_frame(body: bytes) -> bytes:
    return encode_frame(Frame(code=1, opaque=1, body=body))


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 10, 1_000, 20_000, 70_000, 300_000]), min_size=1, max_size=6),
    pieces=st.lists(st.sampled_from([5_000, 16_384, 16_385, 60_000, 200_000]), min_size=1, max_size=5),
)
def test_links_of_one_thread_share_their_scratch_buffer_and_mix_nothing(sizes: list[int], pieces: list[int]) -> None:
    """Two links, read in turns in pieces of any size: each gets its own frames, and holds nothing at the end."""
    links, bodies = (Reader(), Reader()), [[bytes([65 + which]) * size for size in sizes] for which in (0, 1)]
    streams = [b"".join(map(a_frame, each)) for each in bodies]
    turn = 0
    while any(streams):
        for which in (0, 1):
            piece = pieces[turn % len(pieces)]
            links[which].read(streams[which][:piece])
            streams[which] = streams[which][piece:]
        turn += 1
    for which in (0, 1):
        assert links[which].bodies == bodies[which]
        assert (links[which].buffer.rest_bytes, links[which].buffer.held_bytes) == (0, 0)


def test_an_unfinished_frame_costs_what_has_come_and_not_what_it_promises() -> None:
    """60 links with a length word of 15 MiB took 900 MiB."""
    receive._shared.spares.clear()
    link = Reader()
    link.read(struct.pack(">iI", 15 * 2**20, 100))
    assert link.buffer.held_bytes == 8
    link.read(b"x" * SMALL_REST_BYTES)
    for _ in range(20):
        link.read(b"x" * 50_000)
        assert link.buffer.held_bytes <= 2 * link.buffer.rest_bytes


def test_a_refused_frame_is_held_whole_and_taken_when_it_may_be() -> None:
    """Also what comes behind it, and although other links have read into the scratch buffer meanwhile."""
    link, other = Reader(), Reader()
    link.budget = 1
    link.read(a_frame(b"first") + a_frame(b"second") + a_frame(b"x" * 100_000)[:60_000])
    other.read(a_frame(b"o" * 200_000))
    link.buffer.room()
    other.read(a_frame(b"o" * 200_000))
    link.again()
    assert link.bodies == [b"first"]
    link.budget = 10
    link.again()
    assert link.bodies == [b"first", b"second"]
    link.read(a_frame(b"x" * 100_000)[60_000:])
    assert link.bodies[2:] == [b"x" * 100_000]


def test_spare_buffers_are_few_and_small() -> None:
    """A flood of large frames leaves nothing behind but these."""
    for _ in range(3):
        links = [Reader() for _ in range(10)]
        for number, link in enumerate(links):
            link.read(a_frame(b"x" * (200_000 * (number + 1)))[:-1])
        for link in links:
            link.read(b"x")
            assert len(link.bodies) == 1
    spares = receive._shared.spares
    assert len(spares) <= receive.SPARES_MAX
    assert all(len(spare) <= receive.SPARE_BYTES_MAX for spare in spares)


def test_a_frame_that_comes_byte_by_byte_is_found() -> None:
    """Also when a byte is the last of one frame and the next one begins in the same event."""
    link = Reader()
    for byte in a_frame(b"first"):
        link.read(bytes((byte,)))
    assert link.bodies == [b"first"]
    data = a_frame(b"second") + a_frame(b"third")
    link.read(data[:-3])
    link.read(data[-3:])
    assert link.bodies == [b"first", b"second", b"third"]


def test_a_link_that_has_had_a_large_frame_holds_no_memory_of_it() -> None:
    """A hundred links that sent one message of 4 MiB each and idle would else cost 400 MiB that nobody counts."""
    frame, reader = a_frame(bytes(4 * 1024 * 1024)), Reader()
    reader.read(b"")
    tracemalloc.start()
    try:
        reader.read(frame)
        reader.bodies.clear()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert reader.buffer.held_bytes == 0
    assert held_bytes < receive.SPARE_BYTES_MAX * (receive.SPARES_MAX - 1)
