"""The envelope for messages in a backlog queue: properties that must not act there are moved to aliases and back.

    | property                       | alias in the backlog          | value in the backlog |
    |--------------------------------|-------------------------------|----------------------|
    | session id (and partition key) | x-ms-sessionid                | cleared              |
    | time to live                   | x-ms-timetolive (long, ms)    | none: the queue's default, the maximum |
    | scheduled enqueue time         | x-ms-scheduledenqueuetimeutc  | cleared              |
    | destination entity             | x-ms-path                     | always set           |

Rules:
- The message id and everything else stay unchanged: items are moved as bytes, never decoded and encoded again.
- The broker writes its own header, annotations and two times of the properties. Whatever the aliases cannot restore is
  kept in one more property, x-twinbus-restore, which is added only if needed.
- A message that would become too large is packed instead: compressed as a whole into the body of a message with the
  same message id. So is a batch, which is one message in the backlog and becomes one batch again.
- Messages that other software rewrote, with only the aliases, are restored as well.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from twinbus.amqp import (
    Described,
    Symbol,
    Timestamp,
    UInt,
    decode,
    encode,
)
from twinbus.amqp import sections as kinds
from twinbus.amqp.reader import PARTITION_KEY, SCHEDULED, Sections, data_sections, decode_section, items, locate
from twinbus.amqp.sections import (
    ABSOLUTE_EXPIRY,
    CREATION,
    GROUP_ID,
    MESSAGE_ID,
    NULL,
    data_section,
    list_section,
    map_section,
)
from twinbus.errors import DecodeError, EnvelopeError
from twinbus.limits import (
    APPLICATION_PROPERTIES_BYTES_MAX,
    APPLICATION_PROPERTY_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    ENTITY_PATH_CHARS_MAX,
    RESTORED_BYTES_MAX,
)

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_TIME: Final = "x-ms-scheduledenqueuetimeutc"
RESTORE: Final = "x-twinbus-restore"
PACKED: Final = "x-twinbus-packed"

NAMES: Final = (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME, RESTORE, PACKED)
# Names that user properties may not have, as text and as bytes, because the Python SDK takes both.
RESERVED: Final = frozenset(NAMES) | frozenset(name.encode() for name in NAMES)

_TTL: Final = 2
_HEADER_KEPT: Final = 2  # durable and priority
_UINT_MAX: Final = 2**32 - 1
_TICKS_PER_MS: Final = 10_000
_TIMESPAN: Final = "com.microsoft:timespan"
_ZLIB: Final = "zlib"

_KEYS: Final = {name: encode(name) for name in NAMES}
_OWN: Final = frozenset(_KEYS.values())


class Restored(NamedTuple):
    """A message restored from the backlog: its destination and the encoded messages, several only for a batch."""

    path: str
    payloads: tuple[bytes, ...]


# --- into the backlog -------------------------------------------------------------------------------------------------


def wrap(payload: bytes, path: str) -> bytes:
    """Rewrite a message for a backlog queue; `path` is its destination.

    The message is packed if its properties and ours together would exceed the limit.
    """
    found = locate(payload)
    header = items(payload, found.header)
    annotations = items(payload, found.message_annotations)
    properties = items(payload, found.properties)
    aliases = [_KEYS[PATH], encode(path)]
    session = properties[GROUP_ID] if len(properties) > GROUP_ID else NULL
    key, scheduled, others = _annotations(annotations)
    if session != NULL:
        aliases += [_KEYS[SESSION_ID], session]
    elif key is not None:
        aliases += [_KEYS[SESSION_ID], key]
    if len(header) > _TTL and header[_TTL] != NULL:
        aliases += [_KEYS[TIME_TO_LIVE], encode(int(decode(header[_TTL])[0]))]
    if scheduled is not None:
        aliases += [_KEYS[SCHEDULED_TIME], scheduled]
    plain = not others and key is None and found.delivery_annotations is None and _is_timestamp(scheduled)
    head = None
    if not plain or any(item != NULL for index, item in enumerate(header) if index != _TTL):
        spans = (found.header, found.delivery_annotations, found.message_annotations)
        head = b"".join(payload[span[0] : span[1]] for span in spans if span is not None)
    times = [properties[at] if len(properties) > at else NULL for at in (ABSOLUTE_EXPIRY, CREATION)]
    if head is not None or times != [NULL, NULL]:
        kept = list_section(0, [NULL if head is None else encode(head), *times, encode(session != NULL)])
        restore = encode(base64.b64encode(kept).decode())
        if len(restore) > APPLICATION_PROPERTY_BYTES_MAX:
            return pack([payload], path)
        aliases += [_KEYS[RESTORE], restore]
    own = map_section(kinds.APPLICATION_PROPERTIES, items(payload, found.application_properties) + aliases)
    if len(own) > APPLICATION_PROPERTIES_BYTES_MAX:
        return pack([payload], path)
    for at in (ABSOLUTE_EXPIRY, GROUP_ID):
        if len(properties) > at:
            properties[at] = NULL
    return b"".join(
        (
            list_section(kinds.HEADER, header[:_HEADER_KEPT]),
            map_section(kinds.MESSAGE_ANNOTATIONS, others),
            list_section(kinds.PROPERTIES, properties),
            own,
            _part(payload, found.body),
            _part(payload, found.footer),
        )
    )


def pack(payloads: Sequence[bytes], path: str) -> bytes:
    """Compress all of `payloads` into one message."""
    found = locate(payloads[0])
    properties = items(payloads[0], found.properties)
    return b"".join(
        (
            list_section(kinds.PROPERTIES, properties[: MESSAGE_ID + 1]),
            map_section(kinds.APPLICATION_PROPERTIES, [_KEYS[PATH], encode(path), _KEYS[PACKED], encode(_ZLIB)]),
            data_section(zlib.compress(b"".join(map(data_section, payloads)))),
        )
    )


def clashes(names: Iterable[Any]) -> list[str]:
    """Return the user property names that the backlog envelope reserves for itself."""
    found = (name for name in names if name in RESERVED)
    return [name.decode() if isinstance(name, bytes) else str(name) for name in found]


def _annotations(entries: list[bytes]) -> tuple[bytes | None, bytes | None, list[bytes]]:
    """Return the partition key, the scheduled time and the remaining annotations, all encoded."""
    key: bytes | None = None
    scheduled: bytes | None = None
    others: list[bytes] = []
    for at in range(0, len(entries) - 1, 2):
        name = decode(entries[at])[0]
        if name == PARTITION_KEY:
            key = entries[at + 1]
        elif name == SCHEDULED:
            scheduled = entries[at + 1]
        else:
            others += entries[at : at + 2]
    return key, scheduled, others


def _is_timestamp(encoded: bytes | None) -> bool:
    return encoded is None or encoded[0] == 0x83


def _part(payload: bytes, span: tuple[int, int] | None) -> bytes:
    return b"" if span is None else payload[span[0] : span[1]]


# --- out of the backlog -----------------------------------------------------------------------------------------------


def unwrap(payload: bytes) -> Restored:
    """Restore a message from a backlog queue; EnvelopeError says why it cannot be restored."""
    try:
        return _unwrap(payload)
    except DecodeError as error:
        raise EnvelopeError(f"The message cannot be decoded: {error}.") from error


def _unwrap(payload: bytes) -> Restored:
    found = locate(payload)
    own, others = _split(items(payload, found.application_properties))
    path = _path(own)
    if PACKED in own:
        return Restored(path, _unpack(payload, found, own[PACKED]))
    head, times, has_session = _kept(own)
    if head is None:
        head = _head(own)
    properties = items(payload, found.properties)
    properties += [NULL] * (GROUP_ID + 1 - len(properties))
    properties[ABSOLUTE_EXPIRY], properties[CREATION] = times
    properties[GROUP_ID] = encode(_text(own, SESSION_ID)) if has_session and SESSION_ID in own else NULL
    restored = b"".join(
        (
            head,
            list_section(kinds.PROPERTIES, properties),
            map_section(kinds.APPLICATION_PROPERTIES, others),
            _part(payload, found.body),
            _part(payload, found.footer),
        )
    )
    return Restored(path, (restored,))


def _split(entries: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Return our own properties, decoded, and the user's, still encoded."""
    own: dict[str, Any] = {}
    others: list[bytes] = []
    for at in range(0, len(entries) - 1, 2):
        key = entries[at]
        # Other software may have written a short name in the long string form.
        if key in _OWN or (key[0] == 0xB1 and decode(key)[0] in _KEYS):
            own[decode(key)[0]] = decode(entries[at + 1])[0]
        else:
            others += entries[at : at + 2]
    return own, others


