"""Handle incoming transfers: assemble frames into deliveries.

Three rules. An ordinary transfer, a single frame with nothing unusual, is parsed by hand; all others take the general
path with the same result. A delivery larger than its link allows is counted to its end and reported without a payload.
The memory held by unfinished deliveries is bounded per connection.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from twinbus.amqp import frames
from twinbus.amqp.codec import decode_all
from twinbus.amqp.events import AmqpEvent, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.phases import ATTACHED
from twinbus.amqp.serial import MASK
from twinbus.amqp.states import parse_state
from twinbus.errors import IllegalStateError, InvalidFieldError, PeerLimitError, PeerNotAllowedError
from twinbus.limits import INCOMING_WINDOW_TRANSFERS

if TYPE_CHECKING:
    from twinbus.amqp.session import Session

_U32: Final = Struct(">I").unpack_from
_WINDOW_LOW: Final = INCOMING_WINDOW_TRANSFERS // 2


def _transfer_tails() -> dict[bytes, bool]:
    """Encodings that may follow the message format of an ordinary transfer, and whether each says settled.

    The fields are settled, more, rcv-settle-mode, state, resume, aborted and batchable; writers omit trailing ones.
    """
    unset = (b"\x40", b"\x42")
    choices = ((b"\x40", b"\x41", b"\x42"), unset, (b"\x40",), (b"\x40",), unset, unset, (b"\x40", b"\x41", b"\x42"))
    tails: dict[bytes, bool] = {b"": False}
    longest = [b""]
    for field in choices:
        longest = [tail + value for tail in longest for value in field]
        for tail in longest:
            tails[tail] = tail[0] == 0x41
    return tails


_TRANSFER_TAILS: Final = _transfer_tails()


def on_transfer(session: Session, data: bytes, offset: int, end: int, events: list[AmqpEvent]) -> None:
    """Handle a transfer whose list starts at `offset`: ordinary ones by hand, the others on the general path."""
    stop = offset + 2 + data[offset + 1]
    count = data[offset + 2]
    if data[offset] != 0xC0 or count < 4 or stop > end:
        on_transfer_in_general(session, data, offset, end, events)
        return
    at = offset + 3
    code = data[at]
    if code == 0x52:
        handle = data[at + 1]
        at += 2
    elif code == 0x43:
        handle = 0
        at += 1
    elif code == 0x70:
        handle = _U32(data, at + 1)[0]
        at += 5
    else:
        on_transfer_in_general(session, data, offset, end, events)
        return
    code = data[at]
    if code == 0x70:
        delivery_id = _U32(data, at + 1)[0]
        at += 5
    elif code == 0x52:
        delivery_id = data[at + 1]
        at += 2
    elif code == 0x43:
        delivery_id = 0
        at += 1
    else:
        on_transfer_in_general(session, data, offset, end, events)
        return
    if data[at] != 0xA0:
        on_transfer_in_general(session, data, offset, end, events)
        return
    if data[at + 1] > 32:
        raise InvalidFieldError("transfer.delivery-tag is longer than 32 bytes")
    tag_end = at + 2 + data[at + 1]
    tag = data[at + 2 : tag_end]
    at = tag_end
    code = data[at]
    if code == 0x43:
        message_format = 0
        at += 1
    elif code == 0x70:
        message_format = _U32(data, at + 1)[0]
        at += 5
    else:
        on_transfer_in_general(session, data, offset, end, events)
        return
    # Checked before slicing: in compiled code, a slice that ends before it starts is an error.
    settled = _TRANSFER_TAILS.get(data[at:stop]) if at + count - 4 == stop else None
    if settled is None:
        on_transfer_in_general(session, data, offset, end, events)
        return
    link = session.links.get(handle)
    if link is None or link.partial is not None or link.phase > ATTACHED or link.sender:
        on_transfer_in_general(session, data, offset, end, events)
        return
    session.next_incoming_id = (session.next_incoming_id + 1) & MASK
    session.incoming_left -= 1
    if session.incoming_left <= _WINDOW_LOW and not session.session_flow_wanted:
        session.want_flow(None)
    link.delivery_count = (link.delivery_count + 1) & MASK
    link.credit -= 1
    if link.credit_top and link.credit <= link.credit_top >> 1 and not link.flow_wanted:
        session.want_flow(link)
    size = end - stop
    events.append(
        Transfer(
            link,
            delivery_id,
            tag,
            message_format,
            settled,
            data[stop:end] if size <= link.size_max else None,
            size,
            None,
        )
    )


def on_transfer_in_general(session: Session, data: bytes, offset: int, end: int, events: list[AmqpEvent]) -> None:
    raw, stop = frames.raw_fields_of(data, offset, end)
    fields = [decode_all(raw[index]) if index < len(raw) and index != 7 else None for index in range(11)]
    handle = frames.needed_uint_field(fields, 0, "transfer.handle")
    delivery_id = frames.uint_field(fields, 1, "transfer.delivery-id", -1)
    if delivery_id > MASK:
        raise InvalidFieldError("transfer.delivery-id is out of range")
    tag = fields[2]
    if tag is not None and (type(tag) is not bytes or len(tag) > 32):
        raise InvalidFieldError("transfer.delivery-tag is not binary of up to 32 bytes")
    message_format = frames.uint_field(fields, 3, "transfer.message-format", 0)
    settled = frames.bool_field(fields, 4, "transfer.settled", False)
    more = frames.bool_field(fields, 5, "transfer.more", False)
    state = raw[7] if len(raw) > 7 and raw[7] != b"\x40" else None
    aborted = frames.bool_field(fields, 9, "transfer.aborted", False)

    session.next_incoming_id = (session.next_incoming_id + 1) & MASK
    session.incoming_left -= 1
    if session.incoming_left <= _WINDOW_LOW:
        session.want_flow(None)
    link = session.link_at(handle)
    if link.phase > ATTACHED:
        return
    if link.sender:
        raise PeerNotAllowedError("a transfer came on a link on which the peer receives")
    if link.partial is None:
        if delivery_id < 0 or tag is None:
            raise InvalidFieldError("the first transfer of a delivery has no id or no tag")
        link.partial = bytearray()
        link.partial_size = 0
        link.partial_refused = False
        link.partial_id = delivery_id
        link.partial_tag = tag
        link.partial_format = message_format
        link.partial_settled = settled
        link.partial_state = state
    else:
        if delivery_id >= 0 and delivery_id != link.partial_id:
            raise IllegalStateError("a delivery began before the one before it was complete")
        link.partial_settled = link.partial_settled or settled
        if state is not None:
            link.partial_state = state
    if aborted:
        session.drop_partial(link)
        count_delivery(session, link)
        return
    link.partial_size += end - stop
    grow_partial(session, link, data[stop:end])
    if not more:
        finish_delivery(session, link, events)


def grow_partial(session: Session, link: Link, piece: bytes) -> None:
    held = link.partial
    if held is None:
        return
    connection = session.connection
    if link.partial_size > link.size_max or link.partial_refused:
        # Too large or refused: discard the rest, count it and tell the owner at the end.
        session.let_go(len(held))
        held.clear()
        return
    if connection.partial_bytes + len(piece) > connection.partial_bytes_max:
        raise PeerLimitError(f"unfinished deliveries hold more than {connection.partial_bytes_max} bytes")
    account = connection.partial_account
    if account is not None and not account.take(len(piece)):
        # The shared budget is exhausted: keep nothing of this delivery and have it refused once it is complete.
        link.partial_refused = True
        session.let_go(len(held))
        held.clear()
        return
    held += piece
    connection.partial_bytes += len(piece)


def finish_delivery(session: Session, link: Link, events: list[AmqpEvent]) -> None:
    held = link.partial
    size = link.partial_size
    payload = bytes(held) if held is not None and size <= link.size_max and not link.partial_refused else None
    session.drop_partial(link)
    count_delivery(session, link)
    state = None if link.partial_state is None else parse_state(link.partial_state)
    events.append(
        Transfer(
            link,
            link.partial_id,
            link.partial_tag,
            link.partial_format,
            link.partial_settled,
            payload,
            size,
            state,
        )
    )


def count_delivery(session: Session, link: Link) -> None:
    link.delivery_count = (link.delivery_count + 1) & MASK
    link.credit -= 1
    if link.credit_top and link.credit <= link.credit_top >> 1:
        session.want_flow(link)
