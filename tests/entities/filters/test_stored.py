"""Filters written to the store and read back."""

from __future__ import annotations

import datetime
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from filter_view import view

from twinbus.entities.filters import FalseFilter, Needs, Properties, SqlFilter, TrueFilter, filter_from_json
from twinbus.entities.filters.numbers import Int8, Int16, Int32, Single, UInt8, UInt16, UInt32, UInt64
from twinbus.errors import ArgumentError, FilterEvaluationError

VALUES: list[Any] = [
    "text",
    True,
    5,
    2**63 - 1,
    Int8(-5),
    Int16(5),
    Int32(5),
    UInt8(5),
    UInt16(5),
    UInt32(5),
    UInt64(2**64 - 1),
    Single(0.5),
    Single(math.inf),
    0.5,
    math.inf,
    Decimal("1.50"),
    uuid.UUID(int=7),
    b"\x00\xff",
    datetime.datetime(2024, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC),
    datetime.datetime(2024, 1, 2),  # noqa: DTZ001 - a client may send one
    datetime.timedelta(days=-1, microseconds=3),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_read_back_as_they_were(value: Any) -> None:
    one = SqlFilter("x = @p", {"@p": value})
    stored = json.dumps(one.to_json(), allow_nan=False)
    again = filter_from_json(json.loads(stored))
    assert isinstance(again, SqlFilter)
    assert again == one
    assert hash(again) == hash(one)
    assert type(again.parameters["@p"]) is type(value)
    assert again.matches(view({"x": value}))


def test_a_number_without_a_type_is_an_int_if_it_fits() -> None:
    # Rules stored by earlier versions have no types.
    for number, kind in ((5, Int32), (-(2**31), Int32), (2**31, int)):
        again = filter_from_json({"type": "sql", "expression": "x = @p", "parameters": {"@p": number}})
        assert isinstance(again, SqlFilter)
        assert type(again.parameters["@p"]) is kind


def test_the_fixed_ones() -> None:
    for one, expected, text in ((TrueFilter(), True, "1=1"), (FalseFilter(), False, "1=0")):
        assert one.matches(view()) is expected
        assert one.needs == Needs()
        assert one.expression == text
        assert SqlFilter(text).matches(view()) is expected
        assert filter_from_json(json.loads(json.dumps(one.to_json()))) == one
        assert hash(one) == hash(filter_from_json(one.to_json()))
        assert repr(one) == f"{type(one).__name__}()"
    assert TrueFilter() != FalseFilter()
    with pytest.raises(ArgumentError, match="no filter of type 'odd'"):
        filter_from_json({"type": "odd"})


def test_a_stored_filter_is_compiled_for_the_first_message() -> None:
    stored = filter_from_json({"type": "sql", "expression": "color = 'blue'", "parameters": {}})
    assert stored.matches(view({"color": "blue"}))
    assert filter_from_json(stored.to_json()).needs == Needs(properties=True)
    broken = filter_from_json({"type": "sql", "expression": "color = ", "parameters": {}})
    with pytest.raises(FilterEvaluationError, match="at its end"):
        broken.matches(view())


def test_equality_of_sql_filters() -> None:
    assert SqlFilter("a = @b", {"@b": 1}) == SqlFilter("a = @b", {"@b": 1})
    assert SqlFilter("a = @b", {"@b": 1}) != SqlFilter("a = @b", {"@b": True})
    assert SqlFilter("a = 1") != SqlFilter("a  = 1")
    assert SqlFilter("a = 1") != "a = 1"
    assert repr(SqlFilter("a = 1")) == "SqlFilter('a = 1')"


def test_what_a_filter_needs() -> None:
    assert SqlFilter("1=1").needs == Needs()
    assert SqlFilter("color = 1").needs == Needs(properties=True)
    assert SqlFilter("EXISTS(color)").needs == Needs(properties=True)
    assert SqlFilter("p('a') = 1").needs == Needs(properties=True)
    assert SqlFilter("sys.Subject = 'a' AND EXISTS(sys.To)").needs == Needs(system=frozenset({"Label", "To"}))
    assert Needs(properties=True) | Needs(system=frozenset({"To"})) == Needs(True, frozenset({"To"}))


def test_properties_are_found_whatever_the_case() -> None:
    own: dict[Any, Any] = {"Color": "a", "COLOR": "b", 5: "no name"}
    properties = Properties(own)
    assert properties.folded == {"color": "b"}
    assert properties.spelling("color") == "Color"
    assert properties.spelling("New") == "New"
