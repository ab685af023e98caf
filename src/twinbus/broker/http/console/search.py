"""Searching messages for a text in ids, application properties or the body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twinbus.amqp.message import AmqpMessage
from twinbus.broker.http.console.shown import id_text, text
from twinbus.errors import ArgumentError
from twinbus.limits import CONSOLE_TEXT_CHARS_MAX, PEEK_BYTES_MAX

# Whether a message with this body matches.
Wanted = Callable[[AmqpMessage, bytes], bool]

_FIELDS = ("", "id", "property", "body")


def wanted_of(query: Mapping[str, str]) -> Wanted | None:
    """The filter for `search` and `field`; None selects every message.

    Case-insensitive. `id` looks at message id, correlation id, session id and subject; `property` at names and values
    of application properties, where `name=value` means a name and a part of its value; `body` at the start of the
    body.
    """
    needle = query.get("search", "")[:CONSOLE_TEXT_CHARS_MAX].casefold()
    field = query.get("field", "")
    if field not in _FIELDS:
        raise ArgumentError(f"'{field[:32]}' cannot be searched: id, property, body, or nothing for all three.")
    if not needle:
        return None
    looks: dict[str, Wanted] = {
        "id": lambda message, _: _in_ids(message, needle),
        "property": lambda message, _: _in_properties(message, needle),
        "body": lambda _, content: needle in content[:PEEK_BYTES_MAX].decode("utf-8", "replace").casefold(),
    }
    if field:
        return looks[field]
    return lambda message, content: any(look(message, content) for look in looks.values())


def _in_ids(message: AmqpMessage, needle: str) -> bool:
    ids: tuple[Any, ...] = (message.message_id, message.correlation_id, message.group_id, message.subject)
    return any(needle in (id_text(each) or "").casefold() for each in ids)


def _in_properties(message: AmqpMessage, needle: str) -> bool:
    name, equals, value = needle.partition("=")
    for own, found in (message.application_properties or {}).items():
        title, shown = str(own).casefold(), text(found).casefold()
        if needle in title or needle in shown or (equals and name.strip() == title and value.strip() in shown):
            return True
    return False
