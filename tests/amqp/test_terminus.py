"""Sources and targets are decoded, echoed verbatim and changed on a copy."""

from __future__ import annotations

import pytest

from twinbus.amqp import Coordinator, Described, Source, Symbol, Target, ULong, encode
from twinbus.amqp.terminus import parse_source, parse_target
from twinbus.errors import DecodeError, InvalidFieldError

FILTER = {Symbol("com.microsoft:session-filter"): "one"}


def test_a_source_survives_verbatim() -> None:
    raw = encode(Described(ULong(0x28), ["amqps://h/q", None, None, None, None, None, None, FILTER]))
    source = parse_source(raw)
    assert source is not None
    assert (source.address, source.filter, source.raw) == ("amqps://h/q", FILTER, raw)
    assert not source.dynamic


def test_a_changed_filter_keeps_the_rest() -> None:
    source = Source("q", FILTER)
    other = parse_source(source.with_filter({Symbol("com.microsoft:session-filter"): "two"}).raw)
    assert other is not None
    assert other.address == "q"
    assert other.filter == {Symbol("com.microsoft:session-filter"): "two"}
    assert [*other.fields[:7], *other.fields[8:]] == [*source.fields[:7], *source.fields[8:]]
    assert source.filter == FILTER


def test_an_empty_list_is_a_terminus_without_address() -> None:
    source = parse_source(b"\x00\x53\x28\x45")
    target = parse_target(b"\x00\x53\x29\x45")
    assert source is not None
    assert source.address is None
    assert isinstance(target, Target)
    assert target.address is None


def test_null_is_no_terminus() -> None:
    assert parse_source(b"\x40") is None
    assert parse_target(b"\x40") is None


def test_dynamic_ones_are_given_an_address() -> None:
    fields = [None, None, None, None, True]
    source = parse_source(encode(Described(ULong(0x28), fields)))
    target = parse_target(encode(Described(ULong(0x29), fields)))
    assert source is not None
    assert isinstance(target, Target)
    assert source.dynamic
    assert target.dynamic
    assert source.with_address("x").address == target.with_address("x").address == "x"


def test_a_coordinator() -> None:
    target = parse_target(Coordinator(Symbol("amqp:local-transactions")).raw)
    assert isinstance(target, Coordinator)
    assert target.capabilities == Symbol("amqp:local-transactions")
    assert target.address is None


def test_symbolic_descriptors_are_read() -> None:
    source = parse_source(encode(Described(Symbol("amqp:source:list"), ["q"])))
    assert source is not None
    assert source.address == "q"


def test_reprs_show_the_address() -> None:
    assert "q" in repr(Source("q"))
    assert "q" in repr(Target("q"))


@pytest.mark.parametrize(
    "value",
    [
        7,
        Described(ULong(0x29), []),
        Described(ULong(0x28), 7),
        Described("x", []),
        Described(ULong(0x28), [7]),
        Described(ULong(0x28), [None] * 7 + [7]),
    ],
)
def test_nonsense_is_refused(value: object) -> None:
    with pytest.raises((DecodeError, InvalidFieldError)):
        parse_source(encode(value))


@pytest.mark.parametrize("value", [7, Described(ULong(0x28), []), Described(ULong(0x29), [b"q"])])
def test_nonsense_targets_are_refused(value: object) -> None:
    with pytest.raises((DecodeError, InvalidFieldError)):
        parse_target(encode(value))
