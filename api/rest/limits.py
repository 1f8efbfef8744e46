"""
How often, and how much at once, one caller may ask.

Here: a token bucket as a pure function, and the callers that are remembered. Not here: who the caller is
(``principals``), limits of links (``listening``).

Rule 1: each caller that is proved has limits of its own; all that is not proved shares those of its address.
Rule 2: at most ``CALLERS_MAX`` are remembered; the one that has asked least lately is forgotten, with its debts.
Rule 3: a request that another controller passes on was counted there.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

import msgspec

from rollcall_ha.controller.contract.values import Frozen

CALLERS_MAX = 10_000


class Rates(Frozen):
    """The most that one caller may ask."""

    requests_per_second: float
    burst: int
    in_flight_max: int


PROVED = Rates(requests_per_second=1_000, burst=2_000, in_flight_max=128)
"""A thousand heartbeats a second by REST: a caller far above it is in a loop."""
UNPROVED = Rates(requests_per_second=10, burst=50, in_flight_max=16)
"""Callers whom nobody knows share these, an address at a time: they guess."""


class Bucket(msgspec.Struct, frozen=True):
    """What a caller has left."""

    tokens: float
    at_s: float


def take(bucket: Bucket | None, now_s: float, rates: Rates) -> tuple[Bucket, float]:
    """One request: the bucket behind it, and 0, or the seconds until there is room; None: the caller is new."""
    if bucket is None:
        return Bucket(rates.burst - 1, now_s), 0.0
    filled = min(float(rates.burst), bucket.tokens + max(0.0, now_s - bucket.at_s) * rates.requests_per_second)
    if filled < 1:
        return Bucket(filled, now_s), (1 - filled) / rates.requests_per_second
    return Bucket(filled - 1, now_s), 0.0


class Limits:
    """The callers of one port. Runs on the loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic seconds."""
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._in_flight: Counter[str] = Counter()

    def enter(self, caller: str, rates: Rates) -> float:
        """Begin a request: 0, and ``leave`` must follow; or the seconds to wait, and nothing has begun."""
        if self._in_flight[caller] >= rates.in_flight_max:
            return 1.0
        bucket, wait_s = take(self._buckets.get(caller), self._clock(), rates)
        self._buckets[caller] = bucket
        self._buckets.move_to_end(caller)
        while len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        if not wait_s:
            self._in_flight[caller] += 1
        return wait_s

    def leave(self, caller: str) -> None:
        """The request has its answer."""
        self._in_flight[caller] -= 1
        if self._in_flight[caller] <= 0:
            # Kept at 0, every address that ever asked would be remembered.
            del self._in_flight[caller]
