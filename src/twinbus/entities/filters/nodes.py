"""The syntax tree of a SQL filter or action.

There are two kinds that never mix: a condition is true, false or unknown; a value is what a property can hold. Nodes
compare by content, not by position in the text. A chain (`a AND b AND c`, `1 + x - 2`) is one node.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """A literal: text, a number, TRUE, FALSE, or None for NULL."""

    value: str | int | float | bool | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and TRUE are equal in Python, but they are three different literals here.
        return isinstance(other, Constant) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def _said(self) -> tuple[type, object]:
        return type(self.value), self.value


@dataclasses.dataclass(frozen=True, slots=True)
class UserProperty:
    """A property set by the sender; spelled as in the text, matched case-insensitively."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class SystemProperty:
    """A property of the message itself, by its canonical name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the rule; the name has no @."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class NewId:
    """A new identifier for every evaluation."""


@dataclasses.dataclass(frozen=True, slots=True)
class PropertyNamed:
    """The user property named by the value of an expression."""

    name: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """Unary `+` or `-`."""

    sign: str
    operand: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Arithmetic:
    """A chain of operators of one precedence, evaluated from left to right."""

    first: Value
    rest: tuple[tuple[str, Value], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """`=`, `<>`, `<`, `<=`, `>` or `>=` between two values."""

    operator: str
    left: Value
    right: Value


@dataclasses.dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is missing or null; never unknown."""

    operand: Value


@dataclasses.dataclass(frozen=True, slots=True)
class In:
    """Whether a value equals one of several."""

    operand: Value
    items: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Like:
    """Whether a text matches a pattern."""

    operand: Value
    pattern: Value
    escape: Value | None


@dataclasses.dataclass(frozen=True, slots=True)
class Exists:
    """Whether the message has a property, whatever its value."""

    target: Target


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """A boolean value where a condition is expected."""

    operand: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    operand: Condition


@dataclasses.dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Condition, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Condition, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Set:
    """`SET target = value`."""

    target: Target
    value: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Remove:
    """`REMOVE target`."""

    target: Target


Target: TypeAlias = UserProperty | SystemProperty
Value: TypeAlias = Constant | UserProperty | SystemProperty | Parameter | NewId | PropertyNamed | Sign | Arithmetic
Condition: TypeAlias = Comparison | IsNull | In | Like | Exists | Truth | Not | And | Or
Statement: TypeAlias = Set | Remove
