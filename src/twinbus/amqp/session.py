"""A session: the numbering and the windows shared by its links.

Four rules. Our delivery ids are consecutive across all links and start away from the client's own. The peer's
transfers are counted only to refresh its window, never to refuse any. Dispositions for neighbouring ids with the same
state become one frame, written before any later transfer of the session. Transfers beyond the peer's window wait here,
and what must come after them waits behind them.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from twinbus.amqp import frames
from twinbus.amqp.codec import decode_all
from twinbus.amqp.events import Attached, Credit, Detached, Disposed, Drained, Event, Outcome, Transfer
from twinbus.amqp.link import ATTACHED, ATTACHING, DETACHING, GONE, MASK, Link
from twinbus.amqp.states import KNOWN_STATES, AmqpError, Received, State, decode_state, parse_state, state_rejected
from twinbus.amqp.terminus import Coordinator, Source, Target, parse_source, parse_target
from twinbus.errors import (
    DecodeError,
    FramingError,
    HandleInUseError,
    IllegalStateError,
    InvalidFieldError,
    PeerLimitError,
    PeerNotAllowedError,
    UnattachedHandleError,
)
from twinbus.limits import (
    FIRST_DELIVERY_ID,
    INCOMING_WINDOW_TRANSFERS,
    LINKS_PER_CONNECTION_MAX,
    PARTIAL_BYTES_MAX,
)

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection

_U32: Final = Struct(">I").unpack_from

_HALF: Final = 0x80000000
# Ranges of unknown deliveries answered for one disposition: a short frame must not cause a long answer.
_GAPS_MAX: Final = 64
_WINDOW_LOW: Final = INCOMING_WINDOW_TRANSFERS // 2
_DELIVERY_UNKNOWN: Final = state_rejected(
    AmqpError("amqp:not-found", "The delivery is not known on this session: it was settled before or never sent.")
)


def _transfer_tails() -> dict[bytes, int]:
    """What can follow the message format of an ordinary transfer: 1 settled, 2 more.

    settled, more, rcv-settle-mode, state, resume, aborted, batchable; writers leave out trailing ones.
    """
    flags = (b"\x40", b"\x41", b"\x42")
    tails: dict[bytes, int] = {b"": 0}
    for settled in flags:
        bit = 1 if settled == b"\x41" else 0
        tails[settled] = bit
        for more in flags:
            bits = bit | (2 if more == b"\x41" else 0)
            head = settled + more
            for rest in (b"", b"\x40", b"\x40\x40"):
                tails[head + rest] = bits
            for resume in (b"\x40", b"\x42"):
                tails[head + b"\x40\x40" + resume] = bits
                for aborted in (b"\x40", b"\x42"):
                    tails[head + b"\x40\x40" + resume + aborted] = bits
                    for batchable in flags:
                        tails[head + b"\x40\x40" + resume + aborted + batchable] = bits
    return tails


def _state_tails() -> dict[bytes, State]:
    """What can follow `settled` in an ordinary disposition: a common state, then batchable or nothing."""
    return {
        raw + batchable: state for raw, state in KNOWN_STATES.items() for batchable in (b"", b"\x40", b"\x41", b"\x42")
    }


_TRANSFER_TAILS: Final = _transfer_tails()
_STATE_TAILS: Final = _state_tails()


def serial_difference(left: int, right: int) -> int:
    """left - right in AMQP's 32-bit serial arithmetic: how far left is ahead, negative when behind."""
    return ((left - right + _HALF) & MASK) - _HALF


