"""Paths of object stores, on a local S3 server."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.s3_server import s3_bucket
from twinbus.spark.source.refusals import Refusal, append
from twinbus.spark.store_path import StorePath, ledger_files, move, path_of, remove_all, replace_text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("s3a://bucket/a/b", "s3a://bucket/a/b"),
        (Path("s3a://bucket/a/b"), "s3a://bucket/a/b"),
        ("s3://bucket/", "s3://bucket"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
    ],
)
def test_urls_are_paths_of_stores(given: str | Path, text: str) -> None:
    found = path_of(given)
    assert (isinstance(found, StorePath), str(found)) == (True, text)
    assert path_of(found) is found
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("given", ["a/b", "/s3a/b", "s3a", "s3a:", "file", "s3x://bucket/a", "/s3a://b", Path("a")])
def test_everything_else_is_of_this_machine(given: str | Path) -> None:
    assert path_of(given) == Path(given)


def test_names() -> None:
    folder = StorePath("s3a://bucket/tables")
    file = folder / "days" / "month=2026-10" / "a.parquet"
    assert (file.name, file.parent.name, file.key) == ("a.parquet", "month=2026-10", file.text[6:])
    assert str(file.relative_to(folder)) == "days/month=2026-10/a.parquet"
    with pytest.raises(ValueError, match="is not in"):
        file.relative_to(StorePath("s3a://bucket/table"))
    assert StorePath("abfss://box@account.dfs.core.windows.net/a").key == "box/a"


@pytest.fixture
def bucket() -> Iterator[StorePath]:
    with s3_bucket() as made:
        yield made


def test_files_and_folders(bucket: StorePath) -> None:
    ledger = bucket / "ledger"
    assert (ledger.exists(), ledger.is_dir(), list(ledger.glob("*"))) == (False, False, [])
    (ledger / "b.jsonl").write_text("one\ntwo\n")
    replace_text(ledger / "a.jsonl", "three")
    (ledger / "c.open").write_text("")
    (ledger / "below" / "day=1" / "d.jsonl").write_text("")
    assert ledger_files(ledger) == [ledger / "a.jsonl", ledger / "b.jsonl"]
    assert list(ledger.glob("below/day=*")) == [ledger / "below" / "day=1"]
    assert [found.name for found in ledger.rglob("*.jsonl")] == ["a.jsonl", "b.jsonl", "d.jsonl"]
    assert (ledger / "a.jsonl").stat().st_size == 5
    with (ledger / "b.jsonl").open() as file:
        assert [file.readline(100), file.readline(2), file.read()] == [b"one\n", b"tw", b"o\n"]
    move(ledger / "a.jsonl", ledger / "z.jsonl")
    assert (ledger / "z.jsonl").read_text() == "three"
    with pytest.raises(FileNotFoundError):
        (ledger / "a.jsonl").open()
    with pytest.raises(FileNotFoundError):
        (ledger / "a.jsonl").stat()
    remove_all(ledger)
    remove_all(ledger)
    assert not ledger.exists()


def test_the_same_in_a_folder(tmp_path: Path) -> None:
    replace_text(tmp_path / "a.jsonl", "three")
    move(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert ledger_files(tmp_path) == [tmp_path / "b.jsonl"]
    assert os.listdir(tmp_path) == ["b.jsonl"]
    remove_all(tmp_path)
    remove_all(tmp_path)
    assert not tmp_path.exists()


def test_refused_rows_go_into_a_table_of_the_store(bucket: StorePath) -> None:
    path = str(bucket / "refused")
    for number in (0, 1, 1):
        append(path, "contoso", [Refusal("orders", f"m{number}", "too large", b"x")], "query", number)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted((row["messageId"], row["reason"]) for row in rows) == [("m0", "too large"), ("m1", "too large")]
