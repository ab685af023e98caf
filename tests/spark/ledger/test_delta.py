"""Delta tables in folders of any name."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from deltalake import write_deltalake

from twinbus.spark.ledger.delta import DeltaFolder
from twinbus.spark.ledger.staged import known_ids


@pytest.mark.parametrize("name", ["tables", "my tables", "größe", "a#b", "a+b", "C:tables"])
def test_files_are_found_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    rows = pyarrow.table({"run": ["ab", "cd"], "low": [1, 5], "high": [3, 9]})
    write_deltalake(tmp_path / name / "seen", rows)
    folder = DeltaFolder(tmp_path / name)
    assert [Path(each).exists() for each in folder.files("seen")] == [True]
    assert {run: list(numbers) for run, numbers in known_ids(folder).items()} == {"ab": [(1, 3)], "cd": [(5, 9)]}
    assert folder.files("operations") == []
