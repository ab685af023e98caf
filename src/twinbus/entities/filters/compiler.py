"""Compiles nodes to closures, once per rule, so that little work is left per message.

A condition's closure returns True, False, or None for unknown; a value's closure returns the value or None. What does
not depend on the message is evaluated here. AND and OR stop at the first operand that decides, from left to right;
everything else evaluates all its operands, so an error in one is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from twinbus.errors import ArgumentError, FilterEvaluationError

from . import nodes
from .names import fold
from .patterns import PatternError, compile_pattern
from .values import (
    COMPARISONS,
    KIND_NAMES,
    KINDS,
    MIRRORED,
    OTHER,
    TEXT,
    calculate,
    compare,
    kind_of,
    negative,
    ordered,
    plain,
    positive,
)
from .view import FilterView, Needs

Run: TypeAlias = Callable[[FilterView], Any]
Test: TypeAlias = Callable[[FilterView], bool | None]

# Passed to closures that do not look at the message.
_NO_MESSAGE = cast(FilterView, None)


class Code:
    """A closure, and whether its answer depends on the message."""

    __slots__ = ("fixed", "run", "value")

    def __init__(self, run: Run, parts: Iterable[Code] = (), *, fixed: bool = True) -> None:
        self.run = run
        # The answer is the same for every message.
        self.fixed: bool = fixed and all(part.fixed for part in parts)
        # That answer; None if it is unknown or not fixed.
        self.value: Any = None
        if self.fixed:
            try:
                self.value = run(_NO_MESSAGE)
            except FilterEvaluationError:
                # It fails for every message, and each evaluation must report it.
                self.fixed = False
            else:
                self.run = _always(self.value)


def _always(value: Any) -> Run:
    return lambda _view: value


class Compiler:
    """Compiles the nodes of one rule and records what they read of a message."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        # By folded name, without the @.
        self._parameters = {fold(name.removeprefix("@")): value for name, value in parameters.items()}
        self._reads_properties = False
        self._reads_system: set[str] = set()

    @property
    def needs(self) -> Needs:
        return Needs(self._reads_properties, frozenset(self._reads_system))

    # --- conditions -------------------------------------------------------------------------------------------------
    def condition(self, node: nodes.Condition) -> Code:
        match node:
            case nodes.And(parts):
                return self._chain(parts, _conjunction)
            case nodes.Or(parts):
                return self._chain(parts, _disjunction)
            case nodes.Not(operand):
                code = self.condition(operand)
                return Code(_negation(code.run), [code])
            case nodes.Comparison(sign, left, right):
                return self._comparison(sign, self.value(left), self.value(right))
            case nodes.IsNull(operand):
                code = self.value(operand)
                return Code(_is_null(code.run), [code])
            case nodes.In(operand, items):
                return self._membership(self.value(operand), [self.value(item) for item in items])
            case nodes.Like(operand, pattern, escape):
                return self._likeness(operand, pattern, escape)
            case nodes.Exists(target):
                return self._existence(target)
            case nodes.Truth(operand):
                code = self.value(operand)
                return Code(_truth(code.run), [code])

    def _chain(self, parts: tuple[nodes.Condition, ...], link: Callable[[tuple[Test, ...]], Test]) -> Code:
        codes = [self.condition(part) for part in parts]
        return Code(link(tuple(code.run for code in codes)), codes)

    def _comparison(self, sign: str, left: Code, right: Code) -> Code:
        if left.fixed and not right.fixed:
            sign, left, right = MIRRORED[sign], right, left
        if right.fixed and not left.fixed and right.value is not None:
            return Code(_comparison_with(sign, left.run, right.value), fixed=False)
        return Code(_comparison(sign, left.run, right.run), [left, right])

    def _membership(self, operand: Code, items: list[Code]) -> Code:
        if all(item.fixed for item in items):
            return Code(_membership_in(operand.run, [item.value for item in items]), [operand])
        return Code(_membership(operand.run, tuple(item.run for item in items)), [operand, *items])

    def _likeness(self, operand: nodes.Value, pattern: nodes.Value, escape: nodes.Value | None) -> Code:
        text, form = self.value(operand), self.value(pattern)
        sign = self.value(escape) if escape is not None else None
        if form.fixed and form.value is not None and (sign is None or (sign.fixed and sign.value is not None)):
            try:
                matches = pattern_matcher(form.value, None if sign is None else sign.value)
            except FilterEvaluationError as error:
                raise ArgumentError(f"The SQL filter is not valid: {error}") from error
            return Code(_likeness_to(text.run, matches), [text])
        parts = [text, form] if sign is None else [text, form, sign]
        return Code(_likeness(text.run, form.run, None if sign is None else sign.run), parts)

    def _existence(self, target: nodes.Target) -> Code:
        if isinstance(target, nodes.SystemProperty):
            return Code(_negation(_is_null(self.value(target).run)), fixed=False)
        self._reads_properties = True
        name = fold(target.name)
        return Code(lambda view: name in view.properties.folded, fixed=False)

    # --- values -----------------------------------------------------------------------------------------------------
    def value(self, node: nodes.Value) -> Code:
        match node:
            case nodes.Constant(value):
                return Code(_always(value))
            case nodes.Parameter(name):
                return Code(_always(self._parameter(name)))
            case nodes.UserProperty(name):
                self._reads_properties = True
                return Code(_user_property(fold(name)), fixed=False)
            case nodes.SystemProperty(name):
                self._reads_system.add(name)
                return Code(lambda view: view.system(name), fixed=False)
            case nodes.NewId():
                return Code(lambda view: view.new_id(), fixed=False)
            case nodes.PropertyNamed(argument):
                return self._property_named(self.value(argument))
            case nodes.Sign(sign, operand):
                code = self.value(operand)
                return Code(_signed(negative if sign == "-" else positive, code.run), [code])
            case nodes.Arithmetic(first, rest):
                start = self.value(first)
                steps = [(sign, self.value(operand)) for sign, operand in rest]
                run = _arithmetic(start.run, tuple((sign, code.run) for sign, code in steps))
                return Code(run, [start, *(code for _, code in steps)])

    def _parameter(self, name: str) -> Any:
        if fold(name) not in self._parameters:
            known = ", ".join(f"@{one}" for one in sorted(self._parameters)) or "none"
            raise ArgumentError(f"The parameter @{name} has no value; the rule came with {known}.")
        return self._parameters[fold(name)]

    def _property_named(self, argument: Code) -> Code:
        self._reads_properties = True
        if argument.fixed and isinstance(argument.value, str):
            return Code(_user_property(fold(argument.value)), fixed=False)
        return Code(_property_named(argument.run), fixed=False)


