"""A bare AMQP peer for tests: a blocking socket and the engine's client side, so that a test sees everything."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import AmqpEvent, Attached, Begun, Closed, Detached, Disposed, Opened, Outcome, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.session import Session
from twinbus.amqp.states import STATE_ACCEPTED, AmqpError, State, TransactionalState
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Symbol, UInt
from twinbus.testing import Broker

E = TypeVar("E", bound=AmqpEvent)

PATIENCE_S = 60.0


def connected(broker: Broker, namespace: str | None = None, port: int | None = None) -> socket.socket:
    """A socket to the namespace's port, or to another of its ports."""
    endpoint = broker.endpoint(namespace)
    made = socket.create_connection((endpoint.host, port or endpoint.port), timeout=PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Peer:
    """One connection with one session, driven step by step."""

    def __init__(
        self,
        broker: Broker,
        namespace: str | None = None,
        *,
        sasl: tuple[str, bytes] | None = ("ANONYMOUS", b""),
        over: Any = None,
        product: str = "peer",
        container: str = "peer",
        properties: dict[Symbol, Any] | None = None,
    ):
        # `over` is another stream to use: anything with a socket's sendall, recv, settimeout and close.
        self.socket = connected(broker, namespace) if over is None else over
        self.engine = Connection(
            Role.CLIENT,
            container_id=container,
            hostname="localhost",
            properties={Symbol("product"): product, **(properties or {})},
        )
        self.events: list[AmqpEvent] = []
        self.lost = False
        try:
            self.engine.start(sasl=sasl)
            self.flush()
            self.wait(Opened)
            self.session = self.begin()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # --- bytes ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        output = self.engine.take_output()
        while output:
            self.socket.sendall(output)
            self.engine.pump()
            output = self.engine.take_output()

    def read(self, timeout_s: float) -> bool:
        """Read what the broker sends next; False if it sends nothing in time."""
        self.flush()
        self.socket.settimeout(timeout_s)
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.lost = True
            return False
        self.events += self.engine.receive(data)
        if not self.engine.closed:
            self.flush()
        return True

    def wait(self, kind: type[E], match: Callable[[E], bool] = lambda _: True, patience_s: float = PATIENCE_S) -> E:
        """Remove and return the next event of that kind; the others stay."""
        end = time.monotonic() + patience_s
        while True:
            for event in self.events:
                if isinstance(event, kind) and match(event):
                    self.events.remove(event)
                    return event
            left = end - time.monotonic()
            if left <= 0 or self.lost:
                raise AssertionError(f"no {kind.__name__}; lost={self.lost}, events: {self.events}")
            self.read(left)

    def quiet(self, kind: type[AmqpEvent], for_s: float = 0.15) -> bool:
        """Whether no event of that kind comes for a while; the absence of an event can only be waited for."""
        end = time.monotonic() + for_s
        while (left := end - time.monotonic()) > 0:
            self.read(left)
            if self.lost:
                break
        return not any(isinstance(event, kind) for event in self.events)

    # --- links ------------------------------------------------------------------------------------------------------

    def begin(self) -> Session:
        session = self.engine.begin()
        self.flush()
        self.wait(Begun, lambda event: event.session is session)
        return session

    def sender(self, address: str, **options: Any) -> Link:
        link = self.session.attach_sender(str(uuid.uuid4()), source=Source("peer"), target=Target(address), **options)
        self._answered(link)
        return link

    def _answered(self, link: Link) -> None:
        """Wait for the answer to an attach; a refusal stays in the list for `refusal`."""
        while not any(isinstance(event, Detached) and event.link is link for event in self.events):
            attached = [event for event in self.events if isinstance(event, Attached) and event.link is link]
            if attached:
                self.events.remove(attached[0])
                return
            assert self.read(PATIENCE_S), "the attach is not answered"

    def receiver(
        self, address: str, credit: int = 0, *, settled: bool = False, session_filter: Any = ..., **options: Any
    ) -> Link:
        filters = None if session_filter is ... else {Symbol("com.microsoft:session-filter"): session_filter}
        link = self.session.attach_receiver(
            str(uuid.uuid4()),
            source=Source(address, filters),
            target=Target("peer"),
            snd_settle_mode=1 if settled else 0,
            rcv_settle_mode=0 if settled else 1,
            **options,
        )
        self._answered(link)
        if credit:
            link.flow(credit)
            self.flush()
        return link

    def refusal(self, attach: Callable[[], Link]) -> AmqpError:
        """The error with which an attach is refused."""
        link = attach()
        detached = self.wait(Detached, lambda event: event.link is link)
        assert detached.error is not None
        return detached.error

    # --- messages ---------------------------------------------------------------------------------------------------

    def send(self, link: Link, message: AmqpMessage | bytes, *, message_format: int = 0) -> State | None:
        """Send and wait for the outcome."""
        payload = message if isinstance(message, bytes) else message.encode()
        delivery_id = link.send(payload, tag=uuid.uuid4().bytes, settled=False, message_format=message_format)
        self.flush()
        disposed = self.wait(Disposed, lambda event: any(each[0] == delivery_id for each in event.deliveries))
        return disposed.state

    def receive(self, link: Link, patience_s: float = PATIENCE_S) -> Transfer:
        return self.wait(Transfer, lambda event: event.link is link, patience_s)

    def settle(self, delivery: Transfer, state: bytes = STATE_ACCEPTED) -> State | None:
        """Settle and wait for the echo; in a transaction it leaves the delivery open."""
        delivery.link.session.dispose(delivery.delivery_id, delivery.delivery_id, state, False)
        self.flush()
        outcome = self.wait(Outcome, lambda event: event.first <= delivery.delivery_id <= event.last)
        assert outcome.settled is not isinstance(outcome.state, TransactionalState)
        return outcome.state

    def close(self) -> AmqpError | None:
        self.engine.close()
        self.flush()
        return self.wait(Closed).error

    # --- requests ---------------------------------------------------------------------------------------------------

    def request(self, node: str, operation: str, body: Any, **properties: Any) -> AmqpMessage:
        """A management request and its response."""
        name = str(uuid.uuid4())
        receiver = self.session.attach_receiver(name, source=Source(node), target=Target(name))
        self.flush()
        self.wait(Attached, lambda event: event.link is receiver)
        receiver.flow(10)
        sender = self.sender(node)
        request = AmqpMessage()
        request.message_id = str(uuid.uuid4())
        request.reply_to = name
        request.application_properties = {"operation": operation, **properties}
        request.value, request.has_value = body, True
        assert self.send(sender, request) is not None
        response = AmqpMessage.decode(self.receive(receiver).payload or b"")
        assert response.correlation_id == request.message_id
        if node == "$cbs":
            # A connection has one pair at a time.
            for link in (sender, receiver):
                link.detach()
                self.flush()
                self.wait(Detached, lambda event, gone=link: event.link is gone)
        return response

    def call(self, node: str, operation: str, body: dict[str, Any]) -> tuple[int, str | None, Any]:
        """Status, condition and body of a management answer."""
        response = self.request(node, operation, body, **{"com.microsoft:server-timeout": UInt(10_000)})
        properties = response.application_properties or {}
        condition = properties.get("errorCondition")
        return int(properties["statusCode"]), None if condition is None else str(condition), response.value

    def put_token(self, audience: str, token: str) -> int:
        response = self.request("$cbs", "put-token", token, type="jwt", name=audience)
        return int((response.application_properties or {})["status-code"])


def text(body: str = "hello", **fields: Any) -> AmqpMessage:
    """A message with text as its body."""
    message = AmqpMessage()
    message.message_id = str(uuid.uuid4())
    message.data = [body.encode()]
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def decoded(delivery: Transfer) -> AmqpMessage:
    assert delivery.payload is not None
    return AmqpMessage.decode(delivery.payload)


def body_of(delivery: Transfer) -> str:
    return b"".join(decoded(delivery).data or []).decode()
