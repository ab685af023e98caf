"""The calls of a sender, and how each is done on the primary and through the backlog.

- One object is created per call and may be tried many times, so a try changes nothing that the next one needs.
- The return value of the SDK's sender is passed on: the asyncio client awaits it.
- For the backlog it is encoded once, however many queues are tried.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

from twinbus.ledger.words import Kind
from twinbus.paired.envelope import encoded, encoded_schedule, sessions
from twinbus.paired.messages import snapshot

# The result of a try that found no time, which is nobody's failure.
BUSY: Final = object()


class Work(Protocol):
    """One call of the application."""

    kind: Kind
    went_direct: bool
    # The error of a try that the service may have done nevertheless.
    doubt: Exception | None

    def direct(self, sdk: Any, seconds: float) -> Any:
        """Do it on the primary, with an SDK sender."""
        ...

    def payloads(self) -> list[bytes]:
        """The messages to divert instead."""
        ...

    def sessions(self) -> set[str]:
        """Their session ids."""
        ...


class Sending:
    """`send_messages`."""

    kind = Kind.SEND
    went_direct = False
    doubt: Exception | None = None

    def __init__(self, message: Any) -> None:
        # A prepared message, list or batch, as it was handed over.
        self._message = snapshot(message)

    def direct(self, sdk: Any, seconds: float) -> Any:
        return sdk.send_messages(self._message, timeout=seconds)

    def payloads(self) -> list[bytes]:
        return encoded(self._message)

    def sessions(self) -> set[str]:
        return sessions(self._message)


class Scheduling:
    """`schedule_messages`."""

    kind = Kind.SCHEDULE
    went_direct = False
    doubt: Exception | None = None

    def __init__(self, messages: Any, when: datetime) -> None:
        # A prepared message or list, as it was handed over.
        self._messages = snapshot(messages)
        self._when = when

    def direct(self, sdk: Any, seconds: float) -> Any:
        return sdk.schedule_messages(self._messages, self._when, timeout=seconds)

    def payloads(self) -> list[bytes]:
        return encoded_schedule(self._messages, self._when)

    def sessions(self) -> set[str]:
        return sessions(self._messages)


class BatchMaking:
    """`create_message_batch`: nothing to divert, but it needs an open link."""

    kind = Kind.MANAGE
    went_direct = False
    doubt: Exception | None = None

    def __init__(self, max_size_in_bytes: int | None) -> None:
        # The size that the caller wants; None for the link's maximum.
        self.max_size_in_bytes = max_size_in_bytes

    def direct(self, sdk: Any, seconds: float) -> Any:
        return sdk.create_message_batch(self.max_size_in_bytes)

    def payloads(self) -> list[bytes]:
        return []

    def sessions(self) -> set[str]:
        return set()


class Cancelling(BatchMaking):
    """`cancel_scheduled_messages`."""

    kind = Kind.CANCEL

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def direct(self, sdk: Any, seconds: float) -> Any:
        return sdk.cancel_scheduled_messages(self._numbers, timeout=seconds)
