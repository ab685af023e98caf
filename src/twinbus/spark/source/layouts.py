"""Reads messages of a known layout with one `struct` call instead of walking through their sections.

- The messages of one sender differ mostly in ids, numbers and bodies. The first message of a layout is read by
  `read_fields`; a struct made from it takes the values out of the following ones.
- Every byte before the body that is not a value is compared with the first message's. A message that differs in any is
  read by `read_fields`, so the result is always the same.
- Only the usual form of a message has a layout: the service's own prefix, short strings, integers, one data section.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring
from operator import itemgetter
from struct import Struct, error
from typing import Any, Final

from twinbus.client import ACTIVE, Fields, read_fields
from twinbus.limits import SPARK_LAYOUTS_MAX

# The service's prefix: header with delivery count, empty delivery annotations, annotations with number and time.
_PREFIX: Final = ">11sI42sq22sq"
_PREFIX_HEAD: Final = b"\x00\x53\x70\xc0\x0a\x05\x40\x40\x40\x40\x70"
_PREFIX_MAP: Final = (
    b"\x00\x53\x71\xc1\x01\x00\x00\x53\x72\xd1\x00\x00\x00\x42\x00\x00\x00\x04\xa3\x15x-opt-sequence-number\x81"
)
_PREFIX_TIME: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_LIST: Final = b"\x00\x53\x73\xc0"
_MAP: Final = b"\x00\x53\x74\xc1"
_DATA: Final = b"\x00\x53\x75"
_LENGTHS: Final = {0xA0: ("B", 1), 0xB0: ("I", 4)}
_LIST_AT: Final = 95
# Where each field of the properties section is in `Fields`.
_SHOWN: Final = {0: 4, 2: 5, 3: 6, 4: 7, 5: 8, 6: 9, 10: 10}
_CREATED: Final = 9
_NULL: Final = 0x40
_TEXT: Final = 0xA1
_TEXTS: Final = {_TEXT: "utf-8", 0xA3: "ascii"}
_TIME: Final = 0x83
_NUMBERS: Final = {0x81: ("q", 8), 0x55: ("b", 1)}
_new: Final = tuple.__new__

Read = Callable[[bytes], Fields]


class LayoutReader:
    """Reads messages with all their fields, as `read_fields` does."""

    def __init__(self) -> None:
        # By the sizes of the two sections of properties.
        self._known: dict[int, Read] = {}

    def read(self, payload: bytes) -> Fields:
        try:
            size = payload[_LIST_AT + 4]
            read = self._known.get(size << 8 | payload[_LIST_AT + 9 + size])
        except IndexError:
            return _read(payload)
        return self._first(payload) if read is None else read(payload)

    def _first(self, payload: bytes) -> Fields:
        found = _read(payload)
        if len(self._known) < SPARK_LAYOUTS_MAX:
            size = payload[_LIST_AT + 4]
            self._known[size << 8 | payload[_LIST_AT + 9 + size]] = _reader(payload) or _read
        return found


def _read(payload: bytes) -> Fields:
    return read_fields(payload, True, True, True)


class _Layout:
    """A struct in the making: values, and between them what must be the same in every message."""

    def __init__(self) -> None:
        self.format = _PREFIX
        # Items of the struct that are not values.
        self.same = [0, 2, 4]
        self._items = 6
        self._end = _LIST_AT

    def value(self, start: int, kind: str, size: int) -> int:
        """Add a value, and return which item it is."""
        self.format += f"{start - self._end}s{kind}"
        self.same.append(self._items)
        self._items += 2
        self._end = start + size
        return self._items - 1


def _reader(payload: bytes) -> Read | None:
    """A function for messages with the layout of this one, which `read_fields` can read; None if it is unusual."""
    if not (
        payload.startswith(_PREFIX_HEAD)
        and payload.startswith(_PREFIX_MAP, 15)
        and payload.startswith(_PREFIX_TIME, 65)
        and payload.startswith(_LIST, _LIST_AT)
    ):
        return None
    layout = _Layout()
    texts: list[tuple[int, int, str]] = []
    at, end = _LIST_AT + 6, _LIST_AT + 5 + payload[_LIST_AT + 4]
    for index in range(payload[at - 1]):
        code = payload[at]
        if code == _NULL:
            at += 1
        elif code in _TEXTS and index in _SHOWN:
            size = payload[at + 1]
            texts.append((_SHOWN[index], layout.value(at + 2, f"{size}s", size), _TEXTS[code]))
            at += 2 + size
        elif code == _TIME and index == _CREATED:
            # No column shows it.
            layout.value(at + 1, "q", 8)
            at += 9
        else:
            return None
    if at != end:
        return None
    properties: list[tuple[str, int, Callable[[Any], str]]] | None = None
    if payload.startswith(_MAP, at):
        properties = []
        count, at = payload[at + 5] >> 1, at + 6
        for _ in range(count):
            if payload[at] != _TEXT:
                return None  # the name of a property is no short string
            stop = at + 2 + payload[at + 1]
            name, code = payload[at + 2 : stop].decode(), payload[stop]
            if code == _TEXT:
                size = payload[stop + 1]
                properties.append((name, layout.value(stop + 2, f"{size}s", size), _quoted))
                at = stop + 2 + size
            elif code in _NUMBERS:
                kind, size = _NUMBERS[code]
                properties.append((name, layout.value(stop + 1, kind, size), str))
                at = stop + 1 + size
            else:
                return None
    if not payload.startswith(_DATA, at) or payload[at + 3] not in _LENGTHS:
        return None
    length = layout.value(at + 4, *_LENGTHS[payload[at + 3]])
    return _compiled(Struct(layout.format), itemgetter(*layout.same), payload, texts, properties, length)


def _quoted(value: bytes) -> str:
    return encode_basestring(value.decode())


def _compiled(
    struct: Struct,
    same: itemgetter[Any],
    payload: bytes,
    texts: list[tuple[int, int, str]],
    properties: list[tuple[str, int, Callable[[Any], str]]] | None,
    length: int,
) -> Read:
    unpack, body = struct.unpack_from, struct.size
    expected = same(unpack(payload))

    def read(payload: bytes) -> Fields:
        try:
            values = unpack(payload)
            if same(values) != expected or body + values[length] != len(payload):
                return _read(payload)
            found: list[Any] = [None] * 16
            found[0], found[1], found[2], found[3] = values[3], values[5], ACTIVE, values[1]
            for place, item, encoding in texts:
                found[place] = values[item].decode(encoding)
            if properties is not None:
                found[14] = {name: text(values[item]) for name, item, text in properties}
            found[15] = payload[body:]
            return _new(Fields, found)
        except (error, UnicodeDecodeError):
            # Too short, or not UTF-8.
            return _read(payload)

    return read
