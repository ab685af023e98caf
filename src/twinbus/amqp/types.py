"""The AMQP types that Python lacks.

Three rules. A decoded value remembers its AMQP type, so encoding it again gives the same type. A plain `int` is an AMQP
long and a plain `str` a string; the subclasses below stand for the other types. All of them compare and hash like the
Python value they extend, because filters compare numbers by value, not by width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class UByte(int):
    """Unsigned, 8 bits."""

    __slots__ = ()


class UShort(int):
    """Unsigned, 16 bits."""

    __slots__ = ()


class UInt(int):
    """Unsigned, 32 bits."""

    __slots__ = ()


class ULong(int):
    """Unsigned, 64 bits."""

    __slots__ = ()


class Byte(int):
    """Signed, 8 bits."""

    __slots__ = ()


class Short(int):
    """Signed, 16 bits."""

    __slots__ = ()


class Int(int):
    """Signed, 32 bits."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch."""

    __slots__ = ()


class Float32(float):
    """IEEE 754, 32 bits; a plain `float` is a double."""

    __slots__ = ()


class Symbol(str):
    """ASCII text from a constrained domain: conditions, annotation keys, capabilities."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal, kept as its four bytes."""

    __slots__ = ()


class Decimal64(bytes):
    """IEEE 754 decimal, kept as its eight bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """IEEE 754 decimal, kept as its sixteen bytes."""

    __slots__ = ()


class Array(list[Any]):
    """Values of one type. `code` is the constructor byte they share; `descriptor` describes each item, or is None."""

    __slots__ = ("code", "descriptor")

    def __init__(self, items: Iterable[Any] = (), code: int = 0x40, descriptor: Any = None) -> None:
        super().__init__(items)
        self.code = code
        self.descriptor = descriptor


class Described:
    """A value with a descriptor (usually a ULong or a Symbol) that says what it means."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and self.descriptor == other.descriptor and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


# Constructor bytes of the arrays in Service Bus management bodies.
ARRAY_OF_UUID = 0x98
ARRAY_OF_LONG = 0x81
ARRAY_OF_TIMESTAMP = 0x83
ARRAY_OF_STRING = 0xB1
ARRAY_OF_SYMBOL = 0xB3
