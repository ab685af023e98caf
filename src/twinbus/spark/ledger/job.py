"""The ledger pipeline as a job for `spark-submit`:

    spark-submit --master spark://HOST:7077 --py-files twinbus.zip .../twinbus/spark/ledger/job.py \\
        --ledger /shared/ledger --tables /shared/tables --prices standard

`twinbus ledger run` does the same with better output. The folders must have the same path on all machines of a cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from twinbus.errors import TwinbusError
from twinbus.ledger.prices import Sheet
from twinbus.limits import LEDGER_BATCH_BYTES
from twinbus.spark.session import need_pyspark, spark_session
from twinbus.spark.store_path import path_of


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Ledger files into tables; prints what was done as JSON.")
    parser.add_argument("--ledger", type=path_of, action="append", required=True, metavar="DIR", help="may be repeated")
    parser.add_argument("--tables", type=path_of, required=True, metavar="DIR")
    parser.add_argument("--prices", default="standard", metavar="NAME|FILE")
    parser.add_argument("--master", default=None, help="without spark-submit; default: this machine")
    parser.add_argument("--batch-bytes", type=int, default=LEDGER_BATCH_BYTES, metavar="BYTES")
    options = parser.parse_args(arguments)
    try:
        sheet = Sheet.load(options.prices)
        need_pyspark()
        from twinbus.spark.ledger.pipeline import is_small, run

        brisk = is_small(options.ledger, options.tables)
        with spark_session("twinbus ledger", master=options.master, brisk=brisk) as spark:
            summary = run(spark, options.ledger, options.tables, sheet, batch_bytes=options.batch_bytes)
    except TwinbusError as error:
        sys.stderr.write(f"twinbus: {error}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(summary)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
