"""Whether messages may go into an entity and out of it: its status, its deletion, and whether it has senders at all."""

from __future__ import annotations

from twinbus.errors import NotAllowedError

from .refusals import disabled, not_found
from .settings import ACTIVE, DISABLED, RECEIVE_DISABLED, SEND_DISABLED


class Gate:
    """The gate of one entity. Hot paths look at `sendable` and `receivable` themselves."""

    __slots__ = ("_closed_reason", "_path", "_status", "deleted", "receivable", "sendable")

    def __init__(self, path: str, closed_reason: str | None = None) -> None:
        self._path = path
        self._status = ACTIVE
        # Why nobody sends to it, whatever its status; None: senders may.
        self._closed_reason = closed_reason
        # Nothing goes in or out of what is deleted.
        self.deleted = False
        self.sendable = True
        self.receivable = True
        self._settle()

    def set_status(self, status: str) -> None:
        self._status = status
        self._settle()

    def close_to_senders(self, reason: str) -> None:
        """Let messages come from other entities only."""
        self._closed_reason = reason
        self._settle()

    def close(self) -> None:
        """The entity is deleted."""
        self.deleted = True
        self._settle()

    def check_sendable(self) -> None:
        """Refuse a sender, unless it may send."""
        if self._closed_reason is not None and not self.deleted:
            raise NotAllowedError(self._closed_reason)
        self.check_open()

    def check_open(self) -> None:
        """Refuse messages of whatever source while none can be taken."""
        if self.deleted:
            raise not_found(self._path)
        if self._status in (DISABLED, SEND_DISABLED):
            raise disabled(self._path)

    def check_receivable(self) -> None:
        """Refuse a receiver, unless it may receive."""
        if self.deleted:
            raise not_found(self._path)
        if not self.receivable:
            raise disabled(self._path)

    def _settle(self) -> None:
        exists = not self.deleted
        self.sendable = exists and self._closed_reason is None and self._status not in (DISABLED, SEND_DISABLED)
        self.receivable = exists and self._status not in (DISABLED, RECEIVE_DISABLED)
