"""Checks on incoming messages. A whole batch is checked before anything changes."""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.errors import ArgumentError, NotAllowedError
from twinbus.limits import MESSAGE_ID_CHARS_MAX, PARTITION_KEY_CHARS_MAX, SESSION_ID_CHARS_MAX

from .duplicates import Duplicates
from .message import NewMessage
from .refusals import SESSION_ID_MISSING_TEXT, too_large, too_long


def checked_bytes(
    messages: Sequence[NewMessage], bytes_max: int, sessions: bool, duplicates: Duplicates | None = None
) -> int:
    """Check each message and return the total size in bytes; raise for the first message that is not acceptable."""
    total = 0
    for new in messages:
        if new.ping:
            continue
        size = new.size
        if size > bytes_max:
            raise too_large(size, bytes_max)
        total += size
        if len(new.message_id) > MESSAGE_ID_CHARS_MAX:
            raise too_long("message id", new.message_id, MESSAGE_ID_CHARS_MAX)
        if new.session_id:
            _check_session_id(new, new.session_id)
        elif sessions and new.session_id is None:
            raise NotAllowedError(SESSION_ID_MISSING_TEXT)
        # The service compares the two only if the session id has characters; '' is a session like any other.
        elif new.partition_key is not None and len(new.partition_key) > PARTITION_KEY_CHARS_MAX:
            raise too_long("partition key", new.partition_key, PARTITION_KEY_CHARS_MAX)
    if duplicates is not None:
        duplicates.check_room(messages)
    return total


def _check_session_id(new: NewMessage, session_id: str) -> None:
    if len(session_id) > SESSION_ID_CHARS_MAX:
        raise too_long("session id", session_id, SESSION_ID_CHARS_MAX)
    if new.partition_key is not None and new.partition_key != session_id:
        raise ArgumentError(
            f"The partition key '{new.partition_key[:PARTITION_KEY_CHARS_MAX]}' must equal "
            f"the session id '{session_id}'."
        )
