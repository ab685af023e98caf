"""Compares values, calculates with them and formats them.

None is unknown, and an unknown operand gives an unknown result. Numbers compare by value whatever their type, text by
its characters; kinds that do not compare give unknown. Arithmetic follows C#: whole numbers have 64 bits and divide
towards zero; division by zero or overflow is an error for them, while a double becomes infinite.
"""

from __future__ import annotations

import datetime
import math
import operator
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from twinbus.errors import FilterEvaluationError
from twinbus.limits import APPLICATION_PROPERTY_BYTES_MAX

OTHER: Final = 0
NUMBER: Final = 1
TEXT: Final = 2
BOOLEAN: Final = 3
IDENTIFIER: Final = 4
BINARY: Final = 5
# From here on, `plain` must convert a value before it compares.
DECIMAL: Final = 6
TIME: Final = 7
SPAN: Final = 8

KIND_NAMES: Final = {
    OTHER: "a value of no simple type",
    NUMBER: "a number",
    TEXT: "a string",
    BOOLEAN: "a boolean",
    IDENTIFIER: "an identifier",
    BINARY: "a binary",
    DECIMAL: "a decimal",
    TIME: "a time",
    SPAN: "a time span",
}

_BASES: Final[tuple[tuple[type, int], ...]] = (
    (bool, BOOLEAN),
    (int, NUMBER),
    (float, NUMBER),
    (str, TEXT),
    (uuid.UUID, IDENTIFIER),
    (bytes, BINARY),
    (Decimal, DECIMAL),
    (datetime.datetime, TIME),
    (datetime.timedelta, SPAN),
)

# Kind by class. Classes are added as they are seen, so that a look-up replaces a walk over the bases.
KINDS: Final[dict[type, int]] = dict(_BASES)

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


def kind_of(value: object) -> int:
    kind = KINDS.get(value.__class__)
    if kind is None:
        kind = next((kind for base, kind in _BASES if isinstance(value, base)), OTHER)
        KINDS[value.__class__] = kind
    return kind


def plain(value: Any) -> tuple[int, Any]:
    """A value's kind and comparable form: times and spans become milliseconds, as messages carry them."""
    kind = kind_of(value)
    if kind == TIME:
        return NUMBER, milliseconds(value)
    if kind == SPAN:
        return NUMBER, _ratio(value)
    if kind == DECIMAL:
        # Comparing a decimal NaN raises; a double NaN answers.
        return NUMBER, math.nan if value.is_nan() else value
    return kind, value


def milliseconds(moment: datetime.datetime) -> int | float:
    """Milliseconds since the Unix epoch; a time without a zone is UTC, as in the service."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return _ratio(moment - _EPOCH)


def _ratio(span: datetime.timedelta) -> int | float:
    whole, rest = divmod(span, _MILLISECOND)
    return whole if not rest else span / _MILLISECOND


# --- comparing ------------------------------------------------------------------------------------------------------
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# The same comparison with its sides swapped.
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
EQUALITIES: Final = frozenset({"=", "<>"})


def ordered(kind: int, sign: str) -> bool:
    """Whether values of this kind support the comparison; only numbers and text are ordered."""
    return kind in (NUMBER, TEXT) or (kind != OTHER and sign in EQUALITIES)


def compare(sign: str, left: Any, right: Any) -> bool | None:
    """True or False; None if a side is unknown or the kinds do not compare."""
    if left is None or right is None:
        return None
    left_kind, left = plain(left)
    right_kind, right = plain(right)
    if left_kind != right_kind or not ordered(left_kind, sign):
        return None
    return COMPARISONS[sign](left, right)


# --- calculating ----------------------------------------------------------------------------------------------------
def calculate(sign: str, left: Any, right: Any) -> Any:
    """Calculate with two known values. `+` concatenates if either side is text."""
    if KINDS.get(left.__class__) == NUMBER and KINDS.get(right.__class__) == NUMBER:
        return _number(sign, left, right)
    left_kind, left_plain = plain(left)
    right_kind, right_plain = plain(right)
    if left_kind == NUMBER and right_kind == NUMBER:
        return _number(sign, left_plain, right_plain)
    if sign == "+" and TEXT in (left_kind, right_kind):
        return joined(text_of(left), text_of(right))
    raise FilterEvaluationError(
        f"Operator {sign} cannot be applied to {KIND_NAMES[kind_of(left)]} and {KIND_NAMES[kind_of(right)]}."
    )


def negative(value: Any) -> Any:
    kind, number = plain(value)
    if kind != NUMBER:
        raise FilterEvaluationError(f"Operator - cannot be applied to {KIND_NAMES[kind_of(value)]}.")
    return in_range(-number) if isinstance(number, int) else -number


def positive(value: Any) -> Any:
    kind, number = plain(value)
    if kind != NUMBER:
        raise FilterEvaluationError(f"Operator + cannot be applied to {KIND_NAMES[kind_of(value)]}.")
    return number


def in_range(number: int) -> int:
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise FilterEvaluationError("The result of an operation does not fit into 64 bits.")
    return number


def joined(left: str, right: str) -> str:
    # No property may be longer. Without the bound a short rule could produce a very long text.
    if len(left) + len(right) > APPLICATION_PROPERTY_BYTES_MAX:
        raise FilterEvaluationError(f"A joined string is longer than {APPLICATION_PROPERTY_BYTES_MAX} characters.")
    return left + right


def _number(sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return in_range(_WHOLE[sign](left, right))
    if isinstance(left, float) or isinstance(right, float):
        return _FLOATING[sign](float(left), float(right))
    try:
        return _EXACT[sign](left, right)
    except ArithmeticError as error:
        raise FilterEvaluationError(f"Operator {sign} failed on decimals: {type(error).__name__}.") from error


def _whole_quotient(left: int, right: int) -> int:
    if right == 0:
        raise FilterEvaluationError("A whole number was divided by zero.")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _whole_remainder(left: int, right: int) -> int:
    return left - right * _whole_quotient(left, right)


def _quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if left != left or left == 0:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _remainder(left: float, right: float) -> float:
    # fmod raises where IEEE 754 gives NaN.
    return math.fmod(left, right) if right and not math.isinf(left) else math.nan


_WHOLE: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _whole_quotient,
    "%": _whole_remainder,
}
_FLOATING: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}
_EXACT: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


# --- writing out ----------------------------------------------------------------------------------------------------
def text_of(value: Any) -> str:
    """A value as text, formatted as .NET does."""
    kind = kind_of(value)
    if kind == TEXT:
        return str(value)
    if kind == BOOLEAN:
        return "True" if value else "False"
    if kind == NUMBER and isinstance(value, int):
        return str(int(value))
    if kind == NUMBER:
        return _float_text(float(value))
    if kind in (DECIMAL, IDENTIFIER):
        return str(value)
    if kind == TIME:
        return str(value.isoformat())
    if kind == SPAN:
        return str(value)
    raise FilterEvaluationError(f"{KIND_NAMES[kind].capitalize()} cannot be written as a string.")


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value).removesuffix(".0").replace("e", "E")
