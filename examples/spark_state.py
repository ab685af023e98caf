"""Keep baskets between batches: a stream grouped by session id, with a state for each (transformWithState).

TWINBUS_CONNECTION_STRING=... python examples/spark_state.py    (the queue `orders` exists)

Spark's transformWithState needs `pip install protobuf`.
"""

import os
import tempfile

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.spark.session import spark_session

TEXT = os.environ["TWINBUS_CONNECTION_STRING"]


class Basket(StatefulProcessor):
    """Counts the items of a session over all batches."""

    def init(self, handle):
        self.items = handle.getValueState("items", "count int")

    def handleInputRows(self, key, rows, timerValues):
        before = self.items.get()[0] if self.items.exists() else 0
        total = before + sum(len(frame) for frame in rows)
        self.items.update((total,))
        yield pd.DataFrame({"session": [key[0]], "items": [total]})

    def close(self):
        pass


def send(first, last):
    with BlockingBus(lambda: BusClient.from_connection_string(TEXT)) as bus:
        items = [Message(f"item {n}", session_id="ann" if n % 3 else "bob").encode() for n in range(first, last)]
        bus.start_send("orders", [[item] for item in items]).result()


ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
settings = {"spark.sql.streaming.stateStore.providerClass": ROCKS, "spark.sql.shuffle.partitions": "2"}
with spark_session("spark_state", settings=settings, brisk=True) as spark, tempfile.TemporaryDirectory() as checkpoint:
    for first, last in ((0, 6), (6, 12)):
        send(first, last)
        stream = spark.readStream.format("servicebus").options(connectionString=TEXT, queueName="orders").load()
        baskets = (
            stream.select("sessionId")
            .groupBy("sessionId")
            .transformWithStateInPandas(Basket(), "session string, items int", outputMode="Update", timeMode="None")
        )
        found = []
        sink = baskets.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
        sink = sink.foreachBatch(lambda batch, _, found=found: found.extend(batch.collect()))
        sink.trigger(availableNow=True).start().awaitTermination()
        print("baskets:", sorted((row["session"], row["items"]) for row in found))
