"""Who may do what: every command of the broker, tried with every right, on every scope, with both keys.

`allowed_by` says what each command needs; `Attempts` runs a command as a client and tells whether its rights sufficed.
A command whose arguments are wrong on purpose is allowed if the broker complains about those, and not about the rights.
`python -m tests.broker.rights` writes the table into docs/rights.md.
"""

from __future__ import annotations

import re
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any, Final, NamedTuple

from tests.broker.http.console.window import Window
from tests.broker.peer import Peer
from tests.docs.pages import ROOT
from twinbus.amqp.events import Detached, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Declared
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.amqp.types import Described, ULong
from twinbus.auth.policies import Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.http.console import console
from twinbus.broker.metering.metrics import may_see_metrics
from twinbus.broker.nodes import directory, management
from twinbus.clock import SteppedClock
from twinbus.limits import CONSOLE_LOGIN_IDLE_MS, STRANGER_TRANSACTIONS_MAX, TOKEN_EXPIRY_GRACE_MS
from twinbus.testing import Broker

PAGE: Final = ROOT / "docs" / "rights.md"
# What keys are for: the namespace, the entity of a command, and one that no command is about.
SCOPES: Final = ("", "orders", "news", "hidden")
KEYS: Final = ("primary", "secondary")
QUEUE, TOPIC, SUBSCRIPTION = "orders", "news", "news/Subscriptions/all"
NOWHERE: Final = ""


class Credential(NamedTuple):
    """What a client presents. Without a right, nothing."""

    right: Right | None = None
    scope: str = ""
    key: str = "primary"
    expired: bool = False


NOBODY: Final = Credential()
EXPIRED: Final = Credential(Right.MANAGE, expired=True)
CREDENTIALS: Final = (
    NOBODY,
    *(Credential(right, scope, key) for right in Right for scope in SCOPES for key in KEYS),
    # Last, because the clock is stepped for it.
    EXPIRED,
)


class Answer(NamedTuple):
    """Whether the rights sufficed, and what the client was told."""

    allowed: bool
    told: str


class Command(NamedTuple):
    """One row of the table."""

    door: str
    name: str
    # The entity it is about; empty for the namespace.
    target: str
    # Any of these rights suffices on the target; none at all means that everybody may.
    needs: tuple[Right, ...]
    run: Callable[[Attempts, str], Answer]
    # Needs all of `needs` instead of any.
    all_of_them: bool = False
    # Any right on anything suffices, because the answer shows only what the key covers.
    anywhere: bool = False


def key_of(right: Right, scope: str, key: str) -> str:
    return f"{right}-{scope or 'namespace'}-{key}-not-a-real-key"


def policies() -> list[Policy]:
    return [
        Policy(f"{right}-{scope or 'all'}", frozenset({right}), *(key_of(right, scope, key) for key in KEYS), scope)
        for right in Right
        for scope in SCOPES
    ]


def namespace() -> NamespaceConfig:
    return NamespaceConfig("contoso", policies=policies())


def furnish(broker: Broker) -> None:
    """Create what the commands are about, and what nobody but a key for it may hear of."""
    for path in (QUEUE, "hidden"):
        broker.create_queue(path)
    broker.create_topic(TOPIC)
    broker.create_subscription(TOPIC, "all")