# --- closures of conditions -----------------------------------------------------------------------------------------
def _conjunction(parts: tuple[Test, ...]) -> Test:
    def test(view: FilterView) -> bool | None:
        answer: bool | None = True
        for part in parts:
            truth = part(view)
            if truth is False:
                return False
            if truth is None:
                answer = None
        return answer

    return test


def _disjunction(parts: tuple[Test, ...]) -> Test:
    def test(view: FilterView) -> bool | None:
        answer: bool | None = False
        for part in parts:
            truth = part(view)
            if truth is True:
                return True
            if truth is None:
                answer = None
        return answer

    return test


def _negation(operand: Test) -> Test:
    def test(view: FilterView) -> bool | None:
        truth = operand(view)
        return None if truth is None else not truth

    return test


def _is_null(operand: Run) -> Test:
    return lambda view: operand(view) is None


def _truth(operand: Run) -> Test:
    def test(view: FilterView) -> bool | None:
        value = operand(view)
        return value if isinstance(value, bool) else None

    return test


def _comparison(sign: str, left: Run, right: Run) -> Test:
    return lambda view: compare(sign, left(view), right(view))


def _comparison_with(sign: str, left: Run, constant: Any) -> Test:
    """The usual comparison: a property with a constant."""
    kind, right = plain(constant)
    if not ordered(kind, sign):
        # Evaluate the left side anyway: an error in it is an error.
        return lambda view: compare(sign, left(view), constant)
    answer = COMPARISONS[sign]

    def test(view: FilterView) -> bool | None:
        value = left(view)
        if KINDS.get(value.__class__) == kind:
            return answer(value, right)
        # A class not seen before, a kind that needs conversion, or a kind that does not compare.
        return compare(sign, value, constant)

    return test


