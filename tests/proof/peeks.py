"""Questions asked right after a command, before the disk has answered: what memory has done already must show.

Promise: a message that a client has received and deleted, completed, dead-lettered, cancelled or deleted is in no peek
that it sends afterwards, however soon; one that it has given back is in every peek. Sessions, their states and counts
agree. The same over TLS.
"""

from __future__ import annotations

import random
import ssl
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.broker.peer import Peer, connected, decoded, text
from tests.proof.suite import Budget, Suite
from twinbus.amqp.events import Attached, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import STATE_ACCEPTED, STATE_REJECTED_NO_ERROR, state_modified
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import ARRAY_OF_LONG, Array, Int, Symbol, Timestamp
from twinbus.broker.commits import CommitLoop
from twinbus.clock import SystemClock
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

ABANDONED = state_modified(True, False, None)
DEFERRED = state_modified(False, True, None)
SEQUENCE_NUMBER = Symbol("x-opt-sequence-number")
SCHEDULED_TIME = Symbol("x-opt-scheduled-enqueue-time")


class Desk:
    """A management node over links that stay open."""

    def __init__(self, peer: Peer, node: str) -> None:
        self._peer = peer
        self._name = str(uuid.uuid4())
        self._answers = peer.session.attach_receiver(self._name, source=Source(node), target=Target(self._name))
        peer.flush()
        peer.wait(Attached, lambda event: event.link is self._answers)
        self._answers.flow(1_000_000)
        self._requests = peer.sender(node)

    def ask(self, operation: str, **fields: Any) -> tuple[int, Any]:
        request = AmqpMessage()
        request.message_id, request.reply_to = str(uuid.uuid4()), self._name
        request.application_properties = {"operation": operation}
        request.value = {name.replace("_", "-"): value for name, value in fields.items()}
        request.has_value = True
        self._requests.send(request.encode(), tag=uuid.uuid4().bytes, settled=True)
        answer = decoded(self._peer.receive(self._answers))
        return int((answer.application_properties or {})["statusCode"]), answer.value


