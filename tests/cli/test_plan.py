"""`twinbus plan`: output for people and programs, and errors of the command line."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from twinbus.cli.chart import area, bar
from twinbus.cli.main import run
from twinbus.cli.plan import seconds, size_bytes


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        run(["plan", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def test_the_answer_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = planned(
        capsys, "--clients", "20", "--senders", "4", "--entities", "4", "--rate", "500", "--outage", "30m"
    )
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "messages diverted 900,000 1.1 GB" in lines
    assert "pings 2,320 29 for each of 80 entities of clients" in lines
    assert "to-backlog send to the backlog 900,000 900,000 0.72 USD" in lines
    assert "all of it 3,602,320 3,602,320 2.88 USD" in lines
    assert any(line.startswith("idle polls: 40 an hour, 960 a day, 28,800 in 30 days") for line in lines)
    assert any("█" in line for line in lines)


def test_json_has_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = planned(capsys, "--rate", "10", "--outage", "10m", "--json", "--prices", "free")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert found["outage"]["diverted"] == 6_000
    assert found["bill"]["count"] == 24_009
    assert found["bill"]["list_amount"] == "0"
    assert (found["polls_hour"], found["polls_day"], found["polls_month"]) == (40, 960, 28_800)
    assert sum(each["probability"] for each in found["spread"]["probabilities"]) == pytest.approx(1)
    assert found["drawn"] is None


def test_what_never_happens_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = planned(capsys, "--rate", "0", "--json")
    assert code == 0
    assert json.loads(out)["fill"]["full_s"] is None


@pytest.mark.parametrize("name", ["outage.svg", "outage.png"])
def test_a_chart_is_written_and_is_the_same_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = tmp_path / name, tmp_path / f"again-{name}"
    for path in (first, again):
        assert planned(capsys, "--chart", str(path))[0] == 0
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes().startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--outage", "soon"], "is not a duration"),
        (["--size", "huge"], "is not a size"),
        (["--size", "200MB"], "size_bytes is 209715200"),
        (["--ping-interval", "0.1"], "ping_interval_s is 0.1"),
        (["--prices", "golden"], "Unknown price sheet 'golden'"),
        (["--chart", "plan.pdf"], "an .svg or a .png file"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = planned(capsys, *arguments)
    assert code == 2
    assert text in err
    assert err.count("\n") == 1


def test_without_spark_the_closed_forms_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pyspark" else real(name, *rest)
    )
    monkeypatch.setitem(sys.modules, "pyspark", None)
    code, out, _ = planned(capsys, "--trials", "10")
    assert code == 0
    assert "fullest, 95 %" in out
    assert "Nothing was drawn: pyspark is not installed" in out


def test_times_and_sizes() -> None:
    assert [seconds(text) for text in ("90", "1.5", "90s", "30m", "PT1H")] == [90, 1.5, 90, 1_800, 3_600]
    assert [size_bytes(text) for text in ("900", "2KB", "1.5 k", "1MB", "7b")] == [900, 2_048, 1_536, 1_048_576, 7]


def test_charts_of_characters() -> None:
    assert area([0, 0.01, 5, 10], height=2) == ["   █", " ▁██"]
    assert area([0, 0], height=2) == ["  ", "▁▁"]
    assert [bar(value, 8, 1) for value in (0, 0.001, 4, 8, 99)] == ["", "▏", "▌", "█", "█"]
