"""A filter written as a SQL condition.

A new filter is compiled at once, so that whoever creates the rule gets the error. A stored one was valid when it was
stored; it is compiled with the first message, because compiling thousands would delay the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from twinbus.errors import ArgumentError, FilterEvaluationError

from .compiler import Compiler, Test
from .reader import read_filter
from .stored import check_values, identity, read_values, write_values
from .view import FilterView, Needs


class SqlFilter:
    """`SqlFilter("color = 'blue' AND quantity > @least", {"@least": 10})`."""

    __slots__ = ("_needs", "_test", "expression", "parameters")

    def __init__(self, expression: str, parameters: Mapping[str, Any] | None = None) -> None:
        self.expression = expression
        # Values of the @names in the text; keys as given, with or without the @.
        self.parameters = check_values(parameters or {}, "parameter")
        # What the text reads of a message; None until compiled.
        self._needs: Needs | None = None
        # The compiled condition; None until compiled.
        self._test: Test | None = None
        self._compile()

    def _compile(self) -> tuple[Needs, Test]:
        compiler = Compiler(self.parameters)
        test = compiler.condition(read_filter(self.expression)).run
        self._needs, self._test = compiler.needs, test
        return compiler.needs, test

    def _compile_stored(self) -> tuple[Needs, Test]:
        try:
            return self._compile()
        except ArgumentError as error:
            # The sender of this message did not write the rule.
            raise FilterEvaluationError(error.text) from error

    @property
    def compiled(self) -> bool:
        """Whether it is compiled; a stored one is not until it is needed."""
        return self._test is not None

    def prepare(self) -> None:
        """Compile it now. An error shows when it is evaluated."""
        if self._test is None:
            with suppress(FilterEvaluationError):
                self._compile_stored()

    @property
    def needs(self) -> Needs:
        return self._needs if self._needs is not None else self._compile_stored()[0]

    def evaluate(self, view: FilterView) -> bool | None:
        """True, False, or None for unknown; raises FilterEvaluationError if the condition fails on this message."""
        test = self._test
        if test is None:
            test = self._compile_stored()[1]
        return test(view)

    def matches(self, view: FilterView) -> bool:
        """Whether the filter selects the message; unknown does not select it."""
        return self.evaluate(view) is True

    def to_json(self) -> dict[str, Any]:
        return {"type": "sql", "expression": self.expression, "parameters": write_values(self.parameters)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SqlFilter:
        stored = cls.__new__(cls)
        stored.expression = fields["expression"]
        stored.parameters = read_values(fields["parameters"])
        stored._needs = stored._test = None
        return stored

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SqlFilter):
            return NotImplemented
        return self.expression == other.expression and identity(self.parameters) == identity(other.parameters)

    def __hash__(self) -> int:
        return hash((self.expression, identity(self.parameters)))

    def __repr__(self) -> str:
        return f"SqlFilter({self.expression!r})"
