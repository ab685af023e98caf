from __future__ import annotations

import pytest
from rules_house import new

from twinbus.entities.admission import checked_bytes
from twinbus.entities.refusals import SESSION_ID_MISSING_TEXT
from twinbus.errors import ArgumentError, MessageTooLargeError, NotAllowedError
from twinbus.limits import MESSAGE_ID_CHARS_MAX, PARTITION_KEY_CHARS_MAX, SESSION_ID_CHARS_MAX


def test_bytes_add_up_without_pings() -> None:
    assert checked_bytes([new(size=10), new(size=1 << 40, ping=True), new(size=5)], 10, False) == 15


def test_one_message_that_is_too_large_refuses_the_batch() -> None:
    with pytest.raises(MessageTooLargeError, match=r"size:11 bytes\) exceeds the limit \(10 bytes\)"):
        checked_bytes([new(size=10), new(size=11)], 10, False)


def test_a_session_queue_needs_a_session_id() -> None:
    assert checked_bytes([new(session_id="s")], 1000, True) == 100
    with pytest.raises(NotAllowedError, match=SESSION_ID_MISSING_TEXT[:40]):
        checked_bytes([new()], 1000, True)


@pytest.mark.parametrize(
    ("name", "limit"),
    [("session_id", SESSION_ID_CHARS_MAX), ("partition_key", PARTITION_KEY_CHARS_MAX)],
)
def test_ids_have_a_length(name: str, limit: int) -> None:
    assert checked_bytes([new(**{name: "x" * limit})], 1000, False) == 100
    with pytest.raises(ArgumentError, match=f"has {limit + 1} characters, the limit is {limit}"):
        checked_bytes([new(**{name: "x" * (limit + 1)})], 1000, False)


def test_a_message_id_has_a_length() -> None:
    assert checked_bytes([new("x" * MESSAGE_ID_CHARS_MAX)], 1000, False) == 100
    with pytest.raises(ArgumentError, match="The message id has"):
        checked_bytes([new("x" * (MESSAGE_ID_CHARS_MAX + 1))], 1000, False)


def test_partition_key_and_session_id_must_agree() -> None:
    assert checked_bytes([new(session_id="s", partition_key="s")], 1000, False) == 100
    with pytest.raises(ArgumentError, match="must equal the session id 's'"):
        checked_bytes([new(session_id="s", partition_key="other")], 1000, False)


@pytest.mark.parametrize("sessions", [False, True])
def test_an_empty_session_id_goes_with_any_partition_key(sessions: bool) -> None:
    assert checked_bytes([new(session_id="", partition_key="other")], 1000, sessions) == 100
    with pytest.raises(ArgumentError, match="partition key has"):
        checked_bytes([new(session_id="", partition_key="x" * (PARTITION_KEY_CHARS_MAX + 1))], 1000, sessions)