class Client:
    """One connection with a queue and a session queue of its own."""

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.plain, self.grouped = f"plain{number}", f"grouped{number}"
        self.desk = Desk(peer, f"{self.plain}/$management")
        self.group_desk = Desk(peer, f"{self.grouped}/$management")
        self.root = Desk(peer, "$management")
        self.sender, self.group_sender = peer.sender(self.plain), peer.sender(self.grouped)
        self.receiver = peer.receiver(self.plain)
        self.deleter = peer.receiver(self.plain, settled=True)

    # --- parts --------------------------------------------------------------------------------------------------------

    def received(self, link: Link) -> tuple[Transfer, int]:
        """The next message and its sequence number."""
        link.flow(1)
        delivery = self.peer.receive(link)
        return delivery, (decoded(delivery).message_annotations or {})[SEQUENCE_NUMBER]

    def sent(self) -> tuple[Transfer, int]:
        """Send a message, and receive it with a lock."""
        self.peer.send(self.sender, text("m"))
        return self.received(self.receiver)

    def settled(self, delivery: Transfer, state: bytes) -> None:
        """Settle without waiting for an answer."""
        delivery.link.session.dispose(delivery.delivery_id, delivery.delivery_id, state, True)

    def peeked(self, desk: Desk, **fields: Any) -> list[int]:
        _, body = desk.ask("com.microsoft:peek-message", message_count=Int(10), **fields)
        found = [AmqpMessage.decode(entry["message"]) for entry in (body or {}).get("messages", ())]
        return [(message.message_annotations or {})[SEQUENCE_NUMBER] for message in found]

    def counted(self, path: str) -> dict[str, int]:
        return dict(self.root.ask("twinbus:get-queue", name=path)[1]["queue"])

    # --- rounds: each returns what is wrong ---------------------------------------------------------------------------

    def deferred(self) -> object:
        delivery, seq = self.sent()
        self.peer.settle(delivery, DEFERRED)
        numbers = Array([seq], ARRAY_OF_LONG)
        ask = self.desk.ask("com.microsoft:receive-by-sequence-number", sequence_numbers=numbers)
        return ask[0] != 200 or self.peeked(self.desk)

    def completed(self) -> object:
        self.settled(self.sent()[0], STATE_ACCEPTED)
        return self.peeked(self.desk) or self.counted(self.plain)["active_messages"]

    def dead_lettered(self) -> object:
        self.settled(self.sent()[0], STATE_REJECTED_NO_ERROR)
        return self.peeked(self.desk)

    def abandoned(self) -> object:
        delivery, seq = self.sent()
        self.settled(delivery, ABANDONED)
        wrong = self.peeked(self.desk) != [seq]
        self.settled(self.received(self.receiver)[0], STATE_ACCEPTED)
        return wrong

    def put_off(self) -> object:
        """Deferred without an answer: the state in the peek is the new one."""
        delivery, seq = self.sent()
        self.settled(delivery, DEFERRED)
        _, body = self.desk.ask("com.microsoft:peek-message", message_count=Int(1))
        message = AmqpMessage.decode(body["messages"][0]["message"])
        state = (message.message_annotations or {}).get(Symbol("x-opt-message-state"))
        numbers = Array([seq], ARRAY_OF_LONG)
        while self.desk.ask("com.microsoft:receive-by-sequence-number", sequence_numbers=numbers)[0] != 200:
            pass  # its deferral is not on disk yet
        return state != 1 or self.peeked(self.desk)

    def deleted(self) -> object:
        self.peer.send(self.sender, text("m"))
        self.received(self.deleter)
        return self.peeked(self.desk)

    def cancelled(self) -> object:
        later = {SCHEDULED_TIME: Timestamp(SystemClock().now_ms() + 3_600_000)}
        payload = text("later", message_annotations=later).encode()
        _, body = self.desk.ask("com.microsoft:schedule-message", messages=[{"message-id": "m", "message": payload}])
        (seq,) = body["sequence-numbers"]
        wrong = self.peeked(self.desk) != [seq]
        self.desk.ask("com.microsoft:cancel-scheduled-message", sequence_numbers=Array([seq], ARRAY_OF_LONG))
        return wrong or self.peeked(self.desk) or self.counted(self.plain)["scheduled_messages"]

    def deleted_in_a_batch(self) -> object:
        self.peer.send(self.sender, text("m"))
        later = Timestamp(SystemClock().now_ms() + 1_000)
        self.desk.ask("com.microsoft:batch-delete-messages", message_count=Int(10), enqueued_time_utc=later)
        return self.peeked(self.desk) or self.counted(self.plain)["active_messages"]

    def in_a_session(self) -> object:
        """Abandoned, it is still in its session; completed, the session is gone. Its state is the one that was set."""
        desk, session_id = self.group_desk, uuid.uuid4().hex
        self.peer.send(self.group_sender, text("m", group_id=session_id))
        link = self.peer.receiver(self.grouped, session_filter=session_id)
        delivery, seq = self.received(link)
        self.settled(delivery, ABANDONED)
        wrong = self.peeked(desk, session_id=session_id) != [seq]
        desk.ask("com.microsoft:set-session-state", session_id=session_id, session_state=b"state")
        state = desk.ask("com.microsoft:get-session-state", session_id=session_id)[1]["session-state"]
        desk.ask("com.microsoft:set-session-state", session_id=session_id, session_state=None)
        wrong = wrong or state != b"state"
        self.settled(self.received(link)[0], STATE_ACCEPTED)
        wrong = wrong or bool(self.peeked(desk, session_id=session_id))
        listed = desk.ask("com.microsoft:get-message-sessions", top=Int(100), skip=Int(0))[1]
        link.detach()
        self.peer.flush()
        return wrong or session_id in list((listed or {}).get("sessions-ids", ()))


OTHERS = (
    Client.completed,
    Client.dead_lettered,
    Client.abandoned,
    Client.put_off,
    Client.deleted,
    Client.cancelled,
    Client.deleted_in_a_batch,
    Client.in_a_session,
)


@contextmanager
def clients() -> Iterator[list[tuple[str, Client]]]:
    """A plain connection, and one over TLS, to the same broker."""
    queues = [QueueSettings(path=f"plain{number}", lock_duration_ms=300_000) for number in range(2)]
    queues += [QueueSettings(path=f"grouped{number}", requires_session=True) for number in range(2)]
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(queues=queues))
        plain = stack.enter_context(Peer(broker))
        context = ssl.create_default_context(cafile=str(broker.ca_file))
        stream = context.wrap_socket(connected(broker), server_hostname="localhost")
        secure = stack.enter_context(Peer(broker, over=stream))
        yield [("plaintext", Client(plain, 0)), ("TLS", Client(secure, 1))]


def run(budget: Budget) -> str:
    """Peek right after receiving a deferred message, and after another command: what is gone must not be shown."""
    tried: Counter[str] = Counter()
    with clients() as some:
        for chance in budget:
            for told, client in some:
                for command in (Client.deferred, _other(chance)):
                    wrong = command(client)
                    tried[command.__name__] += 1
                    assert not wrong, f"round {budget.tried} over {told}, {command.__name__}: {wrong}"
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(tried.items()))
    return f"{budget.tried:,} rounds over each of plaintext and TLS, 0 wrong ({told})"


def _other(chance: random.Random) -> Any:
    return chance.choice(OTHERS)


@contextmanager
def planted() -> Iterator[None]:
    """A peek reads what is on disk, whatever waits for it."""
    sound = CommitLoop.index_row
    CommitLoop.index_row = lambda self, key, value: value  # type: ignore[method-assign]
    try:
        yield
    finally:
        CommitLoop.index_row = sound  # type: ignore[method-assign]


SUITE = Suite("rounds", 40, 10_000, run, planted)