class Session:
    """One session of a connection, for both roles."""

    def __init__(self, connection: Connection, channel: int) -> None:
        # The connection it lives on.
        self.connection = connection
        # The number we write it with.
        self.channel = channel
        # The number the peer writes it with; -1 until its begin has come.
        self.remote_channel = -1
        # The owner's object.
        self.context: Any = None
        # Outgoing deliveries that are not settled: id to link and tag.
        self.unsettled: dict[int, tuple[Link, bytes]] = {}
        # Outgoing deliveries the peer has disposed of and whose answer is due: id to link.
        self.disposing: dict[int, Link] = {}
        # Links by the peer's handle, from its attach to its detach.
        self.links: dict[int, Link] = {}
        # Whether we have ended it, or the peer has.
        self.ended = False

        # --- the engine's own ---
        # Client: links by our handle, from our attach until both sides have detached.
        self.own_links: dict[int, Link] = {}
        # The largest handle the peer takes.
        self.remote_handle_max = MASK
        # Bytes 4 to 8 of every frame: data offset, type, channel.
        self.frame_word = 0x02000000 | channel
        # The number of our first delivery.
        self.first_delivery_id = 0 if connection.client else FIRST_DELIVERY_ID
        # The number of our next delivery.
        self.next_delivery_id = self.first_delivery_id
        # The number of our next transfer frame.
        self.next_outgoing_id = 1
        # How many transfer frames the peer takes now.
        self.remote_window = 0
        # The number of the peer's next transfer frame, as we count them.
        self.next_incoming_id = 0
        # How many transfer frames are left of the window we granted.
        self.incoming_left = INCOMING_WINDOW_TRANSFERS
        # Frames behind a closed window; True marks those that use it.
        self.waiting: deque[tuple[bytes, bool]] = deque()
        # Bytes in `waiting`.
        self.waiting_bytes = 0
        # Whether the connection will ask us to flush.
        self.dirty = False
        # Whether a flow for the session itself is due.
        self.session_flow_wanted = False
        # Links for which a flow is due.
        self.flow_links: list[Link] = []
        # Whether one of the two ranges below is open.
        self.has_ranges = False
        # The open range of dispositions as receiver: first, last, state, settled; no range when the state is None.
        self.in_first = 0
        self.in_last = 0
        self.in_state: bytes | None = None
        self.in_settled = False
        # The open range of dispositions as sender.
        self.out_first = 0
        self.out_last = 0
        self.out_state: bytes | None = None

    # --- what the owner calls ---------------------------------------------------------------------------------------

    def attach_sender(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | Coordinator,
        properties: dict[Any, Any] | None = None,
        snd_settle_mode: int = 0,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
    ) -> Link:
        """Client: ask for a link on which we send."""
        return self._attach(
            name, True, source or Source(), target, properties, snd_settle_mode, rcv_settle_mode, max_message_size, 0
        )

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source,
        target: Target | None = None,
        properties: dict[Any, Any] | None = None,
        snd_settle_mode: int = 0,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
        credit: int = 0,
    ) -> Link:
        """Client: ask for a link on which we receive; `credit` is granted when it is up and topped up by itself."""
        return self._attach(
            name,
            False,
            source,
            target or Target(),
            properties,
            snd_settle_mode,
            rcv_settle_mode,
            max_message_size,
            credit,
        )

    def settle(self, delivery_id: int, state: bytes) -> None:
        """We received this delivery: tell the peer its outcome, settled."""
        self.dispose(delivery_id, delivery_id, state, True)

    def dispose(self, first: int, last: int, state: bytes, settled: bool) -> None:
        """We received these deliveries: tell the peer their outcome; unless settled, it answers (Outcome event)."""
        held = self.in_state
        if held is not None:
            if first == (self.in_last + 1) & MASK and settled == self.in_settled and state == held:
                self.in_last = last
                return
            self._write_range_in()
        elif self.ended:
            return
        self.in_first = first
        self.in_last = last
        self.in_state = state
        self.in_settled = settled
        self.has_ranges = True
        if not self.dirty:
            self.dirty = True
            self.connection.dirty.append(self)

    def answer(self, delivery_id: int, state: bytes) -> None:
        """We sent this delivery and the peer disposed of it: echo the outcome, settled, and forget the delivery."""
        link = self.disposing.pop(delivery_id, None)
        if link is None:
            entry = self.unsettled.pop(delivery_id, None)
            if entry is not None:
                entry[0].unsettled_count -= 1
        else:
            link.unsettled_count -= 1
        self._answer(delivery_id, delivery_id, state)

    def end(self, error: AmqpError | None = None) -> None:
        """Leave the session with all its links."""
        if self.ended:
            return
        self.flush()
        self.connection.write(frames.end_frame(self.channel, error))
        self.clear()

    # --- writing ----------------------------------------------------------------------------------------------------

    def _attach(
        self,
        name: str,
        sender: bool,
        source: Source,
        target: Target | Coordinator,
        properties: dict[Any, Any] | None,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        max_message_size: int | None,
        credit: int,
    ) -> Link:
        if self.ended:
            raise IllegalStateError("the session has ended")
        handle = 0
        while handle in self.own_links:
            handle += 1
        if handle > self.remote_handle_max:
            raise PeerLimitError(f"the peer takes no more than {self.remote_handle_max + 1} links in a session")
        link = Link(self, name, handle, sender)
        link.source = source
        link.target = target
        link.snd_settle_mode = snd_settle_mode
        link.rcv_settle_mode = rcv_settle_mode
        link.credit_top = 0 if sender else credit
        if max_message_size:
            link.size_max = max_message_size
        self.own_links[handle] = link
        self.connection.write(
            frames.attach_frame(
                self.channel,
                name,
                handle,
                not sender,
                snd_settle_mode,
                rcv_settle_mode,
                source.raw,
                target.raw,
                max_message_size or 0,
                properties,
            )
        )
        return link

    def want_flow(self, link: Link | None) -> None:
        """A flow for the link, or for the session alone, goes out with the next output."""
        if link is None:
            self.session_flow_wanted = True
        elif not link.flow_wanted:
            link.flow_wanted = True
            self.flow_links.append(link)
        if not self.dirty:
            self.dirty = True
            self.connection.dirty.append(self)

    def write_transfer(self, frame: bytes) -> None:
        if self.remote_window > 0 and not self.waiting:
            self.remote_window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
            self.connection.write(frame)
        else:
            self.waiting.append((frame, True))
            self.waiting_bytes += len(frame)

    def write_behind(self, frame: bytes) -> None:
        """Write a frame that must not overtake the transfers before it."""
        if self.has_ranges:
            self.flush_ranges()
        if self.waiting:
            self.waiting.append((frame, False))
            self.waiting_bytes += len(frame)
        else:
            self.connection.write(frame)

    def _write_waiting(self) -> None:
        waiting = self.waiting
        while waiting:
            frame, counts = waiting[0]
            if counts:
                if self.remote_window <= 0:
                    return
                self.remote_window -= 1
                self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
            waiting.popleft()
            self.waiting_bytes -= len(frame)
            self.connection.write(frame)

    def _answer(self, first: int, last: int, state: bytes) -> None:
        held = self.out_state
        if held is not None:
            if first == (self.out_last + 1) & MASK and state == held:
                self.out_last = last
                return
            self._write_range_out()
        elif self.ended:
            return
        self.out_first = first
        self.out_last = last
        self.out_state = state
        self.has_ranges = True
        if not self.dirty:
            self.dirty = True
            self.connection.dirty.append(self)

    def _write_range_in(self) -> None:
        if self.in_state is not None:
            self.connection.write(
                frames.disposition_frame(
                    self.channel, True, self.in_first, self.in_last, self.in_settled, self.in_state
                )
            )
            self.in_state = None

    def _write_range_out(self) -> None:
        if self.out_state is not None:
            self.connection.write(
                frames.disposition_frame(self.channel, False, self.out_first, self.out_last, True, self.out_state)
            )
            self.out_state = None

    def flush_ranges(self) -> None:
        """Write the open ranges of dispositions."""
        self._write_range_in()
        self._write_range_out()
        self.has_ranges = False

    def flush(self) -> None:
        """Write everything that was held back to be merged."""
        if self.has_ranges:
            self.flush_ranges()
        if self.flow_links:
            links = self.flow_links
            self.flow_links = []
            for link in links:
                link.flow_wanted = False
                if link.phase == ATTACHED:
                    self._write_flow(link.flow_fields(), link.sender)
        if self.session_flow_wanted:
            self._write_flow(frames.FLOW_NO_LINK, False)

    def _write_flow(self, link_fields: bytes, behind: bool) -> None:
        self.session_flow_wanted = False
        self.incoming_left = INCOMING_WINDOW_TRANSFERS
        frame = frames.flow_frame(
            self.channel,
            self.next_incoming_id,
            INCOMING_WINDOW_TRANSFERS,
            self.next_outgoing_id,
            INCOMING_WINDOW_TRANSFERS,
            link_fields,
        )
        if behind:
            self.write_behind(frame)
        else:
            self.connection.write(frame)

    def clear(self) -> None:
        """The session is over: let go of everything that would be written or waited for."""
        self.ended = True
        for link in self.links.values():
            self._drop_partial(link)
            link.phase = GONE
        for link in self.own_links.values():
            link.phase = GONE
        self.connection.link_count -= len(self.links)
        self.links = {}
        self.own_links = {}
        self.unsettled = {}
        self.disposing = {}
        self.waiting.clear()
        self.waiting_bytes = 0
        self.flow_links = []
        self.session_flow_wanted = False
        self.has_ranges = False
        self.in_state = None
        self.out_state = None

    def forget(self, link: Link) -> None:
        """A link is going: its unsettled deliveries and its unfinished one are nobody's any more."""
        self._drop_partial(link)
        if link.unsettled_count:
            self.unsettled = {key: entry for key, entry in self.unsettled.items() if entry[0] is not link}
            self.disposing = {key: owner for key, owner in self.disposing.items() if owner is not link}
            link.unsettled_count = 0

    def _drop_partial(self, link: Link) -> None:
        if link.partial is not None:
            self.connection.partial_bytes -= len(link.partial)
            link.partial = None

    # --- transfers in -----------------------------------------------------------------------------------------------

    def on_transfer(self, data: bytes, offset: int, end: int, events: list[Event]) -> None:
        """`offset` is where the list starts; ordinary transfers are read by hand, the others in general."""
        stop = offset + 2 + data[offset + 1]
        count = data[offset + 2]
        if data[offset] != 0xC0 or count < 4 or stop > end:
            self._on_transfer_in_general(data, offset, end, events)
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
            self._on_transfer_in_general(data, offset, end, events)
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
            self._on_transfer_in_general(data, offset, end, events)
            return
        if data[at] != 0xA0:
            self._on_transfer_in_general(data, offset, end, events)
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
            self._on_transfer_in_general(data, offset, end, events)
            return
        bits = _TRANSFER_TAILS.get(data[at:stop], -1)
        if bits < 0 or bits > 1 or at + count - 4 != stop:
            self._on_transfer_in_general(data, offset, end, events)
            return
        link = self.links.get(handle)
        if link is None or link.partial is not None or link.phase > ATTACHED or link.sender:
            self._on_transfer_in_general(data, offset, end, events)
            return
        self.next_incoming_id = (self.next_incoming_id + 1) & MASK
        self.incoming_left -= 1
        if self.incoming_left <= _WINDOW_LOW and not self.session_flow_wanted:
            self.want_flow(None)
        link.delivery_count = (link.delivery_count + 1) & MASK
        link.credit -= 1
        if link.credit_top and link.credit <= link.credit_top >> 1 and not link.flow_wanted:
            self.want_flow(link)
        size = end - stop
        events.append(
            Transfer(
                link,
                delivery_id,
                tag,
                message_format,
                bits == 1,
                data[stop:end] if size <= link.size_max else None,
                size,
                None,
            )
        )

    def _on_transfer_in_general(self, data: bytes, offset: int, end: int, events: list[Event]) -> None:
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

        self.next_incoming_id = (self.next_incoming_id + 1) & MASK
        self.incoming_left -= 1
        if self.incoming_left <= _WINDOW_LOW:
            self.want_flow(None)
        link = self._link(handle)
        if link.phase > ATTACHED:
            return
        if link.sender:
            raise PeerNotAllowedError("a transfer came on a link on which the peer receives")
        if link.partial is None:
            if delivery_id < 0 or tag is None:
                raise InvalidFieldError("the first transfer of a delivery has no id or no tag")
            link.partial = bytearray()
            link.partial_size = 0
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
            self._drop_partial(link)
            self._count_delivery(link)
            return
        link.partial_size += end - stop
        self._grow_partial(link, data[stop:end])
        if not more:
            self._finish_delivery(link, events)

    def _grow_partial(self, link: Link, piece: bytes) -> None:
        held = link.partial
        if held is None:
            return
        if link.partial_size > link.size_max:
            # Too large: the rest is only counted, and the owner told at the end.
            self.connection.partial_bytes -= len(held)
            held.clear()
            return
        held += piece
        self.connection.partial_bytes += len(piece)
        if self.connection.partial_bytes > PARTIAL_BYTES_MAX:
            raise PeerLimitError(f"unfinished deliveries hold more than {PARTIAL_BYTES_MAX} bytes")

    def _finish_delivery(self, link: Link, events: list[Event]) -> None:
        held = link.partial
        size = link.partial_size
        payload = bytes(held) if held is not None and size <= link.size_max else None
        self._drop_partial(link)
        self._count_delivery(link)
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

    def _count_delivery(self, link: Link) -> None:
        link.delivery_count = (link.delivery_count + 1) & MASK
        link.credit -= 1
        if link.credit_top and link.credit <= link.credit_top >> 1:
            self.want_flow(link)

    def _link(self, handle: int) -> Link:
        link = self.links.get(handle)
        if link is None:
            raise UnattachedHandleError(f"no link is attached with handle {handle}")
        return link

    # --- dispositions in --------------------------------------------------------------------------------------------

    def on_disposition(self, data: bytes, offset: int, end: int, events: list[Event]) -> None:
        """Ordinary dispositions are read by hand, the others in general."""
        stop = offset + 2 + data[offset + 1]
        if data[offset] != 0xC0 or data[offset + 2] < 5 or stop > end:
            self._on_disposition_in_general(data, offset, end, events)
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
            self._on_disposition_in_general(data, offset, end, events)
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
            self._on_disposition_in_general(data, offset, end, events)
            return
        settled = data[at]
        state = _STATE_TAILS.get(data[at + 1 : stop])
        if state is None or role & 0xFC != 0x40 or settled & 0xFC != 0x40 or role == 0x40 or role == 0x43:
            self._on_disposition_in_general(data, offset, end, events)
            return
        if role == 0x41:
            self._dispose_of(first, last, state, settled == 0x41, events)
        else:
            events.append(Outcome(self, first, last, state, settled == 0x41))

    def _on_disposition_in_general(self, data: bytes, offset: int, end: int, events: list[Event]) -> None:
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
            self._dispose_of(first, last, state, settled, events)
        else:
            events.append(Outcome(self, first, last, state, settled))

    def _dispose_of(self, first: int, last: int, state: State | None, settled: bool, events: list[Event]) -> None:
        """The peer's word on our deliveries `first` to `last`."""
        if not settled and (state is None or isinstance(state, Received)):
            return
        unsettled = self.unsettled
        deliveries: list[tuple[int, Link, bytes]] = []
        if first == last:
            entry = unsettled.get(first)
            if entry is not None:
                deliveries.append((first, entry[0], entry[1]))
        else:
            span = serial_difference(last, first)
            if span < 0:
                raise InvalidFieldError("disposition.last comes before disposition.first")
            if span < len(unsettled):
                for step in range(span + 1):
                    number = (first + step) & MASK
                    entry = unsettled.get(number)
                    if entry is not None:
                        deliveries.append((number, entry[0], entry[1]))
            else:
                for number, entry in unsettled.items():
                    if 0 <= serial_difference(number, first) <= span:
                        deliveries.append((number, entry[0], entry[1]))
        if settled:
            for number, link, _ in deliveries:
                del unsettled[number]
                link.unsettled_count -= 1
        else:
            # Moved, not kept: the same word said again must not be heard again.
            disposing = self.disposing
            if len(deliveries) != serial_difference(last, first) + 1:
                self._answer_unknown(first, last, deliveries)
            for number, link, _ in deliveries:
                del unsettled[number]
                disposing[number] = link
        if deliveries:
            events.append(Disposed(self, deliveries, state, settled))

    def _answer_unknown(self, first: int, last: int, known: list[tuple[int, Link, bytes]]) -> None:
        """Deliveries we no longer know but once sent: say so, or the peer waits for an answer in vain."""
        if serial_difference(last, self.next_delivery_id) >= 0:
            last = (self.next_delivery_id - 1) & MASK
        at = first
        if serial_difference(self.first_delivery_id, at) > 0:
            at = self.first_delivery_id
        taken = [number for number, _, _ in known]
        taken += [number for number in self.disposing if 0 <= serial_difference(number, at) <= MASK >> 1]
        taken.sort()
        gaps = 0
        for number in taken:
            if serial_difference(number, last) > 0 or gaps >= _GAPS_MAX:
                break
            if serial_difference(number, at) > 0:
                self._answer(at, (number - 1) & MASK, _DELIVERY_UNKNOWN)
                gaps += 1
            at = (number + 1) & MASK
        if gaps < _GAPS_MAX and serial_difference(last, at) >= 0:
            self._answer(at, last, _DELIVERY_UNKNOWN)

    # --- flows, attaches, detaches in -------------------------------------------------------------------------------

    def on_flow(self, data: bytes, offset: int, end: int, events: list[Event]) -> None:
        """next-incoming-id, incoming-window, next-outgoing-id, outgoing-window, handle, delivery-count, link-credit,
        available, drain, echo, properties."""
        fields = frames.numbers_of(data, offset, end)
        window = fields[1]
        if window < 0:
            raise InvalidFieldError("flow.incoming-window is missing")
        was_closed = self.remote_window <= 0
        # Without a next-incoming-id the peer has not seen our begin: all that was sent is still before it.
        seen = fields[0] if fields[0] >= 0 else 1
        self.remote_window = window - serial_difference(self.next_outgoing_id, seen)
        if self.waiting:
            self._write_waiting()
        touched: Link | None = None
        if fields[4] >= 0:
            touched = self._link(fields[4])
            if touched.phase <= ATTACHED:
                self._on_link_flow(touched, fields[5], fields[6], fields[8] == 1, events)
        if fields[9] == 1 and (touched is None or touched.phase <= ATTACHED):
            self.want_flow(touched)
        if was_closed and self.remote_window > 0:
            for link in self.links.values():
                if link.sender and link is not touched and link.phase == ATTACHED and link.credit > 0:
                    events.append(Credit(link))

    def _on_link_flow(self, link: Link, seen: int, granted: int, drain: bool, events: list[Event]) -> None:
        if link.sender:
            if granted >= 0:
                ahead = serial_difference(link.delivery_count, seen) if seen >= 0 else link.delivery_count
                link.credit = max(0, granted - ahead)
            link.drain = drain
            events.append(Credit(link))
        elif link.drain and drain and seen >= 0:
            # The answer to our drain: what was not delivered is given back.
            link.delivery_count = seen
            link.credit = 0
            link.drain = False
            events.append(Drained(link))

    def on_attach(self, data: bytes, offset: int, end: int, events: list[Event]) -> None:
        raw, _ = frames.raw_fields_of(data, offset, end)
        # Source and target keep their bytes; unsettled (7) is never used, as links are not resumed.
        fields = [None if index in (5, 6, 7) else decode_all(value) for index, value in enumerate(raw)]
        name = frames.text_field(fields, 0, "attach.name")
        handle = frames.needed_uint_field(fields, 1, "attach.handle")
        if name is None or len(fields) < 3 or not isinstance(fields[2], bool):
            raise InvalidFieldError("an attach has no name or no role")
        if handle > self.connection.handle_max:
            raise FramingError(f"handle {handle} is larger than the handle-max {self.connection.handle_max}")
        if handle in self.links:
            raise HandleInUseError(f"handle {handle} is in use by the link {self.links[handle].name!r}")
        if self.connection.link_count >= LINKS_PER_CONNECTION_MAX:
            raise PeerLimitError(f"a connection has no more than {LINKS_PER_CONNECTION_MAX} links")
        we_send = fields[2]
        if self.connection.client:
            link = self._asked_for(name, we_send)
        else:
            link = Link(self, name, handle, we_send)
        link.remote_handle = handle
        link.source = parse_source(raw[5]) if len(raw) > 5 else None
        link.target = parse_target(raw[6]) if len(raw) > 6 else None
        link.snd_settle_mode = frames.small_field(fields, 3, "attach.snd-settle-mode", 2, 2)
        link.rcv_settle_mode = frames.small_field(fields, 4, "attach.rcv-settle-mode", 0, 1)
        link.max_message_size = frames.uint_field(fields, 10, "attach.max-message-size", 0)
        link.properties = frames.map_field(fields, 13, "attach.properties")
        if not we_send:
            link.delivery_count = frames.uint_field(fields, 9, "attach.initial-delivery-count", 0) & MASK
        self.links[handle] = link
        self.connection.link_count += 1
        if not self.connection.client:
            events.append(Attached(link))
        elif (link.target if we_send else link.source) is not None and link.phase == ATTACHING:
            # Without that terminus the attach is a refusal, and the detach with the reason follows.
            link.phase = ATTACHED
            if link.credit_top:
                self.want_flow(link)
            events.append(Attached(link))

    def _asked_for(self, name: str, we_send: bool) -> Link:
        for link in self.own_links.values():
            if link.remote_handle < 0 and link.name == name and link.sender == we_send:
                return link
        raise PeerNotAllowedError("the peer attached a link that we did not ask for")

    def on_detach(self, data: bytes, offset: int, end: int, events: list[Event]) -> None:
        fields, _ = frames.fields_of(data, offset, end)
        link = self._link(frames.needed_uint_field(fields, 0, "detach.handle"))
        closed = frames.bool_field(fields, 1, "detach.closed", False)
        error = frames.error_field(fields, 2)
        ours = link.phase == DETACHING
        if not ours:
            if link.phase == ATTACHING and not self.connection.client:
                link.refuse_silently()
            self.forget(link)
            link.phase = GONE
            self.write_behind(frames.detach_frame(self.channel, link.handle, closed, None))
        link.phase = GONE
        del self.links[link.remote_handle]
        self.own_links.pop(link.handle, None)
        self.connection.link_count -= 1
        if not ours or self.connection.client:
            events.append(Detached(link, closed, error))
