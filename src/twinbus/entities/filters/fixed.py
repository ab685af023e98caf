"""The two filters that do not look at the message. Clients see them as SQL filters with a fixed text."""

from __future__ import annotations

from typing import Any, Final

from .view import NOTHING, FilterView, Needs


class TrueFilter:
    """Selects every message; the default filter of a new subscription."""

    __slots__ = ()

    expression: Final = "1=1"

    @property
    def needs(self) -> Needs:
        return NOTHING

    def matches(self, _view: FilterView) -> bool:
        return True

    def to_json(self) -> dict[str, Any]:
        return {"type": "true"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrueFilter)

    def __hash__(self) -> int:
        return hash(TrueFilter)

    def __repr__(self) -> str:
        return "TrueFilter()"


class FalseFilter:
    """Selects no message."""

    __slots__ = ()

    expression: Final = "1=0"

    @property
    def needs(self) -> Needs:
        return NOTHING

    def matches(self, _view: FilterView) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        return {"type": "false"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FalseFilter)

    def __hash__(self) -> int:
        return hash(FalseFilter)

    def __repr__(self) -> str:
        return "FalseFilter()"
