"""Writes an archive of everything that Spark's tasks import, for workers with nothing installed:

    python -m twinbus.spark.bundle workers.zip
    spark-submit --archives workers.zip#workers --conf spark.executorEnv.PYTHONPATH=workers job.py

- It contains Twinbus, pyarrow, pandas, the Azure SDK if installed, and their requirements. Workers need Spark and the
  same version of Python. Its libraries are compiled for this kind of machine.
- It consists of what is installed here: nothing is downloaded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

import twinbus
from twinbus.spark.session import need_pyspark

_ROOTS: Final = ("twinbus", "pyarrow", "pandas", "azure-servicebus")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
# An editable installation lists none of our files.
_OURS: Final = ("twinbus", "pyspark_servicebus")


def bundle(place: Path) -> int:
    """Write the archive; returns the number of packages."""
    need_pyspark()
    found = _required(_ROOTS)
    with ZipFile(place, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        written: set[str] = set()
        for name, path in [each for package in found.values() for each in _files(package)] + list(_own_files()):
            if name not in written:
                written.add(name)
                archive.write(path, name)
    return len(found)


def _required(roots: Sequence[str]) -> dict[str, Distribution]:
    """The packages and their requirements without extras; packages that are not installed are for other systems."""
    found: dict[str, Distribution] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = package
        for requirement in package.requires or ():
            match = _NAME.match(requirement)
            if match is not None and "extra ==" not in requirement:
                waiting.append(match[0])
    return found


def _files(package: Distribution) -> Iterator[tuple[str, Path]]:
    """A package's files below site-packages, without scripts, headers and its own tests."""
    for file in package.files or ():
        skipped = {"..", "__pycache__", "tests", "include"} & set(file.parts)
        path = Path(str(package.locate_file(file)))
        if not skipped and file.suffix != ".pth" and path.is_file():
            yield file.as_posix(), path


def _own_files() -> Iterator[tuple[str, Path]]:
    root = Path(twinbus.__path__[0]).parent
    for name in _OURS:
        for path in sorted((root / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix(), path


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not arguments[0].endswith(".zip"):
        sys.stderr.write("usage: python -m twinbus.spark.bundle ARCHIVE.zip\n")
        return 2
    place = Path(arguments[0])
    count = bundle(place)
    sys.stdout.write(f"Wrote {count} packages, {place.stat().st_size / 1e6:.0f} MB, to {place}.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