def _membership(operand: Run, items: tuple[Run, ...]) -> Test:
    def test(view: FilterView) -> bool | None:
        value = operand(view)
        if value is None:
            return None
        answer: bool | None = False
        for item in items:
            equal = compare("=", value, item(view))
            if equal:
                return True
            if equal is None:
                answer = None
        return answer

    return test


def _membership_in(operand: Run, constants: list[Any]) -> Test:
    """Membership in a list of constants: one look-up, however long the list."""
    by_kind: dict[int, set[Any]] = {}
    unknown = False
    for constant in constants:
        kind, value = plain(constant)
        if constant is None or kind == OTHER:
            unknown = True
        else:
            by_kind.setdefault(kind, set()).add(value)

    def test(view: FilterView) -> bool | None:
        value = operand(view)
        if value is None:
            return None
        kind, value = plain(value)
        same = by_kind.get(kind)
        # NaN equals nothing, not even itself, but a set checks identity first.
        if same is not None and value in same and value == value:
            return True
        # List items of another kind do not compare, so the answer is unknown rather than False.
        return None if unknown or same is None or len(by_kind) > 1 else False

    return test


def pattern_matcher(pattern: Any, escape: Any) -> Callable[[str], bool]:
    for value in (pattern, escape):
        if value is not None and kind_of(value) != TEXT:
            raise FilterEvaluationError(f"LIKE takes a string as pattern and escape, not {KIND_NAMES[kind_of(value)]}.")
    try:
        return compile_pattern(pattern, escape)
    except PatternError as error:
        raise FilterEvaluationError(f"{error}.") from error


def _likeness_to(operand: Run, matches: Callable[[str], bool]) -> Test:
    def test(view: FilterView) -> bool | None:
        value = operand(view)
        return matches(value) if isinstance(value, str) else None

    return test


def _likeness(operand: Run, pattern: Run, escape: Run | None) -> Test:
    def test(view: FilterView) -> bool | None:
        value, form = operand(view), pattern(view)
        sign = None if escape is None else escape(view)
        if value is None or form is None or (sign is None and escape is not None):
            return None
        matches = pattern_matcher(form, sign)
        return matches(value) if isinstance(value, str) else None

    return test


# --- closures of values ---------------------------------------------------------------------------------------------
def _user_property(name: str) -> Run:
    return lambda view: view.properties.folded.get(name)


def _property_named(argument: Run) -> Run:
    def run(view: FilterView) -> Any:
        name = argument(view)
        if name is None:
            return None
        if not isinstance(name, str):
            raise FilterEvaluationError(f"property(name) takes a string, not {KIND_NAMES[kind_of(name)]}.")
        return view.properties.folded.get(fold(name))

    return run


def _signed(operation: Callable[[Any], Any], operand: Run) -> Run:
    def run(view: FilterView) -> Any:
        value = operand(view)
        return None if value is None else operation(value)

    return run


def _arithmetic(first: Run, rest: tuple[tuple[str, Run], ...]) -> Run:
    def run(view: FilterView) -> Any:
        value = first(view)
        for sign, operand in rest:
            other = operand(view)
            value = None if value is None or other is None else calculate(sign, value, other)
        return value

    return run
