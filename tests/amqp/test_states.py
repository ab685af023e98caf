"""Delivery states and errors, in every encoding that clients use."""

from __future__ import annotations

import pytest

from twinbus.amqp import (
    ACCEPTED,
    RELEASED,
    STATE_ACCEPTED,
    STATE_REJECTED_NO_ERROR,
    STATE_RELEASED,
    AmqpError,
    Declared,
    Described,
    Modified,
    Received,
    Rejected,
    State,
    Symbol,
    TransactionalState,
    ULong,
    UnknownState,
    encode,
    encode_state,
    parse_state,
    state_modified,
    state_rejected,
)
from twinbus.amqp.codec import decode_all
from twinbus.errors import DecodeError, MessageLockLostError

ERROR = AmqpError("com.microsoft:message-lock-lost", "gone", {Symbol("k"): "v"})


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        Rejected(None),
        Rejected(ERROR),
        Modified(True, False, None),
        Modified(None, None, {Symbol("a"): 1}),
        Received(1, 2),
        Declared(b"txn"),
        TransactionalState(b"txn", ACCEPTED),
        TransactionalState(b"txn", None),
        UnknownState(Described(ULong(0x99), [1])),
    ],
)
def test_a_state_survives(state: State) -> None:
    assert parse_state(encode_state(state)) == state


@pytest.mark.parametrize("form", ["45", "c00100", "d00000000400000000"])
def test_the_constants_are_recognised_in_every_form(form: str) -> None:
    assert parse_state(bytes.fromhex("005324" + form)) is ACCEPTED
    assert parse_state(bytes.fromhex("005326" + form)) is RELEASED


def test_symbolic_descriptors_are_read() -> None:
    assert parse_state(encode(Described(Symbol("amqp:accepted:list"), []))) is ACCEPTED
    assert parse_state(encode(Described(Symbol("amqp:rejected:list"), []))) == Rejected(None)


def test_short_lists_are_read() -> None:
    assert parse_state(encode(Described(ULong(0x27), []))) == Modified(None, None, None)
    assert parse_state(encode(Described(ULong(0x25), []))) == Rejected(None)
    short = Described(ULong(0x1D), [Symbol("a:b")])
    assert parse_state(encode(Described(ULong(0x25), [short]))) == Rejected(AmqpError("a:b"))


def test_null_is_no_state() -> None:
    assert parse_state(b"\x40") is None


def test_an_error_always_has_three_fields() -> None:
    for error in (AmqpError("a:b"), AmqpError("a:b", "text"), ERROR, AmqpError.of(MessageLockLostError())):
        value = decode_all(state_rejected(error))
        assert len(value.value[0].value) == 3
        assert isinstance(value.value[0].value[0], Symbol)
        assert isinstance(value.value[0].value[1], str)


def test_encoded_constants() -> None:
    assert parse_state(STATE_ACCEPTED) is ACCEPTED
    assert parse_state(STATE_RELEASED) is RELEASED
    assert parse_state(STATE_REJECTED_NO_ERROR) == Rejected(None)
    assert state_modified(True, False) == encode_state(Modified(True, False, None))


def test_long_errors_are_written_in_the_long_form() -> None:
    error = AmqpError("a:b", "x" * 1000)
    assert parse_state(state_rejected(error)) == Rejected(error)


@pytest.mark.parametrize(
    "value",
    [
        7,
        Described(ULong(0x24), 7),
        Described(ULong(0x25), [7]),
        Described(ULong(0x25), [Described(ULong(0x1E), [])]),
        Described(ULong(0x25), [Described(ULong(0x1D), [])]),
        Described(ULong(0x25), [Described(ULong(0x1D), 7)]),
        Described(ULong(0x27), [7]),
        Described(ULong(0x27), [None, None, 7]),
        Described(ULong(0x23), []),
        Described(ULong(0x34), []),
        Described(ULong(0x34), [b"t", Described(ULong(0x34), [b"t", None])]),
    ],
)
def test_nonsense_is_refused(value: object) -> None:
    with pytest.raises(DecodeError):
        parse_state(encode(value))
