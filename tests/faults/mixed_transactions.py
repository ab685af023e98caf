"""Transactions of the mixed run: they complete copies whose bodies another subscription shares, and commit in steps."""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

from mixed_checker import Did
from mixed_load import HELD_MAX, Break, PeekLock, Run, Send, Talk, Worker
from tests.broker.peer import decoded
from transacting import Control

from twinbus.amqp.events import Disposed, Drained, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import Accepted

TOPIC = "shared"
COPIES = ("a", "b")
WIDE = "wide"
WIDE_SUBSCRIPTIONS = 300
# With so many messages to that many subscriptions a transaction takes several commits.
WIDE_MESSAGES = 8
OUT = "out"

# Places and paths of what readers find, to be emptied at the end.
PATHS = (
    *((f"{TOPIC}/Subscriptions/{name}", f"{TOPIC}-{name}") for name in COPIES),
    (f"{WIDE}/Subscriptions/s0", WIDE),
    (OUT, OUT),
)


def entities(namespace: str) -> str:
    """The topics and the queue as TOML. Only the first of the many subscriptions keeps its copies."""
    subscription = 'lock_duration = "PT5M"\nmax_delivery_count = 2000\n'
    found = f"[namespaces.{namespace}.queues.{OUT}]\n{subscription}"
    for name in COPIES:
        found += f"[namespaces.{namespace}.topics.{TOPIC}.subscriptions.{name}]\n{subscription}"
    for number in range(WIDE_SUBSCRIPTIONS):
        found += f"[namespaces.{namespace}.topics.{WIDE}.subscriptions.s{number}]\n"
        found += 'default_ttl = "PT5S"\n' if number else subscription
    return found


def workers(run: Run, size: Callable[[random.Random], int], pause_s: float) -> list[Worker]:
    run.copied.update(f"{TOPIC}-{name}" for name in COPIES)
    return [
        SendCopies(run, TOPIC, size, waiting_max=200),
        SettleMeanwhile(run, f"{TOPIC}-b", path=f"{TOPIC}/Subscriptions/b"),
        Transact(run, pause_s),
        PeekLock(run, OUT),
        PeekLock(run, WIDE, path=f"{WIDE}/Subscriptions/s0"),
    ]


class SendCopies(Send):
    """Sends to a topic: each message has a copy in two subscriptions."""

    def work(self, talk: Talk) -> None:
        link = talk.sender(self.place)
        while self.on:
            if max(self.shared.waiting.get(f"{TOPIC}-{name}", 0) for name in COPIES) < self.waiting_max:
                names = [self.shared.new(self.place, self.size(self.rng)) for _ in range(self.rng.choice((1, 5, 20)))]
                self.send(talk, link, names)
            time.sleep(0.05)

    def send(self, talk: Talk, link: Link, names: list[str], **fields: Any) -> None:
        pending: dict[int, str] = {}
        for name in names:
            self._log(Did.SENT, name, self.shared.sizes[name])
            payload = self.shared.message(name, **fields)
            pending[link.send(payload, tag=uuid.uuid4().bytes, settled=False)] = name
        talk.flush()
        while pending:
            disposed = talk.wait(Disposed)
            for delivery_id, *_ in disposed.deliveries:
                name = pending.pop(delivery_id)
                if isinstance(disposed.state, Accepted):
                    self._log(Did.ACCEPTED, name)
                else:
                    self.refused(f"send of {name}", disposed.state)

    def _log(self, did: Did, name: str, amount: int = 0) -> None:
        for copy in COPIES:
            place = f"{TOPIC}-{copy}"
            self.shared.log(did, place, self.shared.copy_name(place, name), amount)


class SettleMeanwhile(PeekLock):
    """Settles its copies of those messages that a transaction is completing right now, and the others later."""

    def work(self, talk: Talk) -> None:
        link = talk.receiver(self.path)
        self.held = 0
        # Deliveries by message id, with the time they came.
        waiting: dict[str, tuple[float, Transfer]] = {}
        while self.on and self.held < HELD_MAX:
            if link.credit < self.credit:
                link.flow(self.credit)
            talk.read(0.005)
            talk.check_links()
            for event in [each for each in talk.events if isinstance(each, Transfer) and each.link is link]:
                talk.events.remove(event)
                waiting[str(decoded(event).message_id)] = time.monotonic(), event
            meanwhile = [name for name in self.shared.in_transaction if name in waiting]
            late = time.monotonic() - 1.0
            for name in meanwhile or [name for name, (came, _) in waiting.items() if came < late][:1]:
                self.settle(talk, waiting.pop(name)[1])
        raise Break


class Transact(Worker):
    """Completes copies and sends messages, together or not at all."""

    def __init__(self, run: Run, pause_s: float) -> None:
        super().__init__(run, f"{TOPIC}-a", "transact")
        self.pause_s = pause_s
        self.numbers = itertools.count(1)

    def work(self, talk: Talk) -> None:
        link = talk.receiver(f"{TOPIC}/Subscriptions/a")
        out, wide = talk.sender(OUT), talk.sender(WIDE)
        control = Control(talk)
        while self.on:
            deliveries = self.received(talk, link)
            if deliveries:
                self.transact(talk, control, deliveries, out, wide)
            time.sleep(self.pause_s)

    def received(self, talk: Talk, link: Link) -> list[Transfer]:
        link.flow(self.rng.choice((1, 10, 40)), drain=True)
        talk.flush()
        talk.wait(Drained)
        found = [event for event in talk.events if isinstance(event, Transfer) and event.link is link]
        talk.events = [event for event in talk.events if event not in found]
        return found

    def transact(self, talk: Talk, control: Control, deliveries: list[Transfer], out: Link, wide: Link) -> None:
        shared, place = self.shared, self.place
        number = next(self.numbers)
        txn_id = control.declare()
        taken = []
        for delivery in deliveries:
            name = shared.seen_whole(Did.RECEIVED, place, decoded(delivery), talk.life)
            taken.append(name)
            shared.log(Did.COMPLETING, place, name)
            shared.log(Did.BOUND, place, name, number)
            control.complete(delivery, txn_id)
        sent = self._sent(control, txn_id, OUT, out, number, 1)
        if self.rng.random() < 0.7:
            sent += self._sent(control, txn_id, WIDE, wide, number, WIDE_MESSAGES)
        fail = self.rng.random() < 0.1
        if fail:
            shared.log(Did.ROLLED_BACK, place, "", number)
        shared.in_transaction = [str(decoded(delivery).message_id) for delivery in deliveries]
        shared.committing.set()
        try:
            state = control.discharge(txn_id, fail=fail)
        finally:
            shared.committing.clear()
            shared.in_transaction = []
        if not isinstance(state, Accepted):
            self.refused(f"transaction {number}", state)
        elif fail:
            for name, delivery in zip(taken, deliveries, strict=True):
                shared.log(Did.COMPLETING, place, name)
                if isinstance(talk.settle(delivery), Accepted):
                    shared.log(Did.COMPLETED, place, name)
        else:
            for name in taken:
                shared.log(Did.COMPLETED, place, name)
            for where, name in sent:
                shared.log(Did.ACCEPTED, where, name)

    def _sent(
        self, control: Control, txn_id: bytes, place: str, link: Link, number: int, count: int
    ) -> list[tuple[str, str]]:
        shared = self.shared
        names = []
        for _ in range(count):
            name = shared.new(place, self.rng.randint(10, 2_000))
            shared.log(Did.SENT, place, name, shared.sizes[name])
            shared.log(Did.BOUND, place, name, number)
            control.send(link, txn_id, shared.message(name))
            names.append((place, name))
        return names
