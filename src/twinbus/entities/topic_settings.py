"""What an owner can set on a topic and on a subscription, checked once, when it is made.

The rules ask every entity the same questions; what a kind of entity does not have answers with the value that changes
nothing. Those answers are properties: they are no settings, and nobody can give them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from twinbus.errors import ArgumentError
from twinbus.limits import (
    AUTO_DELETE_ON_IDLE_MS_MIN,
    DUPLICATE_WINDOW_MS_DEFAULT,
    DUPLICATE_WINDOW_MS_MAX,
    DUPLICATE_WINDOW_MS_MIN,
    LOCK_DURATION_MS_DEFAULT,
    LOCK_DURATION_MS_MAX,
    LOCK_DURATION_MS_MIN,
    MAX_DELIVERY_COUNT_DEFAULT,
    MAX_DELIVERY_COUNT_MAX,
    MESSAGE_BYTES_DEFAULT,
    MESSAGE_BYTES_MAX,
    QUEUE_MEGABYTES_DEFAULT,
    QUEUE_MEGABYTES_MAX,
    SUBSCRIPTION_NAME_CHARS_MAX,
    TIME_TO_LIVE_MS_MIN,
    UNLIMITED_MS,
)

from .settings import (
    ACTIVE,
    STATUSES,
    QueueSettings,
    check_fixed,
    check_metadata,
    check_path,
    check_range,
    check_status,
)

# Between a topic's path and a subscription's name.
SUBSCRIPTIONS: Final = "/Subscriptions/"

# What cannot change once it exists: stored messages depend on it.
_TOPIC_FIXED: Final = ("path", "requires_duplicate_detection", "enable_partitioning")
_SUBSCRIPTION_FIXED: Final = ("topic", "name", "requires_session")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """The settings of one topic, in the service's terms."""

    path: str
    max_megabytes: int = QUEUE_MEGABYTES_DEFAULT
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = DUPLICATE_WINDOW_MS_DEFAULT
    default_ttl_ms: int = UNLIMITED_MS
    enable_batched_operations: bool = True
    status: str = ACTIVE
    auto_delete_on_idle_ms: int = UNLIMITED_MS
    enable_partitioning: bool = False
    enable_express: bool = False
    support_ordering: bool = True
    filter_before_publishing: bool = False
    user_metadata: str | None = None
    max_message_bytes: int = MESSAGE_BYTES_DEFAULT

    def __post_init__(self) -> None:
        check_path(self.path)
        check_range("max_megabytes", self.max_megabytes, 1, QUEUE_MEGABYTES_MAX)
        check_range("default_ttl_ms", self.default_ttl_ms, TIME_TO_LIVE_MS_MIN, UNLIMITED_MS)
        check_range("duplicate_window_ms", self.duplicate_window_ms, DUPLICATE_WINDOW_MS_MIN, DUPLICATE_WINDOW_MS_MAX)
        check_range("auto_delete_on_idle_ms", self.auto_delete_on_idle_ms, AUTO_DELETE_ON_IDLE_MS_MIN, UNLIMITED_MS)
        check_range("max_message_bytes", self.max_message_bytes, 1024, MESSAGE_BYTES_MAX)
        check_status(self.status, STATUSES)
        check_metadata(self.user_metadata)

    @property
    def quota_bytes(self) -> int:
        return self.max_megabytes * 1024 * 1024

    def check_update(self, new: TopicSettings) -> None:
        """Refuse an update that touches what is fixed at creation."""
        for name in _TOPIC_FIXED:
            check_fixed(name, getattr(self, name), getattr(new, name), "topic")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> TopicSettings:
        return cls(**fields)

    # --- what a topic does not have: nobody receives from it ----------------------------------------------------------

    @property
    def lock_duration_ms(self) -> int:
        return LOCK_DURATION_MS_DEFAULT

    @property
    def requires_session(self) -> bool:
        return False

    @property
    def dead_letter_on_expiry(self) -> bool:
        return False

    @property
    def max_delivery_count(self) -> int:
        return MAX_DELIVERY_COUNT_MAX

    @property
    def forward_to(self) -> str | None:
        return None

    @property
    def forward_dead_letters_to(self) -> str | None:
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubscriptionSettings:
    """The settings of one subscription, in the service's terms."""

    topic: str
    name: str
    lock_duration_ms: int = LOCK_DURATION_MS_DEFAULT
    requires_session: bool = False
    default_ttl_ms: int = UNLIMITED_MS
    dead_letter_on_expiry: bool = False
    dead_letter_on_filter_error: bool = True
    max_delivery_count: int = MAX_DELIVERY_COUNT_DEFAULT
    enable_batched_operations: bool = True
    status: str = ACTIVE
    auto_delete_on_idle_ms: int = UNLIMITED_MS
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        check_path(self.topic)
        check_name(self.name, SUBSCRIPTION_NAME_CHARS_MAX, "subscription")
        check_range("lock_duration_ms", self.lock_duration_ms, LOCK_DURATION_MS_MIN, LOCK_DURATION_MS_MAX)
        check_range("default_ttl_ms", self.default_ttl_ms, TIME_TO_LIVE_MS_MIN, UNLIMITED_MS)
        check_range("max_delivery_count", self.max_delivery_count, 1, MAX_DELIVERY_COUNT_MAX)
        check_range("auto_delete_on_idle_ms", self.auto_delete_on_idle_ms, AUTO_DELETE_ON_IDLE_MS_MIN, UNLIMITED_MS)
        check_status(self.status, STATUSES)
        check_metadata(self.user_metadata)

    @property
    def path(self) -> str:
        return self.topic + SUBSCRIPTIONS + self.name

    def check_update(self, new: SubscriptionSettings) -> None:
        """Refuse an update that touches what is fixed at creation."""
        for name in _SUBSCRIPTION_FIXED:
            check_fixed(name, getattr(self, name), getattr(new, name), "subscription")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SubscriptionSettings:
        return cls(**fields)

    # --- what a subscription does not have: its topic does ----------------------------------------------------------

    @property
    def requires_duplicate_detection(self) -> bool:
        return False

    @property
    def duplicate_window_ms(self) -> int:
        return DUPLICATE_WINDOW_MS_DEFAULT

    @property
    def max_megabytes(self) -> int:
        return QUEUE_MEGABYTES_MAX

    @property
    def quota_bytes(self) -> int:
        return QUEUE_MEGABYTES_MAX * 1024 * 1024

    @property
    def max_message_bytes(self) -> int:
        return MESSAGE_BYTES_MAX

    @property
    def enable_partitioning(self) -> bool:
        return False

    @property
    def enable_express(self) -> bool:
        return False


# What an entity's settings can be.
Settings = QueueSettings | TopicSettings | SubscriptionSettings


def check_name(name: str, chars_max: int, what: str) -> None:
    """A subscription's or rule's name: short, and one part of a path; the service's own start with a dollar sign."""
    if not 1 <= len(name) <= chars_max or "/" in name:
        raise ArgumentError(f"The {what} name {name[:260]!r} must have 1 to {chars_max} characters and no '/'.")
    try:
        check_path(name.removeprefix("$"))
    except ArgumentError:
        raise ArgumentError(
            f"The {what} name {name!r} must start with a letter or digit and hold only letters, digits, "
            "'.', '-', '_' and '~'."
        ) from None
