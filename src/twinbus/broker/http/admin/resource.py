"""What the API can do with each kind of thing, and what it knows of the request while it does it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from twinbus.broker.http.admin.caller import Caller
from twinbus.broker.http.admin.feed import Entry, Site
from twinbus.broker.http.admin.namespace_xml import PREMIUM, STANDARD
from twinbus.broker.http.admin.requests import RequestTarget
from twinbus.errors import ArgumentError
from twinbus.limits import MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX, QUEUE_MEGABYTES_DEFAULT

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from twinbus.entities.setting import Setting
    from twinbus.entities.settings import EntitySettings

# Partitions of an entity that has them, each of the size that a client asks for.
PARTITIONS = 16
# Who asks for more has read the size of all of them.
PARTITION_MEGABYTES_MAX = 5_120

_RANGE = re.compile(r"(max_megabytes) (-?\d+) is out of range: (\d+) to (\d+)\.")

# What the service's Premium tier gives an entity that asks for nothing, and the least that can be asked for.
PREMIUM_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Call:
    """One request, read and allowed."""

    method: str
    target: RequestTarget
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    site: Site
    caller: Caller
    now_ms: int


class Resource(Protocol):
    """One kind of thing. Changes are in the current facts when a method returns, all of them or none."""

    # The description's element.
    kind: str
    # What a list of them is called.
    title: str

    def find(self, target: RequestTarget) -> Any | None:
        """The thing itself, None when there is none."""

    def all(self, target: RequestTarget) -> Sequence[Any]:
        """Every one of them under `target`, by name."""

    def entry(self, found: Any, call: Call) -> Entry:
        """How it is shown."""

    def state(self, found: Any) -> str:
        """A text that changes whenever an owner changes it: what ETags are made of."""

    def create(self, call: Call, description: Element) -> Any: ...

    def update(self, found: Any, call: Call, description: Element) -> Any: ...

    def delete(self, found: Any) -> None: ...


def message_bytes(values: dict[str, Any], before: int | None, sku: str) -> dict[str, Any]:
    """The settings with the largest message; `before` is None for a new entity.

    Only a Premium namespace lets admin clients choose it. What an update brings back unchanged is always good.
    """
    wanted = values.get("max_message_bytes")
    if before is None:
        before = PREMIUM_MESSAGE_BYTES if sku == PREMIUM else MESSAGE_BYTES_DEFAULT
    if wanted is None or wanted // 1024 == before // 1024:
        return values | {"max_message_bytes": before}
    if sku != PREMIUM:
        raise ArgumentError(
            f"MaxMessageSizeInKilobytes can be chosen in a Premium namespace only, and this one is {sku}: "
            'give the namespace sku = "Premium", or the queue its max_message_bytes, in the configuration.'
        )
    if not PREMIUM_MESSAGE_BYTES <= wanted <= MESSAGE_BYTES_MAX:
        lowest, highest = PREMIUM_MESSAGE_BYTES // 1024, MESSAGE_BYTES_MAX // 1024
        raise ArgumentError(f"MaxMessageSizeInKilobytes {wanted // 1024} is out of range: {lowest} to {highest}.")
    return values


def partition_sizes(values: dict[str, Any], before: EntitySettings | None, sku: str) -> dict[str, Any]:
    """The settings with the size of all partitions: a client gives that of one and reads that of sixteen.

    `before` is None for a new entity. What an update brings back unchanged is the size of all already.
    """
    partitioned = values.get("enable_partitioning", False) if before is None else before.enable_partitioning
    if sku != STANDARD or not partitioned:
        return values
    wanted = values.get("max_megabytes", QUEUE_MEGABYTES_DEFAULT if before is None else before.max_megabytes)
    if wanted > PARTITION_MEGABYTES_MAX or (before is not None and wanted == before.max_megabytes):
        return values
    return values | {"max_megabytes": wanted * PARTITIONS}


def in_service_words(error: ArgumentError, settings: Iterable[Setting]) -> ArgumentError:
    """A refusal of a setting, with the elements' names in place of ours."""
    text = _RANGE.sub(r"The specified value \2 is invalid. The property '\1', must be from \3 to \4.", error.text)
    for each in sorted(settings, key=lambda each: -len(each.name)):
        unit = " (milliseconds)" if each.name.endswith("_ms") else ""
        text = text.replace(each.name, each.azure + unit)
    return ArgumentError(text)
