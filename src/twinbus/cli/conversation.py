"""A short talk with a broker: connect, put a token, ask, hang up.

Rules:
- One thing at a time over a blocking socket: a command waits for its answer anyway.
- Every wait has an end, and every way it can go wrong is one of our errors with a text for people.
"""

from __future__ import annotations

import socket
import ssl
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Attached, Closed, Detached, Disposed, Ended, Event, Opened, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import AmqpError, Rejected
from twinbus.amqp.terminus import Source, Target
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import sign
from twinbus.clock import SystemClock
from twinbus.errors import (
    ConnectionForcedError,
    OperationTimeoutError,
    ProtocolError,
    ServiceError,
    TwinbusError,
    UnauthorizedError,
)

PATIENCE_S = 30.0
TOKEN_LIFE_S = 300
_READ_BYTES = 1 << 18
# Answers come one at a time; a few in hand cost nothing.
_CREDIT = 10


class Conversation:
    """One connection to a namespace, used with `with`."""

    def __init__(self, broker: ConnectionString, patience_s: float = PATIENCE_S, ca_file: Path | None = None) -> None:
        # The namespace and the secret for it.
        self._broker = broker
        # How long one read may take.
        self._patience_s = patience_s
        # The CA to trust; None is the system's list.
        self._ca_file = ca_file
        # AMQP.
        self._engine = Connection(Role.CLIENT, container_id=f"twinbus-cli-{uuid.uuid4().hex}", hostname=broker.host)
        # The connection; set by `__enter__`.
        self._socket: socket.socket
        # What the broker said and nobody has looked at yet.
        self._events: list[Event] = []

    def __enter__(self) -> Conversation:
        host, port = self._broker.address
        try:
            self._socket = socket.create_connection((host, port), self._patience_s)
            if not self._broker.emulator:
                context = ssl.create_default_context(cafile=self._ca_file)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLError as error:
            raise ConnectionForcedError(f"There is no TLS with {host}:{port}: {error}.") from None
        except OSError as error:
            raise ConnectionForcedError(f"Nobody answers at {host}:{port}: {error}.") from None
        try:
            self._engine.start(sasl=("ANONYMOUS", b""))
            self._until(Opened)
            self._session = self._engine.begin()
        except BaseException as error:
            self._socket.close()
            if type(error) is ServiceError:  # a condition of AMQP's own: it does not speak as we do
                raise ConnectionForcedError(f"What answers at {host}:{port} is not a broker: {error}.") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._engine.close()
            self._flush()
        except TwinbusError:
            pass  # it is gone already, which is what we want
        self._socket.close()

    def log_in(self, path: str) -> None:
        """Put a token for `path`."""
        audience = f"sb://{self._broker.netloc}/{path}"
        token = self._broker.signature
        if token is None:
            expiry_s = SystemClock().now_ms() // 1000 + TOKEN_LIFE_S
            token = sign(audience, self._broker.key_name or "", self._broker.key or "", expiry_s)
        properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
        answer = self._request("$cbs", properties, token)
        status, text = answer.get("status-code"), str(answer.get("status-description", ""))
        if not _good(status):
            raise UnauthorizedError(f"The broker does not accept the connection string's key: {text}")

    def ask(self, node: str, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        """A request to a management node, and the map it answers."""
        answer = self._request(node, {"operation": operation}, body)
        if not _good(answer.get("statusCode")):
            raise _service_error(str(answer.get("errorCondition", "")), str(answer.get("statusDescription", "")))
        value = answer[""]
        return value if isinstance(value, dict) else {}

    def _request(self, node: str, properties: dict[str, Any], body: Any) -> dict[str, Any]:
        """The answer's application properties, with its body under the empty name."""
        name = uuid.uuid4().hex
        answers = self._session.attach_receiver(name, source=Source(node), target=Target(name), credit=_CREDIT)
        requests = self._session.attach_sender(f"{name}-requests", source=Source(name), target=Target(node))
        self._up(answers, requests)
        message = AmqpMessage.of_value(body)
        message.message_id = name
        message.reply_to = name
        message.application_properties = properties
        while requests.sendable() < 1:
            self._read()
        requests.send(message.encode(), tag=b"\0", settled=False)
        while True:
            for event in self._taken():
                if isinstance(event, Disposed) and isinstance(event.state, Rejected):
                    error = event.state.error or AmqpError("", "", None)
                    raise _service_error(error.condition, error.description or "")
                if isinstance(event, Transfer) and event.link is answers and event.payload is not None:
                    return self._answer(event.payload, answers, requests)
            self._read()

    def _answer(self, payload: bytes, *links: Link) -> dict[str, Any]:
        try:
            message = AmqpMessage.decode(payload)
        except ProtocolError as error:
            raise ConnectionForcedError(f"The broker's answer cannot be read: {error}") from None
        for link in links:
            link.detach()
        return {**(message.application_properties or {}), "": message.value}

    def _up(self, *links: Link) -> None:
        """Wait until links are attached; the detach of a refused one follows at once, and ends the next read."""
        waiting = set(links)
        while waiting:
            self._read()
            waiting -= {event.link for event in self._taken() if isinstance(event, Attached)}

    def _until(self, kind: type[Event]) -> None:
        while not any(isinstance(event, kind) for event in self._taken()):
            self._read()

    def _taken(self) -> list[Event]:
        """The events since the last look."""
        events, self._events = self._events, []
        return events

    def _read(self) -> None:
        self._flush()
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise OperationTimeoutError(f"The broker did not answer within {self._patience_s:.0f} seconds.") from None
        except OSError as error:
            raise ConnectionForcedError(f"The connection to the broker broke: {error}.") from None
        if not data:
            raise ConnectionForcedError("The broker closed the connection.")
        for event in self._engine.receive(data):
            if isinstance(event, Detached | Ended | Closed) and event.error is not None:
                raise _service_error(event.error.condition, event.error.description or "")
            if isinstance(event, Closed):
                raise ConnectionForcedError("The broker closed the connection.")
            self._events.append(event)

    def _flush(self) -> None:
        try:
            while output := self._engine.take_output():
                self._socket.sendall(output)
                self._engine.pump()
        except OSError as error:
            raise ConnectionForcedError(f"The connection to the broker broke: {error}.") from None


def _good(status: object) -> bool:
    return isinstance(status, int) and 200 <= status < 300


def _service_error(condition: str, text: str) -> ServiceError:
    """Our error for a condition; the text is the broker's."""
    for kind in ServiceError.__subclasses__():
        if kind.condition == condition:
            return kind(text or condition)
    return ServiceError(text or condition or "The broker refused without a reason.")
