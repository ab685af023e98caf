"""The filters of a receiving link: which apply, and which are refused.

The answer to an attach names exactly the filters in force, so the client can tell. Ignoring a selector would deliver
messages that the client did not ask for, and old clients do not check the answer; such an attach is refused.
"""

from __future__ import annotations

from typing import Any, Final

from twinbus.amqp.terminus import Source
from twinbus.amqp.types import Described, Symbol
from twinbus.errors import ArgumentError, UnsupportedError

SESSION_FILTER: Final = "com.microsoft:session-filter"
SHARED_SESSION_FILTER: Final = "com.microsoft:non-exclusive-session-filter"

_SELECTOR_NAMES: Final = ("apache.org:selector-filter:string", "jms-selector")
_SELECTOR_DESCRIPTORS: Final = ("apache.org:selector-filter:string", 0x0000468C00000004)
_DISTRIBUTION_MODE: Final = 6


def check_filters(filters: dict[Any, Any]) -> None:
    """Raise for filters that must not be ignored."""
    for name, value in filters.items():
        if name in _SELECTOR_NAMES or (isinstance(value, Described) and value.descriptor in _SELECTOR_DESCRIPTORS):
            raise UnsupportedError(
                "Message selectors are not available on a receiver: use a subscription with a SQL filter."
            )
    if SHARED_SESSION_FILTER in filters:
        raise UnsupportedError("Sessions shared by several receivers are not available.")


def with_session(source: Source, session: Any) -> Source:
    """The source echoed to the holder of a session."""
    return source.with_filter({Symbol(SESSION_FILTER): session})


def without_filters(source: Any) -> Any:
    """The source echoed when no filter is in force; the peer's own bytes if it sent none."""
    return source.with_filter(None) if isinstance(source, Source) and source.filter else source


def is_browsing(source: Source) -> bool:
    """Whether the link wants copies; raises ArgumentError for an unknown distribution mode."""
    mode = source.fields[_DISTRIBUTION_MODE]
    if mode not in (None, "move", "copy"):
        raise ArgumentError(f"The distribution mode '{str(mode)[:32]}' is not known: move or copy.")
    return bool(mode == "copy")
