"""The examples from the service's documentation, and the special cases that it describes."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
from filter_view import ID, view

from twinbus.entities.filters import SqlFilter
from twinbus.errors import ArgumentError, FilterEvaluationError

BLUE = {"color": "blue", "quantity": 10}


@pytest.mark.parametrize(
    ("text", "properties", "system", "expected"),
    [
        # System properties, in any case, and by their newer names.
        ("sys.Label LIKE '%bus%'", {}, {"Label": "omnibuses"}, True),
        ("sys.label LIKE '%bus%'", {}, {"Label": "tram"}, False),
        ("sys.messageid = 'm-1'", {}, {"MessageId": "m-1"}, True),
        ("sys.correlationid like 'abc-%'", {}, {"CorrelationId": "abc-7"}, True),
        ("SYS.Subject = 'red'", {}, {"Label": "red"}, True),
        ("[sys].[Label] = 'red'", {}, {"Label": "red"}, True),
        ("sys.SequenceNumber > 10", {}, {"SequenceNumber": 11}, True),
        ("sys.Label = 'x'", {}, {}, None),
        # User properties.
        ("MessageProperty = 'A'", {"MessageProperty": "A"}, {}, True),
        ("messageproperty = 'A'", {"MessageProperty": "A"}, {}, True),
        ("MessageProperty = 'A'", {"MessageProperty": "a"}, {}, False),
        ("user.SuperHero like 'SuperMan%'", {"SuperHero": "SuperMan 2"}, {}, True),
        (
            "\"http://example.org/Claims/LogicalName\" = 'account'",
            {"http://example.org/Claims/LogicalName": "account"},
            {},
            True,
        ),
        ("[Property With Space] = 1", {"Property With Space": 1}, {}, True),
        ("[HR-EmployeeID] = 1 AND [a]]b] = 2", {"HR-EmployeeID": 1, "a]b": 2}, {}, True),
        ('"Contoso & ""Northwind""" = 1', {'Contoso & "Northwind"': 1}, {}, True),
        ("größe_2 = 1", {"Größe_2": 1}, {}, True),
        ("sys = 1 AND property = 2 AND p = 3 AND set = 4", {"sys": 1, "property": 2, "P": 3, "Set": 4}, {}, True),
        ("color='blue' AND quantity=10", BLUE, {}, True),
        ("color='blue' AND quantity=10", {"color": "blue", "quantity": 10.0}, {}, True),
        ("color='blue' AND quantity=10", {"color": "blue", "quantity": "10"}, {}, None),
        ("MessageProperty > 2.08", {"MessageProperty": 3}, {}, True),
        ("MessageProperty = 1 OR MessageProperty2 = 3", {"MessageProperty2": 3}, {}, True),
        ("StoreId IN('Store1', 'Store2', 'Store3')", {"StoreId": "Store2"}, {}, True),
        ("sys.To IN ('Store5','Store6') OR StoreId = 'Store8'", {"StoreId": "Store8"}, {}, True),
        ("sys.To NOT IN ('Store1','Store2') OR StoreId NOT IN ('Store1')", {}, {"To": "Store3"}, True),
        ("sys.To NOT IN ('Store1','Store2')", {}, {}, None),
        ("color IN ('red', NULL)", BLUE, {}, None),
        ("color IN ('blue', NULL)", BLUE, {}, True),
        ("quantity IN (9, 10.0)", BLUE, {}, True),
        ("color IN (1, 'red')", BLUE, {}, None),
        ("sys.Label LIKE '%bus%' OR user.tag IN ('queue', 'topic')", {"tag": "topic"}, {}, True),
        # IS NULL and EXISTS are never unknown.
        ("color IS NULL", {}, {}, True),
        ("color IS NULL", {"color": None}, {}, True),
        ("color IS NOT NULL", BLUE, {}, True),
        ("EXISTS(color)", {}, {}, False),
        ("EXISTS(Color)", {"color": None}, {}, True),
        ("EXISTS(sys.Label)", {}, {}, False),
        ("NOT EXISTS(color) OR NOT color IS NULL", {"color": None}, {}, False),
        # Unknown.
        ("color = NULL", BLUE, {}, None),
        ("color <> 'red'", {}, {}, None),
        ("NOT color = 'red'", {}, {}, None),
        ("size + 1 > 0", {}, {}, None),
        ("-size = 0", {}, {}, None),
        ("size LIKE 'a'", {}, {}, None),
        ("color LIKE pattern", BLUE, {}, None),
        ("flag = 1", {"flag": True}, {}, None),
        ("flag = TRUE", {"flag": True}, {}, True),
        ("flag", {"flag": True}, {}, True),
        ("NOT flag", {"flag": False}, {}, True),
        ("flag", {"flag": 1}, {}, None),
        ("TRUE", {}, {}, True),
        ("blob = 'a'", {"blob": b"a"}, {}, None),
        ("list = list", {"list": [1]}, {}, None),
        # Precedence.
        ("1=1 OR 1=2 AND 1=3", {}, {}, True),
        ("(1=1 OR 1=2) AND 1=3", {}, {}, False),
        ("NOT 1=2 AND 1=2", {}, {}, False),
        ("1 + 2 * 3 = 7", {}, {}, True),
        ("(1 + 2) * 3 = 9", {}, {}, True),
        ("10 - 4 - 3 = 3", {}, {}, True),
        ("- 2 * -3 = 6 AND +1 = 1", {}, {}, True),
        # C#'s arithmetic.
        ("7 / 2 = 3 AND -7 / 2 = -3 AND 7 % -4 = 3 AND -7 % 4 = -3", {}, {}, True),
        ("7 / 2.0 = 3.5 AND 101.5E5 = 10150000 AND 0.5E-2 = .005 AND 2. = 2", {}, {}, True),
        ("1.0 / 0 > 1e308 AND -1.0 / 0 < -1e308 AND 0.0 / 0 <> 0.0 / 0", {}, {}, True),
        ("-9223372036854775808 < 9223372036854775807", {}, {}, True),
        ("'a' + 'b' = 'ab' AND 'n' + 1 = 'n1' AND 2.0 + 'x' = '2x' AND 'is ' + TRUE = 'is True'", {}, {}, True),
        ("big = 18446744073709551615.0", {"big": 2**64 - 1}, {}, False),
        ("big > 9223372036854775807", {"big": 2**64 - 1}, {}, True),
        # Text is ordered by its characters.
        ("'B' < 'a' AND 'a' < 'b' AND 'it''s' = 'it''s'", {}, {}, True),
        # Functions.
        ("property('color') = 'blue' AND P('QUANTITY') = 10", BLUE, {}, True),
        ("p(which) = 'blue'", {"which": "Color", "color": "blue"}, {}, True),
        ("p(which) = 'blue'", BLUE, {}, None),
        ("newid() = id", {"id": ID}, {}, True),
        ("newid() = 'text'", {}, {}, None),
        ("newid() < id", {"id": ID}, {}, None),
        # Line breaks are spaces.
        ("\tcolor\r\n=\n'blue' ", BLUE, {}, True),
    ],
)
def test_examples(text: str, properties: dict[str, Any], system: dict[str, Any], expected: bool | None) -> None:
    one = SqlFilter(text)
    assert one.evaluate(view(properties, **system)) is expected
    assert one.matches(view(properties, **system)) is (expected is True)


