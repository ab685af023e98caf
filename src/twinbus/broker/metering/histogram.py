"""Histograms for the metrics page: latencies and batch sizes."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """Counts values in buckets by upper bound; the last bucket holds the rest."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        # Values up to each bound and above the previous one.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
