"""A real broker with its ledger, a real paired client, an outage, and tables that show what the test did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql import functions as F

from twinbus.ledger.prices import Sheet
from twinbus.spark.ledger.pipeline import run
from twinbus.spark.ledger.tables import LedgerTables
from twinbus.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # small Spark jobs, on a machine that may be busy


def test_the_tables_tell_what_was_sent_and_received(spark: SparkSession, tmp_path: Path) -> None:
    sent, taken = 37, 21
    with Broker(queues=["orders", "large"], ledger=tmp_path / "ledger") as broker:
        with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
            with client.get_queue_sender("orders") as sender:
                for number in range(sent):
                    sender.send_messages(ServiceBusMessage(f"{number}"))
            with client.get_queue_sender("large") as sender:
                sender.send_messages(ServiceBusMessage(b"x" * 100_000))
            with client.get_queue_receiver("orders", prefetch_count=0) as receiver:
                left = taken
                while left:
                    for message in receiver.receive_messages(max_message_count=left, max_wait_time=10):
                        receiver.complete_message(message)
                        left -= 1
        broker.restart()
        with (
            ServiceBusClient.from_connection_string(broker.connection_string()) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages([ServiceBusMessage("more") for _ in range(5)])
    done = run(spark, [tmp_path / "ledger"], tmp_path / "tables", Sheet.load("standard"))
    assert (done.quarantined, done.repeated) == (0, 0)
    tables = LedgerTables(spark, tmp_path / "tables")
    found = {
        (row["entity"], row["kind"]): (row["count"], row["units"])
        for row in tables.operations.where("outcome = 'ok' and source = 'broker'")
        .groupBy("entity", "kind")
        .agg(F.sum("count").alias("count"), F.sum("units").alias("units"))
        .collect()
    }
    assert found["orders", "send"] == (sent + 5, sent + 5)
    assert found["orders", "receive"] == found["orders", "complete"] == (taken, taken)
    assert found["large", "send"] == (1, 2)
    charged = {(row["stage"], row["entity"], row["kind"]): row for row in tables.charges.collect()}
    sends = charged["direct", "orders", "send"]
    assert (sends["count"], sends["units"], sends["amount"]) == (sent + 5, sent + 5, 0)
    # Settling is free, a namespace is not, and its connections are within those included.
    assert ("direct", "orders", "complete") not in charged
    hours = charged["base", "", "base"]["units"]
    assert charged["base", "", "base"]["amount"] == Sheet.load("standard").base_cost(hours)
    assert charged["connections", "", "connections"]["amount"] == 0
    assert charged["connections", "", "connections"]["count"] >= 1
