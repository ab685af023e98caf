from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp import Array, Byte, Described, Float32, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from twinbus.amqp.typed_json import from_json, to_json
from twinbus.amqp.types import Char, Decimal128
from twinbus.errors import EncodeError

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    st.uuids(),
    st.integers(0, 255).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(width=32).map(Float32),
    st.text(st.characters(max_codepoint=127)).map(Symbol),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(min_size=16, max_size=16).map(Decimal128),
)


@given(VALUES)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    found = from_json(to_json(value))
    assert type(found) is type(value)
    assert found == value or (isinstance(value, float) and math.isnan(value) and math.isnan(found))


@pytest.mark.parametrize(
    "value", [[1, "a"], {"a": Int(1)}, Described(Symbol("com.microsoft:timespan"), 5), Array([1, 2], 0x81)]
)
def test_what_no_property_should_be_comes_back_too(value: Any) -> None:
    assert from_json(to_json(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("hello", '"hello"'),
        (42, "42"),
        (True, "true"),
        (1.5, "1.5"),
        (None, "null"),
        (Int(42), '{"int": 42}'),
        (Timestamp(1_700_000_000_000), '{"timestamp": 1700000000000}'),
        (UUID(int=1), '{"uuid": "00000000-0000-0000-0000-000000000001"}'),
        (b"\x00\xff", '{"binary": "AP8="}'),
        (math.inf, '{"double": "Infinity"}'),
    ],
)
def test_the_form_that_is_documented(value: Any, text: str) -> None:
    assert to_json(value) == text
    assert from_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "2026-11-15",
        "007",
        "१",
        '"',
        '"a"b"',
        '"tab\tin it"',
        "",
        "-",
        '{"a": 1, "b": 2}',
        '{"colour": 3}',
        "NaN",
        "1e",
        "[1]",
    ],
)
def test_text_that_is_no_value_is_a_string(text: str) -> None:
    assert from_json(text) == text


@pytest.mark.parametrize(
    "text",
    ['{"int": 2147483648}', '{"uint": -1}', '{"uuid": "x"}', '{"binary": "?"}', '{"int": "5"}', '{"amqp": "AA=="}'],
)
def test_a_type_without_a_value_of_it_is_an_error(text: str) -> None:
    with pytest.raises(EncodeError, match="no value of that type"):
        from_json(text)
