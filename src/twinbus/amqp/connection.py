"""An AMQP connection for both roles: bytes in, events out.

Four rules. `receive` never raises for what a peer sends: a violation ends the session or the connection, as AMQP
requires, and the owner learns of it from an event. A client may pipeline everything without waiting for answers. Output
is collected and taken once per turn. After `Closed` no more events follow and all input is ignored.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, Protocol

from twinbus.amqp import frames
from twinbus.amqp.attachments import on_attach, on_detach, on_flow
from twinbus.amqp.dispositions import on_disposition
from twinbus.amqp.events import AmqpEvent, Begun, Closed, Credit, Ended, Opened
from twinbus.amqp.handshake import DECIDING, FRAMES, HEADER, OVER, SASL_OK, SASL_REFUSED, on_header, on_sasl_frame
from twinbus.amqp.outgoing import Mark
from twinbus.amqp.phases import BEGIN, CONNECTION_CLOSED, END_RECEIVED, ENDING, SESSION_TRANSITIONS, after
from twinbus.amqp.session import Session
from twinbus.amqp.states import AmqpError
from twinbus.amqp.transfers import on_transfer
from twinbus.amqp.types import Symbol
from twinbus.errors import (
    DecodeError,
    FramingError,
    HandleInUseError,
    IllegalStateError,
    InvalidFieldError,
    PeerLimitError,
    ProtocolError,
    UnattachedHandleError,
)
from twinbus.limits import (
    CHANNEL_MAX,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    HANDLE_MAX,
    HEARTBEAT_INTERVAL_MS_MIN,
    IDLE_TIMEOUT_MS,
    INCOMING_WINDOW_TRANSFERS,
    LINK_OBJECT_BYTES,
    LINKS_PER_CONNECTION_MAX,
    OUTGOING_FRAME_BYTES_MAX,
    PARTIAL_BYTES_MAX,
    PIPELINED_BYTES_MAX,
    SASL_FRAME_BYTES_MAX,
)

_HEAD: Final = Struct(">IBBH").unpack_from
# Input of more bytes is not joined to the frame it completes.
_JOINED_BYTES_MAX: Final = 4_096


class Role(enum.Enum):
    """Our side of the connection."""

    SERVER = "server"
    CLIENT = "client"


class PartialAccount(Protocol):
    """A byte budget that several connections share."""

    def take(self, count: int) -> bool: ...

    def give(self, count: int) -> None: ...


class RemoteOpen:
    """The fields of the peer's open."""

    __slots__ = ("channel_max", "container_id", "frame_bytes_max", "hostname", "idle_timeout_ms", "properties")

    def __init__(self, fields: list[Any]) -> None:
        self.container_id = frames.text_field(fields, 0, "open.container-id") or ""
        self.hostname = frames.text_field(fields, 1, "open.hostname")
        self.frame_bytes_max = frames.uint_field(fields, 2, "open.max-frame-size", 0xFFFFFFFF)
        self.channel_max = frames.uint_field(fields, 3, "open.channel-max", 65_535)
        # The peer hangs up after this much silence; 0 for never.
        self.idle_timeout_ms = frames.uint_field(fields, 4, "open.idle-time-out", 0)
        # Product, version and so on.
        self.properties = frames.map_field(fields, 9, "open.properties")
        if self.frame_bytes_max < FRAME_BYTES_MIN:
            raise InvalidFieldError(f"open.max-frame-size is smaller than {FRAME_BYTES_MIN}")


