from __future__ import annotations

import pytest

from twinbus.entities.changes import merged
from twinbus.entities.message import QueuedMessage
from twinbus.errors import ArgumentError
from twinbus.limits import APPLICATION_PROPERTIES_BYTES_MAX


def message(changes: dict[str, str | bytes] | None) -> QueuedMessage:
    return QueuedMessage(1, 1, 1, 0, None, 0, 0, None, changes)


def test_new_changes_lie_on_top_and_the_message_keeps_its_own() -> None:
    before: dict[str, str | bytes] = {"a": "1", "b": b"\x41"}
    found = message(before)
    assert merged(found, {"b": "2", "c": "3"}) == {"a": "1", "b": "2", "c": "3"}
    assert before == {"a": "1", "b": b"\x41"}
    assert merged(found, None) is before
    assert merged(found, {}) is before


def test_changes_have_a_size() -> None:
    room = APPLICATION_PROPERTIES_BYTES_MAX - 1
    assert merged(message({"a": "x"}), {"b": b"x" * (room - 3)}) is not None
    with pytest.raises(ArgumentError, match=f"take {room + 1} bytes, the limit is {room}"):
        merged(message({"a": "x"}), {"b": "x" * (room - 2)})


def test_a_lone_surrogate_has_a_size_too() -> None:
    assert merged(message(None), {"a": "\ud800"}) == {"a": "\ud800"}
