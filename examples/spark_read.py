"""Read a queue as a DataFrame, and write the counts to another one. The first queue keeps its messages.

TWINBUS_CONNECTION_STRING=... python examples/spark_read.py    (the queues `orders` and `bulk` exist)
"""

import json
import os

from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.spark.session import spark_session

TEXT = os.environ["TWINBUS_CONNECTION_STRING"]

with BlockingBus(lambda: BusClient.from_connection_string(TEXT)) as bus:
    orders = [Message(json.dumps({"shop": "ABC"[n % 3], "amount": n}), message_id=f"order-{n}") for n in range(300)]
    bus.start_send("orders", [[order.encode() for order in orders]]).result()

with spark_session("spark_read", brisk=True) as spark:
    read = spark.read.format("servicebus").option("connectionString", TEXT).option("queueName", "orders")
    orders = read.load().selectExpr("messageId", "from_json(cast(body AS string), 'shop string, amount int') AS order")
    sums = orders.groupBy("order.shop").sum("order.amount").toDF("shop", "total")
    for row in sums.orderBy("shop").collect():
        print(f"shop {row.shop} sold {row.total}")

    rows = sums.selectExpr("to_json(struct(*)) AS body", "concat('sum-', shop) AS messageId", "shop AS subject")
    rows.write.format("servicebus").option("connectionString", TEXT).option("queueName", "bulk").mode("append").save()
    print("sent", read.option("queueName", "bulk").load().count(), "sums")
