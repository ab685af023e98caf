"""`$management`: an entity's operations by request and response.

Each operation checks its right, does its work, and answers after the commit that makes it durable. Operations and
fields have the service's names, including the spelling `defered`.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twinbus.amqp.states import ACCEPTED, AmqpError, Modified, Rejected, State
from twinbus.amqp.types import ARRAY_OF_LONG, ARRAY_OF_STRING, ARRAY_OF_TIMESTAMP, Array, Int, Timestamp
from twinbus.auth.policies import Right
from twinbus.broker.links.addresses import MANAGEMENT
from twinbus.broker.links.settlement import settle_all
from twinbus.broker.messages.browsing import browse
from twinbus.broker.messages.damage import UNREADABLE, put_aside_at_rest, whole
from twinbus.broker.messages.stored import render, without_body
from twinbus.broker.metering.meter import REQUEST_KINDS
from twinbus.broker.nodes.directory import Directory
from twinbus.broker.nodes.requests import Request
from twinbus.broker.nodes.rule_wire import described, rule_of
from twinbus.broker.slices import Work
from twinbus.entities.dead_letter import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.entities.subscription import Subscription
from twinbus.entities.topic import Topic
from twinbus.errors import (
    ArgumentError,
    DamagedBodyError,
    EntityNotFoundError,
    MessageNotFoundError,
    NotAllowedError,
    ProtocolError,
    QuotaExceededError,
    ServiceError,
    UnsupportedError,
)
from twinbus.ledger.words import HOME_MARK, OK, Kind
from twinbus.limits import (
    BATCH_DELETE_MESSAGES_MAX,
    PEEK_BYTES_MAX,
    PEEK_MESSAGES_MAX,
    RULES_PAGE_MAX,
    SEQUENCE_NUMBERS_MAX,
    SESSIONS_PAGE_MAX,
)

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection
    from twinbus.broker.links.transactions import Transaction

_PREFIX = "com.microsoft:"
# The operations on an entity that the service does not have.
RESUBMIT = "twinbus:resubmit"
GET_HOME = "twinbus:get-home"

# From this "last updated" time on, every session with messages or state is listed.
_ANY_TIME_MS = 253_402_300_800_000

# What an operation returns for the meter: the size of each message involved, 0 if it carried none.
Sizes = list[int]

# What refuses a request; everything else is a mistake of ours.
_REFUSED = (ServiceError, ProtocolError, KeyError, TypeError, ValueError, OverflowError)

_DISPOSITIONS = {
    "completed": Kind.COMPLETE,
    "abandoned": Kind.ABANDON,
    "defered": Kind.DEFER,
    "suspended": Kind.DEAD_LETTER,
}


class EntityManagement:
    """The management node of one entity, or of the namespace if `path` is empty.

    Each request looks up the entity: while the link stays open it may be deleted and created again, even as another
    kind.
    """

    __slots__ = ("_connection", "_host", "_path")

    def __init__(self, connection: BrokerConnection, path: str) -> None:
        self._connection = connection
        self._host = connection.host
        # The path as the client wrote it; empty for the namespace.
        self._path = path

    def check(self, payload: bytes) -> None:
        """Nothing to check: a client that got this far has a token, so every request is decoded."""

    def handle(self, request: Request) -> Work | None:
        work: Work | None = None
        try:
            if not self._path:
                self._connection.claims.require(MANAGEMENT, Right.MANAGE)
                Directory(self._host).handle(request)
                self._count(request, OK, None)
            else:
                work = self._operate(request)
        except _REFUSED as error:
            self._refuse(request, error)
        self._host.commits.request_if_needed()
        self._connection.flush_soon()
        return None if work is None else self._later(request, work)

    def _later(self, request: Request, work: Work) -> Work:
        """Finish an operation in steps."""
        try:
            yield from work
            self._count(request, OK, None)
        except _REFUSED as error:
            self._refuse(request, error)
        self._host.commits.request_if_needed()
        self._connection.flush_soon()

    def _refuse(self, request: Request, error: Exception) -> None:
        if isinstance(error, ServiceError):
            self._fail(request, error)
        elif isinstance(error, ProtocolError):
            self._fail(request, ArgumentError(f"The request could not be read: {error}"))
        else:
            text = f"The request '{request.operation[:64]}' lacks or misuses a field: {error}"
            self._fail(request, ArgumentError(text))

    def _operate(self, request: Request) -> Work | None:
        queue = self._host.entities.entity(self._path)
        name = request.operation
        known = name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else name if name in (RESUBMIT, GET_HOME) else ""
        right, method = _OPERATIONS.get(known, (Right.MANAGE, None))
        topic_method = _TOPIC_OPERATIONS.get(known)
        if method is None or (isinstance(queue, Topic) and topic_method is None):
            raise UnsupportedError(f"The operation '{name[:64]}' is not known to this node.")
        # Some clients put a token for the node, others for its entity. Both cover the node's path.
        self._connection.claims.require(f"{self._path}/{MANAGEMENT}", right)
        if request.txn_id is not None and not _fits_transactions(known, request):
            raise UnsupportedError(f"The operation '{name[:64]}' cannot be part of a transaction.")
        if not isinstance(queue, Topic):
            done = method(self, queue, request)
        else:
            assert topic_method is not None
            done = topic_method(self, queue, request)
        if done is None or isinstance(done, list):
            self._count(request, OK, done)
            return None
        return done

    def _count(self, request: Request, outcome: str, sizes: Sequence[int] | None) -> None:
        """Count the request: one operation per message, given their sizes; one if it involved none."""
        kind = REQUEST_KINDS.get(request.operation, Kind.MANAGE)
        if kind is Kind.SETTLE:
            kind = _DISPOSITIONS.get(str(request.arguments.get("disposition-status")), Kind.SETTLE)
        self._host.meter.entity(self._counted_path()).counter(kind, outcome).add_many(sizes or ())

    def _counted_path(self) -> str:
        """The entity's own spelling. Deleted entities are not named, or clients could invent any number of names."""
        try:
            return self._host.entities.entity(self._path).path if self._path else ""
        except EntityNotFoundError:
            return ""

    def _fail(self, request: Request, error: ServiceError) -> None:
        wire_error = self._host.tracker.wire_error(error, self._path, self._connection.address)
        self._count(request, wire_error.condition, None)
        request.answer_management(error.status, wire_error.description, None, wire_error.condition)

    def _after_commit(self, request: Request, body: dict[str, Any]) -> None:
        """Answer 200 with `body` once the effect is on disk."""
        self._host.commits.facts.then.append((_succeed, (request, body, self._connection)))

    def _transaction(self, txn_id: bytes, entity: Queue | Topic, request: Request) -> Transaction:
        return self._connection.transactions.join(txn_id, request.session, entity)

    # --- sending ----------------------------------------------------------------------------------------------------

    def schedule(self, queue: Queue | Topic, request: Request) -> Sizes:
        host = self._host
        if host.store.full:
            raise QuotaExceededError(
                "The disk that holds this namespace is full: receive messages or make room, then retry."
            )
        now_ms = host.clock.now_ms()
        messages: list[NewMessage] = []
        for entry in _list(request, "messages"):
            payload = entry["message"]
            if not isinstance(payload, bytes):
                raise ArgumentError("Each of 'messages' needs its 'message' as binary.")
            message = host.intake.message(payload, now_ms, queue.settings.default_ttl_ms)
            if message.scheduled_ms is None:
                raise ArgumentError("A message to schedule needs the annotation x-opt-scheduled-enqueue-time.")
            messages.append(message)
        if request.txn_id is not None:
            transaction = self._transaction(request.txn_id, queue, request)
            numbers = transaction.schedule(queue, messages, host.commits.facts)
            # After a commit: until then, a crash would give the numbers to other messages.
            self._after_commit(request, {"sequence-numbers": Array(numbers, ARRAY_OF_LONG)})
            return []
        numbers = queue.schedule(messages, now_ms, host.commits.facts)
        self._after_commit(request, {"sequence-numbers": Array(numbers, ARRAY_OF_LONG)})
        return [message.size for message in messages]

    def cancel(self, queue: Queue | Topic, request: Request) -> Sizes:
        numbers = _numbers(request)
        if request.txn_id is not None:
            self._transaction(request.txn_id, queue, request).cancel(queue, numbers)
            request.answer_management(200, "OK", {})
            return []
        queue.cancel(numbers, self._host.clock.now_ms(), self._host.commits.facts)
        self._after_commit(request, {})
        return [0] * len(numbers)

    # --- browsing ---------------------------------------------------------------------------------------------------

    def peek(self, queue: Queue | Topic, request: Request) -> Sizes:
        arguments = request.arguments
        first = max(int(arguments.get("from-sequence-number") or 0), 0)
        count = int(arguments["message-count"])
        if count < 1:
            raise ArgumentError(f"message-count {count} is out of range: 1 to {PEEK_MESSAGES_MAX}.")
        count = min(count, PEEK_MESSAGES_MAX)
        session_id = arguments.get("session-id")
        # One snapshot for index and bodies: a commit between the two could delete a body.
        with self._host.store.snapshot():
            payloads = self._peeked(queue, first, count, None if session_id is None else str(session_id))
        if arguments.get("omit-message-body"):
            payloads = [{"message": without_body(each["message"])} for each in payloads]
        if payloads:
            request.answer_management(200, "OK", {"messages": payloads})
        else:
            request.answer_management(204, "No messages.", None, MessageNotFoundError.condition)
        return [len(each["message"]) for each in payloads]

    def _peeked(self, queue: Queue | Topic, first: int, count: int, session_id: str | None) -> list[dict[str, bytes]]:
        host = self._host
        payloads: list[dict[str, bytes]] = []
        size = 0
        while len(payloads) < count:
            wanted = count - len(payloads)
            if session_id is not None and isinstance(queue, Queue) and queue.settings.requires_session:
                found = queue.peek_session(session_id, first, wanted, host.clock.now_ms())
            else:
                found = browse(host, queue, first, wanted)
            for message in found:
                first = message.seq + 1
                try:
                    payload = render(host.store.body(message.body_number), message)
                except (DamagedBodyError, *UNREADABLE) as error:
                    put_aside_at_rest(host, queue, message.seq, error)
                    continue
                size += len(payload)
                if payloads and size > PEEK_BYTES_MAX:
                    return payloads
                payloads.append({"message": payload})
            if len(found) < wanted:
                break
        return payloads

    def list_sessions(self, queue: Queue, request: Request) -> Work:
        arguments = request.arguments
        updated_ms = int(arguments.get("last-updated-time") or _ANY_TIME_MS)
        after_ms = None if updated_ms >= _ANY_TIME_MS else updated_ms
        if queue.sessions is not None:
            yield from queue.sessions.blocks.counted(after_ms)
        skip = max(int(arguments.get("skip") or 0), 0)
        top = min(max(int(arguments.get("top") or SESSIONS_PAGE_MAX), 1), SESSIONS_PAGE_MAX)
        found = queue.list_sessions(after_ms, skip, top)
        if not found:
            request.answer_management(204, "No sessions.", None, "com.microsoft:session-not-found")
            return
        request.answer_management(
            200, "OK", {"skip": Int(skip + len(found)), "sessions-ids": Array(found, ARRAY_OF_STRING)}
        )

    # --- receiving and settling -------------------------------------------------------------------------------------

    def receive_deferred(self, queue: Queue, request: Request) -> Sizes:
        host = self._host
        now_ms = host.clock.now_ms()
        facts = host.commits.facts
        lock = int(request.arguments.get("receiver-settle-mode") or 0) == 1
        session = self._session(queue, request)
        numbers = _numbers(request)
        # Messages to be deleted are locked, too: nobody has them until the answer is written.
        messages = queue.receive_deferred(numbers, now_ms, facts, session=session)
        asked = bool(messages)
        messages, bodies = whole(host, queue, messages)
        if asked and not messages:
            raise MessageNotFoundError("The messages are damaged and were set aside.")
        entries: list[dict[str, Any]] = []
        for message, body in zip(messages, bodies, strict=True):
            token = message.token if lock else None
            entries.append(
                {
                    "lock-token": uuid.UUID(bytes_le=token) if token else uuid.UUID(int=0),
                    "message": render(body, message, token),
                }
            )
        if lock:
            self._after_commit(request, {"messages": entries})
        else:
            tokens = [message.token for message in messages if message.token]
            delivered = functools.partial(self._settle_delivered, queue, tokens)
            request.answer_management(200, "OK", {"messages": entries}, delivered=delivered)
        return [len(entry["message"]) for entry in entries]

    def _settle_delivered(self, queue: Queue, tokens: list[bytes], delivered: bool) -> None:
        """Delete received-and-deleted deferred messages once they are written to the socket; otherwise release them."""
        commits = self._host.commits
        now_ms = self._host.clock.now_ms()
        for token in tokens:
            with contextlib.suppress(ServiceError):  # the lock expired, or the entity was deleted
                (queue.complete if delivered else queue.release)(token, now_ms, commits.facts)
        commits.request_if_needed()

    def renew(self, queue: Queue, request: Request) -> Sizes:
        now_ms = self._host.clock.now_ms()
        tokens = _tokens(request)
        for token in tokens:
            queue.check_lock(token, now_ms)
        renewed = {token: Timestamp(queue.renew(token, now_ms)) for token in tokens}
        expirations = [renewed[token] for token in _named_tokens(request)]
        request.answer_management(200, "OK", {"expirations": Array(expirations, ARRAY_OF_TIMESTAMP)})
        return [0] * len(expirations)

    def update_disposition(self, queue: Queue, request: Request) -> Sizes:
        now_ms = self._host.clock.now_ms()
        state = _outcome_of(request.arguments)
        tokens = _tokens(request)
        if request.txn_id is not None:
            self._transaction(request.txn_id, queue, request).settle_all(queue, tokens, state, now_ms)
            request.answer_management(200, "OK", {})
            return []
        settle_all(dict.fromkeys(tokens, (queue, state)), now_ms, self._host.commits.facts)
        self._after_commit(request, {})
        return [0] * len(tokens)

    def delete_batch(self, queue: Queue, request: Request) -> Sizes:
        arguments = request.arguments
        count = int(arguments["message-count"])
        if not 1 <= count <= BATCH_DELETE_MESSAGES_MAX:
            raise ArgumentError(f"message-count {count} is out of range: 1 to {BATCH_DELETE_MESSAGES_MAX}.")
        now_ms = self._host.clock.now_ms()
        before_ms = int(arguments.get("enqueued-time-utc") or now_ms)
        session_id = arguments.get("session-id")
        deleted = queue.delete_batch(
            count, before_ms, now_ms, self._host.commits.facts, None if session_id is None else str(session_id)
        )
        if deleted:
            self._after_commit(request, {"message-count": Int(deleted)})
        else:
            request.answer_management(204, "No messages.", None, MessageNotFoundError.condition)
        return [0] * deleted

    def get_home(self, queue: Queue, request: Request) -> None:
        """Whose backlog this queue holds, for a syphon that may only listen, and whether anybody receives from it."""
        metadata = queue.settings.user_metadata
        home = metadata if metadata is not None and metadata.startswith(HOME_MARK) else None
        receivers = len(self._host.dispatcher(queue).consumers)
        request.answer_management(200, "OK", {"home": home, "receivers": Int(receivers)})

    def resubmit(self, queue: Queue, request: Request) -> Sizes:
        """Return dead letters of this node's entity to the entity that dead-lettered them."""
        owner = queue.owner
        if owner is None:
            raise ArgumentError(f"'{queue.path}' is no dead-letter queue: only dead letters can be resubmitted.")
        self._connection.claims.require(f"{self._path}/{MANAGEMENT}", Right.SEND)
        arguments, now_ms = request.arguments, self._host.clock.now_ms()
        numbers = arguments.get("sequence-numbers")
        wanted = None if numbers is None else [int(each) for each in numbers]
        after = int(arguments.get("after-sequence-number") or 0)
        done = owner.resubmit(queue, wanted, after, now_ms, self._host.commits.facts)
        self._host.meter.entity(owner.path).counter(Kind.SEND).count += done.moved
        told = {"resubmitted": Int(done.moved), "refused": Int(done.refused), "last-sequence-number": done.last_seq}
        self._after_commit(request, told)
        return [0] * done.moved

    # --- sessions ---------------------------------------------------------------------------------------------------

    def renew_session(self, queue: Queue, request: Request) -> None:
        until_ms = queue.renew_session(_session_id(request), self._host.clock.now_ms())
        request.answer_management(200, "OK", {"expiration": Timestamp(until_ms)})

    def get_session_state(self, queue: Queue, request: Request) -> None:
        state = queue.get_session_state(_session_id(request))
        request.answer_management(200, "OK", {"session-state": state})

    def set_session_state(self, queue: Queue, request: Request) -> None:
        state = request.arguments.get("session-state")
        if state is not None and not isinstance(state, bytes):
            raise ArgumentError("session-state must be binary or null.")
        if request.txn_id is not None:
            transaction = self._transaction(request.txn_id, queue, request)
            transaction.set_session_state(queue, _session_id(request), state, self._host.clock.now_ms())
            request.answer_management(200, "OK", {})
            return
        queue.set_session_state(_session_id(request), state, self._host.clock.now_ms(), self._host.commits.facts)
        self._after_commit(request, {})

    # --- rules ------------------------------------------------------------------------------------------------------

    def add_rule(self, queue: Queue, request: Request) -> None:
        now_ms = self._host.clock.now_ms()
        rule = rule_of(_rule_name(request), request.arguments.get("rule-description"), now_ms)
        _subscription(queue).add_rule(rule, now_ms, self._host.commits.facts)
        self._after_commit(request, {})

    def remove_rule(self, queue: Queue, request: Request) -> None:
        _subscription(queue).remove_rule(_rule_name(request), self._host.clock.now_ms(), self._host.commits.facts)
        self._after_commit(request, {})

    def enumerate_rules(self, queue: Queue, request: Request) -> None:
        skip = max(int(request.arguments.get("skip") or 0), 0)
        top = min(max(int(request.arguments.get("top") or RULES_PAGE_MAX), 1), RULES_PAGE_MAX)
        found = _subscription(queue).rules_from(skip, top)
        if found:
            rules = [{"rule-description": described(rule)} for rule in found]
            request.answer_management(200, "OK", {"rules": rules})
        else:
            request.answer_management(204, "No rules.", None, MessageNotFoundError.condition)

    def _session(self, queue: Queue, request: Request) -> MessageSession | None:
        session_id = request.arguments.get("session-id")
        if session_id is None:
            return None
        if not queue.settings.requires_session:
            raise NotAllowedError(f"The entity '{queue.path}' does not have sessions.")
        return queue.held_session(str(session_id), self._host.clock.now_ms())


