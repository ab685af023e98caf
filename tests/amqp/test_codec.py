"""Values keep their types on the wire; invalid bytes are refused."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp import decode, decode_all, encode, skip
from twinbus.amqp.codec import count_values
from twinbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from twinbus.errors import DecodeError, EncodeError
from twinbus.limits import COMPOUND_ITEMS_MAX, NESTING_DEPTH_MAX, ZERO_WIDTH_ITEMS_MAX

I64 = st.integers(-(2**63), 2**63 - 1)
FLOAT32 = st.floats(width=32).map(Float32)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 255).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    I64,
    I64.map(Timestamp),
    FLOAT32,
    st.floats(),
    st.uuids(),
    st.text(max_size=300),
    st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(max_size=300),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
)

ARRAYS = st.one_of(
    st.lists(st.uuids(), max_size=5).map(lambda items: Array(items, 0x98)),
    st.lists(I64, max_size=5).map(lambda items: Array(items, 0x81)),
    st.lists(I64.map(Timestamp), max_size=5).map(lambda items: Array(items, 0x83)),
    st.lists(st.integers(0, 255).map(UInt), max_size=5).map(lambda items: Array(items, 0x52)),
    st.lists(st.text(max_size=300), max_size=5).map(lambda items: Array(items, 0xB1)),
    st.lists(st.text(max_size=20), max_size=5).map(lambda items: Array(items, 0xA1)),
    st.lists(st.text("abc:", max_size=9).map(Symbol), max_size=5).map(lambda items: Array(items, 0xB3)),
    st.lists(st.binary(max_size=9), max_size=5).map(lambda items: Array(items, 0xA0)),
    st.lists(st.booleans(), max_size=5).map(lambda items: Array(items, 0x56)),
    st.lists(FLOAT32, max_size=5).map(lambda items: Array(items, 0x72)),
    st.lists(st.characters(exclude_categories=["Cs"]).map(Char), max_size=5).map(lambda items: Array(items, 0x73)),
    st.lists(st.binary(min_size=8, max_size=8).map(Decimal64), max_size=5).map(lambda items: Array(items, 0x84)),
    st.lists(st.lists(st.text(max_size=5), max_size=3), max_size=3).map(lambda items: Array(items, 0xD0)),
    st.lists(st.lists(st.text(max_size=5), max_size=3), max_size=3).map(lambda items: Array(items, 0xC0)),
    st.lists(st.dictionaries(st.text(max_size=3), I64, max_size=2), max_size=3).map(lambda items: Array(items, 0xD1)),
    st.lists(st.text(max_size=9), max_size=3).map(lambda items: Array(items, 0xB1, ULong(7))),
    st.integers(0, 9).map(lambda count: Array([None] * count, 0x40)),
    st.integers(0, 9).map(lambda count: Array([True] * count, 0x41)),
)

KEYS = st.one_of(st.text(max_size=9), st.text("ab:-", max_size=9).map(Symbol), st.integers(2, 2**63).map(ULong))

VALUES = st.recursive(
    st.one_of(SCALARS, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(KEYS, inner, max_size=5),
        st.tuples(st.one_of(st.integers(0, 2**64 - 1).map(ULong), st.just(Symbol("a:b"))), inner).map(
            lambda pair: Described(*pair)
        ),
    ),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal and of the same AMQP type at every level."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        if isinstance(left, Array) and (left.code != right.code or not same(left.descriptor, right.descriptor)):
            return False
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right) or (math.isnan(left) and math.isnan(right))
    return bool(left == right)


@given(VALUES)
def test_a_value_survives_the_wire(value: Any) -> None:
    raw = encode(value)
    back, end = decode(raw)
    assert end == len(raw)
    assert same(value, back)
    assert encode(back) == raw
    assert skip(raw, 0) == len(raw)


@given(VALUES, st.binary(max_size=5), st.binary(max_size=5))
def test_a_value_is_found_inside_a_buffer(value: Any, before: bytes, behind: bytes) -> None:
    raw = encode(value)
    back, end = decode(before + raw + behind, len(before))
    assert same(value, back)
    assert end == len(before) + len(raw) == skip(before + raw + behind, len(before))


@given(VALUES)
def test_a_cut_value_is_refused(value: Any) -> None:
    raw = encode(value)
    for size in range(min(len(raw), 64)):
        with pytest.raises(DecodeError):
            decode(raw[:size])


@given(st.binary(max_size=200))
def test_nonsense_decodes_or_is_refused(raw: bytes) -> None:
    try:
        value, end = decode(raw)
    except DecodeError:
        return
    assert end <= len(raw)
    assert same(decode(encode(value))[0], value)


@given(st.binary(max_size=200))
def test_nonsense_is_skipped_or_refused(raw: bytes) -> None:
    try:
        end = skip(raw, 0)
    except DecodeError:
        return
    assert 0 < end <= len(raw)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (None, "40"),
        (True, "41"),
        (False, "42"),
        (UInt(0), "43"),
        (ULong(0), "44"),
        ([], "45"),
        (UByte(7), "5007"),
        (Byte(-1), "51ff"),
        (UInt(255), "52ff"),
        (UInt(256), "7000000100"),
        (ULong(255), "53ff"),
        (ULong(256), "800000000000000100"),
        (Int(-128), "5480"),
        (Int(-129), "71ffffff7f"),
        (127, "557f"),
        (128, "810000000000000080"),
        (UShort(1), "600001"),
        (Short(-2), "61fffe"),
        (Char("é"), "73000000e9"),
        (Timestamp(1), "830000000000000001"),
        (1.0, "823ff0000000000000"),
        (Float32(1.0), "723f800000"),
        (UUID(int=1), "98" + "00" * 15 + "01"),
        (b"ab", "a0026162"),
        ("ab", "a1026162"),
        (Symbol("ab"), "a3026162"),
        (["a"], "c00401a10161"),
        ({"a": None}, "c10502a1016140"),
        (Array([1], 0x81), "e00a01810000000000000001"),
        (Described(ULong(0x77), None), "00537740"),
    ],
)
def test_known_encodings(value: Any, raw: str) -> None:
    assert encode(value).hex() == raw
    assert same(decode_all(bytes.fromhex(raw)), value)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("5600", False),
        ("5601", True),
        ("8000000000000000ff", ULong(255)),
        ("70000000ff", UInt(255)),
        ("b1000000026162", "ab"),
        ("b0000000026162", b"ab"),
        ("b3000000026162", Symbol("ab")),
        ("c00100", []),
        ("d00000000400000000", []),
        ("c10100", {}),
        ("d10000000800000002a1016141", {"a": True}),
        ("e00100", Array((), 0x40)),
        ("f0000000050000000040", Array((), 0x40)),
    ],
)
def test_other_forms_are_read(raw: str, value: Any) -> None:
    assert same(decode_all(bytes.fromhex(raw)), value)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "ff",
        "46",
        "57",
        "62",
        "75",
        "99",
        "a2",
        "a200",
        "c2020041",
        "5602",
        "7300110000",
        "730000d800",
        "a102ff",
        "a101ff",
        "a301ff",
        "c00201",
        "c0030140",
        "c0030240",
        "c00001",
        "c0ff0140",
        "d0ffffffff00000001",
        "d000000005ffffffff40",
        "c1020140",
        "c10402c0010040",
        "c104024540",
        "c10a0200534545404040",
        "e0030100",
        "e006010000430043",
        "f0000000060000ffff5201",
        "00",
        "0053",
        "005377",
        "0040",
    ],
)
def test_wrong_bytes_are_refused(raw: str) -> None:
    with pytest.raises(DecodeError):
        decode_all(bytes.fromhex(raw))


def nested_list(depth: int) -> bytes:
    raw = b"\x45"
    for _ in range(depth):
        raw = b"\xd0" + struct.pack(">II", len(raw) + 4, 1) + raw
    return raw


def test_nesting_is_bounded() -> None:
    deepest = nested_list(NESTING_DEPTH_MAX - 1)
    value = decode_all(deepest)
    assert decode_all(encode(value)) == value
    with pytest.raises(DecodeError, match="nested deeper"):
        decode_all(nested_list(NESTING_DEPTH_MAX))
    with pytest.raises(EncodeError, match="nested deeper"):
        encode([value])


def test_descriptors_count_as_nesting() -> None:
    assert decode_all(b"\x00\x43" * NESTING_DEPTH_MAX + b"\x40")
    with pytest.raises(DecodeError, match="nested deeper"):
        decode_all(b"\x00\x43" * (NESTING_DEPTH_MAX + 1) + b"\x40")
    with pytest.raises(DecodeError, match="nested deeper"):
        skip(b"\x00" * 100 + b"\x40" * 200, 0)
    with pytest.raises(DecodeError):
        decode_all(b"\x00" * 100_000)


def test_items_are_bounded() -> None:
    def of(count: int) -> bytes:
        return b"\xd0" + struct.pack(">II", count + 4, count) + b"\x40" * count

    assert len(decode_all(of(COMPOUND_ITEMS_MAX))) == COMPOUND_ITEMS_MAX
    with pytest.raises(DecodeError, match="more than"):
        decode_all(of(COMPOUND_ITEMS_MAX + 1))
    with pytest.raises(EncodeError, match="more than"):
        encode([None] * (COMPOUND_ITEMS_MAX + 1))


def test_items_without_bytes_are_bounded() -> None:
    def of(count: int) -> bytes:
        return b"\xf0" + struct.pack(">II", 5, count) + b"\x43"

    assert decode_all(of(ZERO_WIDTH_ITEMS_MAX)) == [0] * ZERO_WIDTH_ITEMS_MAX
    with pytest.raises(DecodeError, match="without bytes"):
        decode_all(of(ZERO_WIDTH_ITEMS_MAX + 1))


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        UInt(2**32),
        UInt(-1),
        ULong(2**64),
        UByte(256),
        Byte(-129),
        UShort(-1),
        Short(40_000),
        Int(2**31),
        Timestamp(2**63),
        Float32(1e300),
        Symbol("é"),
        "\ud800",
        Char("ab"),
        Decimal32(b"abc"),
        object(),
        {"a": {1, 2}},
        Array(["a" * 300], 0xA1),
        Array([b"abc"], 0x84),
        Array([7], 0xB1),
    ],
)
def test_values_without_an_amqp_form_are_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


def test_subclasses_take_the_form_of_their_base() -> None:
    class Label(str):
        pass

    assert encode(Label("x")) == encode("x")
    assert encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"x")) == encode(memoryview(b"x")) == encode(b"x")


def parts_of(value: Any) -> int:
    """The values that a decoded value consists of."""
    if isinstance(value, Described):
        return 1 + parts_of(value.descriptor) + parts_of(value.value)
    if isinstance(value, dict):
        return 1 + sum(parts_of(key) + parts_of(item) for key, item in value.items())
    if isinstance(value, list) and not isinstance(value, Array):
        return 1 + sum(map(parts_of, value))
    return 1


@given(VALUES, st.integers(0, 30))
def test_the_values_of_a_value_are_counted_without_decoding_it(value: Any, most: int) -> None:
    raw = b"xx" + encode(value) + b"yy"
    count = count_values(raw, 2, 10**6)
    if not has_array(value):
        assert count == parts_of(value)
        assert count_values(raw, 2, most) == min(count, most + 1)
    else:
        assert count >= parts_of(value)


def has_array(value: Any) -> bool:
    if isinstance(value, Array):
        return True
    if isinstance(value, Described):
        return has_array(value.descriptor) or has_array(value.value)
    if isinstance(value, dict):
        return any(has_array(key) or has_array(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_array, value))


@given(st.binary(max_size=40))
def test_any_bytes_can_be_counted(raw: bytes) -> None:
    assert 0 <= count_values(raw, 0, 100) <= 200


def test_counting_stops_early() -> None:
    raw = encode([[]] * 60_000)
    assert count_values(raw, 0, 100) == 101
