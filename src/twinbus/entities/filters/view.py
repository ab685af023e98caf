"""How a rule sees a message, and how it declares what it needs to see.

Names of user properties are case-insensitive, as in the service. They are folded once per message, not once for each
of the hundred rules that look at it. The caller decodes only what `Needs` asks for.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from .names import fold


class Properties:
    """The user properties of one message."""

    __slots__ = ("_source", "_spellings", "folded")

    def __init__(self, source: Mapping[str, Any]) -> None:
        # The properties as the sender spelled them.
        self._source = source
        # Spelling by folded name; None until needed.
        self._spellings: dict[str, str] | None = None
        # Value by folded name. Of names that differ only in case the last counts; a key that is not text is ignored.
        self.folded: dict[str, Any] = {fold(name): value for name, value in source.items() if isinstance(name, str)}

    def exact(self, name: str) -> Any:
        """The value of the property spelled exactly like that, as selectors of JMS need it; None if there is none."""
        return self._source.get(name)

    def spelling(self, name: str) -> str:
        """The name as the sender spelled it; unchanged if the message has no such property."""
        if self._spellings is None:
            self._spellings = {}
            for own in self._source:
                if isinstance(own, str):
                    # Of names that differ only in case, the first.
                    self._spellings.setdefault(fold(own), own)
        return self._spellings.get(fold(name), name)


class FilterView(Protocol):
    """A message as rules see it. Times are milliseconds since the Unix epoch, spans milliseconds."""

    @property
    def properties(self) -> Properties:
        """The user properties; used only if `Needs.properties` says so."""

    def system(self, name: str) -> Any:
        """The system property of that canonical name (see `names`); None if the message has none."""

    def new_id(self) -> uuid.UUID:
        """A new random identifier. It comes from the view because randomness is injected."""


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """What a rule reads of a message."""

    properties: bool = False
    system: frozenset[str] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.properties or other.properties, self.system | other.system)


NOTHING = Needs()
