"""Numbers of the types that clients give to rules' values, besides long and double.

They compare and calculate like plain numbers. The type only matters to whoever reads the rule again. A plain int is a
long, a plain float a double.
"""

from __future__ import annotations

from typing import Final


class Int8(int):
    """Signed, 8 bits."""

    __slots__ = ()


class Int16(int):
    """Signed, 16 bits."""

    __slots__ = ()


class Int32(int):
    """Signed, 32 bits."""

    __slots__ = ()


class UInt8(int):
    """Unsigned, 8 bits."""

    __slots__ = ()


class UInt16(int):
    """Unsigned, 16 bits."""

    __slots__ = ()


class UInt32(int):
    """Unsigned, 32 bits."""

    __slots__ = ()


class UInt64(int):
    """Unsigned, 64 bits."""

    __slots__ = ()


class Single(float):
    """A float of 32 bits."""

    __slots__ = ()


# The stored names of the types; `int` is also what a small number without a name is.
NAMES: Final[dict[type, str]] = {
    int: "long",
    Int8: "sbyte",
    Int16: "short",
    Int32: "int",
    UInt8: "byte",
    UInt16: "ushort",
    UInt32: "uint",
    UInt64: "ulong",
    Single: "float",
}
TYPES: Final[dict[str, type[int] | type[float]]] = {name: kind for kind, name in NAMES.items()}

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1


def sized(number: int) -> int:
    """A number without a type: an int if it fits, otherwise a long."""
    return Int32(number) if _INT32_MIN <= number <= _INT32_MAX else int(number)
