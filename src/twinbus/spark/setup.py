"""Import this to use an ordinary `SparkSession` from a virtual environment that is not activated, without Java.

    import twinbus.spark.setup
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()

- Import it before creating the session: Spark reads the environment when its JVM starts.
- PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are kept if set. Under `spark-submit` nothing happens.
"""

from __future__ import annotations

import os
import sys

from twinbus.spark.java import find_java
from twinbus.spark.session import need_pyspark, submitted

need_pyspark()
if not submitted():
    # Spark's default is the first `python3` on PATH, which lacks our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java().home)
