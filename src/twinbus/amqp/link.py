"""A link: messages in one direction between two nodes.

Three rules. Exactly one detach is sent per link. Credit is counted but never enforced on the peer, because the Python
SDK sends without any. Once a link is gone its methods do nothing, so a settlement that completes late does no harm;
only `send` raises.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from twinbus.amqp import frames
from twinbus.amqp.outgoing import LargeDelivery
from twinbus.amqp.phases import ATTACH, ATTACHED, ATTACHING, DETACH_SENT, DETACHING, ENDING, LINK_TRANSITIONS, after
from twinbus.amqp.serial import MASK
from twinbus.amqp.states import AmqpError, composite_of
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.errors import LinkDetachedError
from twinbus.limits import MESSAGE_BYTES_MAX, OUTPUT_STEP_BYTES

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection
    from twinbus.amqp.session import Session

# `accept` defaults: answer with the terminus the peer sent.
ECHO_SOURCE: Final = Source()
ECHO_TARGET: Final = Target()

# The fields after the delivery tag in a one-frame transfer: message-format, settled, more, rcv-settle-mode, state,
# resume, aborted, batchable.
_TAIL_UNSETTLED: Final = b"\x43\x42\x42\x40\x40\x42\x42\x42"
_TAIL_SETTLED: Final = b"\x43\x41\x42\x40\x40\x42\x42\x42"
_FORMAT: Final = Struct(">BI")


class Link:
    """A link; `sender` is True if we are the sending side."""

    def __init__(self, session: Session, name: str, handle: int, sender: bool) -> None:
        self.session = session
        # Shortcut to the session's connection, for the hot path.
        self.connection: Connection = session.connection
        self.name = name
        # Our handle.
        self.handle = handle
        # The peer's handle; -1 until its attach arrives.
        self.remote_handle = -1
        self.sender = sender
        # For the owner's use.
        self.context: Any = None
        self.phase = ATTACHING
        # The peer's source and target, as last stated; None if it sent null.
        self.source: Source | None = None
        self.target: Target | Coordinator | None = None
        self.properties: dict[Any, Any] | None = None
        # 0 unsettled, 1 settled, 2 mixed.
        self.snd_settle_mode = 2
        # 0 first, 1 second.
        self.rcv_settle_mode = 0
        # The largest message the peer accepts, in bytes; 0 for no limit.
        self.max_message_size = 0
        # Messages that we (sending) or the peer (receiving) may still send.
        self.credit = 0
        # AMQP's delivery-count.
        self.delivery_count = 0
        # Sending: the peer wants its credit used up or given back. Receiving: we have asked for that.
        self.drain = False

        # --- internal ---
        # Receiving: the level to which credit is topped up automatically; 0 if the owner grants it with `flow`.
        self.credit_top = 0
        # Receiving: the largest message we accept, in bytes.
        self.size_max = MESSAGE_BYTES_MAX
        # Sending: this link's deliveries that the peer has not settled.
        self.unsettled_count = 0
        # Whether the session is about to write a flow for this link.
        self.flow_wanted = False
        # Size of the peer's attach frame.
        self.attach_bytes = 0
        # Receiving: the payload so far of an unfinished delivery; None between deliveries.
        self.partial: bytearray | None = None
        # Receiving: bytes of the unfinished delivery, including discarded ones.
        self.partial_size = 0
        # Receiving: the shared budget is exhausted, so the unfinished delivery is discarded as it arrives.
        self.partial_refused = False
        # Receiving: fields of the unfinished delivery.
        self.partial_id = 0
        self.partial_tag = b""
        self.partial_format = 0
        self.partial_settled = False
        self.partial_state: bytes | None = None
        # Sending: packs transfer heads whose tag has `packer_tag` bytes and whose format is `packer_format`.
        self.packer: Struct = Struct(">")
        self.packer_tag = -1
        self.packer_format = -1
        self.packer_prefix = b""
        self.packer_overhead = 0
        self.packer_tail_settled = b""
        self.packer_tail_unsettled = b""

    @property
    def attached(self) -> bool:
        """Whether both sides have attached and neither has detached."""
        return self.phase == ATTACHED

    # --- the life of a link -----------------------------------------------------------------------------------------

    def accept(
        self,
        *,
        source: Source | None = ECHO_SOURCE,
        target: Target | Coordinator | None = ECHO_TARGET,
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        credit: int = 0,
    ) -> None:
        """Server: answer the peer's attach. On a receiving link, `credit` is topped up whenever half of it is used."""
        if self.phase != ATTACHING or self.session.phase >= ENDING:
            return
        if source is ECHO_SOURCE:
            source = self.source
        if target is ECHO_TARGET:
            target = self.target
        if max_message_size is not None and max_message_size > 0:
            self.size_max = max_message_size
        self.phase = after(LINK_TRANSITIONS, self.phase, ATTACH)
        self._write_attach(source, target, max_message_size or 0, properties)
        if not self.sender and credit > 0:
            self.credit_top = credit
            self.credit = credit
            self.session.want_flow(self)

    def refuse(self, error: AmqpError) -> None:
        """Server: attach with null source and target, then detach with the reason."""
        if self.phase != ATTACHING or self.session.phase >= ENDING:
            return
        self.detach(error)

    def detach(self, error: AmqpError | None = None, *, closed: bool = True) -> None:
        """Detach the link. Frames that wait for the peer's window go out first."""
        if self.phase >= DETACHING or self.session.phase >= ENDING:
            return
        if self.phase == ATTACHING and not self.connection.client:
            self._write_attach(None, None, 0, None)
        self.phase = after(LINK_TRANSITIONS, self.phase, DETACH_SENT)
        self.session.write_behind(frames.detach_frame(self.session.channel, self.handle, closed, error))
        self.session.forget(self)

    def refuse_silently(self) -> None:
        """Server: the peer detached before we answered its attach. Write the attach that must precede our detach."""
        self._write_attach(None, None, 0, None)

    def _write_attach(
        self,
        source: Source | None,
        target: Target | Coordinator | None,
        max_message_size: int,
        properties: dict[Any, Any] | None,
    ) -> None:
        self.connection.write(
            frames.attach_frame(
                self.session.channel,
                self.name,
                self.handle,
                not self.sender,
                self.snd_settle_mode,
                self.rcv_settle_mode,
                b"\x40" if source is None else source.raw,
                b"\x40" if target is None else target.raw,
                max_message_size,
                properties,
            )
        )

    # --- sending ----------------------------------------------------------------------------------------------------

    def sendable(self) -> int:
        """How many messages credit, the session's window and the bound on unsettled deliveries allow now."""
        session = self.session
        if self.phase != ATTACHED:
            return 0
        if session.remote_window <= 0 or session.waiting:
            if self.credit > 0:
                session.stalled[self] = None
            return 0
        room = session.unsettled_max - len(session.unsettled) - len(session.disposing) - len(session.kept)
        window = session.remote_window
        count = self.credit
        if window < count:
            count = window
        if room < count:
            count = room
        return count if count > 0 else 0

    def send(
        self,
        payload: bytes,
        *,
        tag: bytes,
        settled: bool,
        message_format: int = 0,
        state: bytes | None = None,
    ) -> int:
        """Send one delivery and return its id. Frames beyond the peer's window wait in the session."""
        session = self.session
        if self.phase != ATTACHED:
            raise LinkDetachedError(f"the link {self.name!r} is not attached")
        if len(tag) != self.packer_tag or message_format != self.packer_format:
            self._make_packer(len(tag), message_format)
        if session.has_ranges:
            session.flush_ranges()
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & MASK
        self.delivery_count = (self.delivery_count + 1) & MASK
        self.credit -= 1
        if not settled:
            session.unsettled[delivery_id] = (self, tag)
            self.unsettled_count += 1
        size = self.packer_overhead + len(payload)
        connection = self.connection
        if state is not None or size > connection.remote_frame_max or session.remote_window <= 0 or session.waiting:
            self._send_frames(payload, tag, settled, delivery_id, state)
            return delivery_id
        session.remote_window -= 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & MASK
        out = connection.out
        out.append(
            self.packer.pack(
                size,
                session.frame_word,
                self.packer_prefix,
                delivery_id,
                0xA0,
                tag,
                self.packer_tail_settled if settled else self.packer_tail_unsettled,
            )
        )
        out.append(payload)
        connection.output_bytes += size
        return delivery_id

    def _make_packer(self, tag_size: int, message_format: int) -> None:
        """Prepare the packer of one-frame transfers: frame header, handle, id, tag and tail in one `pack`."""
        if tag_size > 32:
            raise ValueError(f"a delivery tag of {tag_size} bytes is longer than 32")
        written = b"\x43" if message_format == 0 else _FORMAT.pack(0x70, message_format)
        self.packer_tail_settled = written + _TAIL_SETTLED[1:]
        self.packer_tail_unsettled = written + _TAIL_UNSETTLED[1:]
        tail_size = len(self.packer_tail_settled)
        fields = 5 + 5 + 2 + tag_size + tail_size
        self.packer_prefix = b"".join(
            (
                b"\x00\x53\x14\xc0",
                bytes((fields + 1, 11, 0x70)),
                self.handle.to_bytes(4, "big"),
                b"\x70",
            )
        )
        self.packer = Struct(f">II{len(self.packer_prefix)}sIB{tag_size + 1}p{tail_size}s")
        self.packer_overhead = 8 + 6 + fields
        self.packer_tag = tag_size
        self.packer_format = message_format

    def _send_frames(self, payload: bytes, tag: bytes, settled: bool, delivery_id: int, state: bytes | None) -> None:
        """Send a delivery that needs several frames, a state, or an open window."""
        session = self.session
        common = b"".join(
            (
                b"\x70",
                self.handle.to_bytes(4, "big"),
                b"\x70",
                delivery_id.to_bytes(4, "big"),
                bytes((0xA0, len(tag))),
                tag,
                b"\x43" if self.packer_format == 0 else _FORMAT.pack(0x70, self.packer_format),
                b"\x41" if settled else b"\x42",
            )
        )
        rest = b"\x40" + (b"\x40" if state is None else state) + b"\x42\x42\x42"
        last = composite_of(frames.TRANSFER, 11, common + b"\x42" + rest)
        more = composite_of(frames.TRANSFER, 11, common + b"\x41" + rest)
        room = self.connection.remote_frame_max - 8 - len(last)
        if room <= 0:
            raise ValueError("the state of a transfer does not fit a frame of the peer")
        offset = 0
        size = len(payload)
        if size > OUTPUT_STEP_BYTES:
            session.write_large(LargeDelivery(self, payload, more, last, room))
            return
        while size - offset > room:
            session.write_transfer(frames.frame(session.channel, more + payload[offset : offset + room]))
            offset += room
        session.write_transfer(frames.frame(session.channel, last + payload[offset:]))

    def drained(self) -> None:
        """Sending: nothing more is available, so give back the remaining credit."""
        if self.phase != ATTACHED or not self.sender:
            return
        if self.credit > 0:
            self.delivery_count = (self.delivery_count + self.credit) & MASK
        self.credit = 0
        self.drain = True
        self.session.want_flow(self)

    # --- receiving --------------------------------------------------------------------------------------------------

    def flow(self, credit: int, *, drain: bool = False) -> None:
        """Receiving: grant exactly `credit` and stop topping it up."""
        if self.phase != ATTACHED or self.sender:
            return
        self.credit_top = 0
        self.credit = credit
        self.drain = drain
        self.session.want_flow(self)

    def flow_fields(self) -> bytes:
        """Encode this link's current state for a flow."""
        if self.credit_top:
            self.credit = self.credit_top
        return frames.flow_link(self.handle, self.delivery_count, self.credit if self.credit > 0 else 0, self.drain)
