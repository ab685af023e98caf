"""The items of a section, still encoded: lists and maps can be rewritten without touching what is not meant.

Two rules. An item is never decoded and encoded again, so its type and its bytes stay what they were. A map's items are
its keys and values in turn.
"""

from __future__ import annotations

from twinbus.amqp import skip
from twinbus.amqp.sections import section_kind
from twinbus.amqp.states import composite_of
from twinbus.errors import DecodeError

NULL = b"\x40"

_EMPTY = (0x40, 0x45)
_SMALL = (0xC0, 0xC1)
_LARGE = (0xD0, 0xD1)


def items(payload: bytes, span: tuple[int, int] | None) -> list[bytes]:
    """The items of the list or map section at `span`; none for a section that is not there."""
    if span is None:
        return []
    _, offset = section_kind(payload, span)
    code = payload[offset]
    if code in _EMPTY:
        return []
    if code in _SMALL:
        count = payload[offset + 2]
        offset += 3
    elif code in _LARGE:
        count = int.from_bytes(payload[offset + 5 : offset + 9], "big")
        offset += 9
    else:
        raise DecodeError("a message section is neither a list nor a map")
    end = span[1]
    found: list[bytes] = []
    while offset < end:
        after = skip(payload, offset)
        found.append(payload[offset:after])
        offset = after
    if offset != end or len(found) != count:
        raise DecodeError("a message section does not hold what its size says")
    return found


def list_section(code: int, encoded: list[bytes]) -> bytes:
    """A section that is a list; nulls at its end are left out, and the section if nothing is left."""
    last = len(encoded)
    while last and encoded[last - 1] == NULL:
        last -= 1
    return composite_of(code, last, b"".join(encoded[:last])) if last else b""


def map_section(code: int, encoded: list[bytes]) -> bytes:
    """A section that is a map, of keys and values in turn; nothing for an empty one."""
    if not encoded:
        return b""
    body = b"".join(encoded)
    count = len(encoded)
    if len(body) < 255 and count < 256:
        return bytes((0, 0x53, code, 0xC1, len(body) + 1, count)) + body
    return bytes((0, 0x53, code, 0xD1)) + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body
