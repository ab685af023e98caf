"""Bodies are read back as stored, or reported as damaged."""

from __future__ import annotations

import pytest

from twinbus.errors import DamagedBodyError
from twinbus.store.body_rows import read_bodies, sealed_bodies
from twinbus.store.facts import body_key

BODIES = {body_key(1): b"one", body_key(2): b"", body_key(3): bytes(range(256)) * 300}


def test_what_was_sealed_is_read() -> None:
    rows = dict(sealed_bodies(BODIES))
    assert list(rows) == list(BODIES)
    assert read_bodies(rows.get, [3, 1, 2]) == [BODIES[body_key(number)] for number in (3, 1, 2)]


@pytest.mark.parametrize("at", [0, 3, 4, 6])
def test_a_changed_bit_is_noticed(at: int) -> None:
    rows = dict(sealed_bodies(BODIES))
    row = bytearray(rows[body_key(1)])
    row[at] ^= 4
    rows[body_key(1)] = bytes(row)
    with pytest.raises(DamagedBodyError, match="Body 1 does not match"):
        read_bodies(rows.get, [2, 1])


@pytest.mark.parametrize(("row", "text"), [(None, "Body 1 is not in"), (b"abc", "Body 1 is truncated")])
def test_a_missing_and_a_short_row_are_named(row: bytes | None, text: str) -> None:
    with pytest.raises(DamagedBodyError, match=text):
        read_bodies(lambda key: row, [1])
