"""What the paired client knows about the SDK's internals. No other file uses undocumented parts of the SDK.

- The SDK's own encoder encodes messages, so that the backlog contains what the primary would have contained.
- The SDK cannot be told to give up a hanging open or connection. Instead its socket is cut, and whoever waits for it
  gets an error.
- The SDK measures a send's timeout with the wall clock. Its senders get the fair clock instead: otherwise, after the
  wall clock is set back, they would wait that much longer than the caller's timeout; and a process that got no CPU
  would blame the primary.
- `tests/paired/test_sdk_internals.py` shows what a new SDK version has changed.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceiveMode, ServiceBusSender
from azure.servicebus._common.constants import MGMT_REQUEST_MESSAGE, MGMT_REQUEST_MESSAGES
from azure.servicebus._common.tracing import is_tracing_enabled, trace_message
from azure.servicebus._common.utils import _convert_to_single_service_bus_message, transform_outbound_messages
from azure.servicebus._pyamqp import sender as _sender
from azure.servicebus._pyamqp.aio import _sender_async
from azure.servicebus._pyamqp.error import AuthenticationException, TokenAuthFailure
from azure.servicebus._servicebus_sender import SenderMixin
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio import ServiceBusSender as AsyncServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from twinbus.client import delivered_part
from twinbus.paired.starvation import async_fair_s, fair_s

T = TypeVar("T")

# The index of the data in the SDK's batch.
_DATA = 5
CONTEXTS_MAX = 16

for _module, _now in ((_sender, fair_s), (_sender_async, async_fair_s)):
    _module.time = SimpleNamespace(**{**vars(time), "time": _now})  # type: ignore[attr-defined]


# --- messages ---------------------------------------------------------------------------------------------------------


def encoded(message: Any) -> list[bytes]:
    """The encoded messages of anything that an SDK sender accepts; raises what the SDK's `send_messages` would."""
    if isinstance(message, ServiceBusMessageBatch):
        return [bytes(each) for each in message._message[_DATA]]
    ready = transform_outbound_messages(message, ServiceBusMessage, PyamqpTransport.to_outgoing_amqp_message)
    if isinstance(ready, list):
        return [_encoded(each) for each in ready]
    try:
        return [_encoded(ready)]
    except Exception as error:
        # The SDK encodes a single message while it sends it, and wraps whatever happens there.
        raise PyamqpTransport.create_servicebus_exception(_LOGGER, error) from error


def encoded_schedule(messages: Any, when: Any) -> list[bytes]:
    """The same for `schedule_messages`, which sets the time on the messages."""
    ready = transform_outbound_messages(messages, ServiceBusMessage, PyamqpTransport.to_outgoing_amqp_message)
    request, _ = SenderMixin._build_schedule_request(  # type: ignore[no-untyped-call]
        when, PyamqpTransport, {}, *(ready if isinstance(ready, list) else [ready])
    )
    if not isinstance(when, datetime | int):
        # The service would refuse it, and nobody is there to be told when the message comes home.
        raise ServiceBusError(f"Scheduling messages failed. schedule_time_utc is {when!r}: it must be a datetime.")
    return [bytes(each[MGMT_REQUEST_MESSAGE]) for each in request[MGMT_REQUEST_MESSAGES]]


def _encoded(message: ServiceBusMessage) -> bytes:
    if is_tracing_enabled():  # type: ignore[no-untyped-call]
        message._message = trace_message(message._message, amqp_transport=PyamqpTransport)  # type: ignore[arg-type]
    return bytes(PyamqpTransport.encode_message(message))


def is_ready(message: Any, reserved: frozenset[Any]) -> bool:
    """Whether it is a message with an id and without reserved application property names.

    Uses attributes, because the public properties are calls, which would cost a healthy send more than all the rest.
    """
    if type(message) is not ServiceBusMessage:
        return False
    raw = message._raw_amqp_message
    own = raw._application_properties
    try:
        return (
            raw._properties is not None
            and raw._properties.message_id is not None
            and (not own or reserved.isdisjoint(own))
        )
    except TypeError:
        # Not a mapping: the SDK has an error for that.
        return False