class Connection:
    """One AMQP connection without a socket."""

    def __init__(
        self,
        role: Role,
        *,
        container_id: str,
        hostname: str | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        channel_max: int = CHANNEL_MAX,
        handle_max: int = HANDLE_MAX,
        idle_timeout_ms: int | None = IDLE_TIMEOUT_MS,
        sasl_mechanisms: Sequence[str] = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"),
        properties: dict[Any, Any] | None = None,
        capabilities: Sequence[Symbol] = (),
        require_sasl: bool = True,
    ) -> None:
        self.role = role
        self.client = role is Role.CLIENT
        self.container_id = container_id
        # Client: the host to talk to.
        self.hostname = hostname
        self.frame_bytes_max = max(frame_bytes_max, FRAME_BYTES_MIN)
        self.channel_max = channel_max
        self.handle_max = handle_max
        # We hang up after twice this much silence; 0 for never.
        self.idle_timeout_ms = idle_timeout_ms or 0
        # Server: the mechanisms we offer.
        self.sasl_mechanisms = list(sasl_mechanisms)
        # The properties of our open, and the capabilities it offers.
        self.properties = properties
        self.capabilities = capabilities
        # Server: whether a client must start with SASL.
        self.require_sasl = require_sasl
        # For the owner's use.
        self.context: Any = None
        # None until the peer's open arrives.
        self.remote_open: RemoteOpen | None = None
        # True once either side has closed or the peer has broken the protocol.
        self.closed = False
        # True once the peer has been silent for more than twice our idle timeout.
        self.timed_out = False
        # Bytes waiting for `take_output`.
        self.output_bytes = 0
        # Bytes queued in sessions: behind the peer's window, or still to come of large deliveries.
        self.waiting_bytes = 0
        # Bytes that `take_output` has returned since the start.
        self.taken_bytes = 0

        # Limits for the peer; the owner lowers them until the peer has authenticated.
        self.links_max = LINKS_PER_CONNECTION_MAX
        self.sessions_max = self.channel_max + 1
        self.partial_bytes_max = PARTIAL_BYTES_MAX
        # Shared budget for the bytes of unfinished deliveries; None for no shared limit.
        self.partial_account: PartialAccount | None = None
        # The largest frame we accept that is not a transfer.
        self.control_bytes_max = self.frame_bytes_max

        # --- internal ---
        # What the next bytes have to be.
        self.phase = HEADER
        # True once SASL has succeeded or is not used; a second SASL header is an error.
        self.sasl_done = False
        # Client: mechanism and initial response, when SASL is used.
        self.sasl: tuple[str, bytes | None] | None = None
        # Client: whether init, header and open went out without waiting for the server.
        self.pipelined = False
        # Whether our open has been written.
        self.open_sent = False
        # Client: frames built before our open could be written.
        self.early: list[bytes] = []
        self.out: list[bytes] = []
        # Sessions with frames held back for merging.
        self.dirty: list[Session] = []
        # Sessions that paused in the middle of a large delivery; `pump` writes the next step.
        self.halted: list[Session] = []
        # Marks in the output, in order; `written` reports them to the owner.
        self.marks: deque[Mark] = deque()
        # The largest frame we may write.
        self.remote_frame_max = FRAME_BYTES_MIN
        # Sessions by the peer's channel, from its begin until its end.
        self.channels: dict[int, Session] = {}
        # Client: sessions by our channel, from our begin until both sides have ended.
        self.own_channels: dict[int, Session] = {}
        self.link_count = 0
        # Shared budget for the memory of links and sessions; None for no shared limit.
        self.link_account: PartialAccount | None = None
        # Frames queued behind transfers that wait for the peer's window.
        self.frames_behind = 0
        # Bytes of unfinished deliveries across all sessions.
        self.partial_bytes = 0
        # Input that does not make a whole frame yet, and its size.
        self.held: list[bytes] = []
        self.held_bytes = 0
        # Bytes to have before parsing is worth another try.
        self.needed = 0
        # The most frames that one `receive` reads; 0 for all. The owner sets it to do something else in between.
        self.frames_max = 0
        # Whether `receive` stopped there: call it with no bytes to go on.
        self.more = False
        # How much of the first of `held` is read already.
        self.held_from = 0
        # When the peer was last heard; None before the first tick.
        self.heard_ms: int | None = None
        # When the next heartbeat is due; None if none is scheduled.
        self.beat_ms: int | None = None

    @property
    def sessions(self) -> list[Session]:
        """The sessions that have not ended."""
        return [session for session in self.channels.values() if not session.ended]

    # --- for the owner ----------------------------------------------------------------------------------------------

    def start(self, *, sasl: tuple[str, bytes | None] | None = None, pipelined: bool = False) -> None:
        """Client: open the connection. With `pipelined`, write everything without waiting for the server."""
        self.sasl = sasl
        self.pipelined = pipelined
        if sasl is None:
            self.sasl_done = True
            self.put(frames.HEADER_AMQP)
            self.write_open()
        else:
            self.put(frames.HEADER_SASL)
            if pipelined:
                self.put(frames.sasl_init_frame(sasl[0], sasl[1], self.hostname))
                self.put(frames.HEADER_AMQP)
                self.write_open()

    def receive(self, data: bytes) -> list[AmqpEvent]:
        """Process bytes from the socket and return the events they cause."""
        events: list[AmqpEvent] = []
        if self.closed and self.phase != FRAMES:
            return events
        start = self.held_from
        self.held_from = 0
        self.more = False
        first = b""
        if self.held_bytes:
            if data:
                self.held.append(data)
                self.held_bytes += len(data)
            if self.held_bytes < self.needed:
                return events
            missing = self.needed - self.held_bytes + len(data)
            # With 8 bytes needed it is not known yet where the frame ends.
            if self.phase == FRAMES and len(data) > _JOINED_BYTES_MAX and self.needed > 8 and 0 < missing < len(data):
                # Only the frame that had been begun is put together, not all that came behind it.
                self.held[-1] = data[:missing]
                first = b"".join(self.held)
                start = missing
            else:
                data = b"".join(self.held) if len(self.held) > 1 else self.held[0]
            self.held = []
            self.held_bytes = 0
        try:
            if first:
                self._read_frames(first, 0, events)
            used = self._read_frames(data, start, events) if self.phase == FRAMES else self._read(data, events)
        except ProtocolError as error:
            self._fail(error, events)
            return events
        except (IndexError, struct.error):
            self._fail(DecodeError("a frame is cut off"), events)
            return events
        rest = len(data) - used
        if rest and self.phase != OVER:
            if self.more:
                # Not copied: there may be many such steps.
                self.held = [data]
                self.held_from = used
            else:
                self.held = [data[used:]]
            self.held_bytes = rest
        return events

    def has_output(self) -> bool:
        """Whether `take_output` or `pump` may have something to write."""
        return bool(self.out or self.dirty or self.halted)

    def take_output(self) -> bytes:
        """Return everything that is ready to be written."""
        if self.dirty:
            dirty = self.dirty
            self.dirty = []
            for session in dirty:
                session.dirty = False
                if session.phase < ENDING and not self.closed:
                    session.flush()
        out = self.out
        if not out:
            return b""
        self.out = []
        self.taken_bytes += self.output_bytes
        self.output_bytes = 0
        return b"".join(out)

    def pump(self) -> list[AmqpEvent]:
        """Write the next step of large deliveries once the last step is out; return a Credit for each link that may
        send."""
        events: list[AmqpEvent] = []
        halted = self.halted
        self.halted = []
        for session in halted:
            session.write_waiting()
            events += [Credit(link) for link in session.unstalled()]
        return events

    def written(self, unsent_bytes: int) -> list[Any]:
        """Return the contexts of all marks whose preceding output has been sent; `unsent_bytes` of the output taken
        have
        not."""
        done = self.taken_bytes - unsent_bytes
        found: list[Any] = []
        while self.marks and self.marks[0].position <= done:
            found.append(self.marks.popleft().context)
        return found

    def heard(self, now_ms: int) -> None:
        """Note that the peer sent something."""
        self.heard_ms = now_ms

    def tick(self, now_ms: int) -> int | None:
        """Send a heartbeat if one is due and detect a silent peer. Return when to call again."""
        if self.closed:
            return None
        due: int | None = None
        if self.heard_ms is None:
            self.heard_ms = now_ms
        if self.idle_timeout_ms:
            silent_at = self.heard_ms + 2 * self.idle_timeout_ms
            if now_ms > silent_at:
                self.timed_out = True
            due = silent_at + 1
        if self.remote_open is not None and self.remote_open.idle_timeout_ms:
            interval = max(self.remote_open.idle_timeout_ms // 2, HEARTBEAT_INTERVAL_MS_MIN)
            if self.beat_ms is None:
                self.beat_ms = now_ms + interval
            elif now_ms >= self.beat_ms:
                self.put(frames.EMPTY_FRAME)
                self.beat_ms = now_ms + interval
            if due is None or self.beat_ms < due:
                due = self.beat_ms
        return due

    def close(self, error: AmqpError | None = None) -> None:
        """Close the connection; the Closed event comes with the peer's answer."""
        if self.closed:
            return
        self._write_close(error)
        self._abandon_sessions()
        self.closed = True

    def lost(self) -> None:
        """The socket is gone: stop reading and writing, and drop the sessions, which refer back to this connection."""
        self._abandon_sessions()
        self.closed = True
        self.phase = OVER
        if self.link_account is not None:
            self.link_account.give(len(self.channels) * LINK_OBJECT_BYTES)
        self.channels = {}
        self.own_channels = {}
        self.held = []
        self.more = False
        self.held_bytes = 0
        self.out = []
        self.output_bytes = 0
        self.halted = []
        self.marks = deque()

    def sasl_outcome(self, ok: bool) -> list[AmqpEvent]:
        """Server: accept or refuse the SASL exchange, then process what the client pipelined meanwhile."""
        if self.phase != DECIDING:
            return []
        if not ok:
            self.put(frames.sasl_outcome_frame(SASL_REFUSED))
            self.closed = True
            self.phase = OVER
            self.held = []
            self.held_bytes = 0
            return [Closed(AmqpError("amqp:unauthorized-access", "the SASL exchange failed"))]
        self.put(frames.sasl_outcome_frame(SASL_OK))
        self.sasl_done = True
        self.phase = HEADER
        self.needed = 0
        return self.receive(b"")

    def begin(self) -> Session:
        """Client: begin a session; links can be attached to it at once."""
        if self.closed:
            raise IllegalStateError("the connection is closed")
        channel = 0
        while channel in self.own_channels:
            channel += 1
        limit = self.channel_max
        if self.remote_open is not None:
            limit = min(limit, self.remote_open.channel_max)
        if channel > limit:
            raise PeerLimitError(f"a connection may have at most {limit + 1} sessions")
        session = Session(self, channel)
        self.own_channels[channel] = session
        self.write(
            frames.begin_frame(
                channel,
                None,
                session.next_outgoing_id,
                INCOMING_WINDOW_TRANSFERS,
                INCOMING_WINDOW_TRANSFERS,
                self.handle_max,
            )
        )
        return session

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, frame: bytes) -> None:
        """Write a frame, or keep it until our open has been written."""
        if self.open_sent:
            self.out.append(frame)
            self.output_bytes += len(frame)
        else:
            self.early.append(frame)

    def halt(self, session: Session) -> None:
        """Have the next `pump` continue the session's large delivery."""
        if session not in self.halted:
            self.halted.append(session)

    def mark(self, mark: Mark) -> None:
        """Fix the mark's position: everything before it is in the output."""
        mark.position = self.taken_bytes + self.output_bytes
        self.marks.append(mark)

    def put(self, raw: bytes) -> None:
        self.out.append(raw)
        self.output_bytes += len(raw)

    def write_open(self) -> None:
        self.open_sent = True
        self.put(
            frames.open_frame(
                self.container_id,
                self.hostname,
                self.frame_bytes_max,
                self.channel_max,
                self.idle_timeout_ms,
                self.properties,
                self.capabilities,
            )
        )
        early = self.early
        self.early = []
        for frame in early:
            self.write(frame)

    def _write_close(self, error: AmqpError | None) -> None:
        """Write a close, preceded by our open if necessary; write nothing if the handshake is not that far."""
        if self.phase != FRAMES and not self.open_sent:
            return
        for session in self.dirty:
            if not session.ended:
                session.flush()
        if not self.open_sent:
            self.write_open()
        self.put(frames.close_frame(error))

    def _fail(self, error: ProtocolError, events: list[AmqpEvent]) -> None:
        """The peer broke the protocol: send it the reason, tell the owner and stop reading."""
        reason = AmqpError.of(error)
        if not self.closed:
            self._write_close(reason)
        self.finish(reason, events)

    def finish(self, error: AmqpError | None, events: list[AmqpEvent]) -> None:
        self._abandon_sessions()
        self.closed = True
        self.phase = OVER
        self.held = []
        self.held_bytes = 0
        events.append(Closed(error))

    def _abandon_sessions(self) -> None:
        for session in self.channels.values():
            session.clear(CONNECTION_CLOSED)
        for session in self.own_channels.values():
            session.clear(CONNECTION_CLOSED)
        self.dirty = []

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, data: bytes, events: list[AmqpEvent]) -> int:
        """Read protocol headers and SASL frames; return the number of bytes used."""
        offset = 0
        while True:
            phase = self.phase
            if phase == FRAMES:
                return self._read_frames(data, offset, events)
            if phase == OVER:
                return len(data)
            if phase == DECIDING:
                if len(data) - offset > PIPELINED_BYTES_MAX:
                    raise PeerLimitError("too much input before the SASL exchange was over")
                self.needed = PIPELINED_BYTES_MAX + 1
                return offset
            if len(data) - offset < 8:
                self.needed = 8
                return offset
            if phase == HEADER:
                on_header(self, data[offset : offset + 8], events)
                offset += 8
                continue
            length, doff, kind, _ = _HEAD(data, offset)
            if length < 8 or length > SASL_FRAME_BYTES_MAX or kind != frames.FRAME_SASL:
                raise FramingError("a SASL frame was expected")
            if len(data) - offset < length:
                self.needed = length
                return offset
            if doff < 2 or doff * 4 > length:
                raise FramingError("a frame's data offset is wrong")
            on_sasl_frame(self, data, offset + doff * 4, offset + length, events)
            offset += length

    def _read_frames(self, data: bytes, offset: int, events: list[AmqpEvent]) -> int:
        """Read all complete frames, or `frames_max` of them; return the number of bytes used."""
        size = len(data)
        left = self.frames_max or -1
        while size - offset >= 8:
            if left == 0:
                self.more = True
                self.needed = 0
                return offset
            left -= 1
            length, doff, kind, channel = _HEAD(data, offset)
            if length > self.frame_bytes_max or length < 8:
                raise FramingError(f"a frame of {length} bytes is outside 8 to {self.frame_bytes_max}")
            end = offset + length
            if end > size:
                self.needed = length
                return offset
            start = offset + doff * 4
            if doff < 2 or start > end or kind != frames.FRAME_AMQP:
                raise FramingError("a frame's type or data offset is wrong")
            offset = end
            if start == end:
                continue
            if end - start < 4:
                raise DecodeError("a frame is too short for a performative")
            if data[start + 1] == 0x53 and data[start] == 0x00:
                code = data[start + 2]
                start += 3
            else:
                code, start = frames.descriptor(data, start, end)
            if length > self.control_bytes_max and code != frames.TRANSFER:
                raise PeerLimitError(f"a frame of {length} bytes is too large before a token is accepted")
            session = self.channels.get(channel)
            if session is None or session.phase >= ENDING or code == frames.CLOSE or code == frames.END:
                self._on_control(code, channel, session, data, start, end, events)
                if self.phase == OVER:
                    return size
                continue
            try:
                if code == frames.TRANSFER:
                    on_transfer(session, data, start, end, events)
                elif code == frames.DISPOSITION:
                    on_disposition(session, data, start, end, events)
                elif code == frames.FLOW:
                    on_flow(session, data, start, end, events)
                elif code == frames.ATTACH:
                    on_attach(session, data, start, end, events)
                elif code == frames.DETACH:
                    on_detach(session, data, start, end, events)
                else:
                    self._on_control(code, channel, session, data, start, end, events)
            except (UnattachedHandleError, HandleInUseError) as error:
                reason = AmqpError.of(error)
                session.end(reason)
                events.append(Ended(session, reason))
        self.needed = 8
        return offset

    def _on_control(
        self,
        code: int,
        channel: int,
        session: Session | None,
        data: bytes,
        start: int,
        end: int,
        events: list[AmqpEvent],
    ) -> None:
        """Handle open, begin, end, close, and frames for unknown sessions."""
        if code == frames.CLOSE:
            fields, _ = frames.fields_of(data, start, end)
            error = frames.error_field(fields, 0)
            if not self.closed:
                self._write_close(None)
            self.finish(error, events)
        elif self.closed:
            # We have closed: only the peer's close still matters.
            return
        elif code == frames.OPEN:
            self._on_open(frames.fields_of(data, start, end)[0], events)
        elif self.remote_open is None:
            raise IllegalStateError("a frame came before the open")
        elif channel > self.channel_max:
            raise FramingError(f"channel {channel} is larger than the channel-max {self.channel_max}")
        elif code == frames.BEGIN:
            self._on_begin(channel, frames.fields_of(data, start, end)[0], events)
        elif session is None:
            raise IllegalStateError(f"no session has begun on channel {channel}")
        elif code == frames.END:
            self._on_end(channel, session, frames.fields_of(data, start, end)[0], events)
        elif not session.ended or code < frames.ATTACH or code > frames.DETACH:
            # After our end, everything the peer sends is dropped until its own end.
            raise DecodeError(f"0x{code:02x} is not a performative")

    def _on_open(self, fields: list[Any], events: list[AmqpEvent]) -> None:
        if self.remote_open is not None:
            raise IllegalStateError("a second open came")
        self.remote_open = RemoteOpen(fields)
        self.remote_frame_max = min(self.remote_open.frame_bytes_max, OUTGOING_FRAME_BYTES_MAX)
        if not self.open_sent:
            self.write_open()
        events.append(Opened())

    def _on_begin(self, channel: int, fields: list[Any], events: list[AmqpEvent]) -> None:
        if channel in self.channels:
            raise IllegalStateError(f"a session has already begun on channel {channel}")
        if len(self.channels) >= self.sessions_max:
            raise PeerLimitError(f"this connection may have at most {self.sessions_max} sessions")
        remote_channel = frames.uint_field(fields, 0, "begin.remote-channel", -1)
        if self.client:
            session = self.own_channels.get(remote_channel)
            if session is None or session.remote_channel >= 0:
                raise IllegalStateError("the peer began a session that we did not ask for")
        else:
            session = Session(self, channel)
        session.remote_channel = channel
        session.next_incoming_id = frames.needed_uint_field(fields, 1, "begin.next-outgoing-id")
        session.remote_window += frames.needed_uint_field(fields, 2, "begin.incoming-window")
        frames.needed_uint_field(fields, 3, "begin.outgoing-window")
        session.remote_handle_max = frames.uint_field(fields, 4, "begin.handle-max", 0xFFFFFFFF)
        if self.link_account is not None and not self.link_account.take(LINK_OBJECT_BYTES):
            raise PeerLimitError(
                "the sessions and links of this connection, or of all connections, take too many bytes"
            )
        self.channels[channel] = session
        session.phase = after(SESSION_TRANSITIONS, session.phase, BEGIN)
        if not self.client:
            self.write(
                frames.begin_frame(
                    channel,
                    channel,
                    session.next_outgoing_id,
                    INCOMING_WINDOW_TRANSFERS,
                    INCOMING_WINDOW_TRANSFERS,
                    self.handle_max,
                )
            )
        if not session.ended:
            events.append(Begun(session))

    def _on_end(self, channel: int, session: Session, fields: list[Any], events: list[AmqpEvent]) -> None:
        error = frames.error_field(fields, 0)
        ours = session.ended
        if not ours:
            session.end()
        session.phase = after(SESSION_TRANSITIONS, session.phase, END_RECEIVED)
        del self.channels[channel]
        if self.link_account is not None:
            self.link_account.give(LINK_OBJECT_BYTES)
        self.own_channels.pop(session.channel, None)
        if not ours or self.client:
            events.append(Ended(session, error))
