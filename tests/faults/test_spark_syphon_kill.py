"""A short run of the Spark syphon's kill test; `make faults` runs it longer, and kills executors."""

from __future__ import annotations

import pytest
import spark_syphon_kill


@pytest.mark.timeout(300)
def test_a_driver_that_is_killed_loses_nothing() -> None:
    report = spark_syphon_kill.drivers(kills=1, seed=3, count=6_000)
    assert report.good, report
    # A run in which nothing was interrupted would prove nothing.
    assert report.kills_in_transfer == 1
    assert report.plain.sent == report.detecting.sent == report.detecting.received == 3_000