def _path(own: dict[str, Any]) -> str:
    if PATH not in own:
        raise EnvelopeError(f"The message has no {PATH}, so its destination is unknown.")
    path = _text(own, PATH)
    if not path.strip() or len(path) > ENTITY_PATH_CHARS_MAX:
        raise EnvelopeError(f"{PATH} must be the path of an entity, of 1 to {ENTITY_PATH_CHARS_MAX} characters.")
    return path


def _text(own: dict[str, Any], name: str) -> str:
    value = own[name]
    if not isinstance(value, str):
        raise EnvelopeError(f"{name} must be a string, not {type(value).__name__}.")
    return str(value)


def _kept(own: dict[str, Any]) -> tuple[bytes | None, tuple[bytes, bytes], bool]:
    """Return the original's header and annotations, its two times, and whether it had a session id."""
    if RESTORE not in own:
        return None, (NULL, NULL), True
    try:
        raw = base64.b64decode(_text(own, RESTORE), validate=True)
    except binascii.Error:
        raise EnvelopeError(f"{RESTORE} is not base64.") from None
    kept = items(raw, (0, len(raw)))
    kept += [NULL] * (4 - len(kept))
    head = decode(kept[0])[0]
    if head is not None and not isinstance(head, bytes):
        raise EnvelopeError(f"{RESTORE} does not begin with the sections it keeps.")
    if head is not None:
        _check_head(head)
    times = kept[1], kept[2]
    if any(time != NULL and not _is_timestamp(time) for time in times):
        raise EnvelopeError(f"{RESTORE} holds a value that is not a timestamp.")
    return head, times, decode(kept[3])[0] is True