class Attempts:
    """The tries of one client, at each of the broker's doors."""

    def __init__(self, broker: Broker, clock: SteppedClock, credential: Credential) -> None:
        self._broker = broker
        self._credential = credential
        self._window = Window(broker)
        if credential.right is not None:
            assert self._window.login(*self._key()).status == 200
        if credential.expired:
            clock.step(ms=CONSOLE_LOGIN_IDLE_MS)
        self._until_s = clock.now_ms() // 1000 + 30
        self._peer = Peer(broker)
        if credential.right is not None:
            where = f"sb://localhost/{credential.scope}"
            assert self._peer.put_token(where, self._token(where)) == 202
        if credential.expired:
            # Not so long that the connection itself would be closed.
            clock.step(ms=31_000 + TOKEN_EXPIRY_GRACE_MS)
            broker.call(lambda server: server.step())

    def close(self) -> None:
        self._peer.socket.close()

    def _key(self) -> tuple[str, str]:
        right, scope, key, _ = self._credential
        assert right is not None
        return f"{right}-{scope or 'all'}", key_of(right, scope, key)

    def _token(self, where: str) -> str:
        return sign(where, *self._key(), self._until_s)

    # --- AMQP ---------------------------------------------------------------------------------------------------------

    def attach(self, link: Link) -> Answer:
        self._peer._answered(link)
        for event in self._peer.events:
            if isinstance(event, Detached) and event.link is link:
                assert event.error is not None
                told = f"{event.error.condition} {event.error.description}"
                return Answer(event.error.condition != "amqp:unauthorized-access", told)
        # A refused attach is answered by an attach without a terminus, and then a detach.
        remote = link.target if link.sender else link.source
        if remote is None:
            error = self._peer.wait(Detached, lambda event: event.link is link).error
            assert error is not None
            return Answer(error.condition != "amqp:unauthorized-access", f"{error.condition} {error.description}")
        return Answer(True, "attached")

    def sender(self, address: str, **options: Any) -> Answer:
        session = self._peer.session
        return self.attach(
            session.attach_sender(uuid.uuid4().hex, source=Source("peer"), target=Target(address), **options)
        )

    def receiver(self, address: str) -> Answer:
        name = uuid.uuid4().hex
        return self.attach(self._peer.session.attach_receiver(name, source=Source(address), target=Target(name)))

    def ask(self, node: str, operation: str, body: dict[str, Any]) -> Answer:
        """A request to a management node; the attach counts, too."""
        name = uuid.uuid4().hex
        replies = self._peer.session.attach_receiver(name, source=Source(node), target=Target(name))
        first = self.attach(replies)
        if first.told != "attached":
            return first
        replies.flow(1)
        link = self._peer.session.attach_sender(f"{name}-out", source=Source("peer"), target=Target(node))
        second = self.attach(link)
        if second.told != "attached":
            return second
        request = AmqpMessage()
        request.message_id, request.reply_to = name, name
        request.application_properties = {"operation": operation}
        request.value, request.has_value = body, True
        self._peer.send(link, request)
        answer = AmqpMessage.decode(self._peer.wait(Transfer, lambda event: event.link is replies).payload or b"")
        told = answer.application_properties or {}
        for each in (link, replies):
            each.detach()
        self._peer.flush()
        return Answer(told["statusCode"] != 401, f"{told['statusCode']} {told['statusDescription']}")

    def declare(self, count: int) -> Answer:
        """Declare so many transactions on one control link."""
        peer = self._peer
        link = peer.session.attach_sender(uuid.uuid4().hex, source=None, target=Coordinator([]))
        peer._answered(link)
        message = AmqpMessage()
        message.value, message.has_value = Described(ULong(0x31), [None]), True
        states = [peer.send(link, message) for _ in range(count)]
        link.detach()
        peer.flush()
        peer.wait(Detached, lambda event: event.link is link)
        return Answer(all(isinstance(state, Declared) for state in states), str(states[-1]))

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def http(self, method: str, path: str, body: str = "", **headers: str) -> Answer:
        endpoint = self._broker.endpoint()
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._credential.right is not None:
            own["Authorization"] = self._token(f"https://localhost/{self._credential.scope}")
        connection = HTTPConnection(endpoint.host, endpoint.port, timeout=30)
        try:
            connection.request(method, path, body or None, own)
            response = connection.getresponse()
            told = response.read().decode()
        finally:
            connection.close()
        return Answer(response.status not in (401, 403), f"{response.status} {told}")

    def view(self, name: str, **query: str) -> Answer:
        answer = self._window.get(name, **query)
        return Answer(answer.status not in (401, 403), f"{answer.status} {answer.body.decode(errors='replace')}")

    def stream(self, name: str) -> Answer:
        connection, response = self._window.stream(name)
        connection.close()
        return Answer(response.status not in (401, 403), str(response.status))

    def post(self, command: str, **fields: Any) -> Answer:
        answer = self._window.post(command, **fields)
        return Answer(answer.status not in (401, 403), f"{answer.status} {answer.body.decode(errors='replace')}")

    def metrics(self, peer: str) -> Answer:
        """The page, as a client of that address would ask for it."""
        header = ""
        if self._credential.right is not None and not self._credential.expired:
            header = f"Basic {b64encode(':'.join(self._key()).encode()).decode()}"
        seen = self._broker.call(lambda server: may_see_metrics(server.hosts["contoso"], peer, header))
        return Answer(seen, str(seen))