def with_content(message: Any, raw: AmqpAnnotatedMessage) -> ServiceBusMessage:
    """A copy of the message with another content; a subclass keeps what it has of its own."""
    if not isinstance(message, ServiceBusMessage):
        return ServiceBusMessage(None, message=None, raw_amqp_message=raw)
    copied = copy(message)
    copied._raw_amqp_message = raw
    return copied


def shallow_copy(original: T) -> T:
    """Like copy.copy for the SDK's own classes, but three times as fast, which matters to a healthy send."""
    copied = object.__new__(type(original))
    copied.__dict__.update(original.__dict__)
    return copied


def data_body(raw: AmqpAnnotatedMessage) -> Any:
    """The data sections of a message as given; None for another kind of body."""
    return getattr(raw, "_data_body", None)


def messages_of(batch: ServiceBusMessageBatch) -> list[ServiceBusMessage]:
    """The messages in a batch."""
    return batch._messages


def extend(batch: ServiceBusMessageBatch, payloads: Iterable[bytes], size_bytes: int) -> None:
    """Add encoded messages to a batch, which then has this size."""
    added = list(payloads)
    batch._message[_DATA].extend(added)
    batch._size = size_bytes
    batch._count += len(added)


def copied_batch(batch: ServiceBusMessageBatch) -> ServiceBusMessageBatch:
    """A batch with the same messages, to which the caller cannot add."""
    copied = shallow_copy(batch)
    copied._message = [list(part) if at == _DATA else part for at, part in enumerate(batch._message)]
    copied._messages = list(batch._messages)
    return copied


def batch_like(batch: ServiceBusMessageBatch, max_size_in_bytes: int) -> ServiceBusMessageBatch:
    """An empty batch of the same kind."""
    return ServiceBusMessageBatch(
        max_size_in_bytes, amqp_transport=batch._amqp_transport, tracing_attributes=batch._tracing_attributes
    )


class LinkLimits(NamedTuple):
    """The largest message and the largest batch that an entity takes."""

    message_bytes: int
    batch_bytes: int

    def check(self, payloads: Sequence[bytes], path: str, *, together: bool) -> None:
        """Raise MessageSizeExceededError as the SDK would, alone or together as a batch."""
        size, limit = max(map(len, payloads)), self.message_bytes
        if together:
            size, limit = sum(map(len, payloads)), self.batch_bytes
        if size > limit:
            text = f"{len(payloads)} message(s) of {size} bytes exceed the limit of '{path}': {limit} bytes."
            raise MessageSizeExceededError(message=f"{text} Nothing was sent.")


def link_limits(sender: Any) -> LinkLimits | None:
    """What the link of an open SDK sender takes; None if it has not said so."""
    message_bytes, batch_bytes = sender._max_message_size_on_link, sender._max_batch_size_on_link
    return LinkLimits(message_bytes, batch_bytes) if message_bytes and batch_bytes else None


# --- errors -----------------------------------------------------------------------------------------------------------


def failed_to_connect(error: BaseException) -> bool:
    """Whether a WebSocket could not be opened: the SDK reports some causes as failed authentication."""
    cause = getattr(error, "inner_exception", None)
    return isinstance(cause, AuthenticationException) and isinstance(cause.inner_error, Exception)


def refused_token(error: BaseException) -> tuple[int, str | None] | None:
    """Status and text of the answer if the SDK error was caused by a refused token; otherwise None."""
    cause = getattr(error, "inner_exception", None)
    # Without an answer the status is 0, None, or not a number.
    if not isinstance(cause, TokenAuthFailure) or not isinstance(cause.status_code, int) or cause.status_code < 400:
        return None
    text = cause.status_description
    return cause.status_code, text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def condition_of(error: BaseException) -> str | None:
    """The AMQP condition from the service, if any."""
    condition = getattr(error, "_condition", None)
    if condition is None:
        return None
    if isinstance(condition, bytes):
        return condition.decode("ascii", "replace")
    return str(getattr(condition, "value", condition))


# --- senders and receivers --------------------------------------------------------------------------------------------

