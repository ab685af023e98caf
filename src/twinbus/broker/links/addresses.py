"""Parses AMQP addresses: an entity's path, or one of its nodes.

Clients write the same entity as `q`, `/q`, `amqps://host:port/q` or `sb://host/q`, in any case, percent-encoded or not.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

MANAGEMENT = "$management"
CBS = "$cbs"


class LinkAddress(NamedTuple):
    """An entity path ('' for the namespace itself), and whether a management node or `$cbs` is meant."""

    path: str
    management: bool
    cbs: bool


def parse(address: str) -> LinkAddress:
    path = path_of(address)
    lowered = path.lower()
    if lowered == CBS:
        return LinkAddress("", False, True)
    if lowered == MANAGEMENT:
        return LinkAddress("", True, False)
    if lowered.endswith("/" + MANAGEMENT):
        return LinkAddress(path[: -len(MANAGEMENT) - 1], True, False)
    return LinkAddress(path, False, False)


def path_of(address: str) -> str:
    """The path of an address, without scheme, host and outer slashes."""
    scheme = address.find("://")
    if scheme != -1:
        slash = address.find("/", scheme + 3)
        address = address[slash:] if slash != -1 else ""
    if "%" in address:
        address = unquote(address)
    return address.strip("/")
