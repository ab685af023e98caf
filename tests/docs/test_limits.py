"""The limits that docs/limits.md tells are those of the code."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT
from twinbus import limits

PAGE = (ROOT / "docs" / "limits.md").read_text()
ROWS = re.findall(r"^\| (?:[^|]+) \| ([\d,.]+)(?: ([^|]+?))? \| (?:[^|]*)\| `([A-Z_0-9]+)` \|$", PAGE, re.MULTILINE)
MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
BYTES = {"bytes": 1, "KiB": 1_024, "MiB": 1_024**2, "GiB": 1_024**3}
OTHERS = {"": 1, "characters": 1, "MB": 1}


def in_code(number: str, unit: str, name: str) -> float:
    """What a row says, in the unit that the name of the limit ends with."""
    value = float(number.replace(",", ""))
    if re.search(r"_MS(_|$)", name):
        return value * MS[unit]
    if re.search(r"_US(_|$)", name):
        return value * MS[unit] * 1_000
    if re.search(r"_S(_|$)", name):
        return value * MS[unit] / 1_000
    if re.search(r"(^|_)BYTES(_|$)", name):
        return value * BYTES[unit]
    return value * OTHERS[unit]


@pytest.mark.parametrize(("number", "unit", "name"), ROWS, ids=[row[2] for row in ROWS])
def test_a_limit_is_what_the_page_says(number: str, unit: str, name: str) -> None:
    assert getattr(limits, name) == in_code(number, unit, name)


def test_every_row_is_read() -> None:
    rows = [line for line in PAGE.splitlines() if re.search(r"\| `[A-Z_0-9]+` \|$", line)]
    assert len(rows) == len(ROWS) > 70


def test_a_unit_is_part_of_the_value() -> None:
    assert in_code("15", "min", "SYPHON_RECEIVE_S") == 900
    assert in_code("256", "KiB", "MESSAGE_BYTES_MAX") == 262_144
    assert in_code("1,024", "MB", "QUEUE_MEGABYTES_MAX") == 1_024
