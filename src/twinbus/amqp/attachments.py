"""Handle incoming attach, detach and flow frames.

Three rules. Sources and targets keep the bytes they arrived as. Frames for a handle we have detached are dropped until
the peer's own detach, and a second detach is ignored; a frame for a handle nobody attached ends the session. A flow
that opens the peer's window wakes every link that was waiting for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp import frames
from twinbus.amqp.codec import decode_all
from twinbus.amqp.events import AmqpEvent, Attached, Credit, Detached, Drained
from twinbus.amqp.link import Link
from twinbus.amqp.phases import ATTACH, ATTACHED, ATTACHING, DETACH_RECEIVED, DETACHING, LINK_TRANSITIONS, after
from twinbus.amqp.serial import MASK, serial_difference
from twinbus.amqp.terminus import parse_source, parse_target
from twinbus.errors import FramingError, HandleInUseError, InvalidFieldError, PeerLimitError, PeerNotAllowedError
from twinbus.limits import ATTACH_BYTES_MAX, FRAMES_BEHIND_MAX, LINK_OBJECT_BYTES

if TYPE_CHECKING:
    from twinbus.amqp.session import Session


def on_flow(session: Session, data: bytes, offset: int, end: int, events: list[AmqpEvent]) -> None:
    """next-incoming-id, incoming-window, next-outgoing-id, outgoing-window, handle, delivery-count, link-credit,
    available, drain, echo, properties."""
    check_behind(session)
    fields = frames.numbers_of(data, offset, end)
    window = fields[1]
    if window < 0:
        raise InvalidFieldError("flow.incoming-window is missing")
    # Without a next-incoming-id the peer has not seen our begin yet, so everything we sent is still in flight.
    seen = fields[0] if fields[0] >= 0 else 1
    session.remote_window = window - serial_difference(session.next_outgoing_id, seen)
    if session.waiting:
        session.write_waiting()
    touched: Link | None = None
    if fields[4] >= 0:
        touched = session.link_at(fields[4])
        if touched.phase <= ATTACHED:
            on_link_flow(session, touched, fields[5], fields[6], fields[8] == 1, events)
    if fields[9] == 1 and (touched is None or touched.phase <= ATTACHED):
        session.want_flow(touched)
    events += [Credit(link) for link in session.unstalled() if link is not touched]


def check_behind(session: Session) -> None:
    """Bound the answers that queue up while the peer's window is closed to transfers."""
    if session.connection.frames_behind > FRAMES_BEHIND_MAX:
        raise PeerLimitError("too many answers wait for the session's window: open it before you ask for more")


def on_link_flow(session: Session, link: Link, seen: int, granted: int, drain: bool, events: list[AmqpEvent]) -> None:
    if link.sender:
        if granted >= 0:
            ahead = serial_difference(link.delivery_count, seen) if seen >= 0 else link.delivery_count
            link.credit = max(0, granted - ahead)
        link.drain = drain
        events.append(Credit(link))
    elif link.drain and drain and seen >= 0:
        # The answer to our drain: the sender has given back the unused credit.
        link.delivery_count = seen
        link.credit = 0
        link.drain = False
        events.append(Drained(link))


def on_attach(session: Session, data: bytes, offset: int, end: int, events: list[AmqpEvent]) -> None:
    if end - offset > ATTACH_BYTES_MAX:
        raise PeerLimitError(f"an attach of {end - offset} bytes is larger than {ATTACH_BYTES_MAX}")
    raw, _ = frames.raw_fields_of(data, offset, end)
    # Source and target keep their bytes. Links are never resumed, so unsettled (7) is not read.
    fields = [None if index in (5, 6, 7) else decode_all(value) for index, value in enumerate(raw)]
    name = frames.text_field(fields, 0, "attach.name")
    handle = frames.needed_uint_field(fields, 1, "attach.handle")
    if name is None or len(fields) < 3 or not isinstance(fields[2], bool):
        raise InvalidFieldError("an attach has no name or no role")
    if handle > session.connection.handle_max:
        raise FramingError(f"handle {handle} is larger than the handle-max {session.connection.handle_max}")
    if handle in session.links:
        raise HandleInUseError(f"handle {handle} is in use by the link {session.links[handle].name!r}")
    if session.connection.link_count >= session.connection.links_max:
        raise PeerLimitError(f"this connection may have at most {session.connection.links_max} links")
    we_send = fields[2]
    if session.connection.client:
        link = asked_for(session, name, we_send)
    else:
        link = Link(session, name, handle, we_send)
    link.remote_handle = handle
    link.attach_bytes = end - offset
    link.source = parse_source(raw[5]) if len(raw) > 5 else None
    link.target = parse_target(raw[6]) if len(raw) > 6 else None
    link.snd_settle_mode = frames.small_field(fields, 3, "attach.snd-settle-mode", 2, 2)
    link.rcv_settle_mode = frames.small_field(fields, 4, "attach.rcv-settle-mode", 0, 1)
    link.max_message_size = frames.uint_field(fields, 10, "attach.max-message-size", 0)
    link.properties = frames.map_field(fields, 13, "attach.properties")
    if not we_send:
        link.delivery_count = frames.uint_field(fields, 9, "attach.initial-delivery-count", 0) & MASK
    account = session.connection.link_account
    if account is not None and not account.take(end - offset + LINK_OBJECT_BYTES):
        raise PeerLimitError("the links of this connection, or of all connections, take too many bytes")
    session.links[handle] = link
    session.left.discard(handle)
    session.connection.link_count += 1
    if not session.connection.client:
        events.append(Attached(link))
    elif (link.target if we_send else link.source) is not None and link.phase == ATTACHING:
        # A null terminus means refusal; the detach that follows carries the reason.
        link.phase = after(LINK_TRANSITIONS, link.phase, ATTACH)
        if link.credit_top:
            session.want_flow(link)
        events.append(Attached(link))


def asked_for(session: Session, name: str, we_send: bool) -> Link:
    for link in session.own_links.values():
        if link.remote_handle < 0 and link.name == name and link.sender == we_send:
            return link
    raise PeerNotAllowedError("the peer attached a link that we did not ask for")


def on_detach(session: Session, data: bytes, offset: int, end: int, events: list[AmqpEvent]) -> None:
    check_behind(session)
    fields, _ = frames.fields_of(data, offset, end)
    handle = frames.needed_uint_field(fields, 0, "detach.handle")
    if handle in session.left:
        return
    link = session.link_at(handle)
    closed = frames.bool_field(fields, 1, "detach.closed", False)
    error = frames.error_field(fields, 2)
    before = link.phase
    ours = before == DETACHING
    link.phase = after(LINK_TRANSITIONS, before, DETACH_RECEIVED)
    if not ours:
        if before == ATTACHING and not session.connection.client:
            link.refuse_silently()
        session.forget(link)
        session.drop_large(link)
        session.write_behind(frames.detach_frame(session.channel, link.handle, closed, None))
    del session.links[handle]
    session.left.add(handle)
    session.own_links.pop(link.handle, None)
    session.release_link(link)
    if not ours or session.connection.client:
        events.append(Detached(link, closed, error))
