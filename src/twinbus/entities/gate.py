"""Whether an entity accepts and delivers messages: its status, its deletion, and whether senders may use it."""

from __future__ import annotations

from twinbus.errors import NotAllowedError

from .refusals import disabled, not_found
from .settings import ACTIVE, DISABLED, RECEIVE_DISABLED, SEND_DISABLED


class Gate:
    """The gate of one entity. Hot paths read `sendable` and `receivable` directly."""

    __slots__ = ("_closed_reason", "_path", "_status", "deleted", "receivable", "sendable")

    def __init__(self, path: str, closed_reason: str | None = None) -> None:
        self._path = path
        self._status = ACTIVE
        # Why senders may not use it, whatever its status; None if they may.
        self._closed_reason = closed_reason
        self.deleted = False
        self.sendable = True
        self.receivable = True
        self._settle()

    def set_status(self, status: str) -> None:
        self._status = status
        self._settle()

    def close_to_senders(self, reason: str) -> None:
        """Accept messages only from other entities."""
        self._closed_reason = reason
        self._settle()

    def close(self) -> None:
        """The entity is deleted."""
        self.deleted = True
        self._settle()

    def check_sendable(self) -> None:
        """Raise unless senders may send."""
        if self._closed_reason is not None and not self.deleted:
            raise NotAllowedError(self._closed_reason)
        self.check_open()

    def check_open(self) -> None:
        """Raise if no message can be accepted, whatever its source."""
        if self.deleted:
            raise not_found(self._path)
        if self._status in (DISABLED, SEND_DISABLED):
            raise disabled(self._path)

    def check_receivable(self) -> None:
        """Raise unless receivers may receive."""
        if self.deleted:
            raise not_found(self._path)
        if not self.receivable:
            raise disabled(self._path)

    def _settle(self) -> None:
        exists = not self.deleted
        self.sendable = exists and self._closed_reason is None and self._status not in (DISABLED, SEND_DISABLED)
        self.receivable = exists and self._status not in (DISABLED, RECEIVE_DISABLED)
