"""Senders and readers of the mixed run: threads with bare peers, so that each controls exactly when it reads and
writes.

Every worker survives deaths of the broker: it reconnects and goes on. What it does and which answers it gets go into
one log, in order. A connection that ends while the broker lives is a fault, and so is every refusal.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from mixed_checker import FAULTS, Did, Entry
from tests.broker.peer import E, Peer, decoded

from twinbus.amqp import AmqpError, state_rejected
from twinbus.amqp.events import Attached, Detached, Disposed, Drained, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import STATE_ACCEPTED, Accepted, Rejected, State, state_modified
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Symbol, Timestamp, UInt

# The machine may be busy: only an answer that never comes is a fault.
PATIENCE_S = 120.0
HELD_MAX = 20
BURIAL = state_rejected(AmqpError("com.microsoft:dead-letter", "", {Symbol("DeadLetterReason"): "mixed run"}))
# Bodies repeat this, so that lost, doubled or swapped pieces show.
BLOCK = random.Random(0).randbytes(100_003)
# What the kernel may hold of the broker's output, in addition to the reader's own socket.
SEND_BUFFER_BYTES_MAX = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])


def body_of(name: str, size: int) -> bytes:
    head = f"{name}|".encode()
    return (head + BLOCK * (max(size - len(head), 0) // len(BLOCK) + 1))[:size]


class Death(Exception):
    """The connection ended."""


class Break(Exception):
    """The worker disconnects on purpose."""


class Gone(Exception):
    """The broker detached a link, perhaps because its entity was deleted."""


class Run:
    """What all workers share."""

    def __init__(self, port: int, seed: int, stall_s: float) -> None:
        # The broker's port, the same after every restart.
        self.port = port
        self.seed = seed
        # How long slow readers occasionally stop reading.
        self.stall_s = stall_s
        # Set to end the workers.
        self.stopping = threading.Event()
        self.entries: list[Entry] = []
        # Interns names, so that the log holds each string once.
        self.names: dict[str, str] = {}
        # Sizes of all messages by name.
        self.sizes: dict[str, int] = {}
        # By entity: about how many messages are accepted and not gone yet.
        self.waiting: dict[str, int] = {}
        # By entity: how often something was received or taken.
        self.seen: dict[str, int] = {}
        # Counts the broker's deaths and returns: odd while it is down.
        self.life = 0
        # The clock's offset in milliseconds.
        self.clock_ms = 0
        # By entity: how often it was deleted.
        self.deletions: dict[str, int] = {}
        self.faults = 0
        # The error of a worker that failed.
        self.failures: list[BaseException] = []
        # Places whose messages are copies: each copy has a name of its own in the log.
        self.copied: set[str] = set()
        # Set while a transaction is being committed, and the ids of the messages it completes.
        self.committing, self.in_transaction = threading.Event(), list[str]()
        self._lock = threading.Lock()
        self._number = 0

    def log(self, did: Did, place: str = "", name: str = "", amount: int = 0) -> None:
        with self._lock:
            self.entries.append(Entry(did, place, name, amount))
            if did is Did.ACCEPTED:
                self.waiting[place] = self.waiting.get(place, 0) + 1
            elif did in (Did.COMPLETED, Did.TAKEN, Did.GLIMPSED, Did.BURIED):
                self.waiting[place] = self.waiting.get(place, 0) - 1
            self.faults += did in FAULTS
            if did in (Did.RECEIVED, Did.TAKEN):
                self.seen[place] = self.seen.get(place, 0) + 1

    def new(self, place: str, size: int) -> str:
        with self._lock:
            self._number += 1
            name = f"{place}-{self._number:07}"
        self.sizes[name] = max(size, 10)
        self.names[name] = name
        return name

    def copy_name(self, place: str, name: str) -> str:
        """A message's name in the log."""
        if place not in self.copied:
            return name
        return self.names.setdefault(f"{name}@{place}", f"{name}@{place}")

    def message(self, name: str, **fields: Any) -> bytes:
        message = AmqpMessage()
        message.message_id = name
        message.data = [body_of(name, self.sizes[name])]
        for field, value in fields.items():
            setattr(message, field, value)
        return message.encode()

    def seen_whole(self, did: Did, place: str, message: AmqpMessage, life: int) -> str:
        """Log a delivery from one run of the broker, and whether its body is the one that was sent."""
        sent = self.names.get(str(message.message_id), str(message.message_id))
        name = self.copy_name(place, sent)
        self.log(did, place, name, life // 2)
        if b"".join(message.data or []) != body_of(sent, self.sizes.get(sent, 0)):
            self.log(Did.BROKEN, place, name)
        return name


class Talk(Peer):
    """A patient peer that can tell the broker's death from a fault."""

    def __init__(self, run: Run, receive_bytes: int | None = None) -> None:
        # Shared by all workers.
        self.run = run
        # The run of the broker that it talks to.
        while run.life % 2:
            time.sleep(0.01)
        self.life = run.life
        plain = socket.socket()
        try:
            if receive_bytes is not None:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            plain.settimeout(PATIENCE_S)
            plain.connect(("127.0.0.1", run.port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            super().__init__(None, over=plain)  # type: ignore[arg-type]
            if run.life != self.life:
                raise Death  # the broker may have restarted
        except (OSError, AssertionError) as error:
            plain.close()
            raise Death from error
        except Death:
            plain.close()
            raise

    def read(self, timeout_s: float) -> bool:
        found = super().read(timeout_s)
        if self.lost or self.engine.closed:
            raise Death
        return found

    def wait(self, kind: type[E], match: Callable[[E], bool] = lambda _: True, patience_s: float = PATIENCE_S) -> E:
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            for event in self.events:
                if isinstance(event, kind) and match(event):
                    self.events.remove(event)
                    return event
            self.check_links()
            self.read(max(end - time.monotonic(), 0.01))
        raise AssertionError(f"no {kind.__name__} in {patience_s} s")

    def check_links(self) -> None:
        for event in self.events:
            if isinstance(event, Detached):
                self.events.remove(event)
                raise Gone(event.error.description if event.error is not None else "without an error")

    def receiver(self, address: str, credit: int = 0, **options: Any) -> Link:
        link = super().receiver(address, credit, **options)
        self.check_links()
        return link

    def sender(self, address: str, **options: Any) -> Link:
        link = super().sender(address, **options)
        self.check_links()
        return link

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise Death from error

    def cut(self) -> bool:
        """Whether the connection ended although the broker lives. Whoever kills the broker announces it first."""
        return self.life == self.run.life and self.life % 2 == 0 and not self.run.stopping.is_set()


class Node:
    """A management node over links that stay open."""

    def __init__(self, talk: Talk, path: str) -> None:
        self._talk = talk
        self._name = str(uuid.uuid4())
        self._receiver = talk.session.attach_receiver(self._name, source=Source(path), target=Target(self._name))
        talk.flush()
        talk.wait(Attached, lambda event: event.link is self._receiver)
        self._receiver.flow(1_000)
        self._sender = talk.sender(path)

    def ask(self, operation: str, body: dict[str, Any]) -> tuple[int, str, Any]:
        request = AmqpMessage()
        request.message_id = str(uuid.uuid4())
        request.reply_to = self._name
        request.application_properties = {
            "operation": operation,
            "com.microsoft:server-timeout": UInt(60_000),
        }
        request.value, request.has_value = body, True
        self._talk.send(self._sender, request)
        answer = decoded(self._talk.wait(Transfer, lambda event: event.link is self._receiver))
        properties = answer.application_properties or {}
        return int(properties["statusCode"]), str(properties.get("statusDescription")), answer.value


class Worker(threading.Thread):
    """Does one kind of work again and again."""

    def __init__(self, run: Run, place: str, name: str) -> None:
        super().__init__(name=f"{name} {place}", daemon=True)
        self.shared = run
        self.place = place
        self.rng = random.Random(f"{run.seed} {self.name}")

    def run(self) -> None:
        shared = self.shared
        while not shared.stopping.is_set():
            talk: Talk | None = None
            began = shared.deletions.get(self.place, 0)
            try:
                talk = Talk(shared)
                self.work(talk)
                talk.close()
            except Gone as error:
                if not self.deleted_since(began):
                    shared.log(Did.REFUSED, self.place, f"{self.name}: link detached: {error}"[:500])
                time.sleep(0.02)
            except Break:
                pass
            except Death:
                if talk is not None and talk.cut():
                    shared.log(Did.CUT, self.place, f"{self.name}: the connection ended while the broker lived")
                time.sleep(0.02)
            except AssertionError as error:
                if not shared.stopping.is_set():
                    shared.log(Did.REFUSED, self.place, f"{self.name}: {error}"[:500])
                    time.sleep(0.5)
            except BaseException as error:
                shared.failures.append(error)
                raise
            finally:
                if talk is not None:
                    talk.socket.close()

    def work(self, talk: Talk) -> None:
        raise NotImplementedError

    def deleted_since(self, began: int) -> bool:
        """Whether the entity was deleted since `began`, or is being deleted: each deletion counts twice."""
        return self.shared.deletions.get(self.place, 0) != began or began % 2 == 1

    @property
    def on(self) -> bool:
        return not self.shared.stopping.is_set()

    def refused(self, what: str, state: State | None) -> None:
        error = state.error if isinstance(state, Rejected) else None
        self.shared.log(Did.REFUSED, self.place, f"{what}: {state if error is None else error.description}"[:500])


class Send(Worker):
    """Sends over AMQP, several at a time, and not many more than are received."""

    def __init__(
        self,
        run: Run,
        place: str,
        size: Callable[[random.Random], int],
        *,
        waiting_max: int = 300,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(run, place, "send")
        self.size = size
        self.waiting_max = waiting_max
        self.pause_s = pause_s

    def work(self, talk: Talk) -> None:
        shared = self.shared
        link = talk.sender(self.place)
        while self.on:
            if shared.waiting.get(self.place, 0) >= self.waiting_max:
                time.sleep(0.02)
                continue
            names = [shared.new(self.place, self.size(self.rng)) for _ in range(self.rng.choice((1, 3, 20)))]
            if self.pause_s:
                names = names[:1]
            self.send(talk, link, names)
            time.sleep(self.pause_s or 0.02)

    def send(self, talk: Talk, link: Link, names: list[str], **fields: Any) -> None:
        """Send and wait for every answer; sends without one when the broker dies stay in doubt."""
        shared = self.shared
        began = shared.deletions.get(self.place, 0)
        pending: dict[int, str] = {}
        for name in names:
            shared.log(Did.SENT, self.place, name, shared.sizes[name])
            payload = shared.message(name, **fields)
            pending[link.send(payload, tag=uuid.uuid4().bytes, settled=False)] = name
        talk.flush()
        while pending:
            disposed = talk.wait(Disposed)
            for delivery_id, *_ in disposed.deliveries:
                name = pending.pop(delivery_id)
                if isinstance(disposed.state, Accepted):
                    shared.log(Did.ACCEPTED, self.place, name)
                elif not self.deleted_since(began):
                    self.refused(f"send of {name}", disposed.state)


class SendTwice(Send):
    """Sends each id again within the duplicate window, whatever the clock does: it must stay one message."""

    def work(self, talk: Talk) -> None:
        link = talk.sender(self.place)
        known: list[str] = []
        while self.on:
            names = [self.shared.new(self.place, 50)]
            self.send(talk, link, names)
            known = [*known, *names][-50:]
            if self.rng.random() < 0.5:
                self.again(talk, link, self.rng.choice(known))
            time.sleep(0.05)

    def again(self, talk: Talk, link: Link, name: str) -> None:
        state = talk.send(link, self.shared.message(name))
        if not isinstance(state, Accepted):
            self.refused(f"second send of {name}", state)


class Schedule(Send):
    """Schedules messages on the broker's clock, which is set forward now and then."""

    def work(self, talk: Talk) -> None:
        link = talk.sender(self.place)
        while self.on:
            at_ms = int(time.time() * 1000) + self.shared.clock_ms + self.rng.choice((500, 3_600_000))
            annotations = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at_ms)}
            self.send(talk, link, [self.shared.new(self.place, 100)], message_annotations=annotations)
            time.sleep(0.1)


class PeekLock(Worker):
    """Receives with locks; completes most messages, and uses every other settlement."""

    def __init__(self, run: Run, place: str, *, credit: int = 50, path: str = "", slow: bool = False) -> None:
        super().__init__(run, place, "peek-lock")
        self.path = path or place
        self.credit = credit
        # Pauses between two reads of the socket, sometimes for seconds.
        self.slow = slow
        # Messages that it has locked and does not settle: breaking the connection returns them.
        self.held = 0

    def work(self, talk: Talk) -> None:
        link = talk.receiver(self.path)
        self.held = 0
        while self.on:
            if self.held >= HELD_MAX:
                raise Break
            link.flow(self.credit)
            talk.flush()
            end = time.monotonic() + 1.0
            while self.on and time.monotonic() < end:
                self.take_in(talk, link)
                talk.check_links()

    def take_in(self, talk: Talk, link: Link) -> None:
        if self.slow:
            time.sleep(self.rng.choice((0.01, 0.05, 0.05, self.shared.stall_s)))
        talk.read(0.1)
        deliveries = [event for event in talk.events if isinstance(event, Transfer) and event.link is link]
        for delivery in deliveries:
            talk.events.remove(delivery)
            self.settle(talk, delivery)

    def settle(self, talk: Talk, delivery: Transfer) -> None:
        shared, place = self.shared, self.place
        name = shared.seen_whole(Did.RECEIVED, place, decoded(delivery), talk.life)
        choice = self.rng.random()
        if choice < 0.8:
            self.dispose(talk, delivery, name, STATE_ACCEPTED, Did.COMPLETING, Did.COMPLETED)
        elif choice < 0.85:
            self.dispose(talk, delivery, name, BURIAL, Did.BURYING, Did.BURIED)
        elif choice < 0.93:
            self.dispose(talk, delivery, name, state_modified(True, False), None, None)
        else:
            self.held += 1

    def dispose(
        self, talk: Talk, delivery: Transfer, name: str, state: bytes, doing: Did | None, done: Did | None
    ) -> None:
        shared = self.shared
        began = shared.deletions.get(self.place, 0)
        if doing is not None:
            shared.log(doing, self.place, name)
        outcome = talk.settle(delivery, state)
        if isinstance(outcome, Rejected) and outcome.error is not None and outcome.error.condition.endswith("-lost"):
            if not self.deleted_since(began):
                self.refused(f"settlement of {name}", outcome)
        elif done is not None:
            shared.log(done, self.place, name)


class Take(Worker):
    """Receives and deletes. Asks for more only when it has all it asked for, so that nothing travels to the broker
    while something travels from it: the worker reads everything that the broker has written, whatever happens to the
    broker.
    """

    def __init__(self, run: Run, place: str, *, credit: int = 500, slow: bool = False) -> None:
        super().__init__(run, place, "take")
        self.credit = credit
        self.slow = slow

    def work(self, talk: Talk) -> None:
        link = talk.receiver(self.place, settled=True)
        try:
            while self.on:
                self.round(talk, link)
        except Death:
            self.take_in(talk, link)  # the last that was read
            raise

    def round(self, talk: Talk, link: Link) -> None:
        link.flow(self.rng.randint(1, self.credit))
        talk.flush()
        while link.credit > 0:
            talk.check_links()
            if self.slow:
                time.sleep(self.rng.choice((0.01, 0.05, 0.05, self.shared.stall_s)))
            found = talk.read(1.0)
            self.take_in(talk, link)
            if not found and not self.on:
                link.flow(link.credit, drain=True)
                talk.flush()
                while not any(isinstance(event, Drained) for event in talk.events):
                    talk.read(PATIENCE_S)
                self.take_in(talk, link)
                return

    def take_in(self, talk: Talk, link: Link) -> None:
        for event in [each for each in talk.events if isinstance(each, Transfer) and each.link is link]:
            talk.events.remove(event)
            self.shared.seen_whole(Did.TAKEN, self.place, decoded(event), talk.life)


class Vanish(Worker):
    """Receives and deletes with much credit, reads little or nothing, and disconnects without a close."""

    def __init__(self, run: Run, place: str) -> None:
        super().__init__(run, place, "vanish")

    def work(self, talk: Talk) -> None:
        del talk
        while self.on:
            reader = Talk(self.shared, receive_bytes=65_536)
            try:
                link = reader.receiver(self.place, self.rng.choice((5, 500)), settled=True)
                time.sleep(self.rng.uniform(0.0, 1.0))
                for _ in range(self.rng.choice((0, 0, 10))):
                    reader.read(0.1)
                for event in [each for each in reader.events if isinstance(each, Transfer) and each.link is link]:
                    self.shared.seen_whole(Did.GLIMPSED, self.place, decoded(event), reader.life)
            finally:
                held = reader.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                self.shared.log(Did.VANISHED, self.place, "", held + SEND_BUFFER_BYTES_MAX)
                reader.socket.close()
            time.sleep(0.2)


class Churn(Send):
    """Uses a management node over links that stay open while its entity is deleted and created again."""

    def __init__(self, run: Run, place: str, rules: str = "") -> None:
        super().__init__(run, place, lambda rng: rng.randint(10, 300), waiting_max=10_000)
        # The subscription whose rules it changes.
        self.rules = rules

    def work(self, talk: Talk) -> None:
        shared = self.shared
        node = Node(talk, f"{self.place}/$management")
        rules = Node(talk, f"{self.rules}/$management") if self.rules else None
        while self.on:
            began = shared.deletions.get(self.place, 0)
            self.use(node, rules, began)
            time.sleep(0.1)

    def use(self, node: Node, rules: Node | None, began: int) -> None:
        shared = self.shared
        name = shared.new(self.place, self.size(self.rng))
        at_ms = int(time.time() * 1000) + shared.clock_ms + 200
        payload = shared.message(name, message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at_ms)})
        shared.log(Did.SENT, self.place, name, shared.sizes[name])
        entry = {"message-id": name, "message": payload}
        status, text, body = node.ask("com.microsoft:schedule-message", {"messages": [entry]})
        if status == 200:
            shared.log(Did.ACCEPTED, self.place, name)
            assert list(body["sequence-numbers"])
        elif not self.deleted_since(began):
            shared.log(Did.REFUSED, self.place, f"schedule of {name}: {status} {text}"[:500])
        if rules is not None:
            self.add_rule(rules, began)

    def add_rule(self, rules: Node, began: int) -> None:
        """Add a rule, and check that it is listed."""
        name = f"r{self.rng.randrange(1 << 30)}"
        description = {"rule-name": name, "sql-filter": {"expression": "1=0"}}
        arguments = {"rule-name": name, "rule-description": description}
        status, text, _ = rules.ask("com.microsoft:add-rule", arguments)
        if status == 200:
            status, text, body = rules.ask("com.microsoft:enumerate-rules", {"top": 1_000, "skip": 0})
            if status == 200:
                there = any(name in str(rule) for rule in (body or {}).get("rules", ()))
                status, text = (200, "") if there else (404, f"rule {name} was added and is not there")
            if status == 200:
                status, text, _ = rules.ask("com.microsoft:remove-rule", {"rule-name": name})
        if status != 200 and not self.deleted_since(began):
            self.shared.log(Did.REFUSED, self.place, f"rule {name}: {status} {text}"[:500])


