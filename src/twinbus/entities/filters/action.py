"""A rule's action: what it changes on the copy of a message that the rule selected.

Statements run in order, and each sees the effects of those before it. The message itself does not change: the caller
gets the changes and makes the copy.
"""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from twinbus.errors import ArgumentError, FilterEvaluationError

from . import nodes
from .compiler import Compiler, Run
from .conversion import for_system, for_user
from .names import fold
from .reader import read_action
from .stored import check_values, identity, read_values, write_values
from .view import FilterView, Needs, Properties


class Removed(enum.Enum):
    """The sentinel for a removed property."""

    REMOVED = "removed"

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = Removed.REMOVED


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """The changes an action makes: new values by name, or REMOVED. None is null."""

    # User properties, under the sender's spelling, or the action's for a new one.
    properties: dict[str, Any]
    # System properties by canonical name: text, a boolean, or milliseconds.
    system: dict[str, Any]


class _Draft:
    """A message with the changes so far; itself a FilterView."""

    __slots__ = ("_names", "_system", "_view", "properties")

    def __init__(self, view: FilterView, needs: Needs) -> None:
        self._view = view
        # System properties that were set or removed.
        self._system: dict[str, Any] = {}
        # Current user properties; empty if no statement reads them.
        self.properties = Properties({})
        if needs.properties:
            self.properties.folded.update(view.properties.folded)
        # Spelling by folded name, of the user properties that were set or removed.
        self._names: dict[str, str] = {}

    def system(self, name: str) -> Any:
        return self._system[name] if name in self._system else self._view.system(name)

    def new_id(self) -> uuid.UUID:
        return self._view.new_id()

    def set_user(self, name: str, folded: str, value: Any) -> None:
        own = self.properties.folded
        own[folded] = for_user(value, own.get(folded))
        self._names.setdefault(folded, name)

    def remove_user(self, name: str, folded: str) -> None:
        self.properties.folded.pop(folded, None)
        self._names.setdefault(folded, name)

    def set_system(self, name: str, value: Any) -> None:
        self._system[name] = for_system(name, value)

    def changes(self) -> Changes:
        if not self._names:
            return Changes({}, self._written_system())
        before, after = self._view.properties, self.properties.folded
        properties: dict[str, Any] = {}
        for folded, name in self._names.items():
            if folded in after:
                properties[before.spelling(name)] = after[folded]
            elif folded in before.folded:
                properties[before.spelling(name)] = REMOVED
        return Changes(properties, self._written_system())

    def _written_system(self) -> dict[str, Any]:
        return {name: REMOVED if value is None else value for name, value in self._system.items()}


_Step: TypeAlias = Callable[[_Draft], None]


class SqlAction:
    """`SqlAction("SET quantity = quantity / 2; REMOVE priority; SET sys.Label = 'low'")`."""

    __slots__ = ("_needs", "_steps", "expression", "parameters")

    def __init__(self, expression: str, parameters: Mapping[str, Any] | None = None) -> None:
        self.expression = expression
        # Values of the @names in the text; keys as given, with or without the @.
        self.parameters = check_values(parameters or {}, "parameter")
        # What the statements read; None until compiled.
        self._needs: Needs | None = None
        # One closure per statement; None until compiled.
        self._steps: tuple[_Step, ...] | None = None
        self._compile()

    def _compile(self) -> tuple[Needs, tuple[_Step, ...]]:
        compiler = Compiler(self.parameters)
        statements = read_action(self.expression)
        steps = tuple(_step(statement, compiler) for statement in statements)
        needs = compiler.needs
        if any(isinstance(statement.target, nodes.UserProperty) for statement in statements):
            # A property keeps its spelling and its type, so even a plain SET reads the old value.
            needs |= Needs(properties=True)
        self._needs, self._steps = needs, steps
        return needs, steps

    def _compiled(self) -> tuple[Needs, tuple[_Step, ...]]:
        if self._needs is not None and self._steps is not None:
            return self._needs, self._steps
        try:
            return self._compile()
        except ArgumentError as error:
            # It was valid when it was stored, and the sender of this message did not write it.
            raise FilterEvaluationError(error.text) from error

    @property
    def compiled(self) -> bool:
        """Whether it is compiled; a stored one is not until it is needed."""
        return self._steps is not None

    def prepare(self) -> None:
        """Compile it now. An error shows when it is applied."""
        with suppress(FilterEvaluationError):
            self._compiled()

    @property
    def needs(self) -> Needs:
        return self._compiled()[0]

    def apply(self, view: FilterView) -> Changes:
        """What the action changes on this message; raises FilterEvaluationError if a statement fails."""
        needs, steps = self._compiled()
        draft = _Draft(view, needs)
        for step in steps:
            step(draft)
        return draft.changes()

    def to_json(self) -> dict[str, Any]:
        return {"type": "sql", "expression": self.expression, "parameters": write_values(self.parameters)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SqlAction:
        stored = cls.__new__(cls)
        stored.expression = fields["expression"]
        stored.parameters = read_values(fields["parameters"])
        stored._needs = stored._steps = None
        return stored

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SqlAction):
            return NotImplemented
        return self.expression == other.expression and identity(self.parameters) == identity(other.parameters)

    def __hash__(self) -> int:
        return hash((self.expression, identity(self.parameters)))

    def __repr__(self) -> str:
        return f"SqlAction({self.expression!r})"


def _step(statement: nodes.Statement, compiler: Compiler) -> _Step:
    name = statement.target.name
    user = isinstance(statement.target, nodes.UserProperty)
    if isinstance(statement, nodes.Remove):
        return _remove_user(name) if user else _set_system(name, lambda _view: None)
    run = compiler.value(statement.value).run
    return _set_user(name, run) if user else _set_system(name, run)


def _set_user(name: str, run: Run) -> _Step:
    folded = fold(name)
    return lambda draft: draft.set_user(name, folded, run(draft))


def _remove_user(name: str) -> _Step:
    folded = fold(name)
    return lambda draft: draft.remove_user(name, folded)


def _set_system(name: str, run: Run) -> _Step:
    return lambda draft: draft.set_system(name, run(draft))
