"""The settings of a topic and of a subscription. Their table is in `settings.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from twinbus.errors import ArgumentError
from twinbus.limits import (
    MAX_DELIVERY_COUNT_MAX,
    MESSAGE_BYTES_MAX,
    QUEUE_MEGABYTES_MAX,
    SUBSCRIPTION_NAME_CHARS_MAX,
)

from .affinity import ClientAffinity, is_entity_name
from .setting import SUBSCRIPTION, TOPIC
from .settings import EntitySettings, QueueSettings, check_path

# Between a topic's path and a subscription's name.
SUBSCRIPTIONS: Final = "/Subscriptions/"


@dataclass(frozen=True, kw_only=True)
class TopicSettings(EntitySettings):
    """The settings of one topic."""

    path: str
    # Nobody receives from a topic.
    max_delivery_count: int = MAX_DELIVERY_COUNT_MAX

    @property
    def kind(self) -> str:
        return TOPIC

    @property
    def names(self) -> dict[str, str]:
        return {"path": self.path}

    def check_names(self) -> None:
        check_path(self.path)


@dataclass(frozen=True, kw_only=True)
class SubscriptionSettings(EntitySettings):
    """The settings of one subscription."""

    topic: str
    name: str
    # The topic already limits what arrives.
    max_megabytes: int = QUEUE_MEGABYTES_MAX
    max_message_bytes: int = MESSAGE_BYTES_MAX
    # Not a setting: set if a receiver's link made the subscription.
    affinity: ClientAffinity | None = None

    @property
    def kind(self) -> str:
        return SUBSCRIPTION

    def to_json(self) -> dict[str, Any]:
        written = super().to_json()
        return written if self.affinity is None else {**written, "affinity": self.affinity.to_json()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SubscriptionSettings:
        if "affinity" in fields:
            return cls(**{**fields, "affinity": ClientAffinity.from_json(fields["affinity"])})
        return cls(**fields)

    @property
    def names(self) -> dict[str, str]:
        return {"topic": self.topic, "name": self.name}

    @property
    def path(self) -> str:
        return self.topic + SUBSCRIPTIONS + self.name

    def check_names(self) -> None:
        check_path(self.topic)
        # An update of one that a link made has that name, too.
        if not is_entity_name(self.name):
            check_name(self.name, SUBSCRIPTION_NAME_CHARS_MAX, "subscription")


Settings = QueueSettings | TopicSettings | SubscriptionSettings


def check_name(name: str, chars_max: int, what: str) -> None:
    """Check a subscription or rule name: one short path segment; the service's own names start with a dollar sign."""
    if not 1 <= len(name) <= chars_max or "/" in name:
        raise ArgumentError(f"The {what} name {name[:260]!r} must have 1 to {chars_max} characters and no '/'.")
    try:
        check_path(name.removeprefix("$"))
    except ArgumentError:
        raise ArgumentError(
            f"The {what} name {name!r} must start with a letter or digit and hold only letters, digits, "
            "'.', '-', '_' and '~'."
        ) from None
