"""Operations on an entity's management node.

Two rules. Operations and fields have the service's own names, including its misspelling `defered`. A failure raises the
exception for its condition; "nothing found" is an empty answer, not a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from twinbus.amqp import ARRAY_OF_LONG, ARRAY_OF_UUID, AmqpMessage, Array, Int, Timestamp, UInt
from twinbus.client.conditions import request_error
from twinbus.client.message import Message, ReceivedMessage
from twinbus.errors import InternalError
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX, CLIENT_TIMEOUT_MS, SESSIONS_PAGE_MAX

if TYPE_CHECKING:
    from twinbus.client.connection import BusConnection

# "Any time": list all sessions with messages or state, whenever they were updated.
_ANY_TIME_MS = 253_402_300_800_000

COMPLETED = "completed"
ABANDONED = "abandoned"
DEFERRED = "defered"
DEAD_LETTERED = "suspended"


class Management:
    """The management node of an entity or of the namespace; created by `BusClient.management`."""

    def __init__(self, connection: BusConnection, path: str, *, timeout_ms: int = CLIENT_TIMEOUT_MS) -> None:
        self._connection = connection
        self.path = path
        self._timeout_ms = timeout_ms

    # --- sending ----------------------------------------------------------------------------------------------------

    async def schedule(self, messages: Iterable[Message | bytes]) -> list[int]:
        """Schedule messages, each for the time it carries; return their sequence numbers."""
        entries = []
        for message in messages:
            payload = message if isinstance(message, bytes) else message.encode()
            decoded = AmqpMessage.decode(payload)
            entry: dict[str, Any] = {"message-id": str(decoded.message_id or ""), "message": payload}
            if decoded.group_id is not None:
                entry["session-id"] = decoded.group_id
            key = (decoded.message_annotations or {}).get("x-opt-partition-key")
            if key is not None:
                entry["partition-key"] = key
            entries.append(entry)
        if not entries:
            return []
        body = await self._ask("schedule-message", {"messages": entries})
        return [int(number) for number in _needed(body, "sequence-numbers", list)]

    async def cancel(self, sequence_numbers: Iterable[int]) -> None:
        """Cancel scheduled messages."""
        await self._ask("cancel-scheduled-message", {"sequence-numbers": _longs(sequence_numbers)})

    # --- locks ------------------------------------------------------------------------------------------------------

    async def renew_locks(self, lock_tokens: Sequence[UUID]) -> list[int]:
        """Renew the locks of messages; return when each lock expires."""
        if not lock_tokens:
            return []
        body = await self._ask("renew-lock", {"lock-tokens": Array(lock_tokens, ARRAY_OF_UUID)})
        return [int(time) for time in _needed(body, "expirations", list)]

    async def update_disposition(
        self,
        lock_tokens: Sequence[UUID],
        status: str,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> None:
        """Settle messages by their lock tokens, from any connection."""
        request: dict[str, Any] = {"disposition-status": status, "lock-tokens": Array(lock_tokens, ARRAY_OF_UUID)}
        if status == DEAD_LETTERED:
            request["deadletter-reason"] = reason or ""
            request["deadletter-description"] = description or ""
        if properties:
            request["properties-to-modify"] = properties
        if session_id is not None:
            request["session-id"] = session_id
        await self._ask("update-disposition", request)

    # --- peeking and fetching -----------------------------------------------------------------------------------------

    async def peek(
        self, count: int = 1, *, from_sequence_number: int = 1, session_id: str | None = None
    ) -> list[ReceivedMessage]:
        """Peek at messages without locking them, starting at a sequence number."""
        payloads = await self.peek_payloads(count, from_sequence_number=from_sequence_number, session_id=session_id)
        return [ReceivedMessage(payload, None, b"") for payload in payloads]

    async def peek_payloads(
        self, count: int = 1, *, from_sequence_number: int = 1, session_id: str | None = None
    ) -> list[bytes]:
        """Peek at messages; return them encoded."""
        request: dict[str, Any] = {"from-sequence-number": int(from_sequence_number), "message-count": Int(count)}
        if session_id is not None:
            request["session-id"] = session_id
        body = await self._ask("peek-message", request)
        return [_payload(entry) for entry in _entries(body)]

    async def receive_deferred(
        self, sequence_numbers: Iterable[int], *, lock: bool = True, session_id: str | None = None
    ) -> list[ReceivedMessage]:
        """Receive deferred messages by sequence number, either locked or deleted."""
        request: dict[str, Any] = {
            "sequence-numbers": _longs(sequence_numbers),
            "receiver-settle-mode": UInt(1 if lock else 0),
        }
        if session_id is not None:
            request["session-id"] = session_id
        body = await self._ask("receive-by-sequence-number", request)
        messages = []
        for entry in _entries(body):
            token = entry.get("lock-token")
            messages.append(ReceivedMessage(_payload(entry), None, token.bytes_le if isinstance(token, UUID) else b""))
        return messages

    async def delete_batch(self, count: int, *, before_ms: int, session_id: str | None = None) -> int:
        """Delete up to `count` of the oldest messages enqueued before a time; return how many were deleted."""
        request: dict[str, Any] = {
            "message-count": Int(min(count, BATCH_DELETE_MESSAGES_MAX)),
            "enqueued-time-utc": Timestamp(before_ms),
        }
        if session_id is not None:
            request["session-id"] = session_id
        body = await self._ask("batch-delete-messages", request)
        return int(body.get("message-count", 0))

    async def resubmit(self, sequence_numbers: Iterable[int]) -> int:
        """Have a Twinbus broker move these dead-lettered messages back to their entity; return how many were moved.
        Other brokers raise UnsupportedError."""
        body = await self.ask("twinbus:resubmit", {"sequence-numbers": _longs(sequence_numbers)})
        return int(_needed(body, "resubmitted", int))

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def renew_session(self, session_id: str) -> int:
        """Renew a session's lock; return when it expires."""
        body = await self._ask("renew-session-lock", {"session-id": session_id})
        return int(_needed(body, "expiration", int))

    async def session_state(self, session_id: str) -> bytes | None:
        body = await self._ask("get-session-state", {"session-id": session_id})
        state = body.get("session-state")
        return None if state is None else bytes(state)

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        await self._ask("set-session-state", {"session-id": session_id, "session-state": state})

    async def list_sessions(self, *, updated_after_ms: int | None = None) -> list[str]:
        """List the ids of sessions with messages or state, or of those whose state was set after a time."""
        since = Timestamp(_ANY_TIME_MS if updated_after_ms is None else updated_after_ms)
        found: list[str] = []
        while True:
            request = {"last-updated-time": since, "skip": Int(len(found)), "top": Int(SESSIONS_PAGE_MAX)}
            body = await self._ask("get-message-sessions", request)
            page = [str(name) for name in body.get("sessions-ids") or []]
            found += page
            if len(page) < SESSIONS_PAGE_MAX:
                return found

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _ask(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        return await self.ask(f"com.microsoft:{operation}", request)

    async def ask(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send an operation by its full name and return the answer; Twinbus has some operations of its own."""
        node = await self._connection.management(self.path)
        properties = {"operation": operation, "com.microsoft:server-timeout": UInt(self._timeout_ms)}
        response = await node.ask(properties, request, timeout_ms=self._timeout_ms)
        answer = response.application_properties or {}
        status = answer.get("statusCode")
        if not isinstance(status, int):
            raise InternalError(f"The answer to {operation} has no status.")
        if status == 204:
            return {}
        if not 200 <= status < 300:
            condition = answer.get("errorCondition")
            text = str(answer.get("statusDescription") or operation)
            raise request_error(int(status), str(condition) if condition else None, text)
        body = response.value
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise InternalError(f"The answer to {operation} is not a map.")
        return body


def _longs(numbers: Iterable[int]) -> Array:
    return Array([int(number) for number in numbers], ARRAY_OF_LONG)


def _entries(body: dict[str, Any]) -> list[Any]:
    return list(_needed(body, "messages", list)) if body else []


def _payload(entry: Any) -> bytes:
    if not isinstance(entry, dict):
        raise InternalError("A message in an answer is not a map.")
    return bytes(_needed(entry, "message", bytes))


def _needed(body: dict[str, Any], name: str, kind: type) -> Any:
    value = body.get(name)
    if not isinstance(value, kind):
        raise InternalError(f"The answer has no {name}.")
    return value
