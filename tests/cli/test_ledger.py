"""`twinbus ledger show` and `run` on folders, and `--ledger` of `twinbus serve`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from twinbus.broker.configuration.file import load_config
from twinbus.broker.configuration.toml import TomlConfig
from twinbus.cli.main import run
from twinbus.cli.serve import merged
from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError
from twinbus.ledger.records import OperationLines
from twinbus.ledger.words import Kind, LedgerSource
from twinbus.ledger.writer import LedgerWriter


def written(folder: Path) -> None:
    ledger = LedgerWriter(folder, LedgerSource.BROKER, "run", SteppedClock(), file_bytes_max=300)
    ledger.start()
    for entity, kind, count in (("orders", Kind.SEND, 2), ("orders", Kind.RECEIVE, 1), ("orders", Kind.SEND, 3)):
        lines = OperationLines(LedgerSource.BROKER, "contoso", entity, kind)
        ledger.write(lines.line(ledger.next_id(), 1_700_000_000_000, 1_700_000_001_000, count, 10, count), 1)
    ledger.close()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        run(["ledger", "show", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def test_the_sums_of_all_files_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "ledger")
    code, out, _ = shown(capsys, "--data", str(tmp_path))
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["broker", "contoso", "orders", "send", "direct", "ok", "5", "20", "5"] in rows
    assert ["broker", "contoso", "orders", "receive", "direct", "ok", "1", "10", "1"] in rows
    assert "3 records in 2 files, 2023-11-14 22:13:20 UTC to 2023-11-14 22:13:21 UTC" in out


def test_json_and_the_ledgers_own_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path)
    (tmp_path / "broker-z.open").write_text("")
    code, out, _ = shown(capsys, "--data", str(tmp_path), "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert (found["records"], found["bad_lines"], found["files_open"]) == (3, 0, 1)
    assert sum(each["count"] for each in found["operations"]) == 6


def test_bad_lines_are_told_and_do_not_stop_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path)
    (tmp_path / "broker-a.jsonl").write_text("nonsense\n" * 20)
    code, out, err = shown(capsys, "--data", str(tmp_path))
    assert code == 0
    assert "3 records in 3 files" in out
    assert "broker-a.jsonl:1: the line is not JSON" in err
    assert "10 lines more" in err


def test_a_folder_without_a_ledger_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = shown(capsys, "--data", str(tmp_path))
    assert code == 2
    assert "There is no ledger in" in err


def told(file: TomlConfig, ledger: str | None, data: Path) -> Path | None:
    options: dict[str, Any] = {"host": None, "dev": False, "allow_plaintext": False}
    config = merged(file, namespaces=["contoso"], data=data, ledger=None if ledger is None else Path(ledger), **options)
    return config.ledger


def test_where_the_ledger_goes(tmp_path: Path) -> None:
    file = tmp_path / "twinbus.toml"

    def toml(text: str) -> TomlConfig:
        file.write_text(text)
        return load_config(file)

    assert told(TomlConfig(), None, tmp_path) == tmp_path / "ledger"
    assert told(TomlConfig(), "off", tmp_path) is None
    assert told(TomlConfig(), "/elsewhere", tmp_path) == Path("/elsewhere")
    assert told(toml('ledger = "off"'), None, tmp_path) is None
    assert told(toml('ledger = "books"'), None, tmp_path / "data") == tmp_path / "books"
    assert told(toml('ledger = "off"'), "/elsewhere", tmp_path) == Path("/elsewhere")
    with pytest.raises(ConfigError, match="must be a text"):
        toml("ledger = false")


@pytest.mark.timeout(240)
def test_the_run_brings_a_ledger_into_tables(tmp_path: Path) -> None:
    """The whole command, with its own Spark session."""
    written(tmp_path / "ledger")
    command = [sys.executable, "-c", "from twinbus.cli.main import run; run()", "ledger", "run", "--json"]
    command += ["--ledger", str(tmp_path), "--master", "local[1]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["records"], told["repeated"], told["quarantined"]) == (3, 0, 0)
    assert told["tables"] == str(tmp_path / "tables")
    operations = DeltaTable(tmp_path / "tables" / "operations").to_pyarrow_table()
    assert sum(operations["count"].to_pylist()) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prices", "standart"], "Unknown price sheet 'standart'"),
        (["--ledger", "nowhere"], "There is no ledger in nowhere"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    written(tmp_path / "ledger")
    with pytest.raises(SystemExit) as caught:
        run(["ledger", "run", "--ledger", str(tmp_path), *arguments])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