T, F, U = "1=1", "1=2", "NULL=1"


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (T, T, True, True),
        (T, F, False, True),
        (T, U, None, True),
        (F, F, False, False),
        (F, U, False, None),
        (U, U, None, None),
    ],
)
def test_the_tables_of_three_valued_logic(left: str, right: str, both: bool | None, either: bool | None) -> None:
    for one, other in ((left, right), (right, left)):
        assert SqlFilter(f"{one} AND {other}").evaluate(view()) is both
        assert SqlFilter(f"{one} OR {other}").evaluate(view()) is either


@pytest.mark.parametrize(
    ("text", "properties", "error"),
    [
        ("quantity / zero = 1", {"quantity": 1, "zero": 0}, "divided by zero"),
        ("quantity % zero = 1", {"quantity": 1, "zero": 0}, "divided by zero"),
        ("1/0 = 1", {}, "divided by zero"),
        ("9223372036854775807 + one = 0", {"one": 1}, "does not fit into 64 bits"),
        ("-smallest = 0", {"smallest": -(2**63)}, "does not fit into 64 bits"),
        ("color - 1 = 0", BLUE, "Operator - cannot be applied to a string and a number"),
        ("flag + 1 = 0", {"flag": True}, r"Operator \+ cannot be applied to a boolean and a number"),
        ("-color = 0", BLUE, "Operator - cannot be applied to a string"),
        ("+color = 0", BLUE, r"Operator \+ cannot be applied to a string"),
        ("'a' + blob = 'a'", {"blob": b"a"}, "A binary cannot be written as a string"),
        ("'a' + list = 'a'", {"list": [1]}, "A value of no simple type cannot"),
        ("color LIKE quantity", BLUE, "LIKE takes a string"),
        ("color LIKE 'a' ESCAPE color", BLUE, "one character, not 4"),
        ("color LIKE color ESCAPE last", {"color": "blue", "last": "e"}, "cannot end with its escape"),
        ("color LIKE long", {"color": "a", "long": "%" * 1025}, "at most 1024 characters"),
        ("property(quantity) = 1", BLUE, "property.name. takes a string, not a number"),
        ("long + long = 'a'", {"long": "a" * 20_000}, "longer than 32768 characters"),
    ],
)
def test_failures_on_a_message(text: str, properties: dict[str, Any], error: str) -> None:
    one = SqlFilter(text)
    with pytest.raises(FilterEvaluationError, match=error):
        one.matches(view(properties))


