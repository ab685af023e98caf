"""Every setting of queues, topics and subscriptions in one table, and the settings of a queue.

`EntitySettings` is the table: configuration, validation, admin XML, command line, export and docs/config.md are
generated from its rows or checked against them. A new setting is one row here plus the code that uses it.

- A value out of range is an ArgumentError that names the value and the range. `UNLIMITED_MS` means never.
- The broker reads every setting from every kind of entity. A setting that a kind does not have keeps a neutral value
  and cannot be set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

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

from .setting import (
    EVERY,
    NO_EFFECT,
    QUEUE,
    RECEIVED_FROM,
    SENT_TO,
    SUBSCRIPTION,
    TOPIC,
    Setting,
    duration,
    flag,
    number,
    rows_of,
    text,
)

ACTIVE: Final = "Active"
DISABLED: Final = "Disabled"
SEND_DISABLED: Final = "SendDisabled"
RECEIVE_DISABLED: Final = "ReceiveDisabled"
STATUSES: Final = (ACTIVE, DISABLED, SEND_DISABLED, RECEIVE_DISABLED)

_PATH: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]*[A-Za-z0-9._~-])?")
_S = TypeVar("_S", bound="EntitySettings")


@dataclass(frozen=True, kw_only=True)
class EntitySettings:
    """The table. Help texts, `twinbus queue show` and docs/config.md follow its order."""

    lock_duration_ms: int = duration(
        "LockDuration",
        RECEIVED_FROM,
        LOCK_DURATION_MS_DEFAULT,
        LOCK_DURATION_MS_MIN,
        LOCK_DURATION_MS_MAX,
        "How long a receiver holds the lock of a message.",
        emulator=True,
    )
    default_ttl_ms: int = duration(
        "DefaultMessageTimeToLive",
        EVERY,
        UNLIMITED_MS,
        TIME_TO_LIVE_MS_MIN,
        UNLIMITED_MS,
        "Default and maximum time to live of messages.",
        emulator=True,
    )
    dead_letter_on_expiry: bool = flag(
        "DeadLetteringOnMessageExpiration",
        RECEIVED_FROM,
        False,
        "Dead-letter expired messages.",
        off="drop-on-expiry",
        emulator=True,
    )
    dead_letter_on_filter_error: bool = flag(
        "DeadLetteringOnFilterEvaluationExceptions",
        (SUBSCRIPTION,),
        True,
        "Dead-letter messages on which a rule fails.",
        off="drop-on-filter-error",
    )
    max_delivery_count: int = number(
        "MaxDeliveryCount",
        RECEIVED_FROM,
        MAX_DELIVERY_COUNT_DEFAULT,
        1,
        MAX_DELIVERY_COUNT_MAX,
        "Deliveries before a message is dead-lettered.",
        emulator=True,
    )
    requires_session: bool = flag(
        "RequiresSession", RECEIVED_FROM, False, "Every message belongs to a session.", fixed=True, emulator=True
    )
    requires_duplicate_detection: bool = flag(
        "RequiresDuplicateDetection",
        SENT_TO,
        False,
        "Drop messages whose id was seen before.",
        fixed=True,
        emulator=True,
    )
    duplicate_window_ms: int = duration(
        "DuplicateDetectionHistoryTimeWindow",
        SENT_TO,
        DUPLICATE_WINDOW_MS_DEFAULT,
        DUPLICATE_WINDOW_MS_MIN,
        DUPLICATE_WINDOW_MS_MAX,
        "How long message ids are remembered.",
        emulator=True,
    )
    max_megabytes: int = number(
        "MaxSizeInMegabytes",
        SENT_TO,
        QUEUE_MEGABYTES_DEFAULT,
        1,
        QUEUE_MEGABYTES_MAX,
        "Maximum size; sends beyond it are refused.",
    )
    max_message_bytes: int = number(
        "MaxMessageSizeInKilobytes",
        SENT_TO,
        MESSAGE_BYTES_DEFAULT,
        1024,
        MESSAGE_BYTES_MAX,
        "Maximum size of a message.",
        azure_unit=1024,
    )
    status: str = text(
        "Status", EVERY, ACTIVE, "Whether clients can send and receive.", choices=STATUSES, metavar="STATUS"
    )
    auto_delete_on_idle_ms: int = duration(
        "AutoDeleteOnIdle",
        EVERY,
        UNLIMITED_MS,
        AUTO_DELETE_ON_IDLE_MS_MIN,
        UNLIMITED_MS,
        "Delete the entity after it is idle this long.",
    )
    forward_to: str | None = text(
        "ForwardTo", RECEIVED_FROM, None, "Forward messages to this queue or topic.", metavar="ENTITY", emulator=True
    )
    forward_dead_letters_to: str | None = text(
        "ForwardDeadLetteredMessagesTo",
        RECEIVED_FROM,
        None,
        "Forward dead-lettered messages to this queue or topic.",
        metavar="ENTITY",
        emulator=True,
    )
    # Not a setting: the URL scheme an administration client used for the two above, which it expects back.
    forward_scheme: str = "sb"
    enable_batched_operations: bool = flag("EnableBatchedOperations", EVERY, True, NO_EFFECT)
    enable_partitioning: bool = flag("EnablePartitioning", SENT_TO, False, NO_EFFECT, fixed=True)
    enable_express: bool = flag("EnableExpress", SENT_TO, False, NO_EFFECT)
    support_ordering: bool = flag("SupportOrdering", (TOPIC,), True, NO_EFFECT)
    filter_before_publishing: bool = flag("FilteringMessagesBeforePublishing", (TOPIC,), False, NO_EFFECT, sdk=False)
    user_metadata: str | None = text(
        "UserMetadata", EVERY, None, "Your own text about the entity.", highest=USER_METADATA_CHARS_MAX, metavar="TEXT"
    )

    def __post_init__(self) -> None:
        self.check_names()
        kind = self.kind
        for setting in SETTINGS:
            value = getattr(self, setting.name)
            if kind in setting.entities:
                setting.check(value)
            elif value != type(self).__dataclass_fields__[setting.name].default:
                raise ArgumentError(f"A {kind} has no setting {setting.name}.")

    @property
    def kind(self) -> str:
        """Queue, topic or subscription."""
        raise NotImplementedError

    @property
    def names(self) -> dict[str, str]:
        """The fields that name the entity."""
        raise NotImplementedError

    def check_names(self) -> None:
        raise NotImplementedError

    @property
    def quota_bytes(self) -> int:
        return self.max_megabytes * 1024 * 1024

    def check_update(self, new: EntitySettings) -> None:
        """Raise if an update changes something fixed at creation."""
        for name, before in self.names.items():
            check_fixed(name, before, new.names[name], self.kind)
        for setting in SETTINGS_OF[self.kind]:
            if setting.fixed:
                check_fixed(setting.name, getattr(self, setting.name), getattr(new, setting.name), self.kind)

    def to_json(self) -> dict[str, Any]:
        written = {"forward_scheme": self.forward_scheme} if self.forward_scheme != "sb" else {}
        return {**self.names, **{each.name: getattr(self, each.name) for each in SETTINGS_OF[self.kind]}, **written}

    @classmethod
    def from_json(cls: type[_S], fields: Mapping[str, Any]) -> _S:
        return cls(**fields)


SETTINGS: Final = rows_of(EntitySettings)
SETTINGS_OF: Final[dict[str, tuple[Setting, ...]]] = {
    kind: tuple(each for each in SETTINGS if kind in each.entities) for kind in EVERY
}


@dataclass(frozen=True, kw_only=True)
class QueueSettings(EntitySettings):
    """The settings of one queue.

    The service accepts forwarding from a session queue and to the queue itself: the first never happens, the second
    ends after the maximum number of hops.
    """

    path: str

    @property
    def kind(self) -> str:
        return QUEUE

    @property
    def names(self) -> dict[str, str]:
        return {"path": self.path}

    def check_names(self) -> None:
        check_path(self.path)


def check_path(path: str) -> None:
    """Entity paths: letters, digits and `. - _ ~`, parts separated by single slashes."""
    if not 1 <= len(path) <= ENTITY_PATH_CHARS_MAX:
        raise ArgumentError(f"The entity path has {len(path)} characters; it must have 1 to {ENTITY_PATH_CHARS_MAX}.")
    if not _PATH.fullmatch(path) or "//" in path:
        raise ArgumentError(
            f"The entity path {path!r} must start with a letter or digit and hold only letters, digits, "
            "'.', '-', '_', '~' and single '/' between parts."
        )


def check_fixed(name: str, before: object, after: object, kind: str) -> None:
    """Raise if a fixed setting changes; text compares case-insensitively."""
    same = before.lower() == after.lower() if isinstance(before, str) and isinstance(after, str) else before == after
    if not same:
        entity = kind.capitalize()
        # The service's wording, which the Go client's tests look for.
        reason = f"Partitioning cannot be changed for {entity}. " if name == "enable_partitioning" else ""
        raise ArgumentError(
            f"{reason}The value for the {name} property of an existing {entity} cannot be changed: "
            f"it is {before!r}, not {after!r}."
        )
