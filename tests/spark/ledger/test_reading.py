"""What a task makes of a ledger file: exactly what the decoder says of each line."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.spark.ledger.made import START_MS, Writer, odd
from twinbus.errors import LedgerError
from twinbus.ledger.records import OperationLines, OperationReader, Operations, decode, encode
from twinbus.ledger.words import Kind, LedgerSource
from twinbus.spark.ledger.number_set import NumberSet
from twinbus.spark.ledger.reading import file_rows

# Fragments that appear where they do not belong.
_PIECES = (
    b"""" \\ } { , : 0 -1 1.0 1e3 true null NaN \t ' \xc3\xa9 \xff 99999999999999999999 "v":1, [] \x00 /*c*/""".split(
        b" "
    )
)


def mangled(line: bytes, draw: random.Random) -> bytes:
    """The line with something cut out, inserted or moved."""
    for _ in range(draw.choice([1, 1, 2])):
        at, to = sorted(draw.randrange(len(line) + 1) for _ in range(2))
        how = draw.randrange(4)
        if how == 0:
            line = line[:at] + draw.choice(_PIECES) + line[at:]
        elif how == 1:
            line = line[:at] + line[min(to, at + 8) :]
        elif how == 2:
            line = line[:at] + draw.choice(_PIECES) + line[at + 1 :]
        else:
            # Replace one value by another: fields end at the commas.
            parts = line.split(b",")
            one, two = draw.randrange(len(parts)), draw.randrange(len(parts))
            parts[one] = parts[one].split(b":")[0] + b":" + parts[two].rpartition(b":")[2]
            line = b",".join(parts)
    return line.replace(b"\n", b" ").replace(b"\r", b" ")


def rows(path: Path, allowed: dict[str, NumberSet] | None = None) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in file_rows(path, 3, OperationReader(), allowed):
        assert row["file"] == 3
        found[row["part"]].append(row)
    return found


def test_the_quick_way_says_what_the_decoder_says() -> None:
    draw = random.Random(20261115)
    writers = [Writer(draw, source, f"run-{source}") for source in LedgerSource]
    good = [encode(draw.choice(writers).record(START_MS + 1000 * at))[:-1].encode() for at in range(600)]
    good.append(
        OperationLines(LedgerSource.BROKER, "contoso", "größe", Kind.SEND).line("ab-1", 1, 2, 3, 4, 5)[:-1].encode()
    )
    reader = OperationReader()
    taken = 0
    lines = [
        *good,
        *(mangled(draw.choice(good), draw) for _ in range(20_000)),
        *(odd(decode(each), draw) for each in good),
    ]
    for line in lines:
        found = reader.read(line)
        if found is not None:
            record = decode(line)
            assert isinstance(record, Operations)
            assert found == reader.fields(record)
            taken += 1
    # Good lines of operations are accepted, and few of the mangled ones.
    assert sum(isinstance(decode(each), Operations) for each in good) <= taken < 10_000


def test_a_file_is_summed_and_its_ids_are_ranges(tmp_path: Path) -> None:
    make = OperationLines(LedgerSource.BROKER, "contoso", "orders", Kind.SEND)
    texts = [make.line(f"ab-{at:x}", 60_000 * (at // 65), 60_000 * (at // 65), 1, 10, 2) for at in range(1, 131)]
    path = tmp_path / "one.jsonl"
    # One line twice, and two that are invalid, one of them with a key in it.
    path.write_text("".join([*texts, texts[3], "nonsense\n", "SharedAccessKey=abc;\n"]))
    found = rows(path)
    sums = [(row["start_ms"], row["count"], row["bytes"], row["units"]) for row in found["operations"]]
    assert sums == [(0, 64, 640, 128), (60_000, 65, 650, 130), (120_000, 1, 10, 2)]
    assert [(row["run"], row["low"], row["high"]) for row in found["ids"]] == [("ab", 1, 130)]
    assert [(row["lines"], row["count"]) for row in found["files"]] == [(133, 2)]
    assert [row["text"] for row in found["quarantine"]] == ["nonsense", "SharedAccessKey=***;"]
    again = rows(path, {"ab": NumberSet([(2, 2), (65, 66)])})
    assert [(row["start_ms"], row["count"]) for row in again["operations"]] == [(0, 1), (60_000, 2)]
    assert set(again) == {"operations"}


def test_rows_are_the_records_of_the_lines(tmp_path: Path) -> None:
    draw = random.Random(4)
    writer = Writer(draw, LedgerSource.SYPHON, "ab")
    made = [writer.record(START_MS + 1000 * at) for at in range(300)]
    lines = [odd(each, draw) if at % 3 else encode(each)[:-1].encode() for at, each in enumerate(made)]
    bad = [mangled(draw.choice(lines), draw) for _ in range(300)]
    path = tmp_path / "two.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in [*lines, *bad]))
    decoded = {}
    wrong = 0
    for line in [*lines, *bad]:
        try:
            record = decode(line)
            decoded.setdefault(record.id, record)
        except LedgerError:
            wrong += 1
    found = rows(path)
    sums = Counter({"count": 0})
    for record in decoded.values():
        if isinstance(record, Operations):
            sums.update({"count": record.count, "bytes": record.bytes, "units": record.units})
    assert {name: sum(row[name] for row in found["operations"]) for name in sums} == dict(sums)
    others = [record for record in decoded.values() if not isinstance(record, Operations)]
    told = [row for part in found for row in found[part] if part not in ("operations", "ids", "files", "quarantine")]
    assert {row["id"] for row in told} == {record.id for record in others}
    assert found["files"][0]["count"] == wrong == len(found["quarantine"])
    assert sum(row["high"] - row["low"] + 1 for row in found["ids"]) == len(decoded)


def test_a_file_that_is_gone_is_empty(tmp_path: Path) -> None:
    found = rows(tmp_path / "gone.jsonl")
    assert [(row["lines"], row["count"]) for row in found["files"]] == [(0, 0)]
    assert set(found) == {"files"}
