"""
Durations counted into fixed buckets, shown as a histogram at a scrape.

For hot paths: the library's histogram takes a lock and makes a child for each label; this one is a search in a short
tuple and three additions. On one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily


class Durations:
    """Seconds, in buckets by their upper bounds."""

    __slots__ = ("_bounds_s", "_counts", "_sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        """``bounds_s`` rise; what is above the last is counted too."""
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def note(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self._sum_s += seconds

    def show(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Add the values of this moment to ``family``."""
        bounds = (*(str(float(bound)) for bound in self._bounds_s), "+Inf")
        family.add_metric(labels, list(zip(bounds, accumulate(self._counts), strict=True)), sum_value=self._sum_s)
