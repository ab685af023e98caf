"""What an owner can set on a queue, checked once, when it is made.

A value outside its range is an ArgumentError that names the value and the range. `UNLIMITED_MS` means never.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from twinbus.errors import ArgumentError
from twinbus.limits import (
    AUTO_DELETE_ON_IDLE_MS_MIN,
    DUPLICATE_WINDOW_MS_DEFAULT,
    DUPLICATE_WINDOW_MS_MAX,
    DUPLICATE_WINDOW_MS_MIN,
    ENTITY_PATH_CHARS_MAX,
    LOCK_DURATION_MS_DEFAULT,
    LOCK_DURATION_MS_MAX,
    LOCK_DURATION_MS_MIN,
    MAX_DELIVERY_COUNT_DEFAULT,
    MAX_DELIVERY_COUNT_MAX,
    MESSAGE_BYTES_DEFAULT,
    MESSAGE_BYTES_MAX,
    QUEUE_MEGABYTES_DEFAULT,
    QUEUE_MEGABYTES_MAX,
    TIME_TO_LIVE_MS_MIN,
    UNLIMITED_MS,
    USER_METADATA_CHARS_MAX,
)

ACTIVE: Final = "Active"
DISABLED: Final = "Disabled"
SEND_DISABLED: Final = "SendDisabled"
RECEIVE_DISABLED: Final = "ReceiveDisabled"
STATUSES: Final = (ACTIVE, DISABLED, SEND_DISABLED, RECEIVE_DISABLED)

# What cannot change once the queue exists: stored messages depend on it.
FIXED: Final = ("path", "requires_session", "requires_duplicate_detection", "enable_partitioning")

_PATH: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]*[A-Za-z0-9._~-])?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """The settings of one queue, in the service's terms."""

    path: str
    lock_duration_ms: int = LOCK_DURATION_MS_DEFAULT
    max_megabytes: int = QUEUE_MEGABYTES_DEFAULT
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_ttl_ms: int = UNLIMITED_MS
    dead_letter_on_expiry: bool = False
    duplicate_window_ms: int = DUPLICATE_WINDOW_MS_DEFAULT
    max_delivery_count: int = MAX_DELIVERY_COUNT_DEFAULT
    enable_batched_operations: bool = True
    status: str = ACTIVE
    auto_delete_on_idle_ms: int = UNLIMITED_MS
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    user_metadata: str | None = None
    max_message_bytes: int = MESSAGE_BYTES_DEFAULT

    def __post_init__(self) -> None:
        check_path(self.path)
        check_range("lock_duration_ms", self.lock_duration_ms, LOCK_DURATION_MS_MIN, LOCK_DURATION_MS_MAX)
        check_range("max_megabytes", self.max_megabytes, 1, QUEUE_MEGABYTES_MAX)
        check_range("default_ttl_ms", self.default_ttl_ms, TIME_TO_LIVE_MS_MIN, UNLIMITED_MS)
        check_range("duplicate_window_ms", self.duplicate_window_ms, DUPLICATE_WINDOW_MS_MIN, DUPLICATE_WINDOW_MS_MAX)
        check_range("max_delivery_count", self.max_delivery_count, 1, MAX_DELIVERY_COUNT_MAX)
        check_range("auto_delete_on_idle_ms", self.auto_delete_on_idle_ms, AUTO_DELETE_ON_IDLE_MS_MIN, UNLIMITED_MS)
        check_range("max_message_bytes", self.max_message_bytes, 1024, MESSAGE_BYTES_MAX)
        check_status(self.status, STATUSES)
        check_metadata(self.user_metadata)
        # Forwarding from a queue with sessions, or to the queue itself, is no mistake to the service: the first never
        # happens, the second ends after the allowed number of hops.

    @property
    def quota_bytes(self) -> int:
        return self.max_megabytes * 1024 * 1024

    def check_update(self, new: QueueSettings) -> None:
        """Refuse an update that touches what is fixed at creation."""
        for name in FIXED:
            check_fixed(name, getattr(self, name), getattr(new, name), "queue")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> QueueSettings:
        return cls(**fields)


def check_path(path: str) -> None:
    """Entity paths: letters, digits and `. - _ ~`, parts separated by single slashes."""
    if not 1 <= len(path) <= ENTITY_PATH_CHARS_MAX:
        raise ArgumentError(f"The entity path has {len(path)} characters; it must have 1 to {ENTITY_PATH_CHARS_MAX}.")
    if not _PATH.fullmatch(path) or "//" in path:
        raise ArgumentError(
            f"The entity path {path!r} must start with a letter or digit and hold only letters, digits, "
            "'.', '-', '_', '~' and single '/' between parts."
        )


def check_status(status: str, allowed: tuple[str, ...]) -> None:
    if status not in allowed:
        raise ArgumentError(f"status {status!r} is not one of {', '.join(allowed)}.")


def check_metadata(text: str | None) -> None:
    if text is not None and len(text) > USER_METADATA_CHARS_MAX:
        raise ArgumentError(f"user_metadata has {len(text)} characters, the limit is {USER_METADATA_CHARS_MAX}.")


def check_fixed(name: str, before: object, after: object, kind: str) -> None:
    """Refuse a change of what is fixed at creation; names are the same whatever their case."""
    same = before.lower() == after.lower() if isinstance(before, str) and isinstance(after, str) else before == after
    if not same:
        raise ArgumentError(
            f"The value for the {name} property of an existing {kind.capitalize()} cannot be changed: "
            f"it is {before!r}, not {after!r}."
        )


def check_range(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ArgumentError(f"{name} {value} is out of range: {lowest} to {highest}.")
