"""Decides by the first bytes of a stream whether the AMQP engine or the HTTP server gets it.

- AMQP clients start with `AMQP`, HTTP clients with a method; anything else is disconnected.
- After the decision the stream has a new protocol, and this object is out of the way.
- The deadline belongs to the caller, who is told when the stream is handed over or lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, cast

from twinbus.broker.connections.connection import BrokerConnection

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

logger = logging.getLogger(__name__)

_METHODS = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH ")


class Speech(Enum):
    """The protocol a peer uses."""

    UNDECIDED = 0
    AMQP = 1
    HTTP = 2
    NONSENSE = 3


def speech_of(head: bytes) -> Speech:
    """Classify the first bytes; undecided if they could still become a known start."""
    if head.startswith(b"AMQP"):
        return Speech.AMQP
    if head.startswith(_METHODS):
        return Speech.HTTP
    # At most seven bytes can be undecided, so the buffer needs no limit.
    if any(start.startswith(head) for start in (b"AMQP", *_METHODS)):
        return Speech.UNDECIDED
    return Speech.NONSENSE


class Doorway(asyncio.Protocol):
    """Holds a stream until its first bytes are known."""

    def __init__(self, host: NamespaceHost, on_end: Callable[[], None]) -> None:
        self._host = host
        # Called once, when the stream is handed over or lost; then None, to break the reference cycle.
        self._on_end: Callable[[], None] | None = on_end
        # None before it is connected, and after it is handed over or lost.
        self._transport: asyncio.Transport | None = None
        # Bytes received so far.
        self._head = b""
        # Loads the HTTP server; a reference, because the loop keeps only weak ones.
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._head += data
        if self._opening is not None:
            return
        speech = speech_of(self._head)
        if speech is Speech.AMQP:
            self._hand_over(BrokerConnection(self._host))
        elif speech is Speech.HTTP:
            # The rest stays in the socket until the HTTP server can read it.
            self._transport.pause_reading()
            self._opening = self._host.loop.create_task(self._open_http(self._transport))
        elif speech is Speech.NONSENSE:
            self.cut("a client spoke neither AMQP nor HTTP")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    async def _open_http(self, transport: asyncio.Transport) -> None:
        try:
            http = await self._host.http()
        except Exception:
            logger.exception("the HTTP server cannot be loaded")
            transport.abort()
            return
        if self._transport is None or transport.is_closing():
            return
        protocol = http.admit(transport)
        if protocol is None:
            self.cut("a client was refused: there are too many HTTP connections")
            return
        self._hand_over(protocol)
        transport.resume_reading()

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        transport = self._transport
        assert transport is not None
        self._end()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_closing():
            protocol.data_received(self._head)

    def forget(self) -> None:
        """Do not call `on_end` any more: the stream was never handed to us, or is being cut."""
        self._on_end = None

    def _end(self) -> None:
        self._transport = None
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def cut(self, reason: str) -> bool:
        """Drop the stream; False if there is none."""
        if self._transport is None:
            return False
        logger.info("%s: it is cut", reason)
        self._transport.abort()
        return True
