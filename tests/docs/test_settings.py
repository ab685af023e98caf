"""docs/config.md tells every setting as the code has it."""

from __future__ import annotations

from tests.docs.settings_table import PAGE, TABLE, table


def test_the_table_of_settings_is_the_codes() -> None:
    found = TABLE.findall(PAGE.read_text())
    assert found == [table()], "write it anew: python -m tests.docs.settings_table"