S, L, M = Right.SEND, Right.LISTEN, Right.MANAGE
SENDING, LISTENING, ANY = (S, M), (L, M), (S, L, M)
MANAGING = (M,)
_V = "?api-version=2021-05"
_TOKEN = "00000000-0000-0000-0000-000000000000"

# The right of each operation of a management node, for the queue or the subscription.
_OPERATIONS: Final[dict[str, tuple[str, tuple[Right, ...]]]] = {
    "peek-message": (QUEUE, LISTENING),
    "renew-lock": (QUEUE, LISTENING),
    "renew-session-lock": (QUEUE, LISTENING),
    "get-session-state": (QUEUE, LISTENING),
    "set-session-state": (QUEUE, LISTENING),
    "schedule-message": (QUEUE, SENDING),
    "cancel-scheduled-message": (QUEUE, SENDING),
    "receive-by-sequence-number": (QUEUE, LISTENING),
    "update-disposition": (QUEUE, LISTENING),
    "get-message-sessions": (QUEUE, LISTENING),
    "batch-delete-messages": (QUEUE, LISTENING),
    "add-rule": (SUBSCRIPTION, MANAGING),
    "remove-rule": (SUBSCRIPTION, MANAGING),
    "enumerate-rules": (SUBSCRIPTION, LISTENING),
}

# The right of each view and command of the console. None: no entity, and anybody who is logged in may ask.
_VIEWS: Final[dict[str, tuple[str, tuple[Right, ...]] | None]] = {
    "entities": None,
    "entity": (QUEUE, ANY),
    "messages": (QUEUE, LISTENING),
    "sessions": (QUEUE, LISTENING),
    "message": (QUEUE, LISTENING),
    "body": (QUEUE, LISTENING),
    "backlog": None,
    "connections": (NOWHERE, MANAGING),
    "rates": None,
    "namespaces": None,
    "ledger": (NOWHERE, LISTENING),
    "events": (NOWHERE, LISTENING),
}
_COMMANDS: Final[dict[str, tuple[str, tuple[Right, ...], dict[str, Any]]]] = {
    "send": (QUEUE, SENDING, {"copies": 0}),
    "update": (QUEUE, MANAGING, {"settings": 1}),
    "delete": (QUEUE, MANAGING, {"rule": "none"}),
    "purge": (QUEUE, MANAGING, {}),
    "remove": (QUEUE, MANAGING, {}),
    "dead-letter": (QUEUE, LISTENING, {}),
    "receive": (QUEUE, LISTENING, {"count": 0}),
    "settle": (QUEUE, LISTENING, {}),
    "close-connection": (NOWHERE, MANAGING, {"number": 10**9}),
}


def _links() -> Iterator[Command]:
    yield Command("AMQP", "attach a sender", QUEUE, SENDING, lambda each, path: each.sender(path))
    yield Command("AMQP", "attach a sender to a topic", TOPIC, SENDING, lambda each, path: each.sender(path))
    via = "com.microsoft:transfer-destination-address"
    yield Command(
        "AMQP",
        "attach a sender that sends via the entity to itself",
        QUEUE,
        SENDING,
        lambda each, path: each.sender(path, properties={via: path}),
    )
    yield Command("AMQP", "attach a receiver", QUEUE, LISTENING, lambda each, path: each.receiver(path))
    yield Command(
        "AMQP", "attach a receiver of a subscription", SUBSCRIPTION, LISTENING, lambda each, path: each.receiver(path)
    )
    yield Command(
        "AMQP",
        "attach a receiver of dead letters",
        QUEUE,
        LISTENING,
        lambda each, path: each.receiver(f"{path}/$DeadLetterQueue"),
    )
    yield Command(
        "AMQP", "attach to the management node", QUEUE, ANY, lambda each, path: each.receiver(f"{path}/$management")
    )
    yield Command(
        "AMQP",
        f"declare up to {STRANGER_TRANSACTIONS_MAX} transactions",
        NOWHERE,
        (),
        lambda each, path: each.declare(STRANGER_TRANSACTIONS_MAX),
    )
    yield Command(
        "AMQP",
        "declare more transactions",
        NOWHERE,
        ANY,
        lambda each, path: each.declare(STRANGER_TRANSACTIONS_MAX + 1),
        False,
        True,
    )


