"""The stopwatch of a probe: which sends make a gap, and what the probe's own process may not be blamed on a set."""

from __future__ import annotations

import pytest

from rollcall_ha.probe.gaps import NS_PER_MS, Gap, Limits, Send, Stopwatch, end, take
from rollcall_ha.probe.lines import GapLine, LineError, WatchedLine, WatchedSet, decode_line, encode_line

LIMITS = Limits(interval_ms=100, threshold_ms=300)


def send(begun_ms: int, ended_ms: int, failure: str = "", late_ms: int = 0) -> Send:
    return Send(
        begun_ns=begun_ms * NS_PER_MS, ended_ns=ended_ms * NS_PER_MS, failure=failure, late_ns=late_ms * NS_PER_MS
    )


def watched(*sends: Send) -> tuple[Stopwatch, list[Gap]]:
    watch, gaps = Stopwatch(), []
    for one in sends:
        watch, gap = take(watch, one, LIMITS)
        gaps += [gap] if gap is not None else []
    return watch, gaps


def test_a_gap_lasts_from_the_first_failed_send_to_the_first_ack() -> None:
    watch, (gap,) = watched(
        send(0, 2), send(100, 400, "no answer"), send(400, 401, "refused"), send(500, 502), send(600, 601)
    )
    assert (gap.from_ns, gap.to_ns) == (100 * NS_PER_MS, 502 * NS_PER_MS)
    assert (gap.last_ack_ns, gap.sends_failed, gap.reason, gap.is_over) == (2 * NS_PER_MS, 2, "no answer", True)
    assert (watch.sends, watch.acks, watch.failures, watch.gaps) == (5, 3, 2, 1)


def test_a_gap_of_exactly_the_threshold_is_none() -> None:
    assert watched(send(0, 1), send(100, 101, "refused"), send(399, 400))[1] == []
    assert len(watched(send(0, 1), send(100, 101, "refused"), send(400, 401))[1]) == 1


def test_a_send_that_failed_while_the_process_stood_is_no_gap_of_the_set() -> None:
    watch, gaps = watched(send(0, 1), send(100, 2_400, "no answer", late_ms=2_000), send(2_400, 2_401))
    assert gaps == []
    assert (watch.stalls, watch.failures, watch.open_gap) == (1, 1, None)


def test_a_stall_within_a_gap_is_told_with_it_and_does_not_make_it_count() -> None:
    failing = send(100, 101, "refused")
    assert watched(failing, send(2_200, 2_201, late_ms=2_000))[1] == []
    (gap,) = watched(failing, send(2_200, 2_300, "refused", late_ms=2_000), send(2_500, 2_501))[1]
    assert gap.stalled_ns == 2_000 * NS_PER_MS


def test_an_open_gap_is_told_when_the_probe_ends() -> None:
    watch, _ = watched(send(0, 300, "no answer"))
    watch, gap = end(watch, 5_000 * NS_PER_MS, LIMITS)
    assert gap is not None
    assert (gap.felt_ns, gap.is_over, gap.last_ack_ns) == (5_000 * NS_PER_MS, False, None)
    assert end(watch, 6_000 * NS_PER_MS, LIMITS) == (watch, None)


def test_lines_come_back_as_they_were() -> None:
    gap = GapLine(
        set_name="broker-a",
        from_ms=1,
        felt_ms=420,
        since_ack_ms=None,
        sends_failed=3,
        threshold_ms=300,
        stalled_ms=0,
        is_over=True,
        reason="no answer",
    )
    one = WatchedSet(set_name="broker-a", sends=10, acks=7, failures=3, gaps=1, stalls=0)
    hour = WatchedLine(to_ms=2, watched_ms=1, interval_ms=100, sets=(one,))
    for line in (gap, hour):
        assert decode_line(encode_line(line)) == line
    for wrong in (b"{}", b"\xff", encode_line(gap).replace(b'"schema":1', b'"schema":9')):
        with pytest.raises(LineError):
            decode_line(wrong)
