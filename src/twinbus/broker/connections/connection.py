"""One client's connection: a socket, the AMQP engine, and the owners of its links.

Bytes go into the engine, and its events go to the owner of each link. The engine's output is written once per turn of
the event loop. A peer that closes in an orderly way keeps its locks until they expire; one that vanishes loses them at
once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from twinbus.amqp.connection import Connection as Engine
from twinbus.amqp.connection import Role
from twinbus.amqp.events import (
    AmqpEvent,
    Attached,
    Begun,
    Closed,
    Credit,
    Detached,
    Ended,
    Opened,
    Outcome,
    SaslInit,
)
from twinbus.amqp.link import Link
from twinbus.amqp.states import AmqpError
from twinbus.auth.claims import Claim, decide_key
from twinbus.broker.connections.attachment import Attachment, trim
from twinbus.broker.connections.claims import ConnectionClaims
from twinbus.broker.connections.description import describe_connection, trim_open
from twinbus.broker.connections.event_routes import route
from twinbus.broker.connections.patience import Patience, drop_unsent, unsent_bytes
from twinbus.broker.faults import FaultyStream
from twinbus.broker.links.session_answers import SessionAnswers
from twinbus.broker.links.transactions import ConnectionTransactions
from twinbus.broker.memory import Memory, MemoryKind
from twinbus.broker.nodes.requests import ReplyLinks
from twinbus.broker.slices import Work
from twinbus.errors import (
    ConnectionForcedError,
    EntityNotFoundError,
    PeerLimitError,
    ServiceError,
    UnauthorizedError,
)
from twinbus.limits import (
    HANDSHAKE_TIMEOUT_MS,
    INPUT_STEP_FRAMES,
    LINKLESS_TIMEOUT_MS,
    LINKS_PER_CONNECTION_MAX,
    PARTIAL_BYTES_MAX,
    SLICE_EVENTS,
    STRANGER_FRAME_BYTES_MAX,
    STRANGER_FRAMES_MAX,
    STRANGER_INPUT_BYTES_MAX,
    STRANGER_LINKS_MAX,
    STRANGER_SESSIONS_MAX,
    TOKEN_MESSAGE_BYTES_MAX,
    TOKEN_TIMEOUT_MS,
    WRITE_BUFFER_BYTES_HIGH,
    WRITE_BUFFER_BYTES_MAX,
    WRITTEN_LOOK_MS,
)

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.links.browser import Browser
    from twinbus.broker.links.consumer import Consumer

logger = logging.getLogger(__name__)


class BrokerConnection(asyncio.Protocol):
    """The asyncio side of one AMQP connection."""

    def __init__(self, host: NamespaceHost) -> None:
        self.host = host
        # SASL is optional: only PLAIN identifies the peer; otherwise tokens do.
        self.engine = Engine(
            Role.SERVER,
            container_id=host.container_id,
            properties=host.open_properties,
            capabilities=host.open_capabilities,
            require_sasl=False,
        )
        # The peer's address; "" until connected.
        self.address = ""
        # For administrators; both are set when the connection is admitted.
        self.number = 0
        self.opened_ms = 0
        # How many more bytes a peer without a token may send; None once it has one or needs none.
        self._stranger_bytes: int | None = None
        # About how many more frames: counted only where many come at once.
        self._stranger_frames = STRANGER_FRAMES_MAX
        # The same bytes, of the stream below a WebSocket.
        self._raw_bytes: int | None = None
        self.memory = Memory(host.memory)
        self.engine.frames_max = INPUT_STEP_FRAMES
        self.engine.partial_account = self.memory[MemoryKind.PARTIAL]
        self.engine.link_account = self.memory[MemoryKind.LINKS]
        self.claims = ConnectionClaims(host, self.memory[MemoryKind.LINKS])
        # Consumers with credit that wait because too many deliveries of their session are unsettled.
        self.crowded: set[Browser | Consumer] = set()
        # Consumers with credit that wait for the socket to accept earlier output.
        self.choked: set[Browser | Consumer] = set()
        # False from the high-water mark of unsent bytes until the low one.
        self.writable = True
        # None before it is connected and after it is lost.
        self._transport: asyncio.Transport | None = None
        # Whether a write is already scheduled for this turn of the loop.
        self._flushing = False
        # The next check of how much marked output is written; None if there are no marks.
        self._watching: asyncio.TimerHandle | None = None
        # Reading is paused while the disk is behind, or while the peer does not read our answers.
        self._held_back = False
        self._unread = False
        # The peer sent more than one turn of the loop can handle; reading is paused meanwhile.
        self._behind = False
        # Events to handle next, and bytes to parse after that.
        self._backlog: deque[AmqpEvent] = deque()
        self._unparsed = b""
        self._lost = False
        # Attached links.
        self._links: set[Link] = set()
        self.replies = ReplyLinks()
        # Set when either side has closed in an orderly way.
        self._orderly = False
        # Fires if the peer does not open, or does not present a token, in time.
        self._deadline: asyncio.TimerHandle | None = None
        # The same on the steady clock; 0 if there is no deadline.
        self._deadline_ms = 0
        # Disconnects a stalled peer; None before it is connected and after it is lost.
        self._patience: Patience | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self.transactions = ConnectionTransactions(self.memory[MemoryKind.TRANSACTIONS])
        # Applies a namespace fault to this connection's bytes; None if there never was one.
        self._faulty: FaultyStream | None = None
        # None once the socket is lost.
        self._attachment: Attachment | None = Attachment(self)
        # Handlers of events that do not go to a link's owner.
        self._handlers: dict[type[AmqpEvent], Any] = {
            Credit: self._on_credit,
            Attached: self._on_attached,
            Detached: self._on_detached,
            Ended: self._on_ended,
            Begun: self._on_begun,
            Opened: self._on_opened,
            SaslInit: self._on_sasl_init,
            Closed: self._on_closed,
            Outcome: self._on_outcome,
        }

    # --- the socket -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_HIGH)
        refusal = self.host.admit(self)
        if refusal is not None:
            logger.warning("connection refused: %s", refusal)
            self._transport.abort()
            return
        peer = self._transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if not self.host.dev:
            self._confine()
        self._patience = Patience(self.host.loop, self._transport, self.engine, self.cut)
        self._set_deadline(HANDSHAKE_TIMEOUT_MS)
        self.engine.heard(self.host.clock.steady_ms())

    def data_received(self, data: bytes) -> None:
        fault = self.host.faults.namespace
        if fault is not None or (self._faulty is not None and self._faulty.behind):
            self._stream().take(fault, data)
            return
        self._receive(data)

    def count_raw(self, count: int, frames: int) -> None:
        """Count a WebSocket's bytes and frames so far: before the token, an incomplete message may not exceed the limit
        either, and empty frames cost as much as others."""
        if self._raw_bytes is not None:
            self._raw_bytes -= count
            if self._raw_bytes < 0 or frames > STRANGER_FRAMES_MAX:
                self.cut("sent too much before its token")

    def _stream(self) -> FaultyStream:
        if self._faulty is None:
            self._faulty = FaultyStream(self.host, self._receive)
        return self._faulty

    def _receive(self, data: bytes) -> None:
        engine = self.engine
        if self._stranger_bytes is not None:
            self._stranger_bytes -= len(data)
            if self._stranger_bytes < 0:
                self.cut("sent too much before its token")
                return
        engine.heard(self.host.clock.steady_ms())
        if self._behind:
            self._unparsed += data
            return
        try:
            self._handle(self._parsed(data))
            while engine.more and not self._behind:
                if self.host.slices.over():
                    self._fall_behind(None, [])
                else:
                    self._handle(self._parsed(b""))
        except Exception as error:
            self.close(self.host.tracker.wire_error(error))
        # Most input is answered only after its commit. A detach may make room for consumers without any output.
        if engine.has_output() or engine.closed or self.choked:
            self.flush()
        if engine.held_bytes and self._patience is not None:
            self._patience.half(engine.held_bytes, len(data))
        if self.host.commits.crowded:
            self.host.hold_back(self)

    def _parsed(self, data: bytes) -> list[AmqpEvent]:
        """The next events; raises if a stranger sends too many frames, because empty ones cost as much as others."""
        events = self.engine.receive(data)
        if self.engine.more and self._stranger_bytes is not None:
            self._stranger_frames -= INPUT_STEP_FRAMES
            if self._stranger_frames <= 0:
                raise PeerLimitError(f"more than {STRANGER_FRAMES_MAX} frames came before a token was accepted")
        return events

    def _handle(self, events: list[AmqpEvent]) -> None:
        if self._behind:
            self._backlog.extend(events)
            return
        done, work = route(events, self._handlers, self.host.slices.over)
        if work is not None or done < len(events):
            self._fall_behind(work, events[done:])

    def _fall_behind(self, work: Work | None, rest: list[AmqpEvent]) -> None:
        """The peer sent more than this turn of the loop can handle: continue in later turns and pause reading."""
        self._behind = True
        self.host.commits.behind += 1
        self._backlog.extend(rest)
        if self._transport is not None:
            self._transport.pause_reading()
        self.host.slices.start(self._catch_up(work))

    def _catch_up(self, work: Work | None) -> Work:
        backlog = self._backlog
        try:
            if work is not None:
                yield from work
            while backlog or self._unparsed or self.engine.more:
                if not backlog:
                    piece, self._unparsed = self._unparsed, b""
                    backlog.extend(self._parsed(piece))
                events = [backlog.popleft() for _ in range(min(len(backlog), SLICE_EVENTS))]
                while events:
                    done, work = route(events, self._handlers)
                    events = events[done:]
                    if work is not None:
                        yield from work
                self.flush_soon()
                yield None
        except Exception as error:
            backlog.clear()
            self._unparsed = b""
            self.close(self.host.tracker.wire_error(error))
        self._behind = False
        self.host.commits.caught_up()
        self.flush_soon()
        if self._lost:
            yield from self._let_go()
        else:
            self._read_on()

    def do_in_slices(self, work: Work) -> None:
        """Run long work for the peer; if it fails, close the connection with the error."""
        self.host.slices.start(self._told_if_it_fails(work))

    def _told_if_it_fails(self, work: Work) -> Work:
        try:
            yield from work
        except Exception as error:
            self.close(self.host.tracker.wire_error(error))
            self.flush_soon()

    def eof_received(self) -> bool:
        # The last moment at which the transport knows what it has written.
        self.look_at_marks()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for timer in (self._deadline, self._heartbeat, self._expiry, self._watching):
            if timer is not None:
                timer.cancel()
        if self._patience is not None:
            self._patience.stop()
            self._patience = None
        self.host.strangers.remove(self)
        self.host.forget(self)
        self._lost = True
        if not self._behind:
            self.host.slices.start(self._let_go())

    def _let_go(self) -> Work:
        """The socket is lost and all input is handled: leave the links one by one."""
        yield from self._leaving(list(self._links), self._orderly)
        self.claims.close()
        # Break the reference cycles; otherwise only the garbage collector could free them, and it runs rarely.
        self._handlers = {}
        self._attachment = None
        self.engine.lost()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._unread = False
        self._read_on()
        self.flush()

    def room_bytes(self) -> int:
        """How many bytes of messages may be sent now, given what the peer has not read yet."""
        if not self.writable:
            return 0
        engine = self.engine
        return WRITE_BUFFER_BYTES_HIGH - engine.output_bytes - engine.waiting_bytes

    def make_room(self) -> None:
        """A delivery was settled: let consumers that waited for that try again."""
        crowded, self.crowded = self.crowded, set()
        for consumer in crowded:
            consumer.resume()

    def hold_back(self) -> None:
        """Pause reading until `relieve`: the disk is behind."""
        self._held_back = True
        if self._transport is not None:
            self._transport.pause_reading()

    def relieve(self) -> None:
        self._held_back = False
        self._read_on()

    def _read_on(self) -> None:
        transport = self._transport
        if self._held_back or self._unread or self._behind or transport is None or transport.is_closing():
            return
        if transport.is_reading():
            return
        transport.resume_reading()
        if self._patience is not None:
            self._patience.resumed()

    def flush_soon(self) -> None:
        """Write the engine's output at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self.host.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the engine's output."""
        self._flushing = False
        transport = self._transport
        if transport is None:
            return
        engine = self.engine
        output = engine.take_output()
        if output:
            self._write(transport, output)
        # A large delivery goes out in steps, each after the socket has accepted the previous one.
        while engine.halted and self.writable:
            self._handle(engine.pump())
            self._write(transport, engine.take_output())
        if engine.marks:
            self.look_at_marks()
        if self.choked and self.room_bytes() > 0:
            choked, self.choked = self.choked, set()
            for consumer in choked:
                consumer.resume()
        if engine.closed:
            transport.close()

    def _write(self, transport: asyncio.Transport, output: bytes) -> None:
        if self._faulty is not None and self._faulty.lost:
            return
        transport.write(output)
        waiting = transport.get_write_buffer_size()
        if self._patience is not None:
            self._patience.written += len(output)
            if waiting:
                self._patience.waiting()
        if waiting > WRITE_BUFFER_BYTES_MAX:
            # Messages stop long before this: these are answers. A peer that does not read them may not send more
            # requests.
            self._unread = True
            transport.pause_reading()

    def look_at_marks(self) -> None:
        """Tell consumers which of their messages are written; check again later if some are not."""
        transport = self._transport
        # A closing transport no longer knows what it had not written.
        if transport is None or not self.engine.marks or transport.is_closing():
            return
        for owner, sent in self.engine.written(unsent_bytes(transport)):
            owner.on_written(sent)
        if self.engine.marks and self._watching is None:
            # A transport reports when its buffer is nearly empty, but not how full it is; only polling tells.
            self._watching = self.host.loop.call_later(WRITTEN_LOOK_MS / 1000, self._look_again)

    def _look_again(self) -> None:
        self._watching = None
        self.look_at_marks()

    def close(self, error: AmqpError | None) -> None:
        """Close the connection from our side."""
        # A last chance for receive-and-delete messages, which leave the queue once written.
        self.flush()
        self.engine.close(error)
        self._orderly = True
        self._leave_links(orderly=True)
        self.flush()

    @property
    def gone(self) -> bool:
        """Whether its socket is closed or closing."""
        return self._transport is None or self._transport.is_closing()

    def describe(self) -> dict[str, Any]:
        """What an administrator sees of the connection."""
        return describe_connection(self, self._transport, self._links)

    def abort(self) -> None:
        """Drop the socket without closing first, as a crash would."""
        if self._transport is not None:
            self._transport.abort()

    def cut(self, what: str) -> None:
        """Drop the socket, with a reason for the log."""
        logger.info("a client %s: its connection is cut", what)
        if self._transport is not None:
            drop_unsent(self._transport)
        self.abort()

    # --- events from the peer ---------------------------------------------------------------------------------------

    def _on_outcome(self, event: Outcome) -> None:
        """A sender disposed of its own deliveries: each was settled with its answer, so there is nothing to do."""

    def _on_credit(self, event: Credit) -> None:
        owner = event.link.context
        if owner is not None:
            owner.on_credit()

    def _on_attached(self, event: Attached) -> None:
        if not self._links and self.known:
            self._set_deadline(0)
        link = event.link
        self._links.add(link)
        session = link.session
        if session.context is None:
            session.context = SessionAnswers(self, session)
        session.context.links.add(link)
        if self._attachment is not None:
            self._attachment.attach(link)
            trim(link)

    def _on_detached(self, event: Detached) -> None:
        self._leave(event.link, orderly=True)

    def _on_ended(self, event: Ended) -> None:
        self._leave_links(True, list(event.session.context.links) if event.session.context is not None else [])

    def _on_begun(self, event: Begun) -> None:
        pass

    def _on_opened(self, event: Opened) -> None:
        if self.engine.remote_open is not None:
            trim_open(self.engine.remote_open)
        self._set_deadline(LINKLESS_TIMEOUT_MS if self.known else TOKEN_TIMEOUT_MS)
        self._beat()

    def _on_sasl_init(self, event: SaslInit) -> None:
        if event.mechanism != "PLAIN":
            self._handle(self.engine.sasl_outcome(True))
            return
        _, _, rest = event.response.partition(b"\0")
        user, _, password = rest.partition(b"\0")
        try:
            claim = decide_key(
                user.decode("utf-8", "replace"), password.decode("utf-8", "replace"), self.host.policies, self.host.dev
            )
            self.claims.add("", claim)
        except UnauthorizedError as error:
            self.host.refusals.add(error.reason, self.address, policy=error.policy)
            pause_ms = self.host.wrong_keys.pause_ms(self.address)
            self.host.loop.call_later(pause_ms / 1000, self._refuse_key)
            return
        self._set_free()
        self._handle(self.engine.sasl_outcome(True))

    def _refuse_key(self) -> None:
        if self._transport is not None:
            self._handle(self.engine.sasl_outcome(False))
            self.flush()

    def _on_closed(self, event: Closed) -> None:
        # If we closed because of malformed frames, that is not orderly: treat the peer as vanished.
        self._orderly = event.error is None
        self._leave_links(self._orderly)

    # --- rights -----------------------------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Whether the peer is authenticated or need not be."""
        return bool(self.claims) or self.host.dev

    def _confine(self) -> None:
        """Restrict the peer until it presents a valid token: clients without a key must not hold up those with one."""
        engine = self.engine
        engine.links_max = STRANGER_LINKS_MAX
        engine.sessions_max = STRANGER_SESSIONS_MAX
        engine.partial_bytes_max = TOKEN_MESSAGE_BYTES_MAX
        engine.control_bytes_max = STRANGER_FRAME_BYTES_MAX
        self._stranger_bytes = self._raw_bytes = STRANGER_INPUT_BYTES_MAX
        self.host.strangers.add(self)

    def _set_free(self) -> None:
        if self._stranger_bytes is None:
            return
        engine = self.engine
        engine.links_max = LINKS_PER_CONNECTION_MAX
        engine.sessions_max = engine.channel_max + 1
        engine.partial_bytes_max = PARTIAL_BYTES_MAX
        engine.control_bytes_max = engine.frame_bytes_max
        self._stranger_bytes = self._raw_bytes = None
        self.host.strangers.remove(self)

    def evict(self) -> None:
        """Disconnect: others are waiting to present a token, and this peer had its chance."""
        self.cut("put no token, and others wait")

    def add_claim(self, audience: str, claim: Claim) -> None:
        self.claims.add(audience, claim)
        self._set_free()
        self._set_deadline(0 if self._links else LINKLESS_TIMEOUT_MS)
        self._watch_expiry()

    def _watch_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        wait_s = self.claims.wait_s()
        if wait_s is None:
            return
        # Timers have a maximum wait, and a check once a day costs nothing.
        self._expiry = self.host.loop.call_later(min(max(wait_s, 0.05), 86_400), self.check_claims)

    def check_time(self) -> None:
        """Check the time again: the clock was stepped or set."""
        if self._deadline_ms and self.host.clock.steady_ms() >= self._deadline_ms:
            self._too_slow()
        elif self.engine.remote_open is not None:
            self._beat()
            self.check_claims()

    def check_claims(self) -> None:
        """Forget expired claims and detach the links that no other claim covers."""
        self.claims.drop_expired()
        self._watch_expiry()
        self.host.slices.start(self._leaving_expired(list(self._links)))

    def _leaving_expired(self, links: list[Link]) -> Work:
        for number, link in enumerate(links, 1):
            error = self._attachment.expired(link) if self._attachment is not None else None
            if error is not None:
                link.detach(self.host.tracker.wire_error(error, address=self.address))
                self._leave(link, orderly=True)
            if number % SLICE_EVENTS == 0:
                self.flush_soon()
                yield None
        self._await_more()
        self.flush_soon()

    # --- links ------------------------------------------------------------------------------------------------------

    def addressed(self, error: ServiceError) -> ServiceError:
        """Make an error name a missing entity by its full address, as the client knows it."""
        if not isinstance(error, EntityNotFoundError):
            return error
        opened = self.engine.remote_open
        host = (opened.hostname if opened is not None else None) or self.host.name
        return EntityNotFoundError(error.text.replace("entity '", f"entity 'sb://{host}/", 1))

    def detach(self, link: Link, error: AmqpError) -> None:
        """Detach a link from our side, with the reason."""
        link.detach(error)
        self._leave(link, orderly=True)
        self.flush_soon()

    def refuse(self, link: Link, error: AmqpError) -> None:
        """Refuse an attach."""
        link.refuse(error)
        self._leave(link, orderly=True)
        self.flush_soon()

    def _leave(self, link: Link, orderly: bool) -> None:
        # A peer that leaves right after its last message was written has received it.
        self.look_at_marks()
        self._links.discard(link)
        session = link.session
        if session.context is not None:
            session.context.links.discard(link)
            if not session.context.links:
                # Break the reference cycle: only the garbage collector could free them.
                session.context = None
        if self._attachment is not None:
            self._attachment.forget(link)
        owner = link.context
        if owner is not None:
            link.context = None
            owner.on_detached(orderly)
        self._await_more()
        if self.crowded:
            self.make_room()

    def _leave_links(self, orderly: bool, links: list[Link] | None = None) -> None:
        # Before the transport closes and forgets what it has not written.
        self.look_at_marks()
        self.host.slices.start(self._leaving(list(self._links) if links is None else links, orderly))

    def _leaving(self, links: list[Link], orderly: bool) -> Work:
        for number, link in enumerate(links, 1):
            self._leave(link, orderly)
            if number % SLICE_EVENTS == 0:
                yield None

    # --- time -------------------------------------------------------------------------------------------------------

    def _set_deadline(self, wait_ms: int) -> None:
        """Give the peer this long for its next step; 0 means forever."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._deadline_ms = self.host.clock.steady_ms() + wait_ms if wait_ms else 0
        if wait_ms:
            self._deadline = self.host.loop.call_later(wait_ms / 1000, self._too_slow)

    def _await_more(self) -> None:
        """Start a deadline for a peer without a token or without a link."""
        # A running deadline continues: attaching and detaching must not postpone it.
        if self._deadline_ms or self._transport is None or self.engine.closed:
            return
        if not self.known:
            self._set_deadline(TOKEN_TIMEOUT_MS)
        elif not self._links:
            self._set_deadline(LINKLESS_TIMEOUT_MS)

    def _too_slow(self) -> None:
        self._set_deadline(0)
        if self.engine.remote_open is None:
            logger.info("a client did not open its connection in time: it is cut")
            self.abort()
        elif self.known:
            logger.info("a client had no link for a long time: its connection is closed")
            text = f"The connection was without a link for {LINKLESS_TIMEOUT_MS} milliseconds and is closed."
            self.close(self.host.tracker.wire_error(ConnectionForcedError(text)))
        else:
            logger.info("a client put no valid token in time: its connection is closed")
            text = f"The connection has no valid token: put one to $cbs within {TOKEN_TIMEOUT_MS // 1000} seconds."
            self.close(self.host.tracker.wire_error(ConnectionForcedError(text)))

    def _beat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        now_ms = self.host.clock.steady_ms()
        next_ms = self.engine.tick(now_ms)
        if self.engine.timed_out:
            logger.info("a client fell silent: its connection is cut")
            self.abort()
            return
        self.flush()
        if next_ms is not None:
            self._heartbeat = self.host.loop.call_later(max(next_ms - now_ms, 50) / 1000, self._beat)