def _requests() -> Iterator[Command]:
    for name, (target, needs) in _OPERATIONS.items():
        operation = f"com.microsoft:{name}"
        yield Command(
            "management",
            f"`{name}`",
            target,
            needs,
            lambda each, path, operation=operation: each.ask(f"{path}/$management", operation, {}),
        )
    yield Command(
        "management",
        f"`{management.RESUBMIT}`",
        QUEUE,
        (S, L),
        lambda each, path: each.ask(f"{path}/$DeadLetterQueue/$management", management.RESUBMIT, {"x": 1}),
        all_of_them=True,
    )
    yield Command(
        "management",
        f"`{management.GET_HOME}`",
        QUEUE,
        LISTENING,
        lambda each, path: each.ask(f"{path}/$management", management.GET_HOME, {}),
    )
    for name in (*directory._COMMANDS, *directory._QUESTIONS):
        # A number where a text belongs, so that nothing is changed.
        body = dict.fromkeys(("name", "path", "topic", "scope", "policy", "number", "after"), 1)
        yield Command(
            "namespace's management",
            f"`twinbus:{name}`",
            NOWHERE,
            MANAGING,
            lambda each, path, name=name, body=body: each.ask("$management", f"twinbus:{name}", body),
        )


def _administration() -> Iterator[Command]:
    def request(method: str, below: str = "", **headers: str) -> Callable[[Attempts, str], Answer]:
        return lambda each, path: each.http(method, f"/{path}{below}{_V}", **headers)

    for target, what, below in (
        (QUEUE, "queue", ""),
        (TOPIC, "topic", ""),
        (TOPIC, "subscription", "/subscriptions/all"),
        (TOPIC, "rule", "/subscriptions/all/rules/x"),
    ):
        yield Command("administration", f"get a {what}", target, MANAGING, request("GET", below))
        yield Command("administration", f"create a {what}", target, MANAGING, request("PUT", below))
        yield Command("administration", f"update a {what}", target, MANAGING, request("PUT", below, If_Match="*"))
        # An ETag that does not match, so that nothing is deleted.
        yield Command("administration", f"delete a {what}", target, MANAGING, request("DELETE", below, If_Match='"0"'))
    yield Command("administration", "list queues", NOWHERE, MANAGING, request("GET", "$Resources/queues"))
    yield Command("administration", "list topics", NOWHERE, MANAGING, request("GET", "$Resources/topics"))
    yield Command("administration", "list subscriptions", TOPIC, MANAGING, request("GET", "/subscriptions"))
    yield Command("administration", "list rules", TOPIC, MANAGING, request("GET", "/subscriptions/all/rules"))
    yield Command("administration", "show the namespace", NOWHERE, MANAGING, request("GET", "$namespaceinfo"))
    yield Command("administration", "list faults", NOWHERE, MANAGING, request("GET", "$faults"))
    yield Command("administration", "set a fault", NOWHERE, MANAGING, request("PUT", "$faults"))


def _rest() -> Iterator[Command]:
    for name, method, below, needs in (
        # A message that cannot be read, so that nothing is sent; nothing waits, so that nothing is received.
        ("send", "POST", "/messages", SENDING),
        ("receive and lock", "POST", "/messages/head", LISTENING),
        ("receive and delete", "DELETE", "/messages/head", LISTENING),
        ("complete", "DELETE", f"/messages/1/{_TOKEN}", LISTENING),
        ("unlock", "PUT", f"/messages/1/{_TOKEN}", LISTENING),
        ("renew the lock", "POST", f"/messages/1/{_TOKEN}", LISTENING),
    ):
        broken = {"BrokerProperties": "{"} if name == "send" else {}
        yield Command(
            "REST",
            name,
            QUEUE,
            needs,
            lambda each, path, method=method, below=below, broken=broken: each.http(
                method, f"/{path}{below}?timeout=0", **broken
            ),
        )


