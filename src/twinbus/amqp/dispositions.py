"""Handle incoming dispositions: what the peer decides about deliveries.

Three rules. Ordinary dispositions are parsed by hand, all others by the general decoder. A disposition repeated for the
same delivery is processed once. A delivery we no longer know is answered here, or the peer would wait forever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from twinbus.amqp import frames
from twinbus.amqp.events import AmqpEvent, Disposed, Outcome
from twinbus.amqp.link import Link
from twinbus.amqp.phases import ATTACHED
from twinbus.amqp.serial import MASK, serial_difference
from twinbus.amqp.states import KNOWN_STATES, AmqpError, Received, State, decode_state, state_rejected
from twinbus.errors import DecodeError, InvalidFieldError

if TYPE_CHECKING:
    from twinbus.amqp.session import Session

_U32: Final = Struct(">I").unpack_from
# Ranges of unknown deliveries answered per disposition: a short frame must not cause a long answer.
_GAPS_MAX: Final = 64
# Unknown deliveries answered per disposition, for the same reason; no honest peer asks for more.
_UNKNOWN_MAX: Final = 256
# Failed look-ups before the session records which deliveries are still unsettled.
_MISSED_MAX: Final = 64
_DELIVERY_UNKNOWN: Final = state_rejected(
    AmqpError("amqp:not-found", "The delivery is not known on this session: it was settled before or never sent.")
)


def _state_tails() -> dict[bytes, State]:
    """Encodings that may follow `settled` in an ordinary disposition: a common state, then batchable or nothing."""
    return {
        raw + batchable: state for raw, state in KNOWN_STATES.items() for batchable in (b"", b"\x40", b"\x41", b"\x42")
    }


_STATE_TAILS: Final = _state_tails()


def on_disposition(session: Session, data: bytes, offset: int, end: int, events: list[AmqpEvent]) -> None:
    """Parse ordinary dispositions by hand and leave the others to the general decoder."""
    stop = offset + 2 + data[offset + 1]
    if data[offset] != 0xC0 or data[offset + 2] < 5 or stop > end:
        on_disposition_in_general(session, data, offset, end, events)
        return
    at = offset + 3
    role = data[at]
    code = data[at + 1]
    if code == 0x70:
        first = _U32(data, at + 2)[0]
        at += 6
    elif code == 0x52:
        first = data[at + 2]
        at += 3
    elif code == 0x43:
        first = 0
        at += 2
    else:
        on_disposition_in_general(session, data, offset, end, events)
        return
    code = data[at]
    if code == 0x70:
        last = _U32(data, at + 1)[0]
        at += 5
    elif code == 0x52:
        last = data[at + 1]
        at += 2
    elif code == 0x40:
        last = first
        at += 1
    elif code == 0x43:
        last = 0
        at += 1
    else:
        on_disposition_in_general(session, data, offset, end, events)
        return
    settled = data[at]
    state = _STATE_TAILS.get(data[at + 1 : stop]) if at < stop else None
    if state is None or role & 0xFC != 0x40 or settled & 0xFC != 0x40 or role == 0x40 or role == 0x43:
        on_disposition_in_general(session, data, offset, end, events)
        return
    if role == 0x41:
        dispose_of(session, first, last, state, settled == 0x41, events)
    else:
        events.append(Outcome(session, first, last, state, settled == 0x41))


def on_disposition_in_general(session: Session, data: bytes, offset: int, end: int, events: list[AmqpEvent]) -> None:
    fields, stop = frames.fields_of(data, offset, end)
    if stop != end:
        raise DecodeError("bytes follow a disposition")
    if not fields or not isinstance(fields[0], bool):
        raise InvalidFieldError("disposition.role is missing")
    first = frames.needed_uint_field(fields, 1, "disposition.first")
    last = frames.uint_field(fields, 2, "disposition.last", first)
    if last > MASK:
        raise InvalidFieldError("disposition.last is out of range")
    settled = frames.bool_field(fields, 3, "disposition.settled", False)
    state = decode_state(fields[4]) if len(fields) > 4 else None
    if fields[0]:
        dispose_of(session, first, last, state, settled, events)
    else:
        events.append(Outcome(session, first, last, state, settled))


def dispose_of(
    session: Session, first: int, last: int, state: State | None, settled: bool, events: list[AmqpEvent]
) -> None:
    """Apply the peer's disposition to our deliveries `first` to `last`."""
    if not settled and (state is None or isinstance(state, Received)):
        return
    unsettled = session.unsettled
    deliveries: list[tuple[int, Link, bytes]] = []
    if first == last:
        entry = unsettled.get(first)
        if entry is not None and entry[0].phase == ATTACHED:
            deliveries.append((first, entry[0], entry[1]))
    else:
        if serial_difference(last, first) < 0:
            raise InvalidFieldError("disposition.last comes before disposition.first")
        deliveries = unsettled_between(session, first, last)
    if session.kept:
        deliveries += _kept_between(session, first, last)
    if settled:
        for number, link, _ in deliveries:
            unsettled.pop(number, None)
            link.unsettled_count -= 1
    else:
        # Move them out of `unsettled`, so that a repeated disposition has no effect.
        disposing = session.disposing
        if len(deliveries) != serial_difference(last, first) + 1:
            answer_unknown(session, first, last, deliveries)
        for number, link, _ in deliveries:
            unsettled.pop(number, None)
            disposing[number] = link
    if deliveries:
        events.append(Disposed(session, deliveries, state, settled))