_LOGGER = logging.getLogger("azure.servicebus")
# By class, unless something has already replaced them.
_SDK_SENDS = {
    kind: kind.send_messages
    for kind in (ServiceBusSender, AsyncServiceBusSender)
    if type(kind.send_messages) is FunctionType and kind.send_messages.__globals__ is vars(sys.modules[kind.__module__])
}


def send_one(sender: Any, message: ServiceBusMessage, timeout_s: float) -> None:
    """The SDK's `send_messages` for a message that `is_ready`, on a sender that does not retry.

    Does the same on an open link without tracing, but asks once, not three times, whether there is tracing, and has no
    loop of retries: what a healthy send saves here is more than what the pair adds to it.
    """
    if _takes_detours(sender):
        sender.send_messages(message, timeout=timeout_s)
        return
    transport = sender._amqp_transport
    _convert_to_single_service_bus_message(message, ServiceBusMessage, transport.to_outgoing_amqp_message)
    try:
        transport.send_messages(sender, message, _LOGGER, timeout_s, None)
    except Exception as error:
        raise sender._handle_exception(error) from None


async def async_send_one(sender: Any, message: ServiceBusMessage, timeout_s: float) -> None:
    """The same for an asyncio sender."""
    if _takes_detours(sender):
        await sender.send_messages(message, timeout=timeout_s)
        return
    transport = sender._amqp_transport
    _convert_to_single_service_bus_message(message, ServiceBusMessage, transport.to_outgoing_amqp_message)
    try:
        await transport.send_messages_async(sender, message, _LOGGER, timeout_s, None)
    except Exception as error:
        raise await sender._handle_exception(error) from None


def _takes_detours(sender: Any) -> bool:
    """Whether a send does more than send: it opens the link, refuses, traces, or has its own timeout; or a tool that
    watches the SDK has replaced its method, and must see every send."""
    kind = type(sender)
    return (
        not sender._running
        or kind.send_messages is not _SDK_SENDS.get(kind)
        or sender._shutdown.is_set()
        or sender._config.try_timeout is not None
        or is_tracing_enabled()  # type: ignore[no-untyped-call]
    )


def is_running(handler: Any) -> bool:
    """Whether an SDK sender or receiver believes its link is up."""
    return bool(getattr(handler, "_running", False))


def remote_properties(handler: Any) -> dict[Any, Any]:
    """What the peer of an open SDK sender or receiver said about itself when the connection was opened."""
    connection = getattr(getattr(handler, "_handler", None), "_connection", None)
    return getattr(connection, "_remote_properties", None) or {}


def is_shut(handler: Any) -> bool:
    """Whether an SDK sender or receiver was closed, by itself or with its client."""
    return bool(handler._shutdown.is_set())


def deletes(receiver: Any) -> bool:
    """Whether an SDK receiver uses receive-and-delete."""
    return bool(receiver._receive_mode == ServiceBusReceiveMode.RECEIVE_AND_DELETE)


class Payloads:
    """The raw bytes of messages arriving at an asyncio receiver.

    The SDK loses AMQP types when it decodes messages, and cannot decode all of them: one with a decimal128 ends its
    connection. So it gets only what it needs to settle one, and never sees the rest.
    """

    def __init__(self, receiver: Any) -> None:
        self._receiver = receiver
        # By delivery tag.
        self._payloads: dict[bytes, bytes] = {}
        # The pieces and tag of the message that is arriving.
        self._pieces = bytearray()
        self._tag = b""

    async def watch(self) -> None:
        """Open the link and watch every transfer. The SDK creates a new link when one is lost."""
        await self._receiver._open()
        link = getattr(getattr(self._receiver, "_handler", None), "_link", None)
        if link is None or getattr(link, "_twinbus_watched", False):
            return
        incoming = link._incoming_transfer

        async def watched(frame: Any) -> None:
            if frame[1] is not None and not self._pieces:
                self._tag = bytes(frame[2])
            self._pieces += frame[11]
            seen = memoryview(b"")
            if not frame[5]:
                payload = self._payloads[self._tag] = bytes(self._pieces)
                self._pieces.clear()
                seen = memoryview(delivered_part(payload))
            await incoming([*frame[:11], seen, *frame[12:]])

        link._incoming_transfer = watched
        link._twinbus_watched = True

    def take(self, message: Any) -> bytes:
        """Remove and return the bytes of a received message."""
        return self._payloads.pop(bytes(message._delivery_tag), b"")