def _check_head(head: bytes) -> None:
    found = locate(head)
    if found.properties or found.application_properties or found.body or found.footer:
        raise EnvelopeError(f"{RESTORE} holds more than header and annotations.")


def _head(own: dict[str, Any]) -> bytes:
    """Rebuild header and annotations as far as the aliases allow."""
    header = b""
    annotations = b""
    if TIME_TO_LIVE in own:
        header = list_section(kinds.HEADER, [NULL, NULL, encode(UInt(_ttl_ms(own[TIME_TO_LIVE])))])
    if SCHEDULED_TIME in own:
        value = own[SCHEDULED_TIME]
        if not _is_whole(value):
            raise EnvelopeError(f"{SCHEDULED_TIME} must be a time, not {type(value).__name__}.")
        annotations = map_section(kinds.MESSAGE_ANNOTATIONS, [encode(SCHEDULED), encode(Timestamp(value))])
    return header + annotations


def _ttl_ms(value: Any) -> int:
    """Return a time to live in milliseconds, also from the .NET SDK's encoding of a duration."""
    if isinstance(value, Described) and isinstance(value.descriptor, Symbol) and value.descriptor == _TIMESPAN:
        value = value.value // _TICKS_PER_MS if _is_whole(value.value) else None
    if not _is_whole(value) or value < 0:
        raise EnvelopeError(f"{TIME_TO_LIVE} must be milliseconds, 0 or more.")
    return min(int(value), _UINT_MAX)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unpack(payload: bytes, found: Sections, how: Any) -> tuple[bytes, ...]:
    if how != _ZLIB:
        raise EnvelopeError(f"{PACKED} names an unknown packing.")
    body = b"" if found.body is None else decode_section(payload, found.body)
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(body, RESTORED_BYTES_MAX)
    except (zlib.error, TypeError):
        raise EnvelopeError("The message's body is not what was packed.") from None
    if not unpacking.eof:
        raise EnvelopeError(f"The message is cut off, or unpacks to more than {RESTORED_BYTES_MAX} bytes.")
    payloads = tuple(data_sections(raw, (0, len(raw))))
    if not 1 <= len(payloads) <= BATCH_MESSAGES_MAX:
        raise EnvelopeError(f"The message holds {len(payloads)} messages instead of 1 to {BATCH_MESSAGES_MAX}.")
    for each in payloads:
        locate(each)
    return payloads
