from __future__ import annotations

from twinbus.entities.dead_letter import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, with_reason
from twinbus.entities.message import QueuedMessage
from twinbus.limits import DEAD_LETTER_TEXT_CHARS_MAX


def message(changes: dict[str, str | bytes] | None) -> QueuedMessage:
    return QueuedMessage(1, 1, 1, 0, None, 0, 0, None, changes)


def test_a_reason_is_added_to_what_was_changed_before() -> None:
    found = message({"a": "1"})
    assert with_reason(found, "why", None) == {"a": "1", DEAD_LETTER_REASON: "why"}
    assert found.changes == {"a": "1"}


def test_without_a_reason_nothing_is_added() -> None:
    assert with_reason(message(None), None, None) is None
    assert with_reason(message({"a": "1"}), None, None) == {"a": "1"}


def test_texts_are_cut() -> None:
    changes = with_reason(message(None), "r" * 9000, "d" * 9000)
    assert changes == {
        DEAD_LETTER_REASON: "r" * DEAD_LETTER_TEXT_CHARS_MAX,
        DEAD_LETTER_DESCRIPTION: "d" * DEAD_LETTER_TEXT_CHARS_MAX,
    }


def test_messages_with_the_same_reason_share_their_changes() -> None:
    assert with_reason(message(None), "why", "text") is with_reason(message(None), "why", "text")
    assert with_reason(message(None), "why", "other") == {DEAD_LETTER_REASON: "why", DEAD_LETTER_DESCRIPTION: "other"}
