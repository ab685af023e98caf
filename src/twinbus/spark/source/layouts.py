"""Reads many messages of one layout at once, column by column, without an object for each message.

- The messages of one sender differ mostly in ids, numbers, texts and bodies. A layout is made from one message: blocks
  of bytes that are the same in every message but for numbers of a fixed size, and between the blocks short texts.
- Every byte that is not a value is compared, and every size must lead to the right end. A message that differs is not
  of the layout, and `read_fields` reads it: the fields are always the same.
- Offsets only grow, and the body must end where the message does. So no value comes from outside its message.
- Only the usual form of a message has a layout: the service's sections, short strings, integers, one data section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from twinbus.client import read_fields
from twinbus.errors import DecodeError

Numbers = npt.NDArray[np.int64]

# How far past its start a message of a layout is read before its size is checked: so much must follow the last one.
REACH_BYTES: Final = 16 * 1024
# The sections before the body that are read, in their order.
_HEADER, _DELIVERY, _ANNOTATIONS, _PROPERTIES, _OWN, _DATA = 0x70, 0x71, 0x72, 0x73, 0x74, 0x75
_NO_DELIVERY: Final = b"\x00\x53\x71\xc1\x01\x00"
# The constructors of lists and maps, by the bytes of their size.
_SIZES: Final = {0xC0: "u1", 0xC1: "u1", 0xD0: ">u4", 0xD1: ">u4"}
_LENGTHS: Final = {0xA0: "u1", 0xB0: ">u4"}
_NULL, _ZERO, _STRING, _SYMBOL, _TIME = 0x40, 0x43, 0xA1, 0xA3, 0x83
_COUNTS: Final = {0x70: ">u4", 0x52: "u1"}
# Which field each place of the header and of the properties shows; no column shows the others.
_HEADER_FIELDS: Final = {2: "ttl_ms", 4: "delivery_count"}
_PROPERTY_FIELDS: Final = {
    0: "message_id",
    2: "to",
    3: "subject",
    4: "reply_to",
    5: "correlation_id",
    6: "content_type",
    8: "expires_ms",
    10: "session_id",
}
_CREATED: Final = 9
_ANNOTATION_FIELDS: Final = {
    "x-opt-sequence-number": "sequence_number",
    "x-opt-enqueued-time": "enqueued_ms",
    "x-opt-scheduled-enqueue-time": "scheduled_ms",
    "x-opt-message-state": "state",
    "x-opt-partition-key": "partition_key",
}
_INTEGERS: Final = {0x81: ">i8", _TIME: ">i8", 0x71: ">i4", 0x55: "i1", 0x54: "i1"}
# What `typed_json` writes around an integer.
_AROUND: Final = {_TIME: ('{"timestamp": ', "}"), 0x71: ('{"int": ', "}"), 0x54: ('{"int": ', "}")}
# Bytes of a value of fixed size with its constructor, by the constructor's upper half.
_WIDTHS: Final = {4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}
_WORDS: Final = {_NULL: "null", 0x41: "true", 0x42: "false"}


class LayoutProperty(NamedTuple):
    """An application property of a layout."""

    name: str
    # The name of its value in `Alike`; for a word, the word itself.
    value: str
    is_text: bool = False
    is_word: bool = False
    # What the JSON form has before and after a number.
    around: tuple[str, str] = ("", "")


class ByteRanges(NamedTuple):
    """Where a text of each message starts and stops."""

    starts: Numbers
    stops: Numbers


class Alike(NamedTuple):
    """Messages of one layout, by field."""

    numbers: dict[str, Numbers]
    texts: dict[str, ByteRanges]
    # The texts that must be ASCII.
    symbols: frozenset[str]
    properties: Sequence[LayoutProperty]
    body: ByteRanges


class _Unusual(Exception):
    """The message has no layout."""


class _Block:
    """Bytes of a fixed number: what must be the same, and numbers. A text of up to 255 bytes may follow, whose size is
    the block's last byte."""

    def __init__(self) -> None:
        self.same = bytearray()
        self._compared = bytearray()
        # Offset and type of each number, by name.
        self.numbers: dict[str, tuple[int, str]] = {}
        # The text that follows; None if there is none.
        self.text: str | None = None

    def add(self, raw: bytes) -> None:
        self.same += raw
        self._compared += b"\xff" * len(raw)

    def number(self, name: str, kind: str) -> None:
        size = np.dtype(kind).itemsize
        self.numbers[name] = (len(self.same), kind)
        self.same += bytes(size)
        self._compared += bytes(size)

    def finish(self) -> None:
        self._same = np.frombuffer(bytes(self.same), np.uint8)
        self._mask = np.frombuffer(bytes(self._compared), np.uint8)
        names, places = list(self.numbers), list(self.numbers.values())
        self._kind = np.dtype(
            {
                "names": names,
                "formats": [kind for _, kind in places],
                "offsets": [offset for offset, _ in places],
                "itemsize": len(self.same),
            }
        )

    def read(self, data: bytes, at: Numbers, numbers: dict[str, Numbers]) -> npt.NDArray[np.bool_] | None:
        """Add the numbers of all messages to `numbers`; returns which messages differ, None if none does."""
        size = len(self.same)
        # A window of this size at every byte; only those at the messages are copied.
        windows: Any = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
        found = windows[at]
        values = found.view(self._kind)
        for name in self.numbers:
            numbers[name] = values[name].astype(np.int64)
        differing = (found.view(np.uint8).reshape(len(at), size) ^ self._same) & self._mask
        return differing.any(axis=1) if differing.any() else None


