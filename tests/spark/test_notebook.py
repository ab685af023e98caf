"""A notebook, executed by Jupyter's own client in its own kernel: an ordinary session reads and streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.source.desk import Desk
from twinbus.testing import Broker

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: `make spark-hosts` runs this")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

pytestmark = pytest.mark.timeout(300)

CELLS = (
    "import twinbus.spark.setup\n"
    "from pyspark.sql import SparkSession\n"
    "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()",
    "orders = spark.read.format('servicebus').options(connectionStringEnv='TEXT', queueName='orders').load()\n"
    "orders.selectExpr('messageId', 'cast(body AS string) AS text').orderBy('messageId').toPandas()",
    "def seen(batch, number):\n"
    "    options = {'connectionStringEnv': 'TEXT', 'queueName': 'copies'}\n"
    "    batch.write.format('servicebus').options(**options).mode('append').save()\n"
    "stream = spark.readStream.format('servicebus').options(connectionStringEnv='TEXT', queueName='orders').load()\n"
    "query = stream.writeStream.foreachBatch(seen).option('checkpointLocation', 'checkpoint')\n"
    "query.trigger(availableNow=True).start().awaitTermination()",
    "spark.stop()",
)


def test_a_notebook_reads_and_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with Broker(queues=["orders", "copies"], sync=False) as broker, Desk(broker) as desk:
        desk.fill("orders", ["a", "b", "c"])
        monkeypatch.setenv("TEXT", broker.connection_string())
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
        client = nbclient.NotebookClient(
            notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute()
        shown = notebook.cells[1].outputs[-1]["data"]["text/plain"]
        assert [f"body of {each}" in shown for each in "abc"] == [True] * 3
        assert (desk.ids("orders"), desk.ids("copies")) == ([], ["a", "b", "c"])
        assert "SharedAccessKey=" not in nbformat.writes(notebook)
