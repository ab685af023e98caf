"""Forwarding targets in descriptions: clients send absolute addresses, we store paths.

Whoever sets a target must be allowed to send to it, by the request's own token or by the extra one that clients add for
this purpose. Whether the target exists is checked by the entities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from twinbus.entities.settings import EntitySettings
from twinbus.errors import ArgumentError

# The header with the token, by setting.
HEADERS = {
    "forward_to": "servicebussupplementaryauthorization",
    "forward_dead_letters_to": "servicebusdlqsupplementaryauthorization",
}


def path_in(name: str, address: str) -> str:
    """The path of `sb://host:port/path`; a bare path is returned as it is."""
    text = address.strip()
    try:
        path = urlsplit(text).path if "://" in text else text
    except ValueError:
        path = ""
    path = unquote(path).strip("/")
    if not path:
        raise ArgumentError(f"{name} is {address[:300]!r}; it must be the address of an entity, sb://host/name.")
    return path


def check_targets(values: dict[str, Any], before: EntitySettings | None, allow: Callable[[str, str], None]) -> None:
    """Require the right to send to every new target; `allow(path, header)` raises without it."""
    for name, header in HEADERS.items():
        target = values.get(name)
        if target is not None and (before is None or target.lower() != (getattr(before, name) or "").lower()):
            allow(target, header)