class Layout:
    """What the messages of one sender have in common."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0
        self._blocks = [_Block()]
        # Of each list or map: the name of its size, and the blocks and the offsets where it starts and ends.
        self._spans: list[tuple[str, int, int, int, int]] = []
        self._symbols: set[str] = set()
        self._properties: list[LayoutProperty] = []
        self._header()
        if payload.startswith(_NO_DELIVERY, self._at):
            self._same(len(_NO_DELIVERY))
        self._annotations()
        self._listed()
        self._owned()
        self._data()
        for block in self._blocks:
            block.finish()
        if sum(len(block.same) + 255 for block in self._blocks) > REACH_BYTES:
            raise _Unusual
        # A task keeps its layout, and the message may be large.
        self._payload = b""

    def read(self, data: bytes, starts: Numbers, ends: Numbers) -> tuple[Alike, npt.NDArray[np.bool_] | None]:
        """The messages in `data` with these bounds, `REACH_BYTES` behind the last; and which of them are of the layout,
        None if all are. The others have no meaningful values."""
        numbers: dict[str, Numbers] = {}
        texts: dict[str, ByteRanges] = {}
        places: list[Numbers] = []
        wrong = np.zeros(len(starts), np.bool_)
        at = starts
        for block in self._blocks:
            places.append(at)
            differing = block.read(data, at, numbers)
            if differing is not None:
                wrong |= differing
            at = at + len(block.same)
            if block.text is not None:
                texts[block.text] = ByteRanges(at, at := at + numbers.pop(block.text))
        for name, first, start, last, end in self._spans:
            wrong |= places[first] + start + numbers.pop(name) != places[last] + end
        wrong |= at + numbers.pop("body") != ends
        alike = Alike(numbers, texts, frozenset(self._symbols), self._properties, ByteRanges(at, ends))
        return alike, ~wrong if wrong.any() else None

    # --- making -------------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> int:
        return self._payload[self._at]

    def _same(self, size: int) -> bytes:
        """Add bytes that all messages have."""
        raw = self._payload[self._at : self._at + size]
        self._blocks[-1].add(raw)
        self._at += size
        return raw

    def _same_value(self) -> None:
        """Add a value that all messages have."""
        kind, at = self._next >> 4, self._at
        if kind == 0xA:
            self._same(2 + self._payload[at + 1])
        elif kind == 0xB:
            self._same(5 + int.from_bytes(self._payload[at + 1 : at + 5], "big"))
        elif kind in _WIDTHS:
            self._same(_WIDTHS[kind])
        else:
            raise _Unusual

    def _number(self, name: str, kind: str) -> int:
        size = np.dtype(kind).itemsize
        self._blocks[-1].number(name, kind)
        self._at += size
        return int.from_bytes(self._payload[self._at - size : self._at], "big")

    def _text(self, name: str) -> None:
        """Add a short text, whose constructor comes next."""
        if self._same(1)[0] == _SYMBOL:
            self._symbols.add(name)
        size = self._number(name, "u1")
        self._blocks[-1].text = name
        self._blocks.append(_Block())
        self._at += size

    def _opened(self, section: int) -> tuple[int, str, int, int] | None:
        """Start a section that is a list or a map: the number of its items and what `_closed` needs; None if the
        message lacks it."""
        if self._payload[self._at : self._at + 3] != bytes((0, 0x53, section)):
            return None
        kind = _SIZES.get(self._payload[self._at + 3])
        if kind is None:
            raise _Unusual
        self._same(4)
        name = f"size {section}"
        self._number(name, kind)
        start = (len(self._blocks) - 1, len(self._blocks[-1].same))
        return int.from_bytes(self._same(np.dtype(kind).itemsize), "big"), name, *start

    def _closed(self, name: str, first: int, start: int) -> None:
        self._spans.append((name, first, start, len(self._blocks) - 1, len(self._blocks[-1].same)))

    def _header(self) -> None:
        opened = self._opened(_HEADER)
        if opened is None:
            return
        for index in range(opened[0]):
            name = _HEADER_FIELDS.get(index)
            if name is not None and self._next in _COUNTS:
                self._number(name, _COUNTS[self._same(1)[0]])
            elif name is None or self._next == _NULL or (name == "delivery_count" and self._next == _ZERO):
                self._same_value()
            else:
                raise _Unusual
        self._closed(*opened[1:])

    def _annotations(self) -> None:
        opened = self._opened(_ANNOTATIONS)
        if opened is None:
            return
        for _ in range(opened[0] // 2):
            if self._next != _SYMBOL:
                raise _Unusual
            shown = self._same(2 + self._payload[self._at + 1])[2:].decode()
            field = _ANNOTATION_FIELDS.get(shown)
            if field == "partition_key" and self._next == _STRING:
                self._text(field)
            elif field != "partition_key" and self._next in _INTEGERS:
                kind = _INTEGERS[self._same(1)[0]]
                self._number(field or f"annotation {shown}", kind)
            elif field is None:
                self._same_value()
            else:
                raise _Unusual
        self._closed(*opened[1:])

    def _listed(self) -> None:
        opened = self._opened(_PROPERTIES)
        if opened is None:
            return
        for index in range(opened[0]):
            name, code = _PROPERTY_FIELDS.get(index), self._next
            if code == _NULL:
                self._same(1)
            elif code == _TIME and (index == _CREATED or name == "expires_ms"):
                self._same(1)
                self._number(name or "created", ">i8")
            elif name != "expires_ms" and code in (_STRING, _SYMBOL):
                self._text(name or f"unread {index}")
            else:
                raise _Unusual
        self._closed(*opened[1:])

    def _owned(self) -> None:
        opened = self._opened(_OWN)
        if opened is None:
            return
        for index in range(opened[0] // 2):
            if self._next != _STRING:
                raise _Unusual
            name = self._same(2 + self._payload[self._at + 1])[2:].decode()
            code, value = self._next, f"property {index}"
            if code == _STRING:
                self._properties.append(LayoutProperty(name, value, is_text=True))
                self._text(value)
            elif code in _WORDS:
                self._same(1)
                self._properties.append(LayoutProperty(name, _WORDS[code], is_word=True))
            elif code in _INTEGERS:
                self._same(1)
                self._number(value, _INTEGERS[code])
                self._properties.append(LayoutProperty(name, value, around=_AROUND.get(code, ("", ""))))
            else:
                raise _Unusual
        if len({each.name for each in self._properties}) < len(self._properties):
            raise _Unusual
        self._closed(*opened[1:])

    def _data(self) -> None:
        if self._payload[self._at : self._at + 3] != bytes((0, 0x53, _DATA)):
            raise _Unusual
        kind = _LENGTHS.get(self._same(4)[3])
        if kind is None:
            raise _Unusual
        self._number("body", kind)


def layout_of(payload: bytes) -> Layout | None:
    """The layout of a message; None if it is unusual."""
    try:
        # Messages with the same bytes can then be read, too.
        read_fields(payload)
        return Layout(payload)
    except (_Unusual, DecodeError, IndexError, UnicodeDecodeError):
        return None
