"""Encodes regular rows as whole columns, without an object for each value.

- A row is regular if it has the fields and the properties that most rows of its batch have, properties are texts and
  whole numbers, and each section but the body has at most 255 bytes. `encode_message` encodes the others.
- The bytes are the same as those of `encode_message`.
- A message is put together from blocks, which hold what all rows share and the numbers, and from texts between them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

# The columns of the properties section, by place.
PLACES: Final = {
    0: "messageId",
    2: "to",
    3: "subject",
    4: "replyTo",
    5: "correlationId",
    6: "contentType",
    10: "sessionId",
    12: "replyToSessionId",
}
_CONTENT_TYPE: Final = 6
_SHORT_BYTES_MAX: Final = 255
_SECTION_BYTES_MAX: Final = 254
# JSON without anything to unescape, which is the text itself, and whole numbers that surely fit into 64 bits. Neither
# matches bytes that are not UTF-8.
_TEXT: Final = r'\A"[^"\\\x00-\x1f]*"\z'
_NUMBER: Final = r"\A(0|-?[1-9][0-9]{0,17})\z"


class RegularRows:
    """The regular ones among the rows of a batch, each column narrowed to them.

    Raises ValueError if a text is not UTF-8: Arrow does not check what it gets from Spark.
    """

    def __init__(self, columns: dict[str, pa.Array], regular: Flags) -> None:
        body, properties = columns["body"], columns.get("properties")
        # The rows that seem to be regular so far.
        self.places = np.arange(len(body))
        self._body = _raw_bytes(body)
        self._texts = {place: _raw_bytes(columns[name]) for place, name in PLACES.items() if name in columns}
        # The names of the properties, and of each the values in JSON.
        self._names: list[str] = []
        self._values: list[pa.Array] = []
        self._keep(regular)
        self._narrow_texts()
        if properties is not None:
            self._narrow_properties(properties)

    def payloads(self) -> list[bytes]:
        """The encoded messages of the regular rows."""
        message = _MessageColumn(len(self.places))
        self._put_fields(message)
        self._put_properties(message)
        sizes = _sizes(self._body)
        small = sizes <= _SHORT_BYTES_MAX
        message.same(b"\x00\x53\x75")
        message.either(small, (0xA0, sizes, "u1"), (0xB0, sizes, ">u4"))
        message.text(self._body.fill_null(b""))
        return message.joined()

    # --- narrowing ----------------------------------------------------------------------------------------------------

    def _keep(self, flags: Flags) -> None:
        if flags.all():
            return
        self.places = self.places[flags]
        mask = pa.array(flags)
        self._body = self._body.filter(mask)
        self._texts = {place: column.filter(mask) for place, column in self._texts.items()}
        self._values = [column.filter(mask) for column in self._values]

    def _narrow_texts(self) -> None:
        total = np.zeros(len(self.places), np.int64)
        regular = np.ones(len(self.places), np.bool_)
        for place, column in list(self._texts.items()):
            if column.null_count * 2 > len(column):
                regular &= _numpy(column.is_null())
                del self._texts[place]
                continue
            sizes = _sizes(column)
            total += sizes + 1
            regular &= _numpy(column.is_valid())
            if place == _CONTENT_TYPE and not pc.all(pc.string_is_ascii(column.cast(pa.string()))).as_py():
                regular[:] = False
        # Each field has at least its constructor.
        regular &= total + max(self._texts, default=-1) + 1 <= _SECTION_BYTES_MAX
        self._keep(regular)

    def _narrow_properties(self, properties: pa.MapArray) -> None:
        offsets = _numpy(properties.offsets)
        lengths = np.where(_numpy(properties.is_null()), 0, np.diff(offsets))[self.places]
        if not len(lengths) or not lengths.any():
            return
        length = int(np.median(lengths))
        self._keep(lengths == length)
        if not len(self.places):
            return
        firsts = offsets[self.places]
        regular = np.ones(len(firsts), np.bool_)
        for index in range(length):
            at = pa.array(firsts + index)
            names, values = properties.keys.take(at), properties.items.take(at)
            name = names[0].as_py()
            self._names.append(name)
            self._values.append(values)
            pattern = _TEXT if _is_text(values) else _NUMBER
            matching = pc.and_(pc.equal(names, name), pc.match_substring_regex(values, pattern).fill_null(False))
            regular &= _numpy(matching)
        if len(set(self._names)) < length:
            regular[:] = False
        self._keep(regular)
        sizes = sum((_sizes(values) for values in self._values), np.zeros(len(self.places), np.int64))
        # A text loses its quotes, a number may take nine bytes instead of one.
        names = sum(len(name.encode()) + 2 for name in self._names)
        self._keep(sizes + names + 9 * length <= _SECTION_BYTES_MAX)

    # --- encoding -----------------------------------------------------------------------------------------------------

    def _put_fields(self, message: _MessageColumn) -> None:
        if not self._texts:
            return
        count = max(self._texts) + 1
        sizes = sum((_sizes(column) + 1 for column in self._texts.values()), np.full(len(self.places), count))
        message.same(b"\x00\x53\x73\xc0")
        message.number(sizes + 1, "u1")
        message.same(bytes((count,)))
        for place in range(count):
            column = self._texts.get(place)
            if column is None:
                message.same(b"\x40")
            else:
                message.same(b"\xa3" if place == _CONTENT_TYPE else b"\xa1")
                message.number(_sizes(column), "u1")
                message.text(column)

    def _put_properties(self, message: _MessageColumn) -> None:
        if not self._names:
            return
        texts: list[pa.Array | None] = []
        numbers: list[Numbers | None] = []
        sizes = np.ones(len(self.places), np.int64)
        for name, values in zip(self._names, self._values, strict=True):
            text = pc.binary_slice(values.cast(pa.binary()), 1, -1) if _is_text(values) else None
            number = None if text is not None else _numpy(values.cast(pa.int64()))
            sizes += len(name.encode()) + 2 + (np.where(_is_small(number), 2, 9) if text is None else 2 + _sizes(text))
            texts.append(text)
            numbers.append(number)
        message.same(b"\x00\x53\x74\xc1")
        message.number(sizes, "u1")
        message.same(bytes((2 * len(self._names),)))
        for name, text, number in zip(self._names, texts, numbers, strict=True):
            raw = name.encode()
            message.same(b"\xa1" + bytes((len(raw),)) + raw)
            if text is not None:
                message.same(b"\xa1")
                message.number(_sizes(text), "u1")
                message.text(text)
            else:
                message.either(_is_small(number), (0x55, number, "i1"), (0x81, number, ">i8"))


class _MessageColumn:
    """Messages in the making, all at once."""

    def __init__(self, count: int) -> None:
        self._count = count
        # The block that is being filled: bytes by row.
        self._block: list[npt.NDArray[np.uint8]] = []
        # Arrow arrays of bytes, which follow each other.
        self._parts: list[pa.Array] = []

    def same(self, raw: bytes) -> None:
        self._block.append(np.broadcast_to(np.frombuffer(raw, np.uint8), (self._count, len(raw))))

    def number(self, values: Numbers, kind: str) -> None:
        self._block.append(_raw(values, kind))

    def either(self, first: Flags, one: tuple[int, Any, str], other: tuple[int, Any, str]) -> None:
        """Add constructor and number in the one form for the rows in `first`, in the other for the rest."""
        if first.all() or not first.any():
            code, values, kind = one if first.any() else other
            self.same(bytes((code,)))
            self.number(values, kind)
            return
        self._finish_block()
        code, values, kind = other
        whole = np.concatenate((np.full((self._count, 1), code, np.uint8), _raw(values, kind)), axis=1)
        code, values, kind = one
        size = 1 + np.dtype(kind).itemsize
        whole[first, 0] = code
        whole[first, 1:size] = _raw(values, kind)[first]
        kept = np.arange(whole.shape[1]) < np.where(first, size, whole.shape[1])[:, None]
        self._parts.append(_binary(whole[kept], np.cumsum(kept.sum(axis=1))))

    def text(self, column: pa.Array) -> None:
        self._finish_block()
        self._parts.append(column)

    def joined(self) -> list[bytes]:
        self._finish_block()
        found: list[bytes] = pc.binary_join_element_wise(*self._parts, b"").to_pylist()
        return found

    def _finish_block(self) -> None:
        if self._block:
            block = np.concatenate(self._block, axis=1)
            ends = np.arange(1, self._count + 1) * block.shape[1]
            self._parts.append(_binary(block.ravel(), ends))
            self._block = []


def _raw_bytes(column: pa.Array) -> pa.Array:
    column.validate(full=True)
    return column.cast(pa.binary())


def _binary(raw: npt.NDArray[np.uint8], ends: Numbers) -> pa.Array:
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def _raw(values: Numbers, kind: str) -> npt.NDArray[np.uint8]:
    """Numbers as bytes, a row for each. The caller knows that those it uses fit."""
    return values.astype(kind).view(np.uint8).reshape(len(values), -1)


def _is_small(numbers: Any) -> Any:
    return (numbers >= -128) & (numbers <= 127)


def _is_text(values: pa.Array) -> bool:
    return len(values) > 0 and (values[0].as_py() or "").startswith('"')


def _sizes(column: pa.Array) -> Numbers:
    """Bytes of each value; 0 for null."""
    found: Numbers = _numpy(pc.binary_length(column).fill_null(0)).astype(np.int64)
    return found


def _numpy(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)