class Rest(Worker):
    """Speaks HTTP: `step` is one request, and what follows from its answer."""

    def run(self) -> None:
        while self.on:
            life = self.shared.life
            try:
                self.step()
            except (OSError, HTTPException) as error:
                if self.shared.life == life and life % 2 == 0 and self.on:
                    self.shared.log(Did.CUT, self.place, f"{self.name}: {error!r}")
                time.sleep(0.05)
            except BaseException as error:
                self.shared.failures.append(error)
                raise

    def step(self) -> None:
        raise NotImplementedError

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection("127.0.0.1", self.shared.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def seen(self, did: Did, headers: dict[str, str], body: bytes, life: int) -> str:
        message = AmqpMessage()
        message.message_id, message.data = json.loads(headers["BrokerProperties"])["MessageId"], [body]
        return self.shared.seen_whole(did, self.place, message, life)

    def take(self, timeout_s: int) -> bool:
        """Receive and delete; returns whether there was a message."""
        life = self.shared.life
        status, headers, body = self.ask("DELETE", f"/{self.place}/messages/head?timeout={timeout_s}")
        if status == 200:
            self.seen(Did.TAKEN, headers, body, life)
        elif status != 204:
            self.shared.log(Did.REFUSED, self.place, f"DELETE head: {status} {body[:200]!r}")
        return status == 200


class RestSend(Rest):
    """Sends by POST."""

    def __init__(self, run: Run, place: str) -> None:
        super().__init__(run, place, "http send")

    def step(self) -> None:
        if self.shared.waiting.get(self.place, 0) > 200:
            time.sleep(0.05)
            return
        self.post()

    def post(self) -> None:
        shared = self.shared
        name = shared.new(self.place, self.rng.choice((10, 1_000, 100_000)))
        shared.log(Did.SENT, self.place, name, shared.sizes[name])
        properties = json.dumps({"MessageId": name})
        status, _, text = self.ask(
            "POST", f"/{self.place}/messages", body_of(name, shared.sizes[name]), BrokerProperties=properties
        )
        if status == 201:
            shared.log(Did.ACCEPTED, self.place, name)
        else:
            shared.log(Did.REFUSED, self.place, f"POST of {name}: {status} {text[:200]!r}")


class RestReceive(Rest):
    """Receives by POST and DELETE of the head."""

    def __init__(self, run: Run, place: str) -> None:
        super().__init__(run, place, "http receive")

    def step(self) -> None:
        if self.rng.random() < 0.5:
            self.take(1)
        else:
            self.lock()

    def lock(self) -> None:
        shared = self.shared
        life = shared.life
        status, headers, body = self.ask("POST", f"/{self.place}/messages/head?timeout=1")
        if status == 204:
            return
        if status != 201:
            shared.log(Did.REFUSED, self.place, f"POST head: {status} {body[:200]!r}")
            return
        name = self.seen(Did.RECEIVED, headers, body, life)
        shared.log(Did.COMPLETING, self.place, name)
        status, _, text = self.ask("DELETE", "/" + headers["Location"].split("/", 3)[3])
        if status == 200:
            shared.log(Did.COMPLETED, self.place, name)
        elif shared.life == life:
            shared.log(Did.REFUSED, self.place, f"DELETE of {name}: {status} {text[:200]!r}")


class HangUp(RestSend):
    """Requests a message from an empty queue, hangs up, and then sends one: nobody may have taken it."""

    def step(self) -> None:
        while self.take(0):
            pass  # left by a broker that died in the middle
        for method in ("DELETE", "POST"):
            with socket.create_connection(("127.0.0.1", self.shared.port), timeout=PATIENCE_S) as plain:
                head = f"{method} /{self.place}/messages/head?timeout=60 HTTP/1.1\r\nHost: localhost\r\n"
                plain.sendall((head + "Content-Length: 0\r\n\r\n").encode())
                time.sleep(self.rng.uniform(0.0, 0.2))
        time.sleep(0.2)
        life = self.shared.life
        self.post()
        end = time.monotonic() + PATIENCE_S
        while self.on and life == self.shared.life and not self.take(2):
            if time.monotonic() > end:
                self.shared.log(Did.REFUSED, self.place, "a message was sent and does not come")
                return


def drain(run: Run, paths: list[tuple[str, str, Did]], *, delete: bool = True) -> None:
    """Receive, or lock, all that is left: (path, place, what to log)."""
    for path, place, did in paths:
        talk = Talk(run)
        try:
            link = talk.receiver(path, settled=delete)
            while _drained(talk, link, place, did):
                pass
        except Death:
            run.log(Did.CUT, place, f"the connection ended while {path} was emptied")
        finally:
            talk.socket.close()


def _drained(talk: Talk, link: Link, place: str, did: Did) -> int:
    """Use up some credit; returns the number of messages."""
    link.flow(500, drain=True)
    talk.flush()
    count = 0
    while True:
        for event in [each for each in talk.events if isinstance(each, Transfer) and each.link is link]:
            talk.events.remove(event)
            talk.run.seen_whole(did, place, decoded(event), talk.life)
            count += 1
        if any(isinstance(event, Drained) for event in talk.events):
            talk.events = []
            return count
        assert talk.read(PATIENCE_S), f"{place} does not drain"
