"""Reports that several tests share: gathering one takes Spark a few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.report import scenario
from twinbus.ledger.prices import Sheet
from twinbus.spark.report.facts import CostReport
from twinbus.spark.report.gather import Question, gather

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def question() -> Question:
    return Question(sheet=Sheet.load("standard"))


@pytest.fixture(scope="session")
def outage(spark: SparkSession, question: Question) -> CostReport:
    return gather(scenario.outage(spark), question)


@pytest.fixture(scope="session")
def nasty(spark: SparkSession, question: Question) -> CostReport:
    """The same with malicious names."""
    return gather(scenario.outage(spark, scenario.NASTY), question)


@pytest.fixture(scope="session")
def empty(spark: SparkSession, question: Question) -> CostReport:
    return gather(scenario.frames(spark), question)
