"""Validated fields of a command's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.broker.http.console.entities import found_entity
from twinbus.broker.http.console.messages import MAIN, part_of
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from twinbus.auth.policies import Right
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor

Fields = dict[str, Any]


def text(fields: Fields, name: str) -> str:
    """A string; empty if not given."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a string.")
    return value


def whole(fields: Fields, name: str, low: int, high: int) -> int:
    """A whole number in a range; the lowest if not given."""
    value = fields.get(name, low)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ArgumentError(f"'{name}' is out of range: {low} to {high}.")
    return value


def sequence_numbers(fields: Fields, most: int) -> list[int]:
    """Sequence numbers. They arrive as strings, because JavaScript cannot represent integers above 2^53."""
    given = fields.get("numbers")
    if not isinstance(given, list) or not 0 < len(given) <= most:
        raise ArgumentError(f"'numbers' is a list of 1 to {most} sequence numbers.")
    found = [int(each) for each in given if isinstance(each, str) and each.isascii() and each.isdigit()]
    if len(found) != len(given):
        raise ArgumentError("A sequence number is written as a string of digits.")
    return found


def place(visitor: Visitor, fields: Fields, *rights: Right) -> tuple[NamespaceHost, Queue | Topic]:
    """The entity of a command, or one of its dead-letter queues; requires these rights on it."""
    host = visitor.host(text(fields, "namespace"))
    entity = found_entity(visitor, host, text(fields, "entity"), *rights)
    return host, part_of(entity, text(fields, "part") or MAIN)


def queue_place(visitor: Visitor, fields: Fields, *rights: Right) -> tuple[NamespaceHost, Queue]:
    """The same, for anything but a topic."""
    host, part = place(visitor, fields, *rights)
    if isinstance(part, Topic):
        raise ArgumentError(f"The topic '{part.path}' holds no messages: its subscriptions do.")
    return host, part
