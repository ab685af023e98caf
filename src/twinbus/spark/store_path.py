"""Folders and files of object stores (`s3a://`, `abfss://`), with those methods of Path that the pipeline needs.

    folder = path_of("s3a://bucket/ledger")      # a StorePath; path_of("ledger") is a Path

Rules:
- The driver and the tasks go to the store with pyarrow, Delta commits with deltalake, Spark with Hadoop's connector.
  The first two take credentials from the environment, as the store's own tools do; Spark has settings of its own.
- A store has no folders, no locks and no atomic rename: writing replaces a file, and moving copies it.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

from twinbus.ledger.files import COMPLETE, STORE_URL, complete_files

_S3: Final = ("s3", "s3a")


@dataclass(frozen=True, slots=True)
class _Size:
    st_size: int


@dataclass(frozen=True, slots=True, order=True)
class StorePath:
    """A file of an object store, or a prefix of names."""

    text: str
    # Of a file that was listed.
    size_bytes: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str | PurePosixPath) -> StorePath:
        return StorePath(f"{self.text}/{name}")

    @property
    def name(self) -> str:
        return self.text.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        return StorePath(self.text.rpartition("/")[0])

    def absolute(self) -> StorePath:
        return self

    def relative_to(self, other: StorePath) -> PurePosixPath:
        if not self.text.startswith(f"{other.text}/"):
            raise ValueError(f"{self} is not in {other}")
        return PurePosixPath(self.text[len(other.text) + 1 :])

    # --- in the store -------------------------------------------------------------------------------------------------

    @property
    def filesystem(self) -> Any:
        return _filesystem(urlsplit(self.text).scheme, urlsplit(self.text).netloc)

    @property
    def key(self) -> str:
        """The name that pyarrow uses: bucket or container, then the names."""
        parts = urlsplit(self.text)
        return f"{parts.netloc.partition('@')[0]}{parts.path}"

    def exists(self) -> bool:
        return str(self._info().type.name) != "NotFound"

    def is_dir(self) -> bool:
        return str(self._info().type.name) == "Directory"

    def stat(self) -> _Size:
        if self.size_bytes is not None:
            return _Size(self.size_bytes)
        found = self._info()
        if found.type.name == "NotFound":
            raise FileNotFoundError(self.text)
        return _Size(found.size or 0)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """Names in one folder; only the last part of the pattern has wildcards."""
        folder, _, last = pattern.rpartition("/")
        base = self / folder if folder else self
        for found in base._list(recursive=False):
            if fnmatchcase(found.name, last):
                yield found

    def rglob(self, pattern: str) -> Iterator[StorePath]:
        for found in self._list(recursive=True):
            if fnmatchcase(found.name, pattern):
                yield found

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open the file to read it."""
        assert mode == "rb"
        return cast(BinaryIO, io.BufferedReader(self.filesystem.open_input_stream(self.key, compression=None)))

    def read_text(self) -> str:
        with self.open() as file:
            return file.read().decode()

    def write_text(self, text: str) -> None:
        with self.filesystem.open_output_stream(self.key, compression=None) as file:
            file.write(text.encode())

    def _info(self) -> Any:
        return self.filesystem.get_file_info(self.key)

    def _list(self, *, recursive: bool) -> list[StorePath]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self.key, recursive=recursive, allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return sorted(StorePath(f"{self.text}/{each.path[len(self.key) + 1 :]}", each.size) for each in found)


AnyPath = Path | StorePath


def path_of(given: str | AnyPath) -> AnyPath:
    """A StorePath for the URL of an object store, otherwise a Path."""
    if isinstance(given, StorePath):
        return given
    text = str(given)
    match = STORE_URL.match(text)
    if match is None:
        return Path(given)
    return StorePath(f"{match[1]}://{text[match.end() :].rstrip('/')}")


def ledger_files(folder: AnyPath) -> list[AnyPath]:
    """The complete files of a ledger, oldest first."""
    return list(complete_files(folder)) if isinstance(folder, Path) else sorted(folder.glob(f"*{COMPLETE}"))


def move(path: AnyPath, target: AnyPath) -> None:
    """Rename a file; on this machine it is synced and survives a power cut."""
    if isinstance(path, StorePath):
        assert isinstance(target, StorePath)
        path.filesystem.move(path.key, target.key)
        return
    assert isinstance(target, Path)
    sync(path)
    path.rename(target)
    sync(target.parent)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_text(path: AnyPath, text: str) -> None:
    """Write a file atomically."""
    if isinstance(path, StorePath):
        path.write_text(text)
        return
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    move(draft, path)


def remove_all(folder: AnyPath) -> None:
    """Remove a folder and its contents, if it exists."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.is_dir():
        folder.filesystem.delete_dir(folder.key)


@lru_cache(32)
def _filesystem(scheme: str, host: str) -> Any:
    from pyarrow import fs

    if scheme not in _S3:
        found, _ = fs.FileSystem.from_uri(f"{scheme}://{host}/")
        return found
    given: dict[str, Any] = {}
    # Arrow would ask Amazon where a bucket is.
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        given["region"] = region
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        given |= {"endpoint_override": urlsplit(endpoint).netloc, "scheme": urlsplit(endpoint).scheme}
    return fs.S3FileSystem(**given)
