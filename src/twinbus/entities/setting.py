"""One setting: the columns of the table in `settings.py`, and the checks they imply.

- A setting's own name ends with its unit (`lock_duration_ms`). Files and options omit `_ms` and accept durations.
- Azure's name is an element of the admin XML, a key of the emulator's file and, in snake case, a name in the SDK.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from twinbus.errors import ArgumentError

# Kinds of entity, and the groups that share a setting.
QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"
EVERY: Final = (QUEUE, TOPIC, SUBSCRIPTION)
SENT_TO: Final = (QUEUE, TOPIC)
RECEIVED_FROM: Final = (QUEUE, SUBSCRIPTION)

DURATION: Final = "duration"
NUMBER: Final = "number"
FLAG: Final = "flag"
TEXT: Final = "text"

# The help text of a setting that the broker ignores.
NO_EFFECT: Final = "Accepted for compatibility with Azure; has no effect."

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the settings table."""

    name: str = ""
    kind: str
    entities: tuple[str, ...]
    azure: str
    help: str
    default: Any
    # The range of a number or duration; `highest` is the maximum length of a text.
    lowest: int = 0
    highest: int = 0
    # The allowed values; empty allows any.
    choices: tuple[str, ...] = ()
    # The placeholder for the value in help texts.
    metavar: str = ""
    # The option that turns a flag off; if empty, `--no-...`.
    off: str = ""
    # Stored messages depend on it, so it cannot change once the entity exists.
    fixed: bool = False
    # The official emulator reads it too; other settings in a `config.json` are for Twinbus only.
    emulator: bool = False
    # The official SDK has it.
    sdk: bool = True
    # How many of our units make one of Azure's.
    azure_unit: int = 1

    @property
    def key(self) -> str:
        """Its name in our TOML file and, with hyphens, on the command line."""
        return self.name.removesuffix("_ms")

    @property
    def sdk_name(self) -> str:
        return _CAPITAL.sub("_", self.azure).lower()

    def check(self, value: Any) -> None:
        """Raise for a value outside the range; the error names the value and the range."""
        if self.kind in (DURATION, NUMBER):
            if not self.lowest <= value <= self.highest:
                raise ArgumentError(f"{self.name} {value} is out of range: {self.lowest} to {self.highest}.")
        elif self.choices and value not in self.choices:
            raise ArgumentError(f"{self.name} {value!r} is not one of {', '.join(self.choices)}.")
        elif self.kind == TEXT and self.highest and value is not None and len(value) > self.highest:
            raise ArgumentError(f"{self.name} has {len(value)} characters, the limit is {self.highest}.")


# Fields of the settings classes. Each one carries its table row as metadata.


def duration(
    azure: str, entities: tuple[str, ...], default: int, lowest: int, highest: int, help: str, **more: Any
) -> Any:
    return _field(DURATION, azure, entities, default, help, lowest=lowest, highest=highest, metavar="DURATION", **more)


def number(
    azure: str, entities: tuple[str, ...], default: int, lowest: int, highest: int, help: str, **more: Any
) -> Any:
    return _field(NUMBER, azure, entities, default, help, lowest=lowest, highest=highest, metavar="N", **more)


def flag(azure: str, entities: tuple[str, ...], default: bool, help: str, **more: Any) -> Any:
    return _field(FLAG, azure, entities, default, help, **more)


def text(azure: str, entities: tuple[str, ...], default: str | None, help: str, **more: Any) -> Any:
    return _field(TEXT, azure, entities, default, help, **more)


def _field(kind: str, azure: str, entities: tuple[str, ...], default: Any, help: str, **more: Any) -> Any:
    row = Setting(kind=kind, azure=azure, entities=entities, default=default, help=help, **more)
    return dataclasses.field(default=default, metadata={"setting": row})


def rows_of(table: type[Any]) -> tuple[Setting, ...]:
    """The rows of a settings class, named after its fields."""
    rows = [field for field in dataclasses.fields(table) if "setting" in field.metadata]
    return tuple(dataclasses.replace(row.metadata["setting"], name=row.name) for row in rows)
