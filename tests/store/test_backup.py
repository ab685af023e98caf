"""A backup is an exact copy, whatever is committed while the pieces are read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from twinbus.errors import StoreCorruptError, StoreError
from twinbus.store import backup
from twinbus.store.backup import FollowingStore, StorePieces
from twinbus.store.facts import Facts, Table, body_key, index_key
from twinbus.store.lmdb_store import Store


def change(dice: random.Random, number: int) -> Facts:
    """Put, change and delete some rows."""
    facts = Facts()
    for _ in range(dice.randrange(1, 8)):
        at = dice.randrange(1, 400)
        if dice.random() < 0.3:
            facts.delete(dice.choice(list(Table)[:2]), body_key(at) if dice.random() < 0.5 else index_key(1, at))
            facts.delete(Table.BODIES, body_key(at))
        else:
            facts.bodies[body_key(at)] = b"%d" % number * dice.randrange(1, 300)
            facts.index[index_key(1, at)] = b"index %d" % number
            facts.rows[Table.SESSIONS, b"%d" % at] = b"session %d" % number
    facts.bodies = dict(sorted(facts.bodies.items()))
    return facts


def rows(store: Store) -> dict[Table, list[tuple[bytes, bytes]]]:
    return {table: list(store.scan(table)) for table in Table}


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_is_what_the_last_commit_left(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "BACKUP_PIECE_BYTES", 2_000)
    dice = random.Random(seed)
    with Store.open(tmp_path / "live", sync=False) as live:
        for number in range(150):
            live.commit(change(dice, number))
        pieces, copy = StorePieces(live), FollowingStore(tmp_path / "copy")
        number = 1_000
        while (piece := pieces.next()) is not None:
            copy.put(piece)
            for _ in range(dice.randrange(4)):
                facts = change(dice, number)
                live.commit(facts)
                copy.put(facts)
                number += 1
        copy.finish()
        with Store.open(tmp_path / "copy", sync=False) as found:
            assert rows(found) == rows(live)


def test_damage_is_not_copied(tmp_path: Path) -> None:
    with Store.open(tmp_path / "live", sync=False) as live:
        facts = Facts()
        facts.bodies[body_key(1)] = b"whole" * 100
        live.commit(facts)
    path = tmp_path / "live" / "data.mdb"
    path.write_bytes(path.read_bytes().replace(b"wholewhole", b"wholfwhole"))
    with Store.open(tmp_path / "live", sync=False) as live, pytest.raises(StoreCorruptError, match="Body 1"):
        StorePieces(live).next()


def test_a_disk_that_is_too_slow_fails_the_copy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "BACKUP_WAITING_BYTES_MAX", 10)
    copy = FollowingStore(tmp_path / "copy")
    facts = Facts()
    facts.bodies[body_key(1)] = b"x" * 11
    copy.put(facts)
    with pytest.raises(StoreError, match="too slow for the current load"):
        copy.finish()


def test_a_folder_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    """By an interrupted command, at any moment."""
    copy = FollowingStore(tmp_path / "removed" / "copy")
    with pytest.raises(StoreError, match="cannot be written"):
        copy.finish()
    assert list(tmp_path.iterdir()) == []
