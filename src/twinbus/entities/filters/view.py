"""What a rule sees of a message, and what it says beforehand that it wants to see.

Names of user properties are found whatever their case, as in the service. The names are folded once for a message, not
once for each of the hundred rules that look at it. A caller decodes only what `Needs` asks for.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from .names import fold


class Properties:
    """The user properties of one message."""

    __slots__ = ("_source", "folded")

    def __init__(self, source: Mapping[str, Any]) -> None:
        # The properties as the sender spelled them.
        self._source = source
        # Value by folded name. Of names that differ only in case the last counts; a key that is no text has no name.
        self.folded: dict[str, Any] = {fold(name): value for name, value in source.items() if isinstance(name, str)}

    def spelling(self, name: str) -> str:
        """The name as the sender spelled it; as given, when the message has no such property."""
        folded = fold(name)
        return next((own for own in self._source if isinstance(own, str) and fold(own) == folded), name)


class FilterView(Protocol):
    """A message as rules see it. Times are milliseconds since the Unix epoch, spans are milliseconds."""

    @property
    def properties(self) -> Properties:
        """The user properties; asked for only when `Needs.properties` says so."""

    def system(self, name: str) -> Any:
        """The system property of that canonical name (see `names`); None when the message has none."""

    def new_id(self) -> uuid.UUID:
        """A new identifier. Here and not in the rules, because randomness is passed in."""


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """What a rule reads of a message."""

    properties: bool = False
    system: frozenset[str] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.properties or other.properties, self.system | other.system)


NOTHING = Needs()