def test_what_decides_first_hides_what_would_fail_later() -> None:
    assert SqlFilter("1=2 AND 1/0 = 1").matches(view()) is False
    assert SqlFilter("1=1 OR 1/0 = 1").matches(view()) is True
    with pytest.raises(FilterEvaluationError):
        SqlFilter("x = 1 AND 1/0 = 1").matches(view())


@pytest.mark.parametrize(
    ("parameters", "properties", "expected"),
    [
        ({"@low": 1, "@high": 10}, {"x": 5}, True),
        ({"low": 1, "HIGH": 10.5}, {"x": 10}, True),
        ({"@low": 1, "@high": None}, {"x": 5}, None),
    ],
)
def test_parameters(parameters: dict[str, Any], properties: dict[str, Any], expected: bool | None) -> None:
    if None in parameters.values():
        with pytest.raises(ArgumentError, match="'@high' is NoneType"):
            SqlFilter("x >= @low AND x < @high", parameters)
        return
    assert SqlFilter("x >= @low AND x < @high", parameters).evaluate(view(properties)) is expected


def test_times_and_spans_are_parameters_too() -> None:
    moment = datetime.datetime(2024, 2, 3, 4, 5, 6, 7000, tzinfo=datetime.UTC)
    sent = int(moment.timestamp() * 1000)
    assert SqlFilter("at = @t", {"@t": moment}).matches(view({"at": sent}))
    assert SqlFilter("at < @t", {"@t": moment.replace(tzinfo=None)}).matches(view({"at": sent - 1}))
    assert SqlFilter("sys.EnqueuedTimeUtc >= @t", {"@t": moment}).matches(view(EnqueuedTimeUtc=sent))
    late = SqlFilter("(b - a) <= @span", {"@span": datetime.timedelta(minutes=1)})
    assert late.matches(view({"a": sent, "b": sent + 60_000}))
    assert not late.matches(view({"a": sent, "b": sent + 60_001}))
    assert SqlFilter("a IN (@t)", {"@t": moment}).matches(view({"a": sent}))


def test_a_missing_parameter_is_told_when_the_rule_is_made() -> None:
    with pytest.raises(ArgumentError, match="@low has no value; the rule came with @high, @least"):
        SqlFilter("x = @low", {"@high": 1, "@least": uuid.uuid4()})


def test_numbers_compare_by_value_whatever_their_class() -> None:
    class Int(int):
        pass

    class Float32(float):
        pass

    class Symbol(str):
        pass

    for number in (Int(5), Float32(5.0), 5, 5.0):
        assert SqlFilter("x = 5 AND x >= 5.0 AND x IN (4, 5) AND x + 1 = 6").matches(view({"x": number}))
    assert SqlFilter("x = 'a' AND x LIKE 'a' AND x IN ('a')").matches(view({"x": Symbol("a")}))
