"""A stream from one queue to another: every order once, even if the job is killed and restarted.

TWINBUS_CONNECTION_STRING=... python examples/spark_stream.py    (the queues `orders` and `bulk` exist)
"""

import os
import tempfile

from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.spark.session import spark_session

TEXT = os.environ["TWINBUS_CONNECTION_STRING"]

with BlockingBus(lambda: BusClient.from_connection_string(TEXT)) as bus:
    for first in range(0, 2_000, 500):
        orders = [Message(f"order {n}", message_id=f"order-{n}").encode() for n in range(first, first + 500)]
        bus.start_send("orders", [orders]).result()

with spark_session("spark_stream", brisk=True) as spark, tempfile.TemporaryDirectory() as checkpoint:
    stream = (
        spark.readStream.format("servicebus")
        .option("connectionString", TEXT)
        .option("queueName", "orders")
        .option("maxMessagesPerTrigger", 1_000)
        .load()
    )
    loud = stream.selectExpr("upper(cast(body AS string)) AS body", "messageId")
    query = (
        loud.writeStream.format("servicebus")
        .option("connectionString", TEXT)
        .option("queueName", "bulk")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    moved = sum(progress["numInputRows"] for progress in query.recentProgress)
    left = spark.read.format("servicebus").option("connectionString", TEXT).option("queueName", "orders").load().count()
    print(f"moved {moved} orders in batches of 1000, {left} left")