def _fits_transactions(operation: str, request: Request) -> bool:
    """Whether a request may come inside a transaction.

    The .NET client puts every request made inside a scope into the transaction, also those that only read or renew.
    Like a receiver's deliveries, these are not part of it. A deletion would have to be.
    """
    if operation == "receive-by-sequence-number":
        return int(request.arguments.get("receiver-settle-mode") or 0) == 1
    return operation in _DONE_AT_COMMIT or operation in _DONE_AT_ONCE


def _succeed(answer: tuple[Request, dict[str, Any], BrokerConnection]) -> None:
    request, body, connection = answer
    request.answer_management(200, "OK", body)
    connection.flush_soon()


def _outcome_of(arguments: dict[Any, Any]) -> State:
    """The outcome that a link would carry for this disposition."""
    status = str(arguments["disposition-status"])
    properties = arguments.get("properties-to-modify") or {}
    if status == "completed":
        return ACCEPTED
    if status == "suspended":
        words = {
            DEAD_LETTER_REASON: arguments.get("deadletter-reason"),
            DEAD_LETTER_DESCRIPTION: arguments.get("deadletter-description"),
        }
        given = {name: text for name, text in words.items() if text is not None}
        return Rejected(AmqpError("com.microsoft:dead-letter", "", {**properties, **given}))
    if status in ("abandoned", "defered"):
        return Modified(None, status == "defered", properties)
    raise ArgumentError(f"disposition-status '{status[:64]}' is not known: completed, abandoned, defered or suspended.")


