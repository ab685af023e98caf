"""Random programs of many clients at once, in which long work takes many commits, compared after every commit.

Transactions that commit in steps, large batches to topics and queues, failing steps, receivers of the same bodies,
forwarding, resubmitting, deletions, sweeps in steps, schedules, sessions, and crashes. The work is done by the broker's
own code (`sending`, `ControlLink._commit_in_steps`) with a commit loop that the program controls.

`python -m tests.proof prefixes` runs it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from prefix_model import Disk, compare, remembered
from topic_house import TopicHouse, post, rule

from twinbus.amqp.states import Accepted, AmqpError, Modified, Rejected, Released, State
from twinbus.broker import sending
from twinbus.broker.links import transactions
from twinbus.broker.links.transactions import ControlLink, Transaction
from twinbus.entities.account import Account
from twinbus.entities.fan_out import FanOut
from twinbus.entities.large_send import LargeSend
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ServiceError
from twinbus.store.facts import Facts, Table

OUTCOMES: tuple[State, ...] = (
    Accepted(),
    Accepted(),
    Accepted(),
    Modified(True, False, None),
    Modified(False, True, None),
    Rejected(AmqpError("com.microsoft:dead-letter", "", {"DeadLetterReason": "because"})),
    Released(),
)
QUEUES = ("u", "s", "f")
SUBSCRIPTIONS = {
    "src": {"a": {}, "b": {}, "c": {"forward_to": "u"}},
    "t": {"one": {}, "two": {"filter": "red = TRUE"}, "three": {"requires_session": True}},
}
TOPICS = tuple(SUBSCRIPTIONS)
COMMON: dict[str, Any] = {"lock_duration_ms": 60_000, "max_delivery_count": 3, "dead_letter_on_expiry": True}
SESSIONS = ("x", "y")


class StepError(Exception):
    """A step of long work fails."""


class Walk(TopicHouse):
    """One program."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sent = 0
        # The commit that runs: its facts, and what memory held when they were closed.
        self.running: tuple[Facts, Any] | None = None
        # Long work that can take a step, and lists of work that waits.
        self.works: list[Iterator[Any]] = []
        # Batches on their way, and whether they are finished.
        self.batches: dict[FanOut | LargeSend, bool] = {}
        self.commits = 0
        # Index rows that were deleted: their numbers must not come back.
        self.gone: set[bytes] = set()
        super().__init__(requires_duplicate_detection=True)
        self.create("u", requires_duplicate_detection=True, **COMMON)
        self.create("s", requires_session=True, **COMMON)
        self.namespace.create_topic(TopicSettings(path="src"), self.now, self.facts)
        self.create("f", forward_to="src", **COMMON)
        for topic, names in SUBSCRIPTIONS.items():
            for name in names:
                self.subscribe_to(topic, name)
        self.commit()

    # --- the parts of the broker that long work uses ------------------------------------------------------------------

    @property
    def host(self) -> Any:
        commits = _Commits(self)
        return SimpleNamespace(
            commits=commits,
            clock=self.clock,
            let_go=lambda topic: self.works.extend(topic.let_go(self.now)),
            slices=SimpleNamespace(resume=self.resume),
        )

    def resume(self, waiting: list[Any]) -> None:
        self.works += waiting
        waiting.clear()

    def step(self, work: Iterator[Any]) -> None:  # type: ignore[override]
        """One step of one piece of work; then it may be finished, or wait in a list."""
        self.works.remove(work)
        try:
            waiting = next(work)
        except (StopIteration, ServiceError):
            return
        (self.works if waiting is None else waiting).append(work)

    def fail(self, work: Any) -> None:
        """Its next step fails."""
        self.works.remove(work)
        try:
            work.throw(StepError)
        except (StepError, ServiceError, StopIteration):
            return
        raise AssertionError("the work went on after its step failed")

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit(self) -> Facts:
        """Write what runs and what is open."""
        self.written()
        facts = self.facts
        self.begin()
        self.written()
        return facts

    def begin(self) -> None:
        """Close the facts. Their commit runs until `written`."""
        self.written()
        facts, self.facts = self.facts, Facts()
        done = [batch for batch, finished in self.batches.items() if finished and isinstance(batch, FanOut)]
        early = [batch for batch, finished in self.batches.items() if not finished]
        self.running = facts, remembered(self.namespace, [facts], done, early)

    def written(self) -> None:
        if self.running is None:
            return
        (facts, memory), self.running = self.running, None
        index = self.tables.rows[Table.INDEX]
        self.gone |= {key for table, key in facts.deletes if table is Table.INDEX and key in index}
        assert not self.gone & facts.index.keys(), "a sequence number is used again"
        self.tables.apply(facts)
        self.commits += 1
        compare(memory, Disk(self.tables.rows))
        for call, argument in facts.then:
            call(argument)

    def crash(self) -> None:
        """Everything that is not written is lost."""
        self.running, self.works, self.batches = None, [], {}
        self.facts = Facts()
        super().crash()
        assert self.namespace.set_aside.count == 0, self.namespace.set_aside.found
        self.begin()

    # --- entities and messages ----------------------------------------------------------------------------------------

    def subscribe_to(self, topic: str, name: str) -> None:
        fields = {**COMMON, **SUBSCRIPTIONS[topic][name]}
        made = fields.pop("filter", None)
        wanted = SubscriptionSettings(topic=topic, name=name, **fields)
        first = None if made is None else rule("$Default", made)
        self.namespace.create_subscription(wanted, self.now, self.facts, first)

    def entities(self) -> list[Queue | Topic]:
        return list(self.namespace._by_id.values())

    def queues(self) -> list[Queue]:
        return [each for each in self.entities() if isinstance(each, Queue)]

    def target(self) -> Queue | Topic:
        return self.namespace.entity(self.chance.choice((*QUEUES, *TOPICS, *TOPICS)))

    def messages(self, target: Queue | Topic, most: int, *, scheduled: bool = False) -> list[NewMessage]:
        chance = self.chance
        made = []
        for _ in range(chance.randint(1, most)):
            self.sent += 1
            at_ms = self.now + 5_000 if scheduled or chance.random() < 0.1 else None
            made.append(
                post(
                    f"m{self.sent}",
                    message_id=f"id{chance.randint(0, 30)}" if chance.random() < 0.5 else f"m{self.sent}",
                    session_id=chance.choice(SESSIONS) if target.path in ("s", "t") else None,
                    ttl_ms=chance.choice((None, None, 90_000)),
                    scheduled_ms=at_ms,
                    red=chance.random() < 0.5,
                )
            )
        return made

    def locked(self) -> list[tuple[Queue, bytes]]:
        return [(queue, token) for queue in self.queues() for token in queue.messages.locks.held]

    # --- what clients do ----------------------------------------------------------------------------------------------

    def send(self) -> None:  # type: ignore[override]
        target = self.target()
        if target.held is None:
            target.send(self.messages(target, 3), self.now, self.facts)

    def send_in_steps(self) -> None:
        target = self.target()
        many = self.messages(target, 12 if isinstance(target, Topic) else 130)
        self.works.append(sending.sending(self.host, target, many, lambda facts: None))

    def schedule(self) -> None:
        target = self.target()
        target.schedule(self.messages(target, 2, scheduled=True), self.now, self.facts)

    def cancel(self) -> None:
        entity = self.chance.choice(self.entities())
        numbers = list(entity.messages.schedule.messages)
        if numbers:
            entity.cancel(self.chance.sample(numbers, 1), self.now, self.facts)

    def receive(self) -> None:
        queue = self.chance.choice(self.queues())
        if queue.sessions is None:
            queue.acquire(self.chance.randint(1, 5), self.now, self.facts)
            return
        session = queue.accept_session(self.chance.choice(SESSIONS), self.now)
        assert session is not None
        session.acquire(self.chance.randint(1, 5), self.now, self.facts)
        if self.chance.random() < 0.3:
            queue.set_session_state(session.id, self.chance.choice((b"state", None)), self.now, self.facts)

    def receive_and_delete(self) -> None:
        queue = self.chance.choice(self.queues())
        if queue.sessions is None:
            taken = queue.take(self.chance.randint(1, 3), self.now, self.facts)
            if self.chance.random() < 0.7:
                queue.remove_taken(taken, self.facts)
            else:
                queue.return_taken(taken, self.now, self.facts)

    def receive_deferred(self) -> None:
        queue = self.chance.choice(self.queues())
        numbers = [seq for seq, message in queue.messages.deferred.items() if message.session is None]
        if numbers:
            queue.receive_deferred(self.chance.sample(numbers, 1), self.now, self.facts, session=None)

    def settle(self) -> None:
        locked = self.locked()
        for queue, token in self.chance.sample(locked, min(len(locked), 4)):
            try:
                transactions.settle_all({token: (queue, self.chance.choice(OUTCOMES))}, self.now, self.facts)
            except ServiceError:
                continue

    def release_session(self) -> None:
        for queue in self.queues():
            if queue.sessions is not None:
                for session in list(queue.sessions.by_id.values()):
                    if session.locked and self.chance.random() < 0.5:
                        queue.release_session(session, self.now, self.facts)

    def transact(self) -> None:
        """A transaction that commits in steps, or at once."""
        transaction = Transaction(self.clock.steady_ms() + 120_000, Account(1 << 30))
        for queue in self.queues():
            if queue.sessions is None and self.chance.random() < 0.5:
                queue.acquire(3, self.now, self.facts)
        locked = self.locked()
        for queue, token in self.chance.sample(locked, min(len(locked), self.chance.randint(0, 6))):
            try:
                transaction.settle(queue, token, self.chance.choice(OUTCOMES), self.now)
            except ServiceError:
                continue
        for _ in range(self.chance.randint(1, 3)):
            target = self.target()
            transaction.send(target, self.messages(target, 5))
        if self.chance.random() < 0.3:
            target = self.target()
            transaction.schedule(target, self.messages(target, 2, scheduled=True), self.facts)
        if self.chance.random() < 0.2 and transaction.held() is None:
            transaction.commit(self.now, self.clock.steady_ms(), self.facts)
        else:
            self.works.append(self._committing(transaction))

    def _committing(self, transaction: Transaction) -> Iterator[Any]:
        while (held := transaction.held()) is not None:
            yield held
        host = self.host
        control = SimpleNamespace(
            _connection=SimpleNamespace(host=host),
            _refuse=lambda transaction, delivery_id, error: transaction.roll_back(self.now, self.facts),
            _let_go=lambda work: [host.let_go(topic) for topic in work.topics],
            _answer_after=lambda transaction, delivery_id, facts: transaction.let_go(),
        )
        yield from ControlLink._commit_in_steps(control, transaction, 0)  # type: ignore[arg-type]

    # --- what the broker does -----------------------------------------------------------------------------------------

    def work(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            if self.works:
                self.step(self.chance.choice(self.works))

    def break_work(self) -> None:
        """A step fails for a reason that nobody foresaw."""
        begun = [work for work in self.works if _begun(work)]
        if begun:
            self.fail(self.chance.choice(begun))

    def pass_time(self) -> None:
        self.clock.step(seconds=self.chance.choice((1, 6, 61, 100)))
        for _ in range(3):
            if (at_ms := self.namespace.next_deadline()) is not None and at_ms <= self.now:
                self.namespace.tick(self.now, self.facts)

    def resubmit(self) -> None:
        for queue in self.queues():
            if queue.owner is not None and self.chance.random() < 0.3:
                queue.owner.resubmit(queue, None, 0, self.now, self.facts)

    def delete_messages(self) -> None:
        queue = self.chance.choice(self.queues())
        if self.chance.random() < 0.5:
            queue.delete_batch(self.chance.randint(1, 4), self.now + 1, self.now, self.facts)
        else:
            queue.delete_chosen(
                [message.seq for message in queue.messages.available.browse(0, 2)], self.now, self.facts
            )

    def delete_entity(self) -> None:
        """Delete an entity, and create it again at once or later."""
        chance = self.chance
        namespace = self.namespace
        topic = chance.choice(TOPICS)
        name = chance.choice(list(SUBSCRIPTIONS[topic]))
        if namespace.topic(topic).find(name) is not None:
            namespace.delete_subscription(topic, name, self.now, self.facts)
        elif chance.random() < 0.7:
            self.subscribe_to(topic, name)
        if chance.random() < 0.2:
            settings = namespace.queue("u").settings
            namespace.delete_queue("u", self.now, self.facts)
            namespace.create_queue(settings, self.now, self.facts)  # type: ignore[arg-type]

    def sweep(self) -> None:
        self.namespace.sweep(self.facts, self.chance.choice((1, 3, 500)))

    # --- the program --------------------------------------------------------------------------------------------------

    def go(self, steps: int) -> None:
        commands: dict[Callable[[], object], int] = {
            self.send: 8,
            self.send_in_steps: 3,
            self.schedule: 2,
            self.cancel: 1,
            self.receive: 10,
            self.receive_and_delete: 3,
            self.receive_deferred: 2,
            self.settle: 10,
            self.release_session: 2,
            self.transact: 5,
            self.work: 22,
            self.break_work: 2,
            self.pass_time: 2,
            self.resubmit: 2,
            self.delete_messages: 2,
            self.delete_entity: 1,
            self.sweep: 3,
            self.begin: 8,
            self.written: 8,
        }
        todo = self.chance.choices(list(commands), list(commands.values()), k=steps)
        with self.batches_noted():
            for command in todo:
                try:
                    command()
                except ServiceError:
                    continue
            self.end()

    def end(self) -> None:
        """Crash, sweep, and receive everything: nothing may be left."""
        if self.chance.random() < 0.5:
            self.commit()
        self.crash()
        while self.namespace.sweep(self.facts, 7):
            self.commit()
        self.commit()
        meta = self.tables.rows[Table.META]
        assert not [key for key in meta if key.startswith((b"pending", b"deleted"))]
        while sum(self.received(queue) for queue in self.queues()) or not self.facts.empty:
            self.commit()
        left = sum(len(entity.messages.schedule) + len(entity.messages.deferred) for entity in self.entities())
        assert len(self.tables.rows[Table.INDEX]) == left

    def received(self, queue: Queue) -> int:
        """Receive and delete what a queue has; returns how many."""
        if queue.sessions is None:
            taken = queue.take(1_000, self.now, self.facts)
        else:
            session = queue.accept_session(None, self.now)
            if session is None:
                return 0
            taken = session.take(1_000, self.now, self.facts)
            queue.release_session(session, self.now, self.facts)
        self.titles(taken)
        queue.remove_taken(taken, self.facts)
        return len(taken)

    @contextmanager
    def batches_noted(self) -> Iterator[None]:
        """Note every batch that begins, finishes or fails."""
        hand_out, large = Topic.hand_out, sending.LargeSend
        finish, show, undo = FanOut.finish, FanOut.show, FanOut.undo

        def handed_out(topic: Topic, messages: Any, now_ms: int) -> FanOut:
            batch = hand_out(topic, messages, now_ms)
            self.batches[batch] = False
            return batch

        def finished(batch: FanOut, facts: Facts) -> None:
            finish(batch, facts)
            self.batches[batch] = True

        def shown(batch: FanOut) -> Iterator[None]:
            # All at once, so that no commit sees a part of it.
            list(show(batch))
            self.batches.pop(batch, None)
            yield None

        def undone(batch: FanOut) -> None:
            undo(batch)
            self.batches.pop(batch, None)

        Topic.hand_out, FanOut.finish, FanOut.show, FanOut.undo = handed_out, finished, shown, undone  # type: ignore[method-assign, assignment]
        sending.LargeSend = self._large(large)  # type: ignore[misc, assignment]
        try:
            yield
        finally:
            Topic.hand_out, FanOut.finish, FanOut.show, FanOut.undo = hand_out, finish, show, undo  # type: ignore[method-assign]
            sending.LargeSend = large  # type: ignore[misc]

    def _large(self, made: type[LargeSend]) -> Callable[..., Any]:
        def begun(*arguments: Any) -> Any:
            batch = made(*arguments)
            self.batches[batch] = False
            return _NotedSend(batch, lambda: self.batches.pop(batch, None))

        return begun


class _NotedSend:
    """A large send that tells when it ends."""

    def __init__(self, batch: LargeSend, ended: Callable[[], object]) -> None:
        self._batch = batch
        self._ended = ended
        self.steps = batch.steps

    def finish(self, facts: Facts) -> None:
        self._ended()
        self._batch.finish(facts)

    def undo(self) -> None:
        self._ended()
        self._batch.undo()


class _Commits:
    """The commit loop, which the program controls."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    @property
    def facts(self) -> Facts:
        return self._walk.facts

    def request(self) -> None:
        """The program decides when."""

    request_if_needed = request


def _begun(work: Any) -> bool:
    """Whether it is in the middle of its steps."""
    return work.gi_frame is not None and work.gi_yieldfrom is not None
