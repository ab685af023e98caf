"""The console's view of a body, without a browser: its cost is bounded whatever a message has in it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from twinbus.broker.http.console import assets

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="the scripts of the page need Node")

SCRIPT = """
import { readFileSync } from "node:fs";
import { indented } from "./body.js";
const told = JSON.parse(readFileSync(0, "utf8")).map((text) => indented(text));
process.stdout.write(JSON.stringify(told));
"""


@pytest.fixture
def indented(tmp_path: Path) -> Any:
    """The page's function, called for several texts at once."""
    for file in (Path(assets.__file__).parent / "assets").glob("*.js"):
        shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "main.js").write_text(SCRIPT)

    def call(*texts: str) -> list[str]:
        done = subprocess.run(
            ["node", "--max-old-space-size=256", "main.js"],
            cwd=tmp_path,
            input=json.dumps(texts).encode(),
            capture_output=True,
            check=True,
            timeout=120,
        )
        found: list[str] = json.loads(done.stdout)
        return found

    return call


def test_json_is_indented_as_usual(indented: Any) -> None:
    values: list[Any] = [{"a": [1, 2, {"b": None}], "c": {}, "d": [], "e": "x, {y}: [z]"}, [], [[[]]], "text"]
    assert indented(*map(json.dumps, values)) == [json.dumps(value, indent=2) for value in values]
    assert indented('{"n":12345678901234567890}') == ['{\n  "n": 12345678901234567890\n}']


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")])
def test_nesting_costs_no_more_than_its_length(indented: Any, left: str, right: str) -> None:
    """A line for each bracket, of a bounded width; it was as wide as the bracket is deep."""
    depth = 100_000
    (found,) = indented(left * depth + "1" + right * depth)
    lines = found.split("\n")
    assert len(lines) == 2 * depth + 1
    assert max(map(len, lines)) <= 100
    assert "".join(found.split()) == left * depth + "1" + right * depth
