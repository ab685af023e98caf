"""What is remembered of namespaces: by whom it can be read, and what becomes of a file that is not ours."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from twinbus.paired.homes import NamespaceAnswer
from twinbus.paired.memory import NamespaceMemory, state_folder
from twinbus.paired.options import NamespaceAddress

HERE = NamespaceAddress.parse("localhost:5672")
ANSWER = NamespaceAnswer("contoso", "a" * 32)


def only_file(folder: Path) -> Path:
    (found,) = (folder / "namespaces").iterdir()
    return found


def test_it_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    memory = NamespaceMemory(HERE, "the key", folder)
    assert memory.recall() is None
    memory.remember(ANSWER)
    assert memory.recall() == ANSWER
    file = only_file(folder)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(file.read_text()) == {"address": "localhost:5672", "name": "contoso", "identity": "a" * 32}
    assert "the key" not in file.name + file.read_text()
    memory.remember(NamespaceAnswer("contoso", "b" * 32))
    assert NamespaceMemory(HERE, "the key", folder).recall() == NamespaceAnswer("contoso", "b" * 32)
    only_file(folder)


def test_another_key_or_address_is_another_namespace(tmp_path: Path) -> None:
    NamespaceMemory(HERE, "a", tmp_path).remember(ANSWER)
    assert NamespaceMemory(HERE, "b", tmp_path).recall() is None
    assert NamespaceMemory(NamespaceAddress.parse("localhost:5673"), "a", tmp_path).recall() is None
    # The same address, spelled otherwise.
    assert NamespaceMemory(NamespaceAddress.parse("127.0.0.1:5672"), "a", tmp_path).recall() == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"name": "a/b", "identity": "x"}',
        '{"name": 5, "identity": "x"}',
        '{"name": "contoso", "identity": 5}',
        json.dumps({"name": "contoso", "identity": "x" * 200}),
        "\\u0000" * 5000,
    ],
)
def test_a_file_that_cannot_be_read_is_nothing_remembered(tmp_path: Path, text: str) -> None:
    memory = NamespaceMemory(HERE, "", tmp_path)
    memory.remember(ANSWER)
    only_file(tmp_path).write_text(text)
    assert memory.recall() is None
    memory.remember(ANSWER)
    assert memory.recall() == ANSWER


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    memory = NamespaceMemory(HERE, "", tmp_path)
    memory.remember(ANSWER)
    file = only_file(tmp_path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert memory.recall() is None


def test_a_pipe_in_its_place_does_not_block(tmp_path: Path) -> None:
    memory = NamespaceMemory(HERE, "", tmp_path)
    memory.remember(ANSWER)
    file = only_file(tmp_path)
    file.unlink()
    os.mkfifo(file)
    assert memory.recall() is None


def test_what_cannot_be_kept_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = NamespaceMemory(HERE, "", tmp_path / "file")
    memory.remember(ANSWER)
    assert memory.recall() is None
    nowhere = NamespaceMemory(HERE, "", None)
    nowhere.remember(ANSWER)
    assert nowhere.recall() is None
    unnamed = NamespaceMemory(HERE, "", tmp_path)
    unnamed.remember(NamespaceAnswer(None, "a"))
    assert unnamed.recall() is None


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    memory = NamespaceMemory(HERE, "", tmp_path)
    answers = [NamespaceAnswer("contoso", digit * 32) for digit in "abcd"]
    threads = [
        threading.Thread(target=lambda answer=answer: [memory.remember(answer) for _ in range(50)])
        for answer in answers
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert memory.recall() in (None, *answers)
    for thread in threads:
        thread.join()
    assert memory.recall() in answers
    only_file(tmp_path)


def test_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINBUS_STATE_DIR", str(tmp_path))
    assert state_folder() == tmp_path
    monkeypatch.setenv("TWINBUS_STATE_DIR", "")
    assert state_folder() is None
    monkeypatch.delenv("TWINBUS_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "twinbus-client"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local" / "state" / "twinbus-client"
