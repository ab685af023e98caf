"""Importing this has an ordinary `SparkSession` work from a virtual environment that is not activated, without Java.

    import twinbus.spark.setup
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()

Rules:
- It comes before the session: Spark reads the environment when its JVM starts.
- What is set already stays, and under `spark-submit` nothing is done.
"""

from __future__ import annotations

import os
import sys

from twinbus.spark.java import find_java
from twinbus.spark.session import need_pyspark, submitted

need_pyspark()
if not submitted():
    # Spark's default is the first `python3` of PATH, which has not our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java().home)
