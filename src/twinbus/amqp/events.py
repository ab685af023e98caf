"""What the engine tells its owner.

`Connection.receive` returns these in wire order. Two rules: an event says what has already happened to the engine's own
state (a Detached link has already been answered), and nothing in an event refers to the input buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.states import AmqpError, State

if TYPE_CHECKING:
    from twinbus.amqp.link import Link
    from twinbus.amqp.session import Session


class AmqpEvent:
    """The root of all events."""

    __slots__ = ()


class SaslInit(AmqpEvent):
    """Server: the client picked a mechanism; answer with `Connection.sasl_outcome`."""

    __slots__ = ("hostname", "mechanism", "response")

    def __init__(self, mechanism: str, response: bytes, hostname: str | None) -> None:
        # The mechanism the client picked; always one of those offered.
        self.mechanism = mechanism
        # The initial response: for PLAIN a NUL, the user, a NUL, the password.
        self.response = response
        # The host the client wants to talk to, if it said so.
        self.hostname = hostname


class Opened(AmqpEvent):
    """The peer's open has arrived; `Connection.remote_open` holds it."""

    __slots__ = ()


class Begun(AmqpEvent):
    """A session is up."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session


class Ended(AmqpEvent):
    """A session is over, with all its links; `error` is the peer's, or ours when the peer broke the protocol."""

    __slots__ = ("error", "session")

    def __init__(self, session: Session, error: AmqpError | None) -> None:
        self.session = session
        # Why; None for an orderly end.
        self.error = error


class Attached(AmqpEvent):
    """Server: the peer asks for a link, answer with accept or refuse. Client: the link is up."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        # The link asked for, or now up.
        self.link = link


class Detached(AmqpEvent):
    """The peer detached a link; the engine has already answered."""

    __slots__ = ("closed", "error", "link")

    def __init__(self, link: Link, closed: bool, error: AmqpError | None) -> None:
        self.link = link
        # Whether the peer destroyed the link rather than suspending it.
        self.closed = closed
        # Why; None for an orderly detach.
        self.error = error


class Transfer(AmqpEvent):
    """A whole delivery has arrived."""

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
        # Its number in the session, for `Session.settle`.
        self.delivery_id = delivery_id
        # The sender's tag; for Service Bus deliveries the lock token.
        self.tag = tag
        # 0 for a message, 0x80013700 for a batch.
        self.message_format = message_format
        self.settled = settled
        # The bytes of all its frames; None when it was larger than the link allows.
        self.payload = payload
        # How many bytes it had, also when the payload was thrown away.
        self.size = size
        # The state the sender put on it (a transaction), usually None.
        self.state = state


class Credit(AmqpEvent):
    """The credit or the drain flag of a sending link changed."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        # The link that may send more, or is asked to drain.
        self.link = link


class Drained(AmqpEvent):
    """Receiving: the peer has answered our drain, no more deliveries come without new credit."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link


class Disposed(AmqpEvent):
    """The peer, as receiver, says what became of our deliveries.

    When `settled` the engine has forgotten them; otherwise it waits for `Session.answer`.
    """

    __slots__ = ("deliveries", "session", "settled", "state")

    def __init__(
        self, session: Session, deliveries: list[tuple[int, Link, bytes]], state: State | None, settled: bool
    ) -> None:
        self.session = session
        # Delivery id, link and tag of each.
        self.deliveries = deliveries
        # What became of them; None when the peer settled without a word.
        self.state = state
        self.settled = settled


class Outcome(AmqpEvent):
    """The peer, as sender, answers our settlement of a range of its deliveries."""

    __slots__ = ("first", "last", "session", "settled", "state")

    def __init__(self, session: Session, first: int, last: int, state: State | None, settled: bool) -> None:
        self.session = session
        self.first = first
        # The last delivery id of the range, included.
        self.last = last
        # The peer's word on it; a rejection with an error means that the settlement failed.
        self.state = state
        self.settled = settled


class Closed(AmqpEvent):
    """The conversation is over: write what `take_output` still holds, then close the socket."""

    __slots__ = ("error",)

    def __init__(self, error: AmqpError | None) -> None:
        # The peer's reason, or ours when the peer broke the protocol; None for an orderly close.
        self.error = error
