"""The table of clients in the documentation is that of the last recorded run."""

from __future__ import annotations

import json

from tests.compat.matrix import ORDER, PAGE, RECORD, ROWS, with_table
from tests.compat.programs import CASES, PROGRAMS


def test_the_page_shows_the_record() -> None:
    page = PAGE.read_text()
    assert with_table(page, json.loads(RECORD.read_text())) == page, "run `python tests/compat/matrix.py`"


def test_the_record_is_of_these_programs() -> None:
    matrix = json.loads(RECORD.read_text())
    assert {*CASES, "kill"} == set(ROWS)
    assert set(ORDER) == {program.name for program in PROGRAMS} == set(matrix)
    for program in PROGRAMS:
        assert matrix[program.name]["client"] == program.client
        assert matrix[program.name]["lacks"] == program.lacks
        assert set(matrix[program.name]["cases"]) == {*program.cases, "kill"}
