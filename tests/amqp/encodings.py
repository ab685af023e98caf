"""Encode a message in every way that AMQP allows, for property tests."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any

from hypothesis import strategies as st

from twinbus.amqp.types import Symbol, Timestamp, UByte, UInt

NAMES = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list",
    0x77: "amqp:amqp-value:*",
    0x78: "amqp:footer:map",
}

# Returns one of its arguments.
Pick = Callable[[list[bytes]], bytes]


class Writer:
    """Writes values, each in a legal encoding that `pick` chooses."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick

    def section(self, code: int, value: bytes) -> bytes:
        name = NAMES[code].encode()
        descriptor = self.pick(
            [
                b"\x53" + bytes((code,)),
                b"\x80" + pack(">Q", code),
                b"\xa3" + bytes((len(name),)) + name,
                b"\xb3" + pack(">I", len(name)) + name,
            ]
        )
        return b"\x00" + descriptor + value

    def variable(self, small: int, large: int, raw: bytes) -> bytes:
        forms = [bytes((large,)) + pack(">I", len(raw)) + raw]
        if len(raw) < 256:
            forms.append(bytes((small, len(raw))) + raw)
        return self.pick(forms)

    def compound(self, small: int, large: int, count: int, body: bytes) -> bytes:
        forms = [bytes((large,)) + pack(">II", len(body) + 4, count) + body]
        if len(body) < 255 and count < 256:
            forms.append(bytes((small, len(body) + 1, count)) + body)
        if small == 0xC0 and count == 0:
            forms.append(b"\x45")
        return self.pick(forms)

    def value(self, value: Any) -> bytes:
        if value is None:
            return b"\x40"
        if isinstance(value, bool):
            return self.pick([b"\x41" if value else b"\x42", b"\x56\x01" if value else b"\x56\x00"])
        if isinstance(value, Timestamp):
            return b"\x83" + pack(">q", value)
        if isinstance(value, UByte):
            return b"\x50" + bytes((value,))
        if isinstance(value, UInt):
            forms = [b"\x70" + pack(">I", value)]
            if value < 256:
                forms.append(b"\x52" + bytes((value,)))
            if value == 0:
                forms.append(b"\x43")
            return self.pick(forms)
        if isinstance(value, int):
            forms = [b"\x81" + pack(">q", value)]
            if -128 <= value < 128:
                forms.append(b"\x55" + pack(">b", value))
            return self.pick(forms)
        if isinstance(value, bytes):
            return self.variable(0xA0, 0xB0, value)
        if isinstance(value, Symbol):
            return self.variable(0xA3, 0xB3, value.encode())
        if isinstance(value, str):
            return self.variable(0xA1, 0xB1, value.encode())
        if isinstance(value, dict):
            body = b"".join(self.value(key) + self.value(item) for key, item in value.items())
            return self.compound(0xC1, 0xD1, 2 * len(value), body)
        assert isinstance(value, list)
        # Trailing nulls may be written or left out.
        return self.compound(0xC0, 0xD0, len(value), b"".join(self.value(item) for item in value))


@st.composite
def writers(draw: st.DrawFn) -> Writer:
    def pick(forms: list[bytes]) -> bytes:
        return forms[draw(st.integers(0, len(forms) - 1))]

    return Writer(pick)
