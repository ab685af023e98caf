"""A JMS message selector: which messages a consumer wants.

It is the condition of a SQL filter with the rules of JMS: names are case-sensitive, values of different kinds are
neither equal nor unequal (the comparison is false, not unknown), strings and booleans are not ordered, and arithmetic
on anything but numbers is unknown. A selector never fails on a message: what cannot be evaluated does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from twinbus.errors import FilterEvaluationError

from . import nodes
from .compiler import Code, Compiler, Run, Test, pattern_matcher
from .selector_reader import read_selector
from .sql import SqlFilter
from .values import COMPARISONS, EQUALITIES, NUMBER, calculate, negative, plain, positive
from .view import FilterView, Needs


class SelectorView(FilterView, Protocol):
    """A message as selectors see it."""

    def header(self, name: str) -> Any:
        """A JMS header by name (see `selector_reader.HEADERS`); None if the message has none."""


class MessageSelector(SqlFilter):
    """`MessageSelector("colour = 'blue' AND JMSPriority > 4")`. As the filter of a rule it is shown as a SQL filter."""

    __slots__ = ()

    def _compile(self) -> tuple[Needs, Test]:
        compiler = _SelectorCompiler({})
        test = compiler.condition(read_selector(self.expression)).run
        self._needs, self._test = compiler.needs, test
        return compiler.needs, test

    def evaluate(self, view: FilterView) -> bool | None:
        try:
            return super().evaluate(view)
        except FilterEvaluationError:
            return None

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "type": "selector"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageSelector) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash((MessageSelector, self.expression))

    def __repr__(self) -> str:
        return f"MessageSelector({self.expression!r})"


class _SelectorCompiler(Compiler):
    def value(self, node: nodes.Value) -> Code:
        match node:
            case nodes.UserProperty(name):
                self._reads_properties = True
                return Code(lambda view: view.properties.exact(name), fixed=False)
            case nodes.SystemProperty(name):
                self._reads_system.add(name)
                return Code(lambda view: cast(SelectorView, view).header(name), fixed=False)
            case nodes.Sign(sign, operand):
                code = self.value(operand)
                return Code(_signed(negative if sign == "-" else positive, code.run), [code])
            case nodes.Arithmetic(first, rest):
                codes = [self.value(first), *(self.value(operand) for _, operand in rest)]
                signs = [sign for sign, _ in rest]
                steps = tuple(zip(signs, (code.run for code in codes[1:]), strict=True))
                return Code(_arithmetic(codes[0].run, steps), codes)
        return super().value(node)

    def _comparison(self, sign: str, left: Code, right: Code) -> Code:
        return Code(_comparison(sign, left.run, right.run), [left, right])

    def _membership(self, operand: Code, items: list[Code]) -> Code:
        wanted = frozenset(item.value for item in items)
        return Code(_text_test(operand.run, wanted.__contains__), [operand])

    def _likeness(self, operand: nodes.Value, pattern: nodes.Value, escape: nodes.Value | None) -> Code:
        code = self.value(operand)
        form, sign = self.value(pattern).value, None if escape is None else self.value(escape).value
        return Code(_text_test(code.run, pattern_matcher(form, sign)), [code])


def _comparison(sign: str, left: Run, right: Run) -> Test:
    answer = COMPARISONS[sign]
    equality = sign in EQUALITIES

    def test(view: FilterView) -> bool | None:
        first, second = left(view), right(view)
        if first is None or second is None:
            return None
        first_kind, first = plain(first)
        second_kind, second = plain(second)
        if first_kind != second_kind or not (equality or first_kind == NUMBER):
            return False
        return answer(first, second)

    return test


def _text_test(operand: Run, test_text: Callable[[str], bool]) -> Test:
    def test(view: FilterView) -> bool | None:
        value = operand(view)
        if value is None:
            return None
        return isinstance(value, str) and test_text(value)

    return test


def _number(value: Any) -> Any:
    """The value if it is a number; otherwise None."""
    return value if value is not None and plain(value)[0] == NUMBER else None


def _signed(operation: Callable[[Any], Any], operand: Run) -> Run:
    def run(view: FilterView) -> Any:
        value = _number(operand(view))
        return None if value is None else operation(value)

    return run


def _arithmetic(first: Run, rest: tuple[tuple[str, Run], ...]) -> Run:
    def run(view: FilterView) -> Any:
        value = _number(first(view))
        for sign, operand in rest:
            other = _number(operand(view))
            value = None if value is None or other is None else calculate(sign, value, other)
        return value

    return run
