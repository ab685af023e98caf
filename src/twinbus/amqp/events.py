"""The events that `Connection.receive` returns, in wire order.

Two rules. An event reports what the engine has already done: a Detached link, for example, has already been answered.
No event refers to the input buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.states import AmqpError, State

if TYPE_CHECKING:
    from twinbus.amqp.link import Link
    from twinbus.amqp.session import Session


class AmqpEvent:
    """Base class of all events."""

    __slots__ = ()


class SaslInit(AmqpEvent):
    """Server: the client picked a mechanism; answer with `Connection.sasl_outcome`."""

    __slots__ = ("hostname", "mechanism", "response")

    def __init__(self, mechanism: str, response: bytes, hostname: str | None) -> None:
        # Always one of the mechanisms offered.
        self.mechanism = mechanism
        # The initial response; for PLAIN it is NUL, user, NUL, password.
        self.response = response
        # The host the client asked for, if any.
        self.hostname = hostname


class Opened(AmqpEvent):
    """The peer's open has arrived; `Connection.remote_open` holds it."""

    __slots__ = ()


class Begun(AmqpEvent):
    """A session has begun."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session


class Ended(AmqpEvent):
    """A session has ended, with all its links. `error` is the peer's, or ours if the peer broke the protocol."""

    __slots__ = ("error", "session")

    def __init__(self, session: Session, error: AmqpError | None) -> None:
        self.session = session
        # None for an orderly end.
        self.error = error


class Attached(AmqpEvent):
    """Server: the peer wants to attach a link; accept or refuse it. Client: the link is attached."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link


class Detached(AmqpEvent):
    """The peer detached a link; the engine has already answered."""

    __slots__ = ("closed", "error", "link")

    def __init__(self, link: Link, closed: bool, error: AmqpError | None) -> None:
        self.link = link
        # True if the peer closed the link, False if it only suspended it.
        self.closed = closed
        # None for an orderly detach.
        self.error = error


class Transfer(AmqpEvent):
    """A complete delivery has arrived."""

    __slots__ = ("delivery_id", "link", "message_format", "payload", "settled", "size", "state", "tag")

    def __init__(
        self,
        link: Link,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        settled: bool,
        payload: bytes | None,
        size: int,
        state: State | None,
    ) -> None:
        self.link = link
        # For `Session.settle`.
        self.delivery_id = delivery_id
        # Chosen by the sender; in Service Bus deliveries it is the lock token.
        self.tag = tag
        # 0 for a message, 0x80013700 for a batch.
        self.message_format = message_format
        self.settled = settled
        # The message, assembled from all frames; None if it was larger than the link allows.
        self.payload = payload
        # The message's size in bytes, also when the payload was discarded.
        self.size = size
        # A transactional state set by the sender; usually None.
        self.state = state


class Credit(AmqpEvent):
    """The credit or the drain flag of a sending link has changed."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link


class Drained(AmqpEvent):
    """Receiving: the peer has answered our drain and sends nothing more until we grant new credit."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link


class Disposed(AmqpEvent):
    """The peer, as receiver, has decided the outcome of our deliveries.

    If `settled`, the engine has forgotten them; otherwise the peer waits for `Session.answer`.
    """

    __slots__ = ("deliveries", "session", "settled", "state")

    def __init__(
        self, session: Session, deliveries: list[tuple[int, Link, bytes]], state: State | None, settled: bool
    ) -> None:
        self.session = session
        # Delivery id, link and tag of each delivery.
        self.deliveries = deliveries
        # None if the peer settled without a state.
        self.state = state
        self.settled = settled


class Outcome(AmqpEvent):
    """The peer, as sender, has answered our disposition of a range of its deliveries."""

    __slots__ = ("first", "last", "session", "settled", "state")

    def __init__(self, session: Session, first: int, last: int, state: State | None, settled: bool) -> None:
        self.session = session
        self.first = first
        # Inclusive.
        self.last = last
        # A rejection with an error means that our settlement failed.
        self.state = state
        self.settled = settled


class Closed(AmqpEvent):
    """The connection is over: write what `take_output` still returns, then close the socket."""

    __slots__ = ("error",)

    def __init__(self, error: AmqpError | None) -> None:
        # The peer's error, or ours if the peer broke the protocol; None for an orderly close.
        self.error = error