def unsettled_between(session: Session, first: int, last: int) -> list[tuple[int, Link, bytes]]:
    """Return the unsettled deliveries from `first` to `last`.

    A short frame can name the same long range again and again. To keep that cheap, the session remembers which
    deliveries up to `searched_to` were unsettled at the last long search, and only those are looked up again.
    """
    found: list[tuple[int, Link, bytes]] = []
    unsettled = session.unsettled
    if not unsettled:
        return found
    oldest = next(iter(unsettled))
    if serial_difference(oldest, first) > 0:
        first = oldest
    if serial_difference(last, session.next_delivery_id) >= 0:
        last = (session.next_delivery_id - 1) & MASK
    missed = 0
    searched_to = session.searched_to
    if session.searched and serial_difference(oldest, session.searched[-1]) > 0:
        session.searched = []  # outdated: none of these is left
    if session.searched and serial_difference(first, searched_to) <= 0:
        # Compare relative to the end, so that the order survives ids that wrap around to 0.
        known = session.searched
        at = bisect_left(known, serial_difference(first, searched_to), key=_behind(searched_to))
        while at < len(known) and serial_difference(known[at], last) <= 0:
            entry = unsettled.get(known[at])
            if entry is not None and entry[0].phase == ATTACHED:
                found.append((known[at], entry[0], entry[1]))
            else:
                missed += 1
            at += 1
        first = (searched_to + 1) & MASK
    for step in range(serial_difference(last, first) + 1):
        number = (first + step) & MASK
        entry = unsettled.get(number)
        if entry is not None and entry[0].phase == ATTACHED:
            found.append((number, entry[0], entry[1]))
        else:
            missed += 1
    if missed > _MISSED_MAX:
        session.searched = [number for number, entry in unsettled.items() if entry[0].phase == ATTACHED]
        session.searched_to = (session.next_delivery_id - 1) & MASK
    return found


def _kept_between(session: Session, first: int, last: int) -> list[tuple[int, Link, bytes]]:
    """Take the kept deliveries from `first` to `last`; looks at as few ids as it can."""
    kept = session.kept
    count = serial_difference(last, first) + 1
    if count <= len(kept):
        numbers = [number for step in range(count) if (number := (first + step) & MASK) in kept]
    else:
        numbers = [number for number in kept if 0 <= serial_difference(number, first) < count]
    found: list[tuple[int, Link, bytes]] = []
    for number in numbers:
        link, tag = kept.pop(number)
        if link.phase == ATTACHED:
            found.append((number, link, tag))
    return found


def _behind(end: int) -> Callable[[int], int]:
    return lambda number: serial_difference(number, end)


def answer_unknown(session: Session, first: int, last: int, known: list[tuple[int, Link, bytes]]) -> None:
    """Reject deliveries we once sent but no longer know; without an answer the peer would wait forever."""
    if serial_difference(last, session.next_delivery_id) >= 0:
        last = (session.next_delivery_id - 1) & MASK
    at = first
    if serial_difference(session.first_delivery_id, at) > 0:
        at = session.first_delivery_id
    if serial_difference(last, at) >= _UNKNOWN_MAX:
        last = (at + _UNKNOWN_MAX - 1) & MASK
    taken = [number for number, _, _ in known if serial_difference(number, last) <= 0]
    span = range(serial_difference(last, at) + 1)
    taken += [number for step in span if (number := (at + step) & MASK) in session.disposing]
    taken.sort(key=_behind(last))
    gaps = 0
    for number in taken:
        if gaps >= _GAPS_MAX:
            break
        if serial_difference(number, at) > 0:
            session.answer_range(at, (number - 1) & MASK, _DELIVERY_UNKNOWN)
            gaps += 1
        at = (number + 1) & MASK
    if gaps < _GAPS_MAX and serial_difference(last, at) >= 0:
        session.answer_range(at, last, _DELIVERY_UNKNOWN)
