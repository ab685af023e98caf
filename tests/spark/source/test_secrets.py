"""A planted key is in nothing that Spark shows, logs or writes."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.source.desk import Desk
from tests.spark.source.test_sink import BODY
from twinbus.client import Message
from twinbus.spark.java import find_java
from twinbus.spark.versions import ReadAllAvailable
from twinbus.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)

PLANTED = "PlantedKeyPlantedKeyPlantedKeyPlantedKey123="


@pytest.fixture
def planted(broker: Broker) -> Iterator[Desk]:
    with Desk(broker) as desk:
        desk.text = desk.text.replace("SAS_KEY_VALUE", PLANTED)
        assert PLANTED in desk.text
        yield desk


def test_objects_show_nothing(planted: Desk, queue: str) -> None:
    planted.send(queue, [Message(b"x")])
    shown: list[Any] = []
    source = planted.source(queueName=queue)
    shown.append(source)
    reader = source.reader(source.schema())
    shown += [reader, *reader.partitions()]
    for mode in ("browse", "claim"):
        stream = planted.stream(queueName=queue, readMode=mode, maxWaitTime=0.1)
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        shown += [stream, end, stream.partitions(start, end), stream.reportLatestOffset()]
        # They contain nothing but numbers.
        assert PLANTED.encode() not in pickle.dumps(stream.partitions(start, end))
        stream.stop()
    shown += [source.writer(BODY, False), source.streamWriter(BODY, False), planted.options(queueName=queue)]
    for each in shown:
        assert PLANTED not in f"{each!r} {each!s}"
        assert PLANTED not in json.dumps(each, default=repr)


def test_errors_show_nothing(planted: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for options in (
        {"queueName": "nowhere"},
        {"queueName": "a", "topicName": "b"},
        {"queuName": "a"},
        {"connectionstringg": "a"},
        {"queueName": "q", "connectionString": f"Endpoint=sb://h;SharedAccessKey={PLANTED}"},
        {"queueName": "q", "connectionString": PLANTED},
        {
            "queueName": "q",
            "connectionString": f"Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey{PLANTED}",
        },
    ):
        with pytest.raises(Exception) as caught:
            planted.reader(**options).partitions()
        assert PLANTED not in "".join(traceback.format_exception(caught.value))
    assert PLANTED not in caplog.text


def test_spark_shows_nothing(
    spark: SparkSession, planted: Desk, broker: Broker, queue: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planted.send(queue, [Message(b"x", message_id=str(number)) for number in range(10)])
    target = f"target-{queue}"
    broker.create_queue(target)
    options = {"connectionString": planted.text, "queueName": queue}
    texts: list[str] = []

    frame = spark.read.format("servicebus").options(**options).load()
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode)
    texts.append(frame._jdf.queryExecution().toString())
    frame.collect()
    texts.append(str(frame) + repr(frame))

    write = frame.write.format("servicebus").options(**{**options, "queueName": target}).mode("append")
    write.save()
    executions = _last_executions(spark)
    assert any("AppendData" in each for each in executions)
    texts += executions

    stream = spark.readStream.format("servicebus").options(**options).load()
    query = (
        stream.writeStream.format("servicebus")
        .options(**{**options, "queueName": target, "checkpointLocation": str(tmp_path / "checkpoint")})
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    texts.append(json.dumps([str(each) for each in query.recentProgress]) + str(query.status))

    failing = (
        spark.readStream.format("servicebus")
        .options(**{**options, "queueName": "nowhere"})
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint2"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException) as caught:
        failing.awaitTermination()
    texts.append("".join(traceback.format_exception(caught.value)) + str(failing.exception()))
    with pytest.raises(PySparkException) as caught:
        spark.read.format("servicebus").options(**options, wrong="1").load()
    texts.append("".join(traceback.format_exception(caught.value)))

    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 4
    assert not any(PLANTED.encode() in each for each in written)
    printed = capfd.readouterr()
    assert "BatchScan servicebus" in printed.out
    texts += [printed.out, printed.err]
    for text in texts:
        assert PLANTED not in text


@pytest.mark.timeout(300)
def test_the_pages_and_the_event_log_show_nothing(planted: Desk, queue: str, tmp_path: Path) -> None:
    """A plain session with its web UI and its event log on, in its own process: batches, a stream, a failure."""
    planted.send(queue, [Message(b"x", message_id=str(number)) for number in range(10)])
    secret = tmp_path / "secret.txt"
    secret.write_text(planted.text)
    (tmp_path / "events").mkdir()
    # The environment that a plain `SparkSession.builder` needs on this machine.
    java = {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    found = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("pages_script.py")), str(tmp_path), queue, str(secret)],
        env={**os.environ, **java, "PLANTED": planted.text},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert found.returncode == 0, found.stderr.replace(PLANTED, "***")[-3_000:]
    assert "30 rows, 10 streamed, failed as it should" in found.stdout
    secret.unlink()
    texts = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("/events/" in path for path in texts)
    assert sum("/pages/" in path for path in texts) > 10
    assert sum("/checkpoint" in path for path in texts) > 4
    assert [path for path, data in texts.items() if PLANTED.encode() in data] == []
    assert PLANTED not in found.stdout + found.stderr


def test_a_statement_that_holds_the_key_is_shown_without_it(
    spark: SparkSession, planted: Desk, queue: str, capfd: pytest.CaptureFixture[str]
) -> None:
    planted.send(queue, [Message(b"x")])
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW planted USING servicebus "
        f"OPTIONS (connectionString '{planted.text}', queueName '{queue}')"
    )
    frame = spark.sql("SELECT messageId FROM planted")
    assert frame.count() == 1
    frame.explain("extended")
    spark.sql("DESCRIBE EXTENDED planted").show(100, truncate=False)
    spark.sql("DROP VIEW planted")
    texts = [*_last_executions(spark), *capfd.readouterr()]
    assert any("CREATE OR REPLACE TEMPORARY VIEW" in each or "CreateTempView" in each for each in texts)
    assert not any(PLANTED in each for each in texts)


def _last_executions(spark: SparkSession) -> list[str]:
    """What Spark keeps of the executions for its web UI."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    return [
        executions.apply(index).physicalPlanDescription() + executions.apply(index).description()
        for index in range(executions.size())
    ]
