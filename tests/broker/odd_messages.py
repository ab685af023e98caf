"""Odd but well-framed messages: every AMQP type, and some invalid bytes, in every place of a message."""

from __future__ import annotations

from struct import pack

from twinbus.limits import NESTING_DEPTH_MAX

MARK = b"the body of "


def _nested(depth: int) -> bytes:
    value = b"\x45"
    for _ in range(depth - 1):
        value = b"\xd0" + pack(">II", len(value) + 4, 1) + value
    return value


# Encoded values by name.
VALUES: dict[str, bytes] = {
    "null": b"\x40",
    "true": b"\x41",
    "false as byte": b"\x56\x00",
    "ubyte": b"\x50\xff",
    "ushort": b"\x60\xff\xff",
    "uint0": b"\x43",
    "uint": b"\x70\xff\xff\xff\xff",
    "ulong0": b"\x44",
    "ulong": b"\x80" + b"\xff" * 8,
    "byte": b"\x51\x80",
    "short": b"\x61\x80\x00",
    "int": b"\x71\x80\x00\x00\x00",
    "long": b"\x81\x80" + bytes(7),
    "float": b"\x72" + pack(">f", 1.5),
    "float NaN": b"\x72" + pack(">f", float("nan")),
    "double infinity": b"\x82" + pack(">d", float("-inf")),
    "double NaN": b"\x82" + pack(">d", float("nan")),
    "decimal32": b"\x74" + bytes(4),
    "decimal64": b"\x84" + bytes(8),
    "decimal128": b"\x94" + bytes(16),
    "char": b"\x73\x00\x01\xf6\x00",
    "char that is none": b"\x73\x00\x00\xd8\x00",
    "timestamp": b"\x83" + pack(">q", 1_700_000_000_123),
    "timestamp before 1970": b"\x83" + pack(">q", -1),
    "timestamp after 9999": b"\x83" + pack(">q", 253_402_300_800_000),
    "timestamp largest": b"\x83" + pack(">q", 2**63 - 1),
    "timestamp smallest": b"\x83" + pack(">q", -(2**63)),
    "uuid": b"\x98" + bytes(range(16)),
    "binary": b"\xa0\x03\xff\x00\x01",
    "binary32": b"\xb0\x00\x00\x00\x01\x80",
    "string": b"\xa1\x04\xc3\xa9\xc2\x80",
    "string with line ends": b"\xa1\x0fa\r\nX-Evil: 1\r\n\0",
    "string that is not UTF-8": b"\xa1\x02\xff\xfe",
    "string32": b"\xb1\x00\x00\x00\x02ab",
    "empty string": b"\xa1\x00",
    "long string": b"\xb1" + pack(">I", 9_000) + b"y" * 9_000,
    "symbol": b"\xa3\x02ab",
    "symbol with line ends": b"\xa3\x06text\r\n",
    "symbol that is not ASCII": b"\xa3\x02\xc3\xa9",
    "symbol32": b"\xb3\x00\x00\x00\x01a",
    "list0": b"\x45",
    "list": b"\xc0\x04\x02\x41\x50\x07",
    "map": b"\xc1\x05\x02\xa1\x01k\x42",
    "map with odd keys": b"\xd1\x00\x00\x00\x0a\x00\x00\x00\x04\x82" + pack(">d", float("nan"))[:3],
    "array": b"\xe0\x04\x02\x50\x01\x02",
    "array of lists": b"\xf0\x00\x00\x00\x05\x00\x00\x00\x02\x45",
    "described": b"\x00\x53\x99\xa1\x01v",
    "timespan out of range": b"\x00\xa3\x16com.microsoft:timespan" + b"\x81\x7f" + b"\xff" * 7,
    "date out of range": b"\x00\xa3\x1dcom.microsoft:datetime-offset" + b"\x81\x7f" + b"\xff" * 7,
    "nested": _nested(NESTING_DEPTH_MAX - 2),
    "nested too deep": _nested(NESTING_DEPTH_MAX + 3),
    "no type": b"\xc0\x02\x01\x99",
}

FIELDS = [
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
]  # fmt: skip
NAMES = {
    "CRLF": "a\r\nb",
    "colon": "a:b",
    "space": "a b",
    "not ASCII": "é",
    "empty": "",
    "slash": "a/b",
    "quote": 'a"b',
    "NUL": "a\0b",
    "of HTTP": "Content-Length",
    "of the answer": "Location",
    "of ours": "BrokerProperties",
}


