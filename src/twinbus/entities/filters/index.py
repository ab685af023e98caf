"""Matches a message against many correlation filters at once.

Filters with the same set of fields share a table keyed by their values, so one look-up answers for ten or ten thousand
of them. A table is found by one of its fields, a user property if it has one; a table about a property that the
message lacks costs nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeAlias, TypeVar

from .correlation import CorrelationFilter, part_of
from .view import NOTHING, FilterView, Needs

Key = TypeVar("Key", bound=Hashable)
# System properties and folded user properties, each sorted.
_Fields: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


class _Table(Generic[Key]):
    """The filters that share a set of fields."""

    __slots__ = ("fields", "keys", "system", "user")

    def __init__(self, fields: _Fields) -> None:
        # The set of fields, which identifies the table.
        self.fields = fields
        # System properties at the start of a tuple of values, in order.
        self.system = fields[0]
        # User properties that follow them.
        self.user = fields[1]
        # Keys by tuple of values. Each set is a dict, which keeps insertion order and removes in constant time.
        self.keys: dict[tuple[Any, ...], dict[Key, None]] = {}

    def find(self, view: FilterView) -> dict[Key, None] | None:
        values: list[Any] = []
        for name in self.system:
            value = view.system(name)
            if value is None:
                return None
            values.append(value)
        if self.user:
            properties = view.properties.folded
            for name in self.user:
                part = part_of(properties.get(name))
                if part is None:
                    return None
                values.append(part)
        return self.keys.get(tuple(values))


class CorrelationIndex(Generic[Key]):
    """`index.add("rule 1", CorrelationFilter(label="a"))`; then `index.match(view)` returns the keys that match."""

    def __init__(self) -> None:
        self._filters: dict[Key, CorrelationFilter] = {}
        # Tables by set of fields.
        self._tables: dict[_Fields, _Table[Key]] = {}
        # Tables with user properties, by the first of them.
        self._by_property: dict[str, list[_Table[Key]]] = {}
        # Tables with system properties only.
        self._by_system: list[_Table[Key]] = []
        # What all filters together read; None until recomputed.
        self._needs: Needs | None = NOTHING

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        return key in self._filters

    @property
    def needs(self) -> Needs:
        if self._needs is None:
            # Per table, not per filter.
            system = frozenset(name for table in self._tables.values() for name in table.system)
            self._needs = Needs(bool(self._by_property), system)
        return self._needs

    def add(self, key: Key, filter: CorrelationFilter) -> None:
        """Add or replace the filter under that key."""
        self.remove(key)
        fields, values = _place(filter)
        table = self._tables.get(fields)
        if table is None:
            table = self._tables[fields] = _Table(fields)
            self._anchored(table).append(table)
            self._needs = None
        table.keys.setdefault(values, {})[key] = None
        self._filters[key] = filter

    def remove(self, key: Key) -> None:
        """Forget the key, if it is known."""
        filter = self._filters.pop(key, None)
        if filter is None:
            return
        fields, values = _place(filter)
        table = self._tables[fields]
        keys = table.keys[values]
        del keys[key]
        if keys:
            return
        del table.keys[values]
        if not table.keys:
            self._drop(table)

    def match(self, view: FilterView) -> list[Key]:
        """The keys of all matching filters; equal filters in insertion order."""
        found: list[Key] = []
        for table in self._by_system:
            keys = table.find(view)
            if keys is not None:
                found += keys
        if self._by_property:
            own = view.properties.folded
            # Walk the shorter of the two: the indexed properties, or the message's own.
            anchors = own if len(own) < len(self._by_property) else self._by_property
            for name in anchors:
                if name in own:
                    for table in self._by_property.get(name, ()):
                        keys = table.find(view)
                        if keys is not None:
                            found += keys
        return found

    def _anchored(self, table: _Table[Key]) -> list[_Table[Key]]:
        return self._by_property.setdefault(table.user[0], []) if table.user else self._by_system

    def _drop(self, table: _Table[Key]) -> None:
        del self._tables[table.fields]
        tables = self._anchored(table)
        tables.remove(table)
        if table.user and not tables:
            del self._by_property[table.user[0]]
        self._needs = None


def _place(filter: CorrelationFilter) -> tuple[_Fields, tuple[Any, ...]]:
    """A filter's table and its tuple of values there."""
    fields = (tuple(name for name, _ in filter.system_key), tuple(name for name, _ in filter.user_key))
    return fields, (*(text for _, text in filter.system_key), *(part for _, part in filter.user_key))