def _list(request: Request, name: str) -> list[Any]:
    value = request.arguments[name]
    if not isinstance(value, list) or not value:
        raise ArgumentError(f"'{name}' must be a list with at least one item.")
    return value


def _numbers(request: Request) -> list[int]:
    numbers = [int(number) for number in _list(request, "sequence-numbers")]
    if len(numbers) > SEQUENCE_NUMBERS_MAX:
        raise ArgumentError(
            f"A call takes at most {SEQUENCE_NUMBERS_MAX} sequence numbers, this one has {len(numbers)}."
        )
    return numbers


def _tokens(request: Request) -> list[bytes]:
    """The lock tokens, without duplicates."""
    return list(dict.fromkeys(_named_tokens(request)))


def _named_tokens(request: Request) -> list[bytes]:
    tokens = []
    for token in _list(request, "lock-tokens"):
        if not isinstance(token, uuid.UUID):
            raise ArgumentError("'lock-tokens' must hold UUIDs.")
        tokens.append(token.bytes_le)
    return tokens


def _subscription(queue: Queue) -> Subscription:
    if queue.subscription is None:
        raise NotAllowedError(f"The entity '{queue.path}' is no subscription: only subscriptions have rules.")
    return queue.subscription


def _rule_name(request: Request) -> str:
    name = request.arguments["rule-name"]
    if not isinstance(name, str):
        raise ArgumentError("'rule-name' must be a string.")
    return str(name)


