"""A filter of equalities: every field it gives must equal the message's.

Text compares by its characters, numbers by value. A field that is missing or null on the message equals nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twinbus.errors import ArgumentError
from twinbus.limits import APPLICATION_PROPERTY_BYTES_MAX

from .names import fold
from .stored import check_values, identity, read_values, write_values
from .values import BOOLEAN, OTHER, plain
from .view import FilterView, Needs

# Field of the filter -> system property of the message.
FIELDS: Final = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}


def part_of(value: Any) -> Any:
    """A value as part of a hash key: equal parts mean equal values. None if nothing equals the value."""
    if isinstance(value, str):
        return value
    kind, value = plain(value)
    if kind == OTHER or value != value:
        return None
    # TRUE and 1 are the same dict key in Python.
    return (BOOLEAN, value) if kind == BOOLEAN else value


class CorrelationFilter:
    """`CorrelationFilter(label="Important", properties={"color": "Red"})`."""

    __slots__ = (
        "content_type",
        "correlation_id",
        "label",
        "message_id",
        "properties",
        "reply_to",
        "reply_to_session_id",
        "session_id",
        "system_key",
        "to",
        "user_key",
    )

    def __init__(
        self,
        *,
        correlation_id: str | None = None,
        message_id: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        label: str | None = None,
        session_id: str | None = None,
        reply_to_session_id: str | None = None,
        content_type: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        # Required values of the system properties; None allows any value.
        self.correlation_id = correlation_id
        self.message_id = message_id
        self.to = to
        self.reply_to = reply_to
        self.label = label
        self.session_id = session_id
        self.reply_to_session_id = reply_to_session_id
        self.content_type = content_type
        # Required values of user properties; names as given.
        self.properties = check_values(properties or {}, "correlation property")
        # For matching: system properties with their values, sorted.
        self.system_key: tuple[tuple[str, str], ...] = tuple(
            sorted((name, self._text(field)) for field, name in FIELDS.items() if getattr(self, field) is not None)
        )
        # For matching: user properties by folded name, with their key parts, sorted by name.
        self.user_key: tuple[tuple[str, Any], ...] = self._user_key()
        if not self.system_key and not self.user_key:
            raise ArgumentError("The correlation filter has no condition; give at least one field or property.")

    def _text(self, field: str) -> str:
        value = getattr(self, field)
        if not isinstance(value, str):
            raise ArgumentError(f"The {field} of a correlation filter is {type(value).__name__}; it must be a string.")
        if len(value) > APPLICATION_PROPERTY_BYTES_MAX:
            raise ArgumentError(
                f"The {field} of a correlation filter has {len(value)} characters; "
                f"it may have {APPLICATION_PROPERTY_BYTES_MAX}."
            )
        return value

    def _user_key(self) -> tuple[tuple[str, Any], ...]:
        parts: dict[str, Any] = {}
        for name, value in self.properties.items():
            if fold(name) in parts:
                raise ArgumentError(
                    f"The correlation property {name!r} is given twice; names differ in more than case."
                )
            part = part_of(value)
            if part is None:
                raise ArgumentError(f"The correlation property {name!r} is {value!r}, which equals nothing.")
            parts[fold(name)] = part
        return tuple(sorted(parts.items(), key=lambda item: item[0]))

    @property
    def needs(self) -> Needs:
        return Needs(bool(self.user_key), frozenset(name for name, _ in self.system_key))

    def matches(self, view: FilterView) -> bool:
        for name, text in self.system_key:
            if view.system(name) != text:
                return False
        if not self.user_key:
            return True
        properties = view.properties.folded
        return all(part_of(properties.get(name)) == part for name, part in self.user_key)

    def to_json(self) -> dict[str, Any]:
        fields = {field: getattr(self, field) for field in FIELDS if getattr(self, field) is not None}
        return {"type": "correlation", **fields, "properties": write_values(self.properties)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> CorrelationFilter:
        given = {field: fields[field] for field in FIELDS if field in fields}
        return cls(**given, properties=read_values(fields["properties"]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CorrelationFilter):
            return NotImplemented
        return self.system_key == other.system_key and identity(self.properties) == identity(other.properties)

    def __hash__(self) -> int:
        return hash((self.system_key, self.user_key))

    def __repr__(self) -> str:
        given = [f"{field}={getattr(self, field)!r}" for field in FIELDS if getattr(self, field) is not None]
        return (
            f"CorrelationFilter({', '.join(given + ([f'properties={self.properties!r}'] if self.properties else []))})"
        )
