"""Delivery states: the outcomes a receiver reports, decoded and encoded.

Three rules. ACCEPTED and RELEASED are constants; compare them with `is` or `isinstance`. An error is always written as
a list of three fields, because clients hang on a shorter one. The session merges dispositions by comparing encoded
states, so the common ones are module constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from twinbus.amqp.codec import decode, encode, encode_into
from twinbus.amqp.types import Described, Symbol, ULong
from twinbus.errors import DecodeError, ProtocolError, ServiceError

RECEIVED: Final = 0x23
ACCEPTED_CODE: Final = 0x24
REJECTED: Final = 0x25
RELEASED_CODE: Final = 0x26
MODIFIED: Final = 0x27
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34
ERROR_CODE: Final = 0x1D


@dataclass(slots=True)
class AmqpError:
    """The reason why a link, a session, a connection or a delivery failed."""

    condition: str
    description: str = ""
    info: dict[Any, Any] | None = None

    @classmethod
    def of(cls, error: ServiceError | ProtocolError) -> AmqpError:
        """Convert one of our own errors to its wire form."""
        return cls(error.condition, str(error.args[0]) if error.args else error.condition)


class State:
    """Base class of delivery states; its subclasses are the complete set."""

    __slots__ = ()


class Accepted(State):
    """Processed. Use the constant ACCEPTED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ACCEPTED"


class Released(State):
    """Given back unchanged. Use the constant RELEASED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "RELEASED"


@dataclass(slots=True)
class Received(State):
    """Partly received. Not an outcome."""

    section_number: int
    offset: int


@dataclass(slots=True)
class Rejected(State):
    """Refused, with or without an error."""

    error: AmqpError | None


@dataclass(slots=True)
class Modified(State):
    """Given back with changes: abandoned, or deferred if `undeliverable_here`. Fields are None where the peer sent
    null."""

    delivery_failed: bool | None
    undeliverable_here: bool | None
    annotations: dict[Any, Any] | None


@dataclass(slots=True)
class Declared(State):
    """The answer to a declare, with the id of the new transaction."""

    txn_id: bytes


@dataclass(slots=True)
class TransactionalState(State):
    """An outcome that takes effect when its transaction commits."""

    txn_id: bytes
    outcome: State | None


@dataclass(slots=True)
class UnknownState(State):
    """A state with an unknown descriptor; the owner decides what to do with it."""

    described: Described


ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

STATE_ACCEPTED: Final = b"\x00\x53\x24\x45"
STATE_RELEASED: Final = b"\x00\x53\x26\x45"
STATE_REJECTED_NO_ERROR: Final = b"\x00\x53\x25\xc0\x02\x01\x40"

# The encodings clients use for the two constants: list0, list8 and list32 without items.
KNOWN_STATES: Final[dict[bytes, State]] = {
    b"\x00\x53\x24\x45": ACCEPTED,
    b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
    b"\x00\x53\x24\xd0\x00\x00\x00\x04\x00\x00\x00\x00": ACCEPTED,
    b"\x00\x53\x26\x45": RELEASED,
    b"\x00\x53\x26\xc0\x01\x00": RELEASED,
    b"\x00\x53\x26\xd0\x00\x00\x00\x04\x00\x00\x00\x00": RELEASED,
}

_NAMES: Final[dict[str, int]] = {
    "amqp:received:list": RECEIVED,
    "amqp:accepted:list": ACCEPTED_CODE,
    "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED_CODE,
    "amqp:modified:list": MODIFIED,
    "amqp:declared:list": DECLARED,
    "amqp:transactional-state:list": TRANSACTIONAL,
    "amqp:error:list": ERROR_CODE,
}


def composite(code: int, fields: list[Any]) -> bytes:
    """Encode a described list in the only form the Python SDK reads: small-ulong descriptor, list8 or list32."""
    body = bytearray()
    for field in fields:
        encode_into(body, field)
    return composite_of(code, len(fields), bytes(body))


def composite_of(code: int, count: int, body: bytes) -> bytes:
    """Do the same with fields that are already encoded."""
    if len(body) < 255 and count < 256:
        return bytes((0, 0x53, code, 0xC0, len(body) + 1, count)) + body
    return bytes((0, 0x53, code, 0xD0)) + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def encode_error(error: AmqpError | None) -> bytes:
    """Encode an error as a list of three fields, or null for None."""
    if error is None:
        return b"\x40"
    return composite(ERROR_CODE, [Symbol(error.condition), error.description, error.info])


def state_rejected(error: AmqpError | None) -> bytes:
    return composite_of(REJECTED, 1, encode_error(error))


def state_modified(
    delivery_failed: bool | None = None,
    undeliverable_here: bool | None = None,
    annotations: dict[Any, Any] | None = None,
) -> bytes:
    return composite(MODIFIED, [delivery_failed, undeliverable_here, annotations])


def state_declared(txn_id: bytes) -> bytes:
    return composite(DECLARED, [txn_id])


def state_transactional(txn_id: bytes, outcome: bytes | None) -> bytes:
    """`outcome` is an encoded state."""
    return composite_of(TRANSACTIONAL, 2, encode(txn_id) + (b"\x40" if outcome is None else outcome))


def encode_state(state: State) -> bytes:
    if isinstance(state, Accepted):
        return STATE_ACCEPTED
    if isinstance(state, Released):
        return STATE_RELEASED
    if isinstance(state, Rejected):
        return state_rejected(state.error)
    if isinstance(state, Modified):
        return state_modified(state.delivery_failed, state.undeliverable_here, state.annotations)
    if isinstance(state, TransactionalState):
        return state_transactional(state.txn_id, None if state.outcome is None else encode_state(state.outcome))
    if isinstance(state, Declared):
        return state_declared(state.txn_id)
    if isinstance(state, Received):
        return composite(RECEIVED, [state.section_number, state.offset])
    if isinstance(state, UnknownState):
        return encode(state.described)
    raise TypeError(f"not a delivery state: {state!r}")


def descriptor_code(descriptor: Any) -> int:
    """Return a descriptor's number, also if the peer wrote the symbol; -1 if it is unknown."""
    if isinstance(descriptor, ULong):
        return int(descriptor)
    if isinstance(descriptor, Symbol):
        return _NAMES.get(str(descriptor), -1)
    return -1


