"""What expressions take for a sound record is one to the decoder too, with the same fields; and what writers write is
sound."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from tests.spark.ledger.made import START_MS, Writer, odd
from twinbus.errors import LedgerError
from twinbus.ledger.records import OperationLines, decode, encode
from twinbus.ledger.words import Kind, LedgerSource
from twinbus.spark.ledger import ids, lines, schemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # small Spark jobs, on a machine that may be busy

# Pieces that turn up where they do not belong.
_PIECES = [
    b'"',
    b"\\",
    b"}",
    b"{",
    b",",
    b":",
    b"0",
    b"-1",
    b"1.0",
    b"1e3",
    b"true",
    b"null",
    b"NaN",
    b" ",
    b"\t",
    b"'",
    b"\xc3\xa9",
    b"\xff",
    b"99999999999999999999",
    b'"v":1,',
    b'"id":"x-1",',
    b"[]",
    b"\x00",
    b"\\u0041",
    b"/*c*/",
]


def mangled(line: bytes, draw: random.Random) -> bytes:
    """The line with something cut out, put in or put elsewhere."""
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
            # A value in place of another: the ends of fields are where the commas are.
            parts = line.split(b",")
            one, two = draw.randrange(len(parts)), draw.randrange(len(parts))
            parts[one] = parts[one].split(b":")[0] + b":" + parts[two].rpartition(b":")[2]
            line = b",".join(parts)
    return line.replace(b"\n", b" ")


def test_sound_is_what_the_decoder_takes(spark: SparkSession) -> None:
    draw = random.Random(20261115)
    writers = [Writer(draw, source, f"run-{source}") for source in LedgerSource]
    good = [encode(draw.choice(writers).record(START_MS + 1000 * at))[:-1].encode() for at in range(600)]
    good.append(
        OperationLines(LedgerSource.BROKER, "contoso", "größe", Kind.SEND).line("ab-1", 1, 2, 3, 4, 5)[:-1].encode()
    )
    bad = [mangled(draw.choice(good), draw) for _ in range(6_000)]
    others = [odd(decode(each), draw) for each in good[:50]]
    given = spark.createDataFrame(
        [(number, each) for number, each in enumerate([*good, *bad, *others])], "number int, raw binary"
    ).selectExpr("number", "cast(raw as string) line", "'f' file")
    found = lines.parsed(given).orderBy("number").collect()
    for row, raw in zip(found, [*good, *bad, *others], strict=True):
        try:
            record = decode(raw)
        except LedgerError:
            record = None
        if row["sound"]:
            assert record is not None, raw
            for each in fields(record):
                value = getattr(record, each.name)
                told = row[each.name]
                assert (tuple(told) if isinstance(value, tuple) else told) == value, (raw, each.name)
    assert all(row["sound"] for row in found[:600])
    # A name with an escape in it is left to the decoder.
    assert not found[600]["sound"]
    assert not any(row["sound"] for row in found[len(good) + len(bad) :])
    # Most of what was mangled is bad, some is still sound: both were tried.
    accepted = sum(row["sound"] for row in found[len(good) : len(good) + len(bad)])
    assert 50 < accepted < 3_000


def test_everything_is_summed_in_one_pass(spark: SparkSession) -> None:
    make = OperationLines(LedgerSource.BROKER, "contoso", "orders", Kind.SEND)
    texts = [make.line(f"ab-{at:x}", 60_000 * (at // 65), 60_000 * (at // 65), 1, 10, 2)[:-1] for at in range(1, 131)]
    given = spark.createDataFrame(
        [(each, "f") for each in [*texts, "nonsense", "nonsense"]], "line string, file string"
    )
    rows = lines.summed(given).collect()
    sums = sorted(
        (row["minute"], row["count"], row["bytes"], row["units"], row["lines"])
        for row in rows
        if row["part"] == "operations"
    )
    assert sums == [(0, 64, 640, 128, 64), (60_000, 65, 650, 130, 65), (120_000, 1, 10, 2, 1)]
    words = sorted(
        (row["run"], row["word"], row["bits"] & (2**64 - 1), row["lines"]) for row in rows if row["part"] == "words"
    )
    assert words == [("ab", 0, 2**64 - 2, 63), ("ab", 1, 2**64 - 1, 64), ("ab", 2, 0b111, 3)]
    assert [(row["line"], row["lines"]) for row in rows if row["part"] == "lines"] == [("nonsense", 2)]


def test_ids_become_few_ranges_and_come_back(spark: SparkSession) -> None:
    every = -1
    seen = spark.createDataFrame(
        [
            ("a", 1, 1, every, 0),
            ("a", 2, 2, every, 1),
            ("a", 3, 3, 0b01, 0),
            ("a", 3, 3, 0b10, 0),
            ("a", 4, 4, 0b11, 0),
            ("a", 5, 9, every, 1),
            ("a", 8, 12, every, 1),
            ("b", 13, 13, every, 0),
        ],
        schemas.SEEN,
    )
    joined = ids.joined(seen)
    assert sorted(joined.select("run", "low", "high", "bits", "repeated").collect()) == [
        ("a", 1, 2, every, 1),
        ("a", 3, 3, 0b11, 0),
        ("a", 4, 4, 0b11, 0),
        ("a", 5, 12, every, 2),
        ("b", 13, 13, every, 0),
    ]
    words = spark.createDataFrame(
        [("f", "a", 3, 0b100, 1), ("g", "a", 3, 0b1000, 1), ("f", "a", 11, 0b1, 1), ("f", "c", 3, 0b11, 3)],
        schemas.WORDS,
    )
    found = ids.looked_up(words, joined)
    assert sorted(found.select("run", "word", "bits", "lines", "taken").collect()) == [
        ("a", 3, 0b1100, 2, 0b11),
        ("a", 11, 0b1, 1, every),
        ("c", 3, 0b11, 3, 0),
    ]
    assert sorted(found.where(ids.is_repeated()).select("run", "word").collect()) == [("a", 11), ("c", 3)]
    first = ids.looked_up(words, None)
    assert [row["run"] for row in ids.ranges(first).where("repeated > 0").collect()] == ["c"]
