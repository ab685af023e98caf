"""Orders from a queue, joined with a table of products, into PostgreSQL: each order once, whatever is repeated.

TWINBUS_CONNECTION_STRING=... DATABASE=postgresql://... python examples/spark_database.py    (the queue `orders` exists)

A batch and its number go into the database in one transaction. Spark repeats a batch after a crash under the same
number, so a number that is already stored is skipped. `pip install 'psycopg[binary]'` installs the driver.
"""

import json
import os
import tempfile

import psycopg

from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.spark.session import spark_session

TEXT, DATABASE = os.environ["TWINBUS_CONNECTION_STRING"], os.environ["DATABASE"]
TABLES = """
CREATE TABLE IF NOT EXISTS sales (order_id text PRIMARY KEY, product text, amount int, cents bigint);
CREATE TABLE IF NOT EXISTS batches (query text, number bigint, PRIMARY KEY (query, number));
"""

with BlockingBus(lambda: BusClient.from_connection_string(TEXT)) as bus:
    orders = [Message(json.dumps({"sku": n % 3, "amount": 1 + n % 5}), message_id=f"order-{n}") for n in range(300)]
    bus.start_send("orders", [[order.encode() for order in orders]]).result()


def write(batch, number):
    rows = [tuple(row) for row in batch.collect()]
    with psycopg.connect(DATABASE) as database, database.cursor() as cursor:
        cursor.execute("INSERT INTO batches VALUES (%s, %s) ON CONFLICT DO NOTHING", ("sales", number))
        if cursor.rowcount == 0:
            print(f"batch {number} is there already")
            return
        cursor.executemany("INSERT INTO sales VALUES (%s, %s, %s, %s)", rows)
    print(f"batch {number}: {len(rows)} sales")


with psycopg.connect(DATABASE) as database:
    database.execute(TABLES)
with spark_session("spark_database", brisk=True) as spark, tempfile.TemporaryDirectory() as checkpoint:
    products = spark.createDataFrame(
        [(0, "pen", 120), (1, "book", 990), (2, "lamp", 4500)], "sku int, name string, price int"
    )
    stream = spark.readStream.format("servicebus").options(connectionString=TEXT, queueName="orders").load()
    parsed = stream.selectExpr("messageId", "from_json(cast(body AS string), 'sku int, amount int') AS it")
    sales = parsed.join(products, parsed["it.sku"] == products["sku"]).selectExpr(
        "messageId", "name", "it.amount AS amount", "cast(it.amount * price AS bigint) AS cents"
    )
    query = sales.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query.start().awaitTermination()
    # Simulates a crash between the database's commit and Spark's: the batch is repeated.
    write(sales.sparkSession.createDataFrame([("order-0", "pen", 1, 120)], "a string, b string, c int, d long"), 0)

with psycopg.connect(DATABASE) as database:
    count, cents = database.execute("SELECT count(*), sum(cents) FROM sales").fetchone()
    print(f"sold {count} orders for {cents} cents")
