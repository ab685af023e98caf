"""Random commands, commits and crashes on a real queue, compared with the naive one in `queue_model`.

Checked after every step: nothing accepted is lost, nothing completed returns, order by sequence number, counts and
bytes, at most one valid lock per message, dead letters with the right reason, rows in the store, no missed deadline.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from functools import partial
from itertools import takewhile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from queue_model import ACTIVE, DEAD, DEFERRED, MAIN, SCHEDULED, Held, Model
from rules_house import House, new

from twinbus.entities import records
from twinbus.entities.message import QueuedMessage
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.entities.states import Place, place
from twinbus.errors import (
    MessageLockLostError,
    MessageNotFoundError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from twinbus.store.facts import Facts, Table, body_key, index_numbers

LOCK_MS = 5_000
WINDOW_MS = 20_000
SESSIONS = ("red", "blue")
STATES = {0: ACTIVE, 1: DEFERRED, 2: SCHEDULED}

HOW = ("complete", "abandon", "abandon", "release", "drop", "defer", "dead_letter")

picks = st.integers(0, 50)


class QueueMachine(RuleBasedStateMachine):
    """One queue and its dead-letter queue."""

    sessionful = False

    @initialize(
        duplicates=st.booleans(),
        dead_letter=st.booleans(),
        max_count=st.sampled_from([1, 3, 5]),
        ttl_s=st.sampled_from([None, 30]),
    )
    def build(self, duplicates: bool, dead_letter: bool, max_count: int, ttl_s: int | None) -> None:
        ttl = {} if ttl_s is None else {"default_ttl_ms": ttl_s * 1000}
        self.house = House(
            lock_duration_ms=LOCK_MS,
            requires_duplicate_detection=duplicates,
            duplicate_window_ms=WINDOW_MS,
            requires_session=self.sessionful,
            dead_letter_on_expiry=dead_letter,
            max_delivery_count=max_count,
            **ttl,
        )
        self.model = Model(
            lock_ms=LOCK_MS,
            ttl_ms=None if ttl_s is None else ttl_s * 1000,
            dead_letter_on_expiry=dead_letter,
            max_count=max_count,
            window_ms=WINDOW_MS if duplicates else None,
        )
        # Facts that are closed but not durable, oldest first.
        self.in_flight: list[tuple[int, Facts]] = []
        # Live messages of the real queue by token.
        self.tokens: dict[bytes, QueuedMessage] = {}
        # Tokens that must no longer work.
        self.spent: list[bytes] = []
        # Sequence numbers seen, with the order of their message.
        self.numbers: dict[int, int] = {}
        self.sent = 0
        self.sessions: dict[str, MessageSession] = {}

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.house.now

    def taken(self, source: Queue | MessageSession, queue: str, count: int, lock: bool) -> list[QueuedMessage]:
        """Receive messages: locked, or written and removed."""
        if lock:
            return source.acquire(count, self.now, self.house.facts)
        messages = source.take(count, self.now, self.house.facts)
        self.real(queue).remove_taken(messages, self.house.facts)
        return messages

    def real(self, queue: str) -> Queue:
        return self.house.queue if queue == MAIN else self.house.dead

    def received(self, queue: str, real: list[QueuedMessage], expected: list[Held], *, locked: bool) -> None:
        assert self.house.names(real) == [held.name for held in expected]
        for message, held in zip(real, expected, strict=True):
            assert message.delivery_count == held.count
            assert self.numbers.setdefault(message.seq, held.order) == held.order, "a number is used once"
            held.seq = message.seq
            if locked:
                assert message.token is not None
                assert len(message.token) == 16
                assert message.token not in self.tokens
                assert place(message) in (Place.LOCKED, Place.DEFERRED_LOCKED)
                held.token = message.token
                held.until_ms = self.now + LOCK_MS
                self.tokens[message.token] = message
            else:
                assert place(message) is Place.REMOVED
                self.model.messages.remove(held)
        seqs = [message.seq for message in real]
        assert seqs == sorted(seqs)

    def locked(self, pick: int) -> Held | None:
        held = self.model.locked()
        return held[pick % len(held)] if held else None

    def lost(self, call: object, *arguments: object) -> None:
        """A command that fails with lock-lost and changes nothing."""
        before = self.house.snapshot()
        with pytest.raises((MessageLockLostError, SessionLockLostError)):
            call(*arguments)  # type: ignore[operator]
        assert self.house.snapshot() == before

    # --- senders ----------------------------------------------------------------------------------------------------

    def send_batch(self, count: int, ttl_s: int | None, session: str, dup: int, ping: bool) -> None:
        ttl_ms = None if ttl_s is None else ttl_s * 1000
        batch = []
        for _ in range(count):
            self.sent += 1
            name = f"m{self.sent}"
            message_id = f"id{dup}" if self.sent % 2 else name
            in_session = session if self.sessionful else None
            message = new(name, ttl_ms=ttl_ms, session_id=in_session)
            message.message_id = message_id
            batch.append(message)
            self.model.send(name, message_id, in_session, ttl_ms, None, self.now)
        if ping:
            batch.append(new("ping", ping=True))
        self.house.queue.send(batch, self.now, self.house.facts)

    def schedule(self, delay_s: int, session: str, ttl_s: int | None) -> None:
        self.sent += 1
        name = f"m{self.sent}"
        at_ms = self.now + delay_s * 1000
        ttl_ms = None if ttl_s is None else ttl_s * 1000
        in_session = session if self.sessionful else None
        held = self.model.send(name, name, in_session, ttl_ms, at_ms, self.now)
        message = new(name, ttl_ms=ttl_ms, session_id=in_session, scheduled_ms=at_ms)
        (seq,) = self.house.queue.schedule([message], self.now, self.house.facts)
        assert held is not None
        held.seq = seq

    def cancel(self, pick: int) -> None:
        scheduled = [held for held in self.model.messages if held.state == SCHEDULED and held.waits_for is None]
        if not scheduled:
            with pytest.raises(MessageNotFoundError):
                self.house.queue.cancel([1 << 40], self.now, self.house.facts)
            return
        held = scheduled[pick % len(scheduled)]
        assert held.seq is not None
        self.house.queue.cancel([held.seq], self.now, self.house.facts)
        self.model.messages.remove(held)

    @rule(
        count=st.integers(1, 4),
        ttl_s=st.sampled_from([None, None, None, 1, 3, 100]),
        session=st.sampled_from(SESSIONS),
        dup=st.integers(0, 3),
        ping=st.booleans(),
        delay_s=st.sampled_from([None, None, None, -1, 2, 8]),
        commit=st.sampled_from([True, True, False]),
    )
    def send(
        self, count: int, ttl_s: int | None, session: str, dup: int, ping: bool, delay_s: int | None, commit: bool
    ) -> None:
        if delay_s is None:
            self.send_batch(count, ttl_s, session, dup, ping)
        else:
            self.schedule(delay_s, session, ttl_s)
        if commit:
            self.commit()

    # --- receivers --------------------------------------------------------------------------------------------------

    @rule(
        count=st.integers(1, 4),
        queue=st.sampled_from([MAIN, MAIN, DEAD]),
        lock=st.sampled_from([True, True, True, False]),
    )
    def receive(self, count: int, queue: str, lock: bool) -> None:
        if queue == MAIN and self.sessionful:
            return
        expected = self.model.pick(queue, None, count, self.now)
        real = self.real(queue)
        self.received(queue, self.taken(real, queue, count, lock), expected, locked=lock)

    @rule(
        count=st.integers(1, 2),
        session=st.sampled_from(SESSIONS),
        how=st.sampled_from(["complete", "abandon", "drop", "defer", "defer", "dead_letter", "nothing"]),
        commit=st.booleans(),
    )
    def receive_and_settle(self, count: int, session: str, how: str, commit: bool) -> None:
        """A message's usual path, so that a short run gets far."""
        if self.sessionful:
            if session not in self.model.sessions:
                self.accept(session)
            if session in self.sessions:
                self.receive_in_session(session, count, True)
        else:
            self.receive(count, MAIN, True)
        last = len(self.model.locked()) - 1
        if last >= 0 and how == "complete":
            self.complete(last)
        elif last >= 0 and how != "nothing":
            self.settle(last, how, False)
        if commit:
            self.commit()

    @rule(pick=picks, lock=st.booleans())
    def receive_deferred(self, pick: int, lock: bool) -> None:
        deferred = [
            held
            for held in self.model.messages
            if held.state == DEFERRED and held.waits_for is None and not held.token and held.queue == MAIN
        ]
        if not deferred:
            return
        held = deferred[pick % len(deferred)]
        session = None
        if self.sessionful:
            assert held.session is not None
            session = self.sessions.get(held.session)
            if session is None or self.model.sessions.get(held.session, 0) <= self.now:
                return
        assert held.seq is not None
        real = self.house.queue.receive_deferred([held.seq], self.now, self.house.facts, session=session)
        if not lock:
            for message in real:
                assert message.token
                self.house.queue.complete(message.token, self.now, self.house.facts)
        if held.expires_ms is not None and held.expires_ms <= self.now:
            assert real == []
            self.model.expire(held)
        else:
            self.received(MAIN, real, [held], locked=lock)

    def complete(self, pick: int) -> None:
        held = self.locked(pick)
        if held is None or held.token is None:
            return
        call = self.real(held.queue).complete
        if not self.model.live(held, self.now):
            self.lost(call, held.token, self.now, self.house.facts)
            return
        call(held.token, self.now, self.house.facts)
        self.spend(held.token)
        self.model.messages.remove(held)

    @rule(pick=picks, how=st.sampled_from(HOW), change=st.booleans())
    def settle(self, pick: int, how: str, change: bool) -> None:
        if how == "complete":
            self.complete(pick)
            return
        held = self.locked(pick)
        if held is None or held.token is None or (how == "dead_letter" and held.queue == DEAD):
            return
        call = getattr(self.real(held.queue), how)
        arguments: list[object] = [held.token, self.now, self.house.facts]
        if how == "dead_letter":
            arguments += ["because", "it was so"]
        if change and how in ("abandon", "defer", "dead_letter"):
            arguments.append({"tried": str(held.count)})
        if not self.model.live(held, self.now):
            self.lost(call, *arguments)
            return
        call(*arguments)
        self.spend(held.token)
        if change and how in ("abandon", "defer", "dead_letter"):
            held.changes["tried"] = str(held.count)
        held.token = None
        if how == "dead_letter":
            self.model.dead_letter(held, "because", "it was so")
        elif how == "defer":
            held.state = DEFERRED
            held.count += held.queue == MAIN
            held.waits_for = self.model.group
        else:
            self.model.give_back(held, how != "release", self.now)

    def renew(self, pick: int) -> None:
        held = self.locked(pick)
        if held is None or held.token is None:
            return
        call = self.real(held.queue).renew
        if not self.model.live(held, self.now):
            self.lost(call, held.token, self.now)
            return
        until_ms = call(held.token, self.now)
        if held.session is None or held.queue == DEAD:
            assert until_ms == self.now + LOCK_MS
            held.until_ms = until_ms

    def settle_again(self, pick: int, how: str) -> None:
        if self.spent:
            arguments: list[object] = [self.spent[pick % len(self.spent)], self.now]
            self.lost(getattr(self.house.queue, how), *arguments, *([] if how == "renew" else [self.house.facts]))

    def delete_batch(self, count: int, age_s: int, session: str) -> None:
        before_ms = self.now - age_s * 1000
        in_session = session if self.sessionful else None
        # Up to the first message that is not older: after the clock was set back, older ones may be behind it.
        available = self.model.available(MAIN, in_session)
        old = list(takewhile(lambda held: held.enqueued_ms < before_ms, available))[:count]
        assert self.house.queue.delete_batch(count, before_ms, self.now, self.house.facts, in_session) == len(old)
        for held in old:
            self.model.messages.remove(held)

    def spend(self, token: bytes) -> None:
        assert place(self.tokens.pop(token)) not in (Place.LOCKED, Place.DEFERRED_LOCKED)
        self.spent.append(token)

    # --- sessions ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.sessionful)
    @rule(session=st.sampled_from([None, *SESSIONS]))
    def accept(self, session: str | None) -> None:
        queue = self.house.queue
        if session is not None and (session in self.model.sessions or session in self.model.leaving):
            with pytest.raises(SessionCannotBeLockedError):
                queue.accept_session(session, self.now)
            return
        accepted = queue.accept_session(session, self.now)
        if session is None:
            taken = self.model.sessions.keys() | self.model.leaving.keys()
            free = [name for name in SESSIONS if name not in taken and self.model.available(MAIN, name)]
            if accepted is None:
                assert set(free) <= self.model.released.keys(), "only one that was just given up may still wait"
                return
            assert accepted.id in free
        assert accepted is not None
        self.sessions[accepted.id] = accepted
        self.model.sessions[accepted.id] = self.now + LOCK_MS

    @precondition(lambda self: self.sessionful)
    @rule(session=st.sampled_from(SESSIONS), count=st.integers(1, 3), lock=st.sampled_from([True, True, True, False]))
    def receive_in_session(self, session: str, count: int, lock: bool) -> None:
        held = self.sessions.get(session)
        if held is None:
            return
        if self.model.sessions.get(session, 0) <= self.now:
            self.lost(held.acquire, count, self.now, self.house.facts)
            return
        expected = self.model.pick(MAIN, session, count, self.now)
        self.received(MAIN, self.taken(held, MAIN, count, lock), expected, locked=lock)

    @precondition(lambda self: self.sessionful)
    @rule(session=st.sampled_from(SESSIONS), what=st.sampled_from(["release", "renew", "set", "clear"]))
    def use_session(self, session: str, what: str) -> None:
        queue, now, facts = self.house.queue, self.now, self.house.facts
        live = self.model.sessions.get(session, 0) > now
        if what == "release":
            if session in self.model.sessions:
                for held in self.model.locked(MAIN):
                    if held.session == session and held.token:
                        self.spent.append(held.token)
                        self.tokens.pop(held.token)
                queue.release_session(self.sessions.pop(session), now, facts)
                self.model.free_session(session, now)
                self.model.released[session] = self.model.group
        elif what == "renew":
            if live:
                self.model.sessions[session] = queue.renew_session(session, now)
            else:
                self.lost(queue.renew_session, session, now)
        elif not live:
            self.lost(queue.set_session_state, session, b"x", now, facts)
        elif what == "set":
            state = str(now).encode()
            queue.set_session_state(session, state, now, facts)
            self.model.states[session] = state
        else:
            queue.set_session_state(session, None, now, facts)
            self.model.states.pop(session, None)

    # --- time, commits, crashes -------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 400, 1_000, 1_000, 2_500, 5_000, 5_000, 21_000]), what=st.sampled_from("wtc"))
    def pass_time(self, ms: int, what: str) -> None:
        """Wait; then maybe tick, and maybe commit."""
        self.wait(ms)
        if what != "w":
            self.tick()
        if what == "c":
            self.commit()

    @rule(what=st.sampled_from(["commit", "commit", "begin", "durable", "crash"]), survive=st.integers(0, 2))
    def make_durable(self, what: str, survive: int) -> None:
        if what == "crash":
            self.crash(survive)
        elif what == "begin":
            self.begin()
        elif what == "commit" or not self.in_flight:
            self.commit()
        else:
            self.durable()

    @rule(
        what=st.sampled_from(["cancel", "delete", "renew", "again"]),
        pick=picks,
        how=st.sampled_from(["complete", "abandon", "renew"]),
        session=st.sampled_from(SESSIONS),
    )
    def seldom(self, what: str, pick: int, how: str, session: str) -> None:
        """Rarer commands share one rule, so that the others occur more often."""
        if what == "cancel":
            self.cancel(pick)
        elif what == "delete":
            self.delete_batch(pick % 3 + 1, pick % 4, session)
        elif what == "renew":
            self.renew(pick)
        else:
            self.settle_again(pick, how)

    @rule(seconds=st.sampled_from([-86_400, -3_600, -2, 2, 3_600, 86_400]))
    def set_clock(self, seconds: int) -> None:
        self.house.clock.jump(seconds=seconds)
        step_ms = self.house.clock.follow()
        self.house.namespace.clock_set(step_ms, self.now)
        self.model.clock_set(step_ms)

    def wait(self, ms: int) -> None:
        self.house.clock.step(ms=ms)

    def tick(self) -> None:
        namespace = self.house.namespace
        for _ in range(100):
            at_ms = namespace.next_deadline()
            if at_ms is None or at_ms > self.now:
                break
            namespace.tick(self.now, self.house.facts)
        else:
            raise AssertionError("a tick that does nothing comes back at once")
        self.model.tick(self.now)
        live = {held.token for held in self.model.locked()}
        for token in [token for token in self.tokens if token not in live]:
            self.spend(token)
        self.sessions = {name: held for name, held in self.sessions.items() if name in self.model.sessions}

    def begin(self) -> None:
        """Close the facts; their commit takes a while."""
        self.in_flight.append((self.model.close_facts(), self.house.facts))
        self.house.facts = Facts()

    def commit(self) -> None:
        self.begin()
        while self.in_flight:
            self.durable()

    def durable(self) -> None:
        group, facts = self.in_flight.pop(0)
        self.house.tables.apply(facts)
        self.model.committed(group)
        self.check_rows()
        for call, argument in facts.then:
            call(argument)

    def crash(self, survive: int) -> None:
        """Lose the process; some of the running commits may have succeeded."""
        survived = self.in_flight[:survive]
        for _, facts in survived:
            self.house.tables.apply(facts)
        rows = self.house.tables.rows[Table.DUPLICATES].values()
        on_disk = {records.unpack_duplicate(row)[1] for row in rows}
        self.model.crash([group for group, _ in survived], on_disk, self.now)
        self.in_flight = []
        self.spent = [*self.spent, *self.tokens]
        self.tokens = {}
        self.sessions = {}
        self.house.crash()
        self.check_rows()

    # --- what must always hold --------------------------------------------------------------------------------------

    def check_rows(self) -> None:
        """The store holds exactly what the model says is durable."""
        rows = self.house.tables.rows
        found = []
        for key, value in rows[Table.INDEX].items():
            entity_id, _ = index_numbers(key)
            record = records.unpack(value)
            queue = MAIN if entity_id == self.house.queue.entity_id else DEAD
            name = rows[Table.BODIES][body_key(record.body_number)].decode()
            session = record.session_id
            found.append((name, queue, STATES[record.state], record.delivery_count, session, record.changes or {}))
        expected = [
            (held.name, held.queue, held.state, held.count, held.session if held.queue == MAIN else None, held.changes)
            for held in self.model.durable.messages
        ]
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert len(rows[Table.BODIES]) == len(rows[Table.INDEX])
        states = dict(records.unpack_session(value)[::2] for value in rows[Table.SESSIONS].values())
        assert states == self.model.durable.states

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "model"):
            return
        counts = self.house.queue.counts
        model = self.model
        assert counts.active == model.count(MAIN, ACTIVE)
        assert counts.scheduled == model.count(MAIN, SCHEDULED)
        assert counts.deferred == model.count(MAIN, DEFERRED)
        assert counts.dead_letter == model.count(DEAD, ACTIVE) + model.count(DEAD, DEFERRED)
        assert self.house.queue.size_bytes == sum(held.size for held in model.messages)
        assert set(self.tokens) == {held.token for held in model.locked()}
        if not self.sessionful:
            assert self.house.queue.has_available() == bool(model.available(MAIN))
        assert self.house.dead.has_available() == bool(model.available(DEAD))

    @invariant()
    def deadlines(self) -> None:
        if not hasattr(self, "model"):
            return
        due = self.model.deadlines_ms()
        if due:
            at_ms = self.house.namespace.next_deadline()
            assert at_ms is not None
            assert at_ms <= min(due)

    def teardown(self) -> None:
        """In the end everything that exists can be received, in order, and nothing is left."""
        if not hasattr(self, "model"):
            return
        self.commit()
        self.crash(0)
        for queue, session in ((MAIN, None), (DEAD, None), *((MAIN, name) for name in SESSIONS if self.sessionful)):
            if queue == MAIN and self.sessionful and session is None:
                continue
            expected = self.model.pick(queue, session, 1000, self.now)
            real: Queue | MessageSession = self.real(queue)
            if session is not None:
                accepted = self.house.queue.accept_session(session, self.now)
                assert accepted is not None
                real = accepted
            self.received(queue, self.taken(real, queue, 1000, False), expected, locked=False)
        self.commit()
        assert not [held for held in self.model.messages if held.state == ACTIVE and held.queue == MAIN]


