"""The filters of a receiving link: which apply, and which are refused.

The answer to an attach names exactly the filters in force, so the client can tell. Ignoring a selector would deliver
messages that the client did not ask for, and old clients do not check the answer; where selectors are not available,
such an attach is refused.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from twinbus.amqp.terminus import Source
from twinbus.amqp.types import Described, Symbol
from twinbus.entities.filters import MessageSelector
from twinbus.errors import ArgumentError, UnsupportedError

SESSION_FILTER: Final = "com.microsoft:session-filter"
SHARED_SESSION_FILTER: Final = "com.microsoft:non-exclusive-session-filter"

_SELECTOR_NAMES: Final = ("apache.org:selector-filter:string", "jms-selector")
_SELECTOR_DESCRIPTORS: Final = ("apache.org:selector-filter:string", 0x0000468C00000004)
_DURABLE: Final = 1
_DISTRIBUTION_MODE: Final = 6


class AskedSelector(NamedTuple):
    """A message selector, and the entry of the filter map that asked for it."""

    selector: MessageSelector
    name: Any
    value: Any


def read_filters(filters: dict[Any, Any], premium: bool) -> AskedSelector | None:
    """The message selector among the filters, if there is one; raises for filters that must not be ignored."""
    if SHARED_SESSION_FILTER in filters:
        raise UnsupportedError("Sessions shared by several receivers are not available.")
    for name, value in filters.items():
        if name not in _SELECTOR_NAMES and not (
            isinstance(value, Described) and value.descriptor in _SELECTOR_DESCRIPTORS
        ):
            continue
        if not premium:
            raise UnsupportedError(
                "Message selectors are not available on a receiver: use a subscription with a SQL filter."
            )
        text = value.value if isinstance(value, Described) else value
        if not isinstance(text, str):
            raise ArgumentError("The message selector is not a string.")
        return AskedSelector(MessageSelector(str(text)), name, value)
    return None


def with_selector(source: Source, asked: AskedSelector) -> Source:
    """The source echoed to a receiver with a selector."""
    return source.with_filter({asked.name: asked.value})


def with_session(source: Source, session: Any) -> Source:
    """The source echoed to the holder of a session."""
    return source.with_filter({Symbol(SESSION_FILTER): session})


def without_filters(source: Any) -> Any:
    """The source echoed when no filter is in force; the peer's own bytes if it sent none."""
    return source.with_filter(None) if isinstance(source, Source) and source.filter else source


def is_browsing(source: Source) -> bool:
    """Whether the link wants copies; raises ArgumentError for an unknown distribution mode."""
    mode = source.fields[_DISTRIBUTION_MODE]
    if source.fields[_DURABLE] and mode == "copy":
        return False  # the durable consumer of a JMS client, on a subscription of its own
    if mode not in (None, "move", "copy"):
        raise ArgumentError(f"The distribution mode '{str(mode)[:32]}' is not known: move or copy.")
    return bool(mode == "copy")