def section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


def list_of(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"\xd0" + pack(">II", len(body) + 4, len(items)) + body


def map_of(*pairs: tuple[bytes, bytes]) -> bytes:
    body = b"".join(key + value for key, value in pairs)
    return b"\xd1" + pack(">II", len(body) + 4, 2 * len(pairs)) + body


def symbol(text: str) -> bytes:
    raw = text.encode()
    return b"\xa3" + bytes((len(raw),)) + raw


def string(text: str) -> bytes:
    raw = text.encode()
    return b"\xb1" + pack(">I", len(raw)) + raw


def _body(name: str) -> bytes:
    raw = MARK + name.encode()
    return section(0x75, b"\xb0" + pack(">I", len(raw)) + raw)


def _with_field(index: int, value: bytes) -> bytes:
    return section(0x73, list_of(*[b"\x40"] * index, value))


def in_place(place: str) -> dict[str, bytes]:
    """Payloads by name, with each of the values in that place."""
    found: dict[str, bytes] = {}
    for kind, value in VALUES.items():
        name = f"{place}: {kind}"
        body = _body(name)
        if place in FIELDS:
            payload = _with_field(FIELDS.index(place), value) + body
        elif place == "annotation":
            payload = section(0x72, map_of((symbol("x-own"), value))) + body
        elif place == "partition key":
            payload = section(0x72, map_of((symbol("x-opt-partition-key"), value))) + body
        elif place == "annotation key":
            payload = section(0x72, map_of((value, b"\x41"))) + body
        elif place == "delivery annotation":
            payload = section(0x71, map_of((symbol("x-own"), value))) + body
        elif place == "application property":
            payload = section(0x74, map_of((string("own"), value), (string("other"), b"\x50\x07"))) + body
        elif place == "application property name":
            payload = section(0x74, map_of((value, b"\x41"))) + body
        elif place == "application properties":
            payload = section(0x74, value) + body
        elif place == "properties":
            payload = section(0x73, value) + body
        elif place == "header":
            payload = section(0x70, list_of(value, value, b"\x40", value, value)) + body
        elif place == "value":
            payload = section(0x77, value)
        elif place == "sequence":
            payload = section(0x76, list_of(value, value))
        elif place == "data":
            payload = section(0x75, value)
        elif place == "footer key":
            payload = body + section(0x78, map_of((value, b"\x41")))
        else:
            assert place == "footer"
            payload = body + section(0x78, map_of((symbol("x-own"), value)))
        found[name] = payload
    return found


PLACES = [
    *FIELDS, "annotation", "partition key", "annotation key", "delivery annotation", "application property",
    "application property name", "application properties", "properties", "header", "value", "sequence", "data",
    "footer", "footer key",
]  # fmt: skip


def others() -> dict[str, bytes]:
    """Messages that are odd in other ways."""
    found: dict[str, bytes] = {}
    for kind, name in NAMES.items():
        found[f"name: {kind}"] = section(0x74, map_of((string(name), string("v")))) + _body(f"name: {kind}")
    both = section(0x74, map_of((string("same"), b"\x41"), (string("SAME"), b"\x42")))
    found["names that differ in case"] = both + _body("names that differ in case")
    found["fourteen properties"] = section(0x73, list_of(*[b"\x40"] * 14)) + _body("fourteen properties")
    found["no body"] = section(0x73, list_of(string("id")))
    many = section(0x74, map_of(*[(string(f"p{number}"), b"\x41") for number in range(300)]))
    found["many properties"] = many + _body("many properties")
    found["large subject"] = _with_field(3, string("z" * 100_000)) + _body("large subject")
    wide = section(0x74, map_of(*[(string(f"w{number}"), string("\u20ac" * 3_000)) for number in range(6)]))
    found["wide properties"] = wide + _body("wide properties")
    for code, values in {
        0x73: (b"\xc0\x00", b"\xd0" + bytes(4), b"\xc0\x02\x0d\x40"),
        0x74: (b"\xc1\x00", b"\xd1" + bytes(4)),
    }.items():
        for value in values:
            name = f"0x{code:x} is {value.hex()}"
            found[name] = section(code, value) + _body(name)
            found[f"{name}, no body"] = section(code, value)
    cut = section(0x74, b"\xd1" + pack(">II", 9, 4) + b"\xa1\x01a\x41\x40")
    found["a map cut short"] = cut + _body("a map cut short")
    return found
