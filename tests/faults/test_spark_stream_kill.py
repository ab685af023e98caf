"""A short run of the Spark stream's kill test; `make faults` runs it longer, and kills executors."""

from __future__ import annotations

import pytest
import spark_stream_kill


@pytest.mark.timeout(300)
def test_a_stream_whose_driver_is_killed_loses_nothing() -> None:
    report = spark_stream_kill.drivers(1, 3, 4_000, 1_000, mode="browse", ids="column", target=spark_stream_kill.PLAIN)
    assert report.good, report
    # A run in which nothing was interrupted would prove nothing.
    assert report.kills_in_batch == 1
    assert report.account.sent == 4_000