def decode_error(value: Any) -> AmqpError | None:
    """Convert the decoded value of an error field."""
    if value is None:
        return None
    if not isinstance(value, Described) or descriptor_code(value.descriptor) != ERROR_CODE:
        raise DecodeError("an error field does not hold an error")
    fields = value.value
    if not isinstance(fields, list):
        raise DecodeError("an error is not a list")
    condition = fields[0] if fields else None
    description = fields[1] if len(fields) > 1 else None
    info = fields[2] if len(fields) > 2 else None
    if not isinstance(condition, str):
        raise DecodeError("an error has no condition")
    return AmqpError(
        str(condition),
        str(description) if isinstance(description, str) else "",
        info if isinstance(info, dict) else None,
    )


def _flag(fields: list[Any], index: int) -> bool | None:
    value = fields[index] if len(fields) > index else None
    if value is None or isinstance(value, bool):
        return value
    raise DecodeError("a modified outcome holds a flag that is not a boolean")


def decode_state(value: Any, depth: int = 0) -> State | None:
    """Convert the decoded value of a state field."""
    if value is None:
        return None
    if not isinstance(value, Described):
        raise DecodeError("a delivery state is not a described value")
    code = descriptor_code(value.descriptor)
    fields = value.value
    if not isinstance(fields, list):
        raise DecodeError("a delivery state is not a list")
    if code == ACCEPTED_CODE:
        return ACCEPTED
    if code == RELEASED_CODE:
        return RELEASED
    if code == REJECTED:
        return Rejected(decode_error(fields[0] if fields else None))
    if code == MODIFIED:
        annotations = fields[2] if len(fields) > 2 else None
        if annotations is not None and not isinstance(annotations, dict):
            raise DecodeError("the annotations of a modified outcome are not a map")
        return Modified(_flag(fields, 0), _flag(fields, 1), annotations)
    if code in (DECLARED, TRANSACTIONAL):
        txn_id = fields[0] if fields else None
        if not isinstance(txn_id, bytes):
            raise DecodeError("a transaction id is not binary")
        if code == DECLARED:
            return Declared(txn_id)
        if depth > 0:
            raise DecodeError("a transactional state holds another")
        return TransactionalState(txn_id, decode_state(fields[1] if len(fields) > 1 else None, depth + 1))
    if code == RECEIVED:
        number = fields[0] if fields else None
        offset = fields[1] if len(fields) > 1 else None
        if not isinstance(number, int) or not isinstance(offset, int):
            raise DecodeError("a received state has no position")
        return Received(int(number), int(offset))
    return UnknownState(value)


def parse_state(raw: bytes) -> State | None:
    """Decode the bytes of a state field; common encodings take one look-up."""
    state = KNOWN_STATES.get(raw)
    if state is not None:
        return state
    value, _ = decode(raw)
    return decode_state(value)
