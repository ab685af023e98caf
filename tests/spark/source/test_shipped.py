"""Source and sink on a worker that has Spark, pyarrow and pandas, and Twinbus only as the archive of `--py-files`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.spark.source.desk import Desk
from twinbus.testing import Broker

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"

PROGRAM = """
import os, sys

text, queue, target = os.environ["TEXT"], *sys.argv[1:]
SOURCES = {"aiohttp", "azure", "cryptography", "defusedxml", "deltalake", "lark", "lmdb", "matplotlib", "rich", "typer"}


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in SOURCES:
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Missing())
# Not where this environment has it installed.
sys.path[:] = ["twinbus.zip", *(each for each in sys.path if not os.path.isdir(os.path.join(each, "twinbus")))]
from pyspark_servicebus import DefaultSource
import twinbus

assert "twinbus.zip" in twinbus.__file__, twinbus.__file__
source = DefaultSource({"connectionString": text, "queueName": queue})
reader = source.reader(source.schema())
batches = [batch for each in reader.partitions() for batch in reader.read(each)]
sink = DefaultSource({"connectionString": text, "queueName": target})
print(sink.streamWriter(source.schema(), False).write(iter(batches)).messages)
"""


def test_the_archive_of_the_page_reads_and_writes(desk: Desk, broker: Broker, queue: str, tmp_path: Path) -> None:
    desk.fill(queue, list("abc"))
    broker.create_queue(f"t-{queue}")
    (command,) = re.findall(r"^\$ (\(cd .*zipfile.*)$", PAGE.read_text(), re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, queue, f"t-{queue}"],
        cwd=tmp_path,
        env={**os.environ, "TEXT": desk.text},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
    assert desk.ids(f"t-{queue}") == list("abc")