class Connections:
    """The connections that an SDK sender or receiver opens, so that they can be cut."""

    __slots__ = ("_clients", "transports")

    def __init__(self, handler: Any) -> None:
        # The SDK forgets a client that failed to open, and with it a connection that it has not closed.
        clients: list[Any] = []
        self._clients = clients
        # Connections that were cut, but not closed yet.
        self.transports: list[Any] = []
        made = ref(handler)
        create = type(handler)._create_handler

        def create_and_note(auth: Any) -> None:
            handler = made()
            create(handler, auth)
            clients[:] = [each for each in clients if each._connection is not None]
            clients.append(handler._handler)  # type: ignore[union-attr]
            _share_authorities(handler._handler)  # type: ignore[union-attr]
            _close_for_certain(handler._handler)  # type: ignore[union-attr]

        handler._create_handler = create_and_note

    def progress(self) -> object:
        """Changes whenever an opening gets on: connected, another frame has arrived, another state."""
        found = []
        for client in self._clients:
            connection, session, link = client._connection, client._session, client._link
            found.append(
                (
                    connection is not None and (connection._transport.connected, connection.state),
                    connection is not None and connection._last_frame_received_time,
                    session is not None and session.state,
                    link is not None and link.state,
                )
            )
        return found

    def cut(self) -> None:
        """Cut all connections without notifying the peer."""
        for client in self._clients:
            # Ends the thread or task that keeps the connection alive.
            client._shutdown = True
            connection = client._connection
            if connection is not None:
                self.transports.append(connection._transport)
                with suppress(Exception):
                    _cut(connection._transport)
        self._clients.clear()


# By file, its date and its size: TLS contexts with its certificates.
_contexts: dict[tuple[str, int, int], ssl.SSLContext] = {}


def _share_authorities(client: Any) -> None:
    """Give a client a TLS context that has loaded its certificate authorities already.

    The SDK loads the file for every connection, the asyncio client even for those without TLS. That takes three
    quarters of the CPU time of an opening, and keeps the event loop from everything else meanwhile.
    """
    options = client._ssl_opts
    if set(options) != {"ca_certs"} or not (client._use_tls or hasattr(client, "open_async")):
        return
    path = options["ca_certs"]
    # What is wrong with the file is for the SDK to say.
    with suppress(OSError, TypeError, ValueError):
        status = os.stat(path)
        key = (path, status.st_mtime_ns, status.st_size)
        context = _contexts.get(key)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(path)
            # A process uses a few files; one that is replaced again and again must not fill the memory.
            if len(_contexts) >= CONTEXTS_MAX:
                _contexts.clear()
            _contexts[key] = context
        client._ssl_opts = {"context": context}


def _close_for_certain(client: Any) -> None:
    """Make a client close its transport when it is closed: the SDK leaves a broken one to the garbage collector."""
    made = ref(client)
    kind = type(client)

    def close() -> None:
        client: Any = made()
        connection = client._connection
        try:
            kind.close(client)
        finally:
            if connection is not None:
                with suppress(Exception):
                    connection._transport.close()

    async def close_async() -> None:
        client: Any = made()
        connection = client._connection
        try:
            await kind.close_async(client)
        finally:
            if connection is not None:
                with suppress(Exception):
                    await connection._transport.close()

    if hasattr(client, "close_async"):
        client.close_async = close_async
    else:
        client.close = close


def _cut(transport: Any) -> None:
    writer = getattr(transport, "writer", None)
    if writer is not None:
        writer.transport.abort()
        return
    sock: Any = getattr(transport, "sock", None)
    if hasattr(sock, "get_extra_info"):
        # aiohttp's WebSocket.
        sock = sock.get_extra_info("socket")
    # The threaded WebSocket wraps its socket.
    sock = getattr(sock, "sock", sock)
    if isinstance(sock, socket.socket):
        # Not a TLS socket's own method, which would take its state from the thread that reads.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    elif sock is not None:
        sock.shutdown(socket.SHUT_RDWR)
