"""Percentiles from buckets, compared with the times that were put into them."""

from __future__ import annotations

from random import Random

import pytest

from tests.spark.report.scenario import buckets
from twinbus.spark.report.percentiles import bound_ms, percentile_ms, used


def test_they_are_within_a_bucket_of_the_truth() -> None:
    rng = Random(4)
    times = sorted(round(rng.lognormvariate(9, 1.5)) + 1 for _ in range(5_000))
    counts = buckets(times)
    for part in (0.05, 0.5, 0.95, 0.99):
        true = times[round(part * len(times)) - 1]
        found = percentile_ms(counts, times[-1], part)
        assert true / 2 <= found <= true * 2
    assert percentile_ms(counts, times[-1], 1) == times[-1]


def test_one_message_and_none() -> None:
    assert percentile_ms([0] * 33, 0, 0.5) == 0
    assert percentile_ms(buckets([5_000]), 5_000, 0.99) == pytest.approx(5_000, rel=0.01)
    assert percentile_ms(buckets([1]), 1, 0.5) <= 1
    # Longer than the last bucket's bound of about 24 days.
    long_ms = 2**31 + 5_000
    assert percentile_ms([0] * 32 + [1], long_ms, 1) == long_ms


def test_the_buckets_that_have_anything() -> None:
    assert list(used(buckets([3, 100]))) == [2, 3, 4, 5, 6, 7]
    assert list(used([0] * 33)) == []
    assert (bound_ms(0), bound_ms(31), bound_ms(32)) == (1, 2**31, None)
