"""The filters of a receiving link: which are in force, and which cannot be.

An answer to an attach names the filters in force and no others, so that a client knows. A selector that is ignored has
messages consumed that nobody asked for, and old clients do not look at the answer: such an attach is refused.
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
    """Refuse what must not be ignored."""
    for name, value in filters.items():
        if name in _SELECTOR_NAMES or (isinstance(value, Described) and value.descriptor in _SELECTOR_DESCRIPTORS):
            raise UnsupportedError(
                "Message selectors are not available on a receiver: use a subscription with a SQL filter."
            )
    if SHARED_SESSION_FILTER in filters:
        raise UnsupportedError("Sessions shared by several receivers are not available.")


def with_session(source: Source, session: Any) -> Source:
    """The source as it is answered to the holder of a session."""
    return source.with_filter({Symbol(SESSION_FILTER): session})


def without_filters(source: Any) -> Any:
    """The source as it is answered where no filter is in force; the peer's own bytes when it sent none."""
    return source.with_filter(None) if isinstance(source, Source) and source.filter else source


def is_browsing(source: Source) -> bool:
    """Whether the link is to get copies; ArgumentError for a distribution mode that AMQP does not know."""
    mode = source.fields[_DISTRIBUTION_MODE]
    if mode not in (None, "move", "copy"):
        raise ArgumentError(f"The distribution mode '{str(mode)[:32]}' is not known: move or copy.")
    return bool(mode == "copy")
