"""Locks by token, earliest deadline first.

All locks of a queue have the same duration, so a dict in insertion order is in deadline order, and renewing re-inserts
the lock. When the lock duration changes, existing locks move to a second dict, sorted once.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Locked(Protocol):
    """Anything with a lock deadline: a message or a session."""

    locked_until_ms: int | None


K = TypeVar("K")
V = TypeVar("V", bound=Locked)


class Locks(Generic[K, V]):
    """The current locks. Hot paths read and write `held` directly."""

    __slots__ = ("held", "older")

    def __init__(self) -> None:
        # Locks with the current duration.
        self.held: dict[K, V] = {}
        # Locks taken before the duration changed.
        self.older: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self.held) + len(self.older)

    def get(self, key: K) -> V | None:
        found = self.held.get(key)
        return self.older.get(key) if found is None and self.older else found

    def remove(self, key: K) -> None:
        if key in self.held:
            del self.held[key]
        else:
            del self.older[key]

    def renew(self, key: K, value: V) -> None:
        """Move a lock to the end: its deadline is now the latest."""
        self.remove(key)
        self.held[key] = value

    def lapsed(self, now_ms: int, limit: int) -> list[V]:
        """Up to `limit` expired locks, without removing them."""
        due: list[V] = []
        for locks in (self.older, self.held):
            for value in locks.values():
                if len(due) == limit or until_ms(value) > now_ms:
                    break
                due.append(value)
        return due

    def deadline_ms(self) -> int | None:
        """When the first lock expires."""
        earliest: int | None = None
        for locks in (self.older, self.held):
            for value in locks.values():
                until = until_ms(value)
                if earliest is None or until < earliest:
                    earliest = until
                break
        return earliest

    def shift(self, step_ms: int) -> None:
        """The clock was set. Every lock keeps its remaining time."""
        for locks in (self.older, self.held):
            for value in locks.values():
                value.locked_until_ms = until_ms(value) + step_ms

    def duration_changed(self) -> None:
        merged = sorted([*self.older.items(), *self.held.items()], key=_entry_until_ms)
        self.older = dict(merged)
        self.held = {}


def until_ms(value: Locked) -> int:
    until = value.locked_until_ms
    assert until is not None, "only what is locked lies in here"
    return until


def _entry_until_ms(entry: tuple[object, Locked]) -> int:
    return until_ms(entry[1])