def _console() -> Iterator[Command]:
    for name, place in _VIEWS.items():
        target, needs = place or (NOWHERE, ANY)
        yield Command(
            "console",
            f"view `{name}`",
            target,
            needs,
            lambda each, path, name=name: each.view(name, **({"entity": path, "seq": "1"} if path else {})),
            anywhere=place is None,
        )
    yield Command("console", "watch `entities`", NOWHERE, ANY, lambda each, path: each.stream("entities"), False, True)
    yield Command("console", "watch `connections`", NOWHERE, MANAGING, lambda each, path: each.stream("connections"))
    for name, (target, needs, fields) in _COMMANDS.items():
        yield Command(
            "console",
            f"`{name}`",
            target,
            needs,
            lambda each, path, name=name, fields=fields: each.post(name, entity=path, **fields),
        )
    for name, fields in (("resubmit", {"part": "dead"}), ("resend", {"seq": "1"})):
        yield Command(
            "console",
            f"`{name}`",
            QUEUE,
            (S, L),
            lambda each, path, name=name, fields=fields: each.post(name, entity=path, **fields),
            all_of_them=True,
        )
    yield Command(
        "console",
        "`create` a queue",
        QUEUE,
        MANAGING,
        lambda each, path: each.post("create", kind="queue", name=path, settings=1),
    )
    for kind in ("subscription", "rule"):
        yield Command(
            "console",
            f"`create` a {kind}",
            TOPIC,
            MANAGING,
            lambda each, path, kind=kind: each.post("create", kind=kind, topic=path, name="/", filter="="),
        )
    yield Command(
        "console",
        "`connection-string` of the key that logged in",
        NOWHERE,
        ANY,
        lambda each, path: each.post("connection-string"),
        anywhere=True,
    )


def _others() -> Iterator[Command]:
    yield Command("HTTP", "`/health`", NOWHERE, (), lambda each, path: each.http("GET", "/health"))
    yield Command("HTTP", "`/metrics`, on the broker's machine", NOWHERE, (), lambda each, path: each.metrics("::1"))
    yield Command(
        "HTTP", "`/metrics`, from another", NOWHERE, LISTENING, lambda each, path: each.metrics("203.0.113.7")
    )


COMMANDS: Final = (*_links(), *_requests(), *_administration(), *_rest(), *_console(), *_others())


def known_names() -> Iterator[tuple[set[str], set[str]]]:
    """What the broker has, and what the table has, for each door that can be listed."""
    yield set(management._OPERATIONS), {*_OPERATIONS, management.RESUBMIT, management.GET_HOME}
    named = {"namespaces", "ledger", "events", "body"}
    yield {*console._VIEWS, *named}, set(_VIEWS)
    yield {*console._COMMANDS, "connection-string"}, {*_COMMANDS, "resubmit", "resend", "create", "connection-string"}


def may(command: Command, credential: Credential) -> bool:
    """What the table says."""
    if not command.needs:
        return True
    if credential.right is None or credential.expired:
        return False
    if command.all_of_them:
        sufficient = credential.right is Right.MANAGE
    else:
        sufficient = credential.right in command.needs
    covered = not credential.scope or (
        bool(command.target) and (command.target + "/").startswith(credential.scope + "/")
    )
    return sufficient and (covered or command.anywhere)


def plain(told: str, path: str) -> str:
    """An answer without what differs between two tries at two entities."""
    text = re.sub(r"TrackingId:\S+|Timestamp:\S+|[0-9a-f-]{36}", "", told)
    return text.replace(path, "ENTITY")


# --- the page ---------------------------------------------------------------------------------------------------------


def rows() -> Iterator[str]:
    titles = [
        "door",
        "command",
        "no key",
        "expired",
        *(str(right) for right in Right),
        *(f"{right} elsewhere" for right in Right),
    ]
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for command in COMMANDS:
        cells = [may(command, NOBODY), may(command, EXPIRED)]
        cells += [may(command, Credential(right)) for right in Right]
        cells += [may(command, Credential(right, "hidden")) for right in Right]
        yield f"| {command.door} | {command.name} | {' | '.join('yes' if cell else '' for cell in cells)} |"


TABLE: Final = re.compile(r"^\| door \|.*\n(?:\|.*\n)+", re.MULTILINE)


def page() -> str:
    return TABLE.sub(lambda _: "\n".join(rows()) + "\n", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
