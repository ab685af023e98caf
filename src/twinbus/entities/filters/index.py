"""Matches a message against many correlation filters at once.

Equal filters share an entry, and an entry lies under one of its equalities: the one under which the fewest others lie.
A message looks up each of its own values and checks the entries it finds there. So neither ten thousand values of one
property nor ten thousand filters that share one equality cost a message more than a few look-ups.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeAlias, TypeVar

from .correlation import CorrelationFilter, part_of
from .view import NOTHING, FilterView, Needs

Key = TypeVar("Key", bound=Hashable)
# What a filter requires: system properties and folded user properties with their values, each sorted.
Condition: TypeAlias = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, Any], ...]]


def condition_of(filter: CorrelationFilter) -> Condition:
    """What a filter requires. Filters with equal conditions select the same messages."""
    return filter.system_key, filter.user_key


class EqualFilters(Generic[Key]):
    """The filters with one condition."""

    __slots__ = ("keys", "place", "single", "system", "user")

    def __init__(self, condition: Condition) -> None:
        self.system, self.user = condition
        # Whether the look-up that finds it answers for all of it.
        self.single = len(self.system) + len(self.user) == 1
        # A dict, which keeps insertion order and removes in constant time.
        self.keys: dict[Key, None] = {}
        # The equality under which it lies.
        self.place: tuple[_Entries[Key], str, Any] | None = None

    def matches(self, view: FilterView) -> bool:
        if self.single:
            return True
        for name, text in self.system:
            if view.system(name) != text:
                return False
        if self.user:
            properties = view.properties.folded
            for name, part in self.user:
                if part_of(properties.get(name)) != part:
                    return False
        return True


class _Entries(Generic[Key]):
    """Entries by name and value of one equality, of system properties or of user properties."""

    __slots__ = ("_longest", "by_name", "reach")

    def __init__(self) -> None:
        self.by_name: dict[str, dict[Any, dict[EqualFilters[Key], None]]] = {}
        # The most entries under one value, by name; and their sum, which is the most that a message can find.
        self._longest: dict[str, int] = {}
        self.reach = 0

    def count(self, name: str, part: Any) -> int:
        return len(self.by_name.get(name, {}).get(part, ()))

    def add(self, name: str, part: Any, entry: EqualFilters[Key]) -> None:
        found = self.by_name.setdefault(name, {}).setdefault(part, {})
        found[entry] = None
        longest = self._longest.get(name, 0)
        if len(found) > longest:
            self._longest[name] = len(found)
            self.reach += len(found) - longest

    def remove(self, name: str, part: Any, entry: EqualFilters[Key]) -> None:
        by_value = self.by_name[name]
        found = by_value[part]
        del found[entry]
        if not found:
            del by_value[part]
            if not by_value:
                del self.by_name[name]
                # Until then it may be more than there are now: searching for the longest would take long.
                self.reach -= self._longest.pop(name)


class CorrelationIndex(Generic[Key]):
    """`index.add("rule 1", CorrelationFilter(label="a"))`; then `index.match(view)` returns the keys that match."""

    def __init__(self) -> None:
        self._filters: dict[Key, CorrelationFilter] = {}
        self._entries: dict[Condition, EqualFilters[Key]] = {}
        self._system: _Entries[Key] = _Entries()
        self._user: _Entries[Key] = _Entries()
        # How many entries read user properties, and each system property.
        self._user_count = 0
        self._system_counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        return key in self._filters

    @property
    def needs(self) -> Needs:
        """What all filters together read."""
        return Needs(self._user_count > 0, frozenset(self._system_counts)) if self._entries else NOTHING

    @property
    def reach(self) -> int:
        """An upper bound for the entries that a message must check."""
        return self._system.reach + self._user.reach

    def add(self, key: Key, filter: CorrelationFilter) -> None:
        """Add or replace the filter under that key."""
        self.remove(key)
        condition = condition_of(filter)
        entry = self._entries.get(condition)
        if entry is None:
            entry = self._entries[condition] = EqualFilters(condition)
            self._lay(entry)
        entry.keys[key] = None
        self._filters[key] = filter

    def remove(self, key: Key) -> None:
        """Forget the key, if it is known."""
        filter = self._filters.pop(key, None)
        if filter is None:
            return
        condition = condition_of(filter)
        entry = self._entries[condition]
        del entry.keys[key]
        if not entry.keys:
            del self._entries[condition]
            self._pick_up(entry)

    def match(self, view: FilterView) -> list[Key]:
        """The keys of all matching filters; equal filters in insertion order."""
        found: list[Key] = []
        for entry in self.candidates(view):
            if entry.matches(view):
                found += entry.keys
        return found

    def candidates(self, view: FilterView) -> list[EqualFilters[Key]]:
        """The entries under the message's own values; each may still not match."""
        found: list[EqualFilters[Key]] = []
        for name, by_value in self._system.by_name.items():
            value = view.system(name)
            if value is not None:
                found += by_value.get(value, ())
        if self._user_count:
            own = view.properties.folded
            by_name = self._user.by_name
            # Walk the shorter of the two: the indexed properties, or the message's own.
            for name in own if len(own) < len(by_name) else by_name:
                if name in own and name in by_name:
                    part = part_of(own[name])
                    if part is not None:
                        found += by_name[name].get(part, ())
        return found

    def _lay(self, entry: EqualFilters[Key]) -> None:
        places = [(self._user, name, part) for name, part in entry.user]
        places += [(self._system, name, text) for name, text in entry.system]
        place = min(places, key=_crowd)
        entry.place = place
        place[0].add(place[1], place[2], entry)
        self._user_count += bool(entry.user)
        for name, _ in entry.system:
            self._system_counts[name] = self._system_counts.get(name, 0) + 1

    def _pick_up(self, entry: EqualFilters[Key]) -> None:
        assert entry.place is not None
        entries, name, part = entry.place
        entries.remove(name, part, entry)
        self._user_count -= bool(entry.user)
        for name, _ in entry.system:
            self._system_counts[name] -= 1
            if not self._system_counts[name]:
                del self._system_counts[name]


def _crowd(place: tuple[_Entries[Key], str, Any]) -> int:
    """How many entries lie there already."""
    entries, name, part = place
    return entries.count(name, part)
