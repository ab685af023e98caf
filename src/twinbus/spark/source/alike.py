"""Builds Arrow columns from encoded messages of one layout: texts and bodies are copied once, by Arrow.

- A row is what `RowMaker` would make of the message; what is not certain to be the same is left to it.
- Text is checked to be UTF-8, a whole column at a time.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twinbus.client import ACTIVE, from_json
from twinbus.limits import TIME_MS_MAX
from twinbus.spark.source.layouts import Alike, ByteRanges, LayoutProperty, Numbers
from twinbus.spark.source.rows import DEAD_LETTER_COLUMNS, FIRST_MS, HIDDEN, PLAIN, STATES, TIMES

# Beyond it, adding a time to live could exceed 64 bits.
_FAR_MS: Final = 2**62


class AlikeRows:
    """The rows of messages of one layout, in one schema."""

    def __init__(self, schema: pa.Schema, constants: dict[str, str], data: bytes, alike: Alike) -> None:
        self._schema = schema
        # Values of the columns `entity` and `namespace`.
        self._constants = constants
        self._data = pa.py_buffer(data)
        self._alike = alike
        self._count = len(alike.body.starts)

    def batch(self) -> pa.RecordBatch | None:
        """One Arrow batch; None if it takes `RowMaker` to find out what the rows are."""
        try:
            # Invalid text makes a message unreadable even if its column is not requested.
            texts = {name: self._text(name) for name in self._alike.texts if name in PLAIN.values()}
            arrays = [self._array(field, texts) for field in self._schema]
        except pa.ArrowInvalid:
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, texts: dict[str, pa.Array]) -> pa.Array:
        name, kind = field.name, field.type
        plain = PLAIN.get(name)
        if plain in texts:
            return texts[plain].cast(kind)
        if plain is not None:
            return self._number(plain, name in TIMES, kind)
        if name == "body":
            found = _copied(self._data, self._alike.body)
            if pa.types.is_binary(kind):
                return found
            return pa.array([body.decode("utf-8", "replace") for body in found.to_pylist()], kind)
        if name == "_corrupt":
            return pa.nulls(self._count, kind)
        if name == "state":
            return self._states(kind)
        if name in self._constants:
            return self._repeated(self._constants[name], kind)
        if name == "properties":
            return self._maps(kind)
        for each in self._alike.properties:
            if each.name == DEAD_LETTER_COLUMNS[name]:
                shown = [str(from_json(value)) for value in self._json(each).to_pylist()]
                return pa.array(shown, kind)
        return pa.nulls(self._count, kind)

    def _repeated(self, value: Any, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), self._count)

    def _text(self, name: str) -> pa.Array:
        found = _copied(self._data, self._alike.texts[name])
        if name in self._alike.symbols and (_bytes_of(found) >= 0x80).any():
            raise pa.ArrowInvalid("A symbol is not ASCII.")
        return found.cast(pa.string())

    def _number(self, name: str, is_time: bool, kind: pa.DataType) -> pa.Array:
        numbers = self._alike.numbers
        found = numbers.get(name)
        if name == "expires_ms" and found is None and "ttl_ms" in numbers and "enqueued_ms" in numbers:
            found = numbers["enqueued_ms"] + numbers["ttl_ms"]
            if np.abs(numbers["enqueued_ms"]).max() > _FAR_MS:
                raise pa.ArrowInvalid("A time is too far away.")
        if is_time:
            if found is None:
                return pa.nulls(self._count, kind)
            return pa.array(np.clip(found, FIRST_MS, TIME_MS_MAX) * 1000).view(kind)
        if found is None:
            # Services always write number and delivery count; without them they are zero.
            return pa.nulls(self._count, kind) if pa.types.is_string(kind) else self._repeated(0, kind)
        return pa.array(found).cast(kind)

    def _states(self, kind: pa.DataType) -> pa.Array:
        states = self._alike.numbers.get("state")
        if states is None:
            return self._repeated(STATES[ACTIVE], kind)
        known = (states >= 0) & (states < len(STATES))
        return pa.array(STATES, kind).take(pa.array(np.where(known, states, 0), mask=~known))

    def _maps(self, kind: pa.MapType) -> pa.Array:
        shown = [each for each in self._alike.properties if each.name not in HIDDEN]
        count, length = self._count, len(shown)
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * length)
        names = pa.array([each.name for each in shown], pa.string())
        keys = names.take(pa.array(np.tile(np.arange(length), count)))
        values = pa.array([], pa.string())
        if shown:
            # From one property after the other to one message after the other.
            order = np.arange(count * length).reshape(length, count).T.ravel()
            values = pa.concat_arrays([self._json(each) for each in shown]).take(pa.array(order))
        return pa.MapArray.from_arrays(offsets, keys, values, type=kind)

    def _json(self, each: LayoutProperty) -> pa.Array:
        """A property of all messages in its JSON form."""
        if each.is_word:
            return self._repeated(each.value, pa.string())
        if not each.is_text:
            found = pa.array(self._alike.numbers[each.value]).cast(pa.string())
            before, after = each.around
            return pc.binary_join_element_wise(before, found, after, "") if before else found
        found = self._text(each.value)
        raw = _bytes_of(found)
        if ((raw < 0x20) | (raw == 0x22) | (raw == 0x5C)).any():
            return pa.array([encode_basestring(value) for value in found.to_pylist()], pa.string())
        return pc.binary_join_element_wise('"', found, '"', "")


def heads(alike: Alike) -> tuple[list[int], list[int | None], list[int]]:
    """Sequence numbers, enqueued times and states."""
    count = len(alike.body.starts)

    def listed(name: str, missing: Any) -> list[Any]:
        found: Numbers | None = alike.numbers.get(name)
        return [missing] * count if found is None else found.tolist()

    return listed("sequence_number", 0), listed("enqueued_ms", None), listed("state", ACTIVE)


def _copied(data: pa.Buffer, ranges: ByteRanges) -> pa.Array:
    """Bytes of each message: every second one of an array whose elements are the ranges and what is between them."""
    count = len(ranges.starts)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = ranges
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data])
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def _bytes_of(texts: pa.Array) -> Any:
    """All bytes of a column that `_copied` made."""
    _, offsets, data = texts.buffers()
    size = np.frombuffer(offsets, np.int32)[len(texts)]
    return np.frombuffer(data, np.uint8)[:size] if size else np.empty(0, np.uint8)