class SessionQueueMachine(QueueMachine):
    """The same with sessions."""

    sessionful = True


PROFILE = settings(
    max_examples=50, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False
)


@pytest.mark.parametrize("machine", [QueueMachine, SessionQueueMachine])
def test_queue_follows_the_model(machine: type[QueueMachine]) -> None:
    run_state_machine_as_test(machine, settings=PROFILE)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("machine", [QueueMachine, SessionQueueMachine])
def test_a_long_walk(machine: type[QueueMachine], seed: int) -> None:
    assert walk(machine, seed, 800)


def walk(machine: type[QueueMachine], seed: int, count: int) -> str:
    """The same commands for much longer, weighted as in a busy queue. The seed replays a run; returns a digest of
    everything it wrote."""
    randomness = random.Random(seed)
    trace = hashlib.sha256()
    choice = randomness.choice
    walker = machine()
    walker.build(seed % 2 == 0, seed % 3 > 0, choice([1, 3, 5]), choice([None, 30]))
    number = partial(randomness.randrange, 50)
    steps: list[tuple[int, Callable[[], object]]] = [
        (
            8,
            lambda: walker.send_batch(1 + number() % 4, choice([None, None, 2]), choice(SESSIONS), number() % 4, False),
        ),
        (3, lambda: walker.schedule(number() % 6 - 1, choice(SESSIONS), choice([None, 2]))),
        (6, lambda: walker.receive(1 + number() % 4, choice([MAIN, MAIN, DEAD]), number() % 8 > 0)),
        (12, lambda: walker.settle(number(), choice(HOW), number() % 2 == 0)),
        (4, lambda: walker.receive_deferred(number(), number() % 3 > 0)),
        (
            4,
            lambda: walker.seldom(
                choice(["cancel", "delete", "renew", "again"]), number(), "complete", choice(SESSIONS)
            ),
        ),
        (5, lambda: walker.wait(choice([1, 400, 400, 1_000, 2_500, 5_000]))),
        (4, walker.tick),
        (12, walker.commit),
        (3, walker.begin),
        (1, lambda: walker.crash(number() % 3)),
        (1, lambda: walker.set_clock(choice([-86_400, -3_600, -2, 2, 3_600, 86_400]))),
    ]
    if walker.sessionful:
        steps += [
            (8, lambda: walker.accept(choice([None, *SESSIONS]))),
            (12, lambda: walker.receive_in_session(choice(SESSIONS), 1 + number() % 3, number() % 8 > 0)),
            (6, lambda: walker.use_session(choice(SESSIONS), choice(["release", "renew", "set", "clear", "set"]))),
        ]
    weights = [weight for weight, _ in steps]
    for _, step in randomness.choices(steps, weights, k=count):
        step()
        walker.counts()
        walker.deadlines()
        rows = walker.house.tables.rows[Table.INDEX]
        trace.update(repr((walker.now, walker.house.queue.counts, walker.house.queue.size_bytes, rows)).encode())
    walker.teardown()
    return trace.hexdigest()
