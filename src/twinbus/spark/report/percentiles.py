"""Percentiles from a histogram whose buckets double in size."""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.ledger.records import LATENCY_BOUNDS_MS


def percentile_ms(buckets: Sequence[int], max_ms: int, part: float) -> float:
    """The time within which `part` of all fall: interpolated within a bucket, and never above the maximum."""
    total = sum(buckets)
    if not total:
        return 0.0
    wanted, before = part * total, 0
    for at, count in enumerate(buckets):
        if count and before + count >= wanted:
            low = LATENCY_BOUNDS_MS[at - 1] if at else 0
            # Nothing in a bucket is above the maximum.
            high = max(min(LATENCY_BOUNDS_MS[at], max_ms) if at < len(LATENCY_BOUNDS_MS) else max_ms, low)
            return min(low + (high - low) * (wanted - before) / count, float(max_ms))
        before += count
    return float(max_ms)


def used(buckets: Sequence[int]) -> range:
    """The buckets from the first to the last non-empty one."""
    filled = [at for at, count in enumerate(buckets) if count]
    return range(filled[0], filled[-1] + 1) if filled else range(0)


def bound_ms(at: int) -> int | None:
    """The upper bound of a bucket; the last one has none."""
    return LATENCY_BOUNDS_MS[at] if at < len(LATENCY_BOUNDS_MS) else None
