"""The interface of each kind of resource, and the request it works on."""

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

# Partitions of a partitioned entity; clients give the size of one.
PARTITIONS = 16
# A larger value means that the client read back the size of all partitions.
PARTITION_MEGABYTES_MAX = 5_120

_RANGE = re.compile(r"(max_megabytes) (-?\d+) is out of range: (\d+) to (\d+)\.")

# The Premium tier's default, and the smallest value a client can set.
PREMIUM_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Call:
    """One parsed and authorized request."""

    method: str
    target: RequestTarget
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    site: Site
    caller: Caller
    now_ms: int


class Resource(Protocol):
    """One kind of resource. When a method returns, its changes are in the open facts, all or none."""

    # The element of its description.
    kind: str
    # The title of its feed.
    title: str

    def find(self, target: RequestTarget) -> Any | None:
        """The resource, or None."""

    def all(self, target: RequestTarget) -> Sequence[Any]:
        """All resources under `target`, by name."""

    def entry(self, found: Any, call: Call) -> Entry:
        """Its entry in an answer."""

    def state(self, found: Any) -> str:
        """A text that changes with every change of the resource, for the ETag."""

    def create(self, call: Call, description: Element) -> Any: ...

    def update(self, found: Any, call: Call, description: Element) -> Any: ...

    def delete(self, found: Any) -> None: ...


def message_bytes(values: dict[str, Any], before: int | None, sku: str) -> dict[str, Any]:
    """The settings with the maximum message size; `before` is None for a new entity.

    Admin clients can set it only in a Premium namespace. Sending the current value back is always allowed.
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
        # The service's words, which clients' tests look for.
        raise ArgumentError(
            f"The value for 'MaxMessageSizeInKilobytes' must be between {lowest} and {highest}, not {wanted // 1024}."
        )
    return values


def partition_sizes(values: dict[str, Any], before: EntitySettings | None, sku: str) -> dict[str, Any]:
    """The settings with the size of all partitions: a client sets the size of one and reads that of sixteen.

    `before` is None for a new entity. A value that an update sends back unchanged already counts all partitions.
    """
    partitioned = values.get("enable_partitioning", False) if before is None else before.enable_partitioning
    if sku != STANDARD or not partitioned:
        return values
    wanted = values.get("max_megabytes", QUEUE_MEGABYTES_DEFAULT if before is None else before.max_megabytes)
    if wanted > PARTITION_MEGABYTES_MAX or (before is not None and wanted == before.max_megabytes):
        return values
    return values | {"max_megabytes": wanted * PARTITIONS}


def in_service_words(error: ArgumentError, settings: Iterable[Setting]) -> ArgumentError:
    """The error of a setting, with the elements' names instead of ours."""
    text = _RANGE.sub(r"The specified value \2 is invalid. The property '\1', must be from \3 to \4.", error.text)
    for each in sorted(settings, key=lambda each: -len(each.name)):
        unit = " (milliseconds)" if each.name.endswith("_ms") else ""
        text = text.replace(each.name, each.azure + unit)
    return ArgumentError(text)
