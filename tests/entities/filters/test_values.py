"""Rare kinds of values: decimals, times, spans, identifiers, and NaN."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from filter_view import view

from twinbus.entities.filters import SqlFilter
from twinbus.entities.filters.values import compare, milliseconds, negative, text_of
from twinbus.errors import ArgumentError, FilterEvaluationError

MOMENT = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x = 1.5", Decimal("1.5"), True),
        ("x > 1", Decimal("1.5"), True),
        ("x IN (1, 1.5)", Decimal("1.5"), True),
        ("x + 1 = 2.5", Decimal("1.5"), True),
        ("x * 0.5 = 0.75", Decimal("1.5"), True),
        ("-x < 0", Decimal("1.5"), True),
        ("x = x OR x < 1 OR x > 1", Decimal("NaN"), False),
        ("x = x OR x < 1 OR x > 1 OR x IN (1)", math.nan, False),
        ("x <> x", math.nan, True),
        ("x IN (1, 2)", None, None),
        ("x % 1 <> 0 AND x - x <> 0", math.inf, True),
        ("'' + x = 'Infinity'", math.inf, True),
        ("'' + x = '-Infinity'", -math.inf, True),
        ("'' + x = 'NaN'", math.nan, True),
        ("'' + x = '1E+20'", 1e20, True),
        ("'' + x = '1.50'", Decimal("1.50"), True),
        ("x + '!' = '2024-01-01T00:00:00+00:00!'", MOMENT, True),
        ("x + '!' = '1:00:00!'", datetime.timedelta(hours=1), True),
        ("x + '' = '00000000-0000-0000-0000-000000000007'", uuid.UUID(int=7), True),
        ("x = 1704067200000", MOMENT, True),
        ("x + 1 = 1704067200001", MOMENT, True),
        ("x = 3600000", datetime.timedelta(hours=1), True),
    ],
)
def test_kinds(text: str, value: Any, expected: bool | None) -> None:
    assert SqlFilter(text).evaluate(view({"x": value})) is expected


def test_parts_of_a_millisecond_are_kept() -> None:
    assert milliseconds(MOMENT + datetime.timedelta(microseconds=500)) == 1_704_067_200_000.5
    assert compare("<", MOMENT, MOMENT + datetime.timedelta(microseconds=1)) is True


def test_decimals_fail_as_whole_numbers_do() -> None:
    with pytest.raises(FilterEvaluationError, match="Operator / failed on decimals"):
        SqlFilter("x / 0 = 1").matches(view({"x": Decimal(1)}))


def test_what_has_no_text_or_no_sign() -> None:
    with pytest.raises(FilterEvaluationError, match="A value of no simple type cannot be written"):
        text_of([1])
    with pytest.raises(FilterEvaluationError, match="cannot be applied to an identifier"):
        negative(uuid.UUID(int=1))


def test_an_order_that_a_constant_does_not_have() -> None:
    assert SqlFilter("x < TRUE").evaluate(view({"x": False})) is None
    assert (
        SqlFilter("x = @id AND NOT x < @id", {"@id": uuid.UUID(int=1)}).evaluate(view({"x": uuid.UUID(int=1)})) is None
    )


def test_a_pattern_from_a_parameter_is_checked_when_the_rule_is_made() -> None:
    assert SqlFilter("x LIKE @form ESCAPE @sign", {"form": "a!%", "sign": "!"}).matches(view({"x": "a%"}))
    with pytest.raises(ArgumentError, match="LIKE takes a string as pattern and escape, not a number"):
        SqlFilter("x LIKE @form", {"@form": 5})
    with pytest.raises(ArgumentError, match="one character, not 2"):
        SqlFilter("x LIKE 'a' ESCAPE @sign", {"@sign": "!!"})


def test_lists_that_the_message_decides() -> None:
    one = SqlFilter("x IN (y, z, 3)")
    assert one.evaluate(view({"x": 1, "y": 1})) is True
    assert one.evaluate(view({"x": 3, "y": 1})) is True
    assert one.evaluate(view({"x": 2, "y": 1})) is None
    assert one.evaluate(view({"x": 2, "y": 1, "z": 1})) is False
    assert one.evaluate(view({"y": 1})) is None


def test_patterns_that_the_message_decides() -> None:
    one = SqlFilter("x LIKE y ESCAPE z")
    assert one.evaluate(view({"x": "a%", "y": "a!%", "z": "!"})) is True
    assert one.evaluate(view({"x": "ab", "y": "a!%", "z": "!"})) is False
    assert one.evaluate(view({"x": "ab", "y": "a%"})) is None
    assert one.evaluate(view({"x": 5, "y": "a%", "z": "!"})) is None
