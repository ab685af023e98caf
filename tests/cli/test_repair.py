"""`twinbus check` reports what is wrong with a folder, `--repair` writes a sound copy, `compact` copies no damage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.bad_folders import FAULTS, SOUND, first, make, opened, write
from tests.cli.test_folders import damage
from twinbus.cli.main import run
from twinbus.entities import records
from twinbus.errors import StoreCorruptError
from twinbus.store.facts import Facts, Table
from twinbus.store.lmdb_store import Store

Command = Callable[..., tuple[int, str, str]]
Fault = Callable[[Path], set[tuple[Table, bytes]]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def ran(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return ran


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data" / "contoso"
    make(made)
    return made


def served(folder: Path) -> dict[str, int]:
    """Return the number of active messages by path; every body is read."""

    async def look() -> dict[str, int]:
        host = opened(folder)
        assert host.entities.set_aside.count == 0
        host.start()
        found = {}
        for path in SOUND:
            queue = host.entities.queue(path)
            source = queue.accept_session("g", host.clock.now_ms()) if path == "grouped" else queue
            assert source is not None
            messages = source.acquire(100, host.clock.now_ms(), host.commits.facts)
            host.store.bodies([each.body_number for each in messages])
            found[path] = len(messages)
        await host.stop()
        return found

    return asyncio.run(look())


def test_a_sound_folder_is_repaired_to_itself(command: Command, folder: Path, tmp_path: Path) -> None:
    code, out, err = command("check", folder.parent, "--repair", tmp_path / "copy")
    assert code == 0, err
    assert "Everything is in the copy" in out
    assert served(tmp_path / "copy" / "contoso") == SOUND


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_named_refused_by_compact_and_left_out_of_a_repaired_copy(
    command: Command, folder: Path, tmp_path: Path, fault: Fault
) -> None:
    aside = fault(folder)
    code, out, _ = command("check", folder.parent, "--json")
    assert code == 1
    (report,) = json.loads(out)
    assert not report["ok"]
    assert report["faults"] == len(aside)
    assert len(report["findings"]) == len(aside)
    code, _, err = command("compact", folder.parent, tmp_path / "compact")
    assert code == 1
    assert "twinbus check" in err
    assert not (tmp_path / "compact").exists()
    code, out, err = command("check", folder.parent, "--repair", tmp_path / "copy", "--json")
    assert code == 1, err
    (repaired,) = json.loads(out)
    assert len(repaired["left_out"]) >= len(aside)
    assert command("check", tmp_path / "copy")[0] == 0
    assert served(tmp_path / "copy" / "contoso") == SOUND
    # The original is unchanged.
    code, again, _ = command("check", folder.parent, "--json")
    assert json.loads(again) == [report]


def test_a_damaged_body_is_left_out_with_its_messages(command: Command, folder: Path, tmp_path: Path) -> None:
    damage(folder)
    code, out, _ = command("check", folder.parent, "--repair", tmp_path / "copy")
    assert code == 1
    assert "message 1 of plain" in out
    assert command("check", tmp_path / "copy")[0] == 0
    assert served(tmp_path / "copy" / "contoso") == SOUND | {"plain": 2}


def test_a_shared_body_that_is_not_marked_is_found_and_marked(command: Command, folder: Path, tmp_path: Path) -> None:
    """Otherwise, completing the first of its messages would delete the body of the other."""
    facts = Facts()
    key = records.key(16, 1)
    value = dict(_index(folder))[key]
    assert records.unpack(value).shared
    facts.index[key] = value[:1] + bytes([value[1] & ~records.SHARED]) + value[2:]
    write(folder, facts)
    code, out, _ = command("check", folder.parent)
    assert code == 1
    assert "shared" in out
    assert command("check", folder.parent, "--repair", tmp_path / "copy")[0] == 1
    assert command("check", tmp_path / "copy")[0] == 0
    assert served(tmp_path / "copy" / "contoso") == SOUND


def test_a_message_that_is_set_aside_though_its_body_is_whole_is_named_and_delivered_by_the_copy(
    command: Command, folder: Path, tmp_path: Path
) -> None:
    facts = Facts()
    key = records.key(4, 2)
    value = dict(_index(folder))[key]
    facts.index[key] = value[:1] + bytes([value[1] | records.DAMAGED]) + value[2:]
    write(folder, facts)
    code, out, _ = command("check", folder.parent)
    assert code == 1
    assert "message 2 of 'plain' is set aside" in out
    assert command("check", folder.parent, "--repair", tmp_path / "copy")[0] == 1
    assert command("check", tmp_path / "copy")[0] == 0
    assert served(tmp_path / "copy" / "contoso") == SOUND


@pytest.mark.parametrize("mark", [b"bodies", b"entities", records.META_SEQUENCE + records.ENTITY_KEY.pack(4)])
@pytest.mark.parametrize("value", [None, bytes(8), b"short"])
def test_a_mark_that_is_too_low_is_found_and_raised(
    command: Command, folder: Path, tmp_path: Path, mark: bytes, value: bytes | None
) -> None:
    """Sequence numbers issued twice would overwrite messages."""
    facts = Facts()
    if value is None:
        facts.delete(Table.META, mark)
    else:
        facts.rows[Table.META, mark] = value
    write(folder, facts)
    code, out, _ = command("check", folder.parent)
    assert code == 1
    assert "mark" in out
    assert command("check", folder.parent, "--repair", tmp_path / "copy")[0] == 1
    assert command("check", tmp_path / "copy")[0] == 0
    assert served(tmp_path / "copy" / "contoso") == SOUND


@pytest.mark.parametrize("value", [b"{", b"{}", b'{"settings":{"path":""},"created_ms":1,"updated_ms":1}'])
def test_an_entity_that_cannot_be_read_stops_the_start_and_is_left_out_of_a_repaired_copy(
    command: Command, folder: Path, tmp_path: Path, value: bytes
) -> None:
    facts = Facts()
    key, _ = first(folder, Table.ENTITIES)
    facts.rows[Table.ENTITIES, key] = value
    write(folder, facts)
    with pytest.raises(StoreCorruptError, match="twinbus check"):
        opened(folder)
    code, out, _ = command("check", folder.parent, "--repair", tmp_path / "copy", "--json")
    assert code == 1
    (report,) = json.loads(out)
    # The queue, its three messages with their ids, and their bodies.
    assert len(report["left_out"]) >= 7
    assert command("check", tmp_path / "copy")[0] == 0


def _index(folder: Path) -> list[tuple[bytes, bytes]]:
    with Store.open(folder, sync=False) as store:
        return list(store.scan(Table.INDEX))


def test_the_copy_goes_to_a_new_folder(command: Command, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    code, _, err = command("check", folder.parent, "--repair", tmp_path / "copy")
    assert code == 2
    assert "exists already" in err
