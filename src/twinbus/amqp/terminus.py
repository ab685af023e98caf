"""The two ends of a link: source, target and coordinator.

Two rules. The peer's bytes are kept, so that an attach can be answered verbatim: if the source address changes, clients
lose their session id. Changes are made on a copy.
"""

from __future__ import annotations

from typing import Any, Final

from twinbus.amqp.codec import decode_all
from twinbus.amqp.states import composite
from twinbus.amqp.types import Described, Symbol, UInt, ULong
from twinbus.errors import DecodeError, InvalidFieldError

SOURCE: Final = 0x28
TARGET: Final = 0x29
COORDINATOR: Final = 0x30

_NAMES: Final[dict[str, int]] = {
    "amqp:source:list": SOURCE,
    "amqp:target:list": TARGET,
    "amqp:coordinator:list": COORDINATOR,
}

_SOURCE_FIELDS: Final = 11
_TARGET_FIELDS: Final = 7
_FILTER: Final = 7


class Source:
    """Where messages come from. `fields` are the eleven AMQP fields, `raw` their encoded form."""

    __slots__ = ("address", "fields", "filter", "raw")

    def __init__(
        self,
        address: str | None = None,
        filter: dict[Any, Any] | None = None,
        *,
        fields: list[Any] | None = None,
        raw: bytes | None = None,
    ) -> None:
        if fields is None:
            fields = [address, UInt(0), Symbol("session-end"), UInt(0), False, None, None, filter, None, None, None]
        # None for a dynamic or anonymous terminus.
        self.address = address
        # Filters by name; None if the peer sent none.
        self.filter = filter
        # All fields, decoded and padded with None.
        self.fields = fields
        # The encoded described list; the peer's own bytes if it came from the peer.
        self.raw: bytes = composite(SOURCE, fields) if raw is None else raw

    @property
    def dynamic(self) -> bool:
        return self.fields[4] is True

    def with_filter(self, filter: dict[Any, Any] | None) -> Source:
        """Return a copy with another filter."""
        fields = list(self.fields)
        fields[_FILTER] = filter
        return Source(self.address, filter, fields=fields)

    def with_address(self, address: str) -> Source:
        """Return a copy with the address assigned to a dynamic source."""
        fields = list(self.fields)
        fields[0] = address
        return Source(address, self.filter, fields=fields)

    def __repr__(self) -> str:
        return f"Source({self.address!r}, filter={self.filter!r})"


class Target:
    """Where messages go. `fields` are the seven AMQP fields, `raw` their encoded form."""

    __slots__ = ("address", "fields", "raw")

    def __init__(
        self, address: str | None = None, *, fields: list[Any] | None = None, raw: bytes | None = None
    ) -> None:
        if fields is None:
            fields = [address, UInt(0), Symbol("session-end"), UInt(0), False, None, None]
        # None for a dynamic or anonymous terminus.
        self.address = address
        # All fields, decoded and padded with None.
        self.fields = fields
        # The encoded described list; the peer's own bytes if it came from the peer.
        self.raw: bytes = composite(TARGET, fields) if raw is None else raw

    @property
    def dynamic(self) -> bool:
        return self.fields[4] is True

    def with_address(self, address: str) -> Target:
        """Return a copy with the address assigned to a dynamic target."""
        fields = list(self.fields)
        fields[0] = address
        return Target(address, fields=fields)

    def __repr__(self) -> str:
        return f"Target({self.address!r})"


class Coordinator:
    """The target of a link that controls transactions."""

    __slots__ = ("capabilities", "raw")

    def __init__(self, capabilities: Any = None, *, raw: bytes | None = None) -> None:
        # The transaction capabilities: a symbol, an array of symbols or None.
        self.capabilities = capabilities
        self.raw: bytes = composite(COORDINATOR, [capabilities]) if raw is None else raw

    @property
    def address(self) -> str | None:
        return None


def _described(raw: bytes) -> tuple[int, list[Any]]:
    value = decode_all(raw)
    if value is None:
        return -1, []
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise DecodeError("a terminus is not a described list")
    code = -2
    if isinstance(value.descriptor, ULong):
        code = int(value.descriptor)
    elif isinstance(value.descriptor, Symbol):
        code = _NAMES.get(str(value.descriptor), -2)
    return code, value.value


def _address(fields: list[Any]) -> str | None:
    address = fields[0]
    if address is None or isinstance(address, str):
        return address
    raise InvalidFieldError("a terminus address is not a string")


def parse_source(raw: bytes) -> Source | None:
    code, fields = _described(raw)
    if code == -1:
        return None
    if code != SOURCE:
        raise DecodeError("the source of a link is not a source")
    fields = fields[:_SOURCE_FIELDS] + [None] * (_SOURCE_FIELDS - len(fields))
    filters = fields[_FILTER]
    if filters is not None and not isinstance(filters, dict):
        raise InvalidFieldError("the filter of a source is not a map")
    return Source(_address(fields), filters, fields=fields, raw=raw)


def parse_target(raw: bytes) -> Target | Coordinator | None:
    code, fields = _described(raw)
    if code == -1:
        return None
    if code == COORDINATOR:
        return Coordinator(fields[0] if fields else None, raw=raw)
    if code != TARGET:
        raise DecodeError("the target of a link is not a target")
    fields = fields[:_TARGET_FIELDS] + [None] * (_TARGET_FIELDS - len(fields))
    return Target(_address(fields), fields=fields, raw=raw)