def _session_id(request: Request) -> str:
    session_id = request.arguments["session-id"]
    if not isinstance(session_id, str):
        raise ArgumentError("'session-id' must be a string.")
    return session_id


# What an operation returns: sizes, nothing, or the rest of its work.
_Operation = Callable[[EntityManagement, Queue, Request], Sizes | Work | None]

_OPERATIONS: dict[str, tuple[Right, _Operation]] = {
    "peek-message": (Right.LISTEN, EntityManagement.peek),
    "renew-lock": (Right.LISTEN, EntityManagement.renew),
    "renew-session-lock": (Right.LISTEN, EntityManagement.renew_session),
    "get-session-state": (Right.LISTEN, EntityManagement.get_session_state),
    "set-session-state": (Right.LISTEN, EntityManagement.set_session_state),
    "schedule-message": (Right.SEND, EntityManagement.schedule),
    "cancel-scheduled-message": (Right.SEND, EntityManagement.cancel),
    "receive-by-sequence-number": (Right.LISTEN, EntityManagement.receive_deferred),
    "update-disposition": (Right.LISTEN, EntityManagement.update_disposition),
    "get-message-sessions": (Right.LISTEN, EntityManagement.list_sessions),
    "batch-delete-messages": (Right.LISTEN, EntityManagement.delete_batch),
    RESUBMIT: (Right.LISTEN, EntityManagement.resubmit),
    GET_HOME: (Right.LISTEN, EntityManagement.get_home),
    "add-rule": (Right.MANAGE, EntityManagement.add_rule),
    "remove-rule": (Right.MANAGE, EntityManagement.remove_rule),
    "enumerate-rules": (Right.LISTEN, EntityManagement.enumerate_rules),
}

# Operations that a transaction holds back until its commit, and those that it does not contain but permits.
_DONE_AT_COMMIT = frozenset(("update-disposition", "schedule-message", "cancel-scheduled-message", "set-session-state"))
_DONE_AT_ONCE = frozenset(
    (
        "peek-message",
        "renew-lock",
        "renew-session-lock",
        "get-session-state",
        "get-message-sessions",
        "enumerate-rules",
    )
)

# Operations of a topic, with the same rights: nothing can be received, but scheduled messages can be peeked.
_TOPIC_OPERATIONS: dict[str, Callable[[EntityManagement, Topic, Request], Sizes | None]] = {
    "peek-message": EntityManagement.peek,
    "schedule-message": EntityManagement.schedule,
    "cancel-scheduled-message": EntityManagement.cancel,
}
