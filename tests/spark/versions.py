"""Runs selected tests of the pipeline on other versions of PySpark than the environment's.

    python -m tests.spark.versions [--quick | --install] [VERSION...] [-- PYTEST ARGUMENTS]

`--quick` is what every change must pass: one test of each way between Spark and us. `--install` only fetches the
versions, of about 0.4 GB each. Each has a virtual environment in a cache folder with nothing but PySpark in it;
everything else comes from the environment that this runs in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

# The first version of the range, the last without admission control for Python sources, and the newest. `make spark`
# runs everything on the version of the development environment.
VERSIONS = ("4.0.0", "4.1.4", "4.3.0")
# Read in a batch and as a stream, write, the syphon, the ledger's tables as a run and as a stream, and the report.
CHOSEN = (
    "tests/spark/source/test_end_to_end.py",
    "tests/spark/syphon/test_job.py::test_it_is_submitted",
    "tests/spark/ledger/test_end_to_end.py",
    "tests/spark/ledger/test_pipeline.py::test_other_readers_of_delta_tables_read_every_table",
    "tests/spark/ledger/test_pipeline.py::test_following_takes_what_comes_until_it_is_told_to_stop",
    "tests/spark/report/test_gather.py",
)
_SOURCE = "tests/spark/source/test_end_to_end.py"
_PIPELINE = "tests/spark/ledger/test_pipeline.py"
# A batch read and a write, filters where there are any, a stream in both modes with its sink, and the ledger's tables.
QUICK = (
    f"{_SOURCE}::test_a_batch_read",
    f"{_SOURCE}::test_filters_by_option",
    f"{_SOURCE}::test_a_stream_of_a_queue_to_parquet",
    f"{_SOURCE}::test_a_stream_that_claims_to_a_queue",
    f"{_SOURCE}::test_properties_keep_their_types_through_spark",
    f"{_PIPELINE}::test_following_takes_what_comes_until_it_is_told_to_stop",
)
ROOT = Path(__file__).parent.parent.parent


def environment(version: str) -> Path:
    """The Python of an environment with this PySpark, created if it does not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinbus-spark"
    folder = cache / f"{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        print(f"installing PySpark {version} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}"]
        subprocess.run(command, check=True)
        done.touch()
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # After its own packages: those of this environment, and what they add to the path.
    (own / "twinbus-others.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return python


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = {each for each in arguments[:split] if each.startswith("--")}
    versions = [each for each in arguments[:split] if each not in options] or list(VERSIONS)
    if options - {"--quick", "--install"}:
        raise SystemExit(__doc__)
    if "--install" in options:
        for version in versions:
            environment(version)
        return 0
    chosen = arguments[split + 1 :] or (QUICK if options else CHOSEN)
    failed = []
    for version in versions:
        python = environment(version)
        begun = time.monotonic()
        # Older versions leave sockets to the garbage collector.
        quiet = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
        command = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *quiet, *chosen]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"PySpark {version}: {'failed' if code else 'passed'} in {time.monotonic() - begun:.0f} s", flush=True)
        if code:
            failed.append(version)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
