"""A namespace with a stepped clock and in-memory tables, for tests of the entities."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from twinbus.clock import SteppedClock
from twinbus.entities.message import NewMessage, QueuedMessage
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.entities.settings import QueueSettings
from twinbus.entities.views import Views
from twinbus.store.facts import Facts, Table

START_MS = 1_700_000_000_000


class Tables:
    """A store made of dicts: deletes first, then puts, like the real one."""

    def __init__(self) -> None:
        # Rows by table.
        self.rows: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}

    def apply(self, facts: Facts) -> None:
        bodies = self.rows[Table.BODIES]
        for table, key in facts.deletes:
            self.rows[table].pop(key, None)
        for key, value in facts.bodies.items():
            assert key not in bodies, "no number is used twice"
            bodies[key] = value
        for key, value in facts.index.items():
            self.rows[Table.INDEX][key] = value
        for (table, key), value in facts.rows.items():
            assert len(key) <= 511
            self.rows[table][key] = value

    def scan(self, table: Table) -> Iterable[tuple[bytes, bytes]]:
        return sorted(self.rows[table].items())


class House:
    """A namespace under test: `facts` collects, `commit` makes durable and visible."""

    def __init__(self, **settings: object) -> None:
        self.clock = SteppedClock(START_MS)
        # What survives a crash.
        self.tables = Tables()
        # The open facts.
        self.facts = Facts()
        # Lock tokens count up, so that a run is reproducible.
        self._tokens = itertools.count(1)
        # What the callbacks reported.
        self.heard: list[str] = []
        self.namespace = Namespace("test", tokens=self.token, views=self.views())
        self.queue = self.create("q", **settings)

    def views(self) -> Views | None:
        """How filters see messages; None for blank views."""
        return None

    def token(self) -> bytes:
        return next(self._tokens).to_bytes(16, "big")

    def create(self, path: str, **settings: object) -> Queue:
        queue = self.namespace.create_queue(QueueSettings(path=path, **settings), self.now, self.facts)  # type: ignore[arg-type]
        self.listen(queue)
        self.commit()
        return queue

    def listen(self, queue: Queue) -> None:
        queue.on_available = lambda queue: self.heard.append(f"available {queue.path}")
        queue.on_session_lost = lambda queue, session: self.heard.append(f"lost {session.id}")
        queue.on_deleted = lambda queue: self.heard.append(f"deleted {queue.path}")

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def dead(self) -> Queue:
        assert self.queue.dead_letters is not None
        return self.queue.dead_letters

    def step(self, seconds: float = 0.0, ms: int = 0) -> None:
        """Advance the clock, then do and commit what is due."""
        self.clock.step(seconds=seconds, ms=ms)
        self.tick()

    def tick(self) -> None:
        while (at_ms := self.namespace.next_deadline()) is not None and at_ms <= self.now:
            self.namespace.tick(self.now, self.facts)
            self.commit()

    def commit(self) -> Facts:
        facts, self.facts = self.facts, Facts()
        self.tables.apply(facts)
        for call, argument in facts.then:
            call(argument)
        return facts

    def crash(self) -> None:
        """Lose everything that is not durable, and restore the rest."""
        self.facts = Facts()
        scan = self.tables.scan
        self.namespace = Namespace.restore(
            "test",
            scan(Table.ENTITIES),
            scan(Table.INDEX),
            scan(Table.SESSIONS),
            scan(Table.DUPLICATES),
            scan(Table.META),
            self.now,
            self.token,
            self.views(),
        )
        self.queue = self.namespace.queue("q")
        self.listen(self.queue)

    # --- shorthand --------------------------------------------------------------------------------------------------

    def send(self, *names: str, **fields: object) -> None:
        self.queue.send([new(name, **fields) for name in names], self.now, self.facts)
        self.commit()

    def acquire(self, count: int = 1, queue: Queue | None = None) -> list[QueuedMessage]:
        return (queue or self.queue).acquire(count, self.now, self.facts)

    def one(self) -> QueuedMessage:
        (message,) = self.acquire(1)
        return message

    def complete(self, message: QueuedMessage) -> None:
        self.queue.complete(tag(message), self.now, self.facts)
        self.commit()

    def abandon(self, message: QueuedMessage) -> None:
        self.queue.abandon(tag(message), self.now, self.facts)
        self.commit()

    def defer(self, message: QueuedMessage) -> None:
        self.queue.defer(tag(message), self.now, self.facts)
        self.commit()

    def accept(self, session_id: str | None = None) -> MessageSession:
        session = self.queue.accept_session(session_id, self.now)
        assert session is not None
        return session

    def body(self, message: QueuedMessage) -> str:
        return self.tables.rows[Table.BODIES][message.body_number.to_bytes(8, "big")].decode()

    def names(self, messages: Iterable[QueuedMessage]) -> list[str]:
        return [self.body(message) for message in messages]

    def snapshot(self) -> tuple[object, ...]:
        """Everything that a rejected command must leave unchanged."""
        facts = self.facts
        return (
            len(facts.bodies),
            len(facts.index),
            len(facts.rows),
            len(facts.deletes),
            len(facts.then),
            self.queue.counts,
            self.queue.size_bytes,
            self.dead.counts,
            self.queue.pings,
        )


def new(name: str = "m", *, size: int = 100, **fields: object) -> NewMessage:
    """A new message whose body is its name."""
    return NewMessage(name, name.encode(), size, **fields)  # type: ignore[arg-type]


def tag(message: QueuedMessage) -> bytes:
    assert message.token
    return message.token
