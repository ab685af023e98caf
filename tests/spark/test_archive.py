"""The archive of Spark's classes: written by the first run, used by the second, and ignored if others could write
it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinbus.spark.archive import Archive
from twinbus.spark.java import Java, find_java

_RUN = """
from twinbus.spark.session import spark_session
with spark_session("small", master="local[1]", brisk=True, archived="small") as spark:
    runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    process = runtime.getPid()
    with open(f"/proc/{process}/maps") as maps:
        print(spark.range(10).count(), any(".jsa" in line and "small-" in line for line in maps))
with spark_session("another", master="local[1]") as spark:
    print(spark.range(5).count())
"""


def _java(folder: Path, *, archived: bool = True) -> Java:
    server = folder / "java" / "lib" / "server"
    server.mkdir(parents=True)
    if archived:
        (server / "classes.jsa").write_bytes(b"classes")
    return Java(folder / "java", 17, supplied=False)


@pytest.mark.timeout(240)
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has mapped")
def test_the_second_run_has_its_classes_from_the_first(tmp_path: Path) -> None:
    if not (find_java().home / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no archive of its own classes to build on")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("TWINBUS_ARCHIVE", None)
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _RUN], env=environment, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "cds" not in done.stdout + done.stderr
        told.append(done.stdout.split())
        # No draft is left, and there is one archive.
        assert [path.suffix for path in (tmp_path / "twinbus").iterdir() if path.is_file()] == [".jsa"]
    assert told == [["10", "False", "5"], ["10", "True", "5"]]


_CLEARED = """
import shutil, sys
from twinbus.spark.session import spark_session
with spark_session("small", master="local[1]", brisk=True, archived="small", progress=print) as spark:
    shutil.rmtree(sys.argv[1])
    print(spark.range(10).count())
"""


@pytest.mark.timeout(120)
def test_a_run_that_cannot_keep_its_classes_has_done_its_work(tmp_path: Path) -> None:
    if not (find_java().home / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no archive of its own classes to build on")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TWINBUS_ARCHIVE": "on"}
    done = subprocess.run(
        [sys.executable, "-c", _CLEARED, str(tmp_path / "twinbus")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Java itself then reports that it could not write it.
    assert done.stdout.splitlines()[:2] == ["10", "keeping Spark's classes for the next run, some seconds, once"]
    assert list(tmp_path.rglob("*.jsa*")) == []


def test_there_is_none_where_there_can_be_none(tmp_path: Path) -> None:
    java = _java(tmp_path)
    assert Archive.of("job", java, [tmp_path], {}) is not None
    assert Archive.of("job", java, [tmp_path], {"TWINBUS_ARCHIVE": "off"}) is None
    assert Archive.of("job", _java(tmp_path / "bare", archived=False), [tmp_path], {}) is None
    assert Archive.of("job", java, [tmp_path / "java" / "lib" / "server" / "classes.jsa"], {}) is None


def test_what_others_could_have_written_is_not_used(tmp_path: Path) -> None:
    java = _java(tmp_path)
    archive = Archive.of("job", java, [tmp_path], {})
    assert archive is not None
    archive.path.write_bytes(b"")
    archive.path.chmod(0o644)
    assert archive.is_there
    assert "SharedArchiveFile" in archive.options
    archive.path.chmod(0o666)
    assert not archive.is_there
    (tmp_path / "twinbus").chmod(0o777)
    assert Archive.of("job", java, [tmp_path], {}) is None


def test_another_java_or_spark_has_another_and_drafts_of_the_dead_go(tmp_path: Path) -> None:
    java = _java(tmp_path)
    first = Archive.of("job", java, [tmp_path], {})
    assert first is not None
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead = first.path.with_name(f".{first.path.name}-{int(ended.stdout)}")
    alive = first.path.with_name(f".{first.path.name}-{os.getpid()}")
    for draft in (dead, alive):
        draft.touch()
    (java.home / "lib" / "server" / "classes.jsa").write_bytes(b"other classes")
    second = Archive.of("job", java, [tmp_path], {})
    assert second is not None
    assert first.path != second.path
    assert not dead.exists()
    assert alive.exists()
    spark = tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    third = Archive.of("job", java, [tmp_path], {"SPARK_HOME": str(spark)})
    assert third is not None
    assert third.path not in (first.path, second.path)
