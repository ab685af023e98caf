"""Reads one table of a configuration file, with helpful errors.

- An unknown key is an error that names it, its place and the nearest known key.
- A value of the wrong type is an error that says what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from twinbus.durations import parse_ms
from twinbus.entities.setting import DURATION, FLAG, NUMBER
from twinbus.errors import ArgumentError, ConfigError
from twinbus.spelling import did_you_mean

T = TypeVar("T")

_KINDS = {str: "a text", bool: "true or false", int: "a whole number", list: "a list", dict: "a table"}


class Section:
    """One table: its values under their canonical names, and its place in the file."""

    def __init__(self, values: object, where: str, names: Iterable[str] | None, *, fold_case: bool = False) -> None:
        # Its place, for errors: `config.json: UserConfig.Namespaces[0]`.
        self.where = where
        self._values: dict[str, Any] = {}
        if not isinstance(values, dict):
            raise ConfigError(f"{where} must be a table, not {_shown(values, where)}.")
        known = None if names is None else {(name.lower() if fold_case else name): name for name in names}
        for given, value in values.items():
            name = given if known is None else known.get(given.lower() if fold_case else given)
            if name is None:
                raise ConfigError(_unknown(given, where, list((known or {}).values())))
            if name in self._values:
                raise ConfigError(f"{where} has the key {name!r} twice.")
            self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def place(self, name: str) -> str:
        """The place of one of its keys."""
        # After the file name's colon comes a space, not a dot.
        return f"{self.where}{' ' if self.where.endswith(':') else '.'}{name}"

    def get(self, name: str) -> Any:
        """The raw value; None if absent."""
        return self._values.get(name)

    def need(self, name: str) -> str:
        """A required string."""
        value = self.text(name)
        if not value:
            raise ConfigError(f"{self.where} has no {name!r}.")
        return value

    def text(self, name: str) -> str | None:
        value: str | None = self._typed(name, str)
        return value

    def flag(self, name: str) -> bool | None:
        value: bool | None = self._typed(name, bool)
        return value

    def number(self, name: str) -> int | None:
        value: int | None = self._typed(name, int)
        return value

    def items(self, name: str) -> list[Any]:
        """A list; empty if absent."""
        return self._typed(name, list) or []

    def texts(self, name: str) -> list[str]:
        """A list of strings; empty if absent."""
        values = self.items(name)
        for value in values:
            if not isinstance(value, str):
                raise ConfigError(f"{self.place(name)} must hold texts, not {_shown(value, self.place(name))}.")
        return values

    def duration_ms(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            shown = _shown(value, self.place(name))
            raise ConfigError(f'{self.place(name)} must be a duration such as "PT30S" or "30s", not {shown}.')
        try:
            return parse_ms(value)
        except ConfigError as error:
            raise ConfigError(f"{self.place(name)}: {error}") from None

    def value(self, name: str, kind: str) -> Any:
        """The value of a setting, read by its kind; an empty string counts as absent."""
        if kind == DURATION:
            return self.duration_ms(name)
        if kind == NUMBER:
            return self.number(name)
        return self.flag(name) if kind == FLAG else self.text(name) or None

    def make(self, factory: Callable[..., T], **fields: Any) -> T:
        """Call `factory` with the fields that are set; prefix its errors with the section's place."""
        try:
            return factory(**{name: value for name, value in fields.items() if value is not None})
        except (ArgumentError, ConfigError) as error:
            raise ConfigError(f"{self.where}: {error}") from None

    def _typed(self, name: str, kind: type) -> Any:
        value = self._values.get(name)
        # In Python a bool is an int.
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            place = self.place(name)
            raise ConfigError(f"{place} must be {_KINDS[kind]}, not {_shown(value, place)}.")
        return value


def _unknown(given: str, where: str, names: list[str]) -> str:
    hint = did_you_mean(given, names, f"Known keys: {', '.join(sorted(names))}.")
    return f"{where} has the unknown key {given!r}.{hint}"


def _shown(value: object, place: str) -> str:
    # A value near policies or keys may be a secret.
    if ".policies" in place or "_key" in place or "secret" in place:
        return _KINDS.get(type(value), "that")
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
