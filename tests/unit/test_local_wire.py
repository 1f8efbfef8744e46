"""When a bad wire sends a frame, or does not; its sockets are in tests/cluster/test_machines.py."""

from __future__ import annotations

import io
import os
import random
import select
import socket
import sys
from types import SimpleNamespace

import pytest

from rollcall_ha.deploy.local import wire as wire_module
from rollcall_ha.deploy.local.wire import WAITING_BYTES_MAX, Quality, Shaper, Wires, target_of

FRAMES = 4_000


def shaper(quality: Quality, seed: int = 1) -> Shaper:
    return Shaper(quality, random.Random(seed))


def test_a_good_wire_sends_at_once() -> None:
    assert shaper(Quality()).due_s(1500, 7.0) == 7.0


def test_delay_and_jitter_add_up_and_frames_keep_their_order() -> None:
    wire = shaper(Quality(delay_ms=20, jitter_ms=30))
    dues = [wire.due_s(100, number / 1000) for number in range(FRAMES)]

    assert None not in dues
    assert dues == sorted(dues, key=lambda due: due or 0)
    waits = [(due or 0) - number / 1000 for number, due in enumerate(dues)]
    assert min(waits) >= 0.020
    assert max(waits) < 0.051
    assert wire.counts.passed == FRAMES


def test_frames_that_overtake_are_sent_without_the_delay() -> None:
    wire = shaper(Quality(delay_ms=50, overtake_share=0.25))
    dues = [wire.due_s(10, 0.0) for _ in range(FRAMES)]

    assert set(dues) == {0.0, 0.05}
    assert dues.count(0.0) == wire.counts.overtook
    assert 0.22 < wire.counts.overtook / FRAMES < 0.28


def test_the_share_that_is_lost_is_the_share_that_was_asked_for() -> None:
    wire = shaper(Quality(loss_share=0.1))
    dues = [wire.due_s(10, 0.0) for _ in range(FRAMES)]

    assert dues.count(None) == wire.counts.lost
    assert 0.08 < wire.counts.lost / FRAMES < 0.12
    assert wire.counts.passed == FRAMES - wire.counts.lost


def test_a_seed_loses_the_same_frames_again() -> None:
    def fate() -> list[float | None]:
        wire = shaper(Quality(loss_share=0.5), seed=4711)
        return [wire.due_s(10, 0.0) for _ in range(100)]

    assert fate() == fate()


def test_a_bandwidth_spaces_frames_and_idle_time_is_not_saved_up() -> None:
    wire = shaper(Quality(bandwidth_bytes_per_s=100_000))

    assert [wire.due_s(1_000, 0.0) for _ in range(3)] == pytest.approx([0.01, 0.02, 0.03])
    assert wire.due_s(1_000, 60.0) == pytest.approx(60.01)


def test_a_sender_that_is_faster_than_its_wire_fills_no_memory() -> None:
    wire = shaper(Quality(delay_ms=1_000))
    sent = [wire.due_s(64 * 1024, 0.0) for _ in range(2 * WAITING_BYTES_MAX // (64 * 1024))]

    assert wire.waiting_bytes <= WAITING_BYTES_MAX
    assert sent.count(None) == wire.counts.overflowed == len(sent) // 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"delay_ms": -1}, r"delay_ms is -1; it must be from 0.0 to 10000.0"),
        ({"jitter_ms": 10_001}, "jitter_ms is 10001"),
        ({"loss_share": 1.5}, "loss_share is 1.5; it must be from 0.0 to 1.0"),
        ({"bandwidth_bytes_per_s": 10}, "bandwidth_bytes_per_s is 10; it must be from 1000"),
    ],
)
def test_a_quality_beyond_its_limits_is_refused_with_both(asked: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Quality(**asked)  # type: ignore[arg-type]  # what is wrong is the point


def frame(kind: int, target: str) -> bytes:
    """A virtio header, an Ethernet header, and the fixed part of an IPv4 header."""
    return bytes(10) + bytes(12) + kind.to_bytes(2, "big") + bytes(16) + socket.inet_aton(target)


def test_the_target_of_a_frame_is_that_of_its_ipv4_header() -> None:
    assert target_of(frame(0x0800, "10.99.0.7")) == "10.99.0.7"
    assert target_of(frame(0x0806, "10.99.0.7")) is None
    assert target_of(frame(0x0800, "10.99.0.7")[:-1]) is None


def test_a_frame_that_came_with_the_order_to_unplug_ended_all_wires(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look finds an order and a frame of the wire that it unplugs: a ``KeyError`` was the end of the process."""
    wires = Wires()
    orders, write_end = os.pipe()
    ends = socket.socketpair(), socket.socketpair()
    wire = SimpleNamespace(port=ends[0][0], switch=ends[1][0], shapers={}, close=lambda: None)
    monkeypatch.setattr(wire_module, "Wire", lambda *_: wire)
    wires._do_plug("c1", "port", "switch")
    descriptor = wire.port.fileno()
    looks = iter([[(orders, select.EPOLLIN), (descriptor, select.EPOLLIN)], [(orders, select.EPOLLIN)]])
    poll = SimpleNamespace(poll=lambda _: next(looks), register=lambda *_: None, unregister=lambda *_: None)
    monkeypatch.setattr(wires, "_poll", poll)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: orders))
    answers = io.StringIO()
    monkeypatch.setattr(sys, "stdout", answers)
    os.write(write_end, b'{"do": "unplug", "machine": "c1"}\n')
    os.close(write_end)

    wires.run()

    assert answers.getvalue() == '{"counts": null}\n'
    os.close(orders)
    for pair in ends:
        for end in pair:
            end.close()
