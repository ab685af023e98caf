"""The spread drawn on Spark, compared with the closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinbus.plan.load import Load
from twinbus.plan.plan import spread_of
from twinbus.spark.spread import _Trials, draw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_equal_senders_are_spread_as_the_closed_form_says(spark: SparkSession) -> None:
    load = Load(clients=20, senders=4, queues=10)
    drawn, spread = draw(spark, load, trials=40_000, seed=7), spread_of(load, 10)
    assert drawn.trials == 40_000
    assert 0 < drawn.error < 0.001
    assert abs(drawn.share - spread.share) < 4 * drawn.error
    assert drawn.share_95 == pytest.approx(spread.share_95, abs=1.01 / load.writers)
    assert drawn.share_50 <= drawn.share_95 <= drawn.share_99 <= drawn.share_max <= 1
    assert drawn.empty == pytest.approx(spread.empty, abs=0.01)


def test_a_seed_gives_the_same_however_it_is_divided(spark: SparkSession) -> None:
    load = Load(clients=5, senders=3, queues=4)
    first = draw(spark, load, trials=2_500, seed=3)
    assert draw(spark, load, trials=2_500, seed=3) == first
    assert draw(spark, load, trials=2_500, seed=4) != first
    # The same chunks, without Spark.
    task = _Trials(2_500, 3, 4, load.weights())
    shares = [
        float(each)
        for chunk in range(3)
        for part, _ in task.chunk(chunk, min(1_000, 2_500 - chunk * 1_000))
        for each in part
    ]
    assert len(shares) == first.trials
    assert sum(shares) / len(shares) == pytest.approx(first.share)


def test_unequal_senders_have_their_weights(spark: SparkSession) -> None:
    load = Load(clients=30, queues=6, skew=1.2)
    drawn, alike = (draw(spark, each, trials=4_000, seed=1) for each in (load, Load(clients=30, queues=6)))
    assert drawn.share > alike.share
    # The fullest has at least the largest sender; the shares of a trial add up to one.
    assert drawn.share_05 >= load.weights()[0] - 1e-5
    assert drawn.empty == pytest.approx(spread_of(load, 6).empty, abs=0.02)
