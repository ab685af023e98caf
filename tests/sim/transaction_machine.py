"""Random transactions over two queues, sessions and a topic, compared with naive queues that do all of the work or
none.

Commits, rollbacks, timeouts, a lost control link, expired locks, full queues, slow commits, and crashes in between.
Checked at every commit: rows, bodies, counts, and the bytes held by open transactions.

`python -m tests.proof transactions` runs it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from queue_model import ACTIVE, DEAD, DEFERRED, MAIN, SCHEDULED, Held, Model
from topic_house import TopicHouse, post

from twinbus.amqp.states import Accepted, AmqpError, Modified, Rejected, Released, State
from twinbus.broker.links.settlement import held_bytes
from twinbus.broker.links.transactions import _WORK_BYTES, ConnectionTransactions
from twinbus.entities import records
from twinbus.entities.account import Account
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.entities.topic import Topic
from twinbus.errors import ServiceError
from twinbus.limits import TRANSACTION_MS_MAX
from twinbus.store.facts import Facts, Table, body_key, index_numbers

LOCK_MS = 60_000
WINDOW_MS = 300_000
COUNT_MAX = 3
MEGABYTE = 1 << 20
# Four of these fit into the small queue, five do not.
LARGE = 250_000
HELD_BYTES_MAX = 6_000
SESSIONS = ("red", "blue")
# A queue with duplicate detection, a small one, one with sessions, two subscriptions.
PLACES = ("q", "small", "s", "all", "red")
TARGETS = ("q", "small", "s", "t")
STATES = {0: ACTIVE, 1: DEFERRED, 2: SCHEDULED}
OUTCOMES: dict[str, State] = {
    "complete": Accepted(),
    "abandon": Modified(True, False, None),
    "defer": Modified(False, True, None),
    "dead_letter": Rejected(AmqpError("com.microsoft:dead-letter", "", {"DeadLetterReason": "because"})),
    "release": Released(),
}

LETTERS = {
    "to": st.sampled_from([*TARGETS, "small"]),
    "session": st.sampled_from(SESSIONS),
    "red": st.booleans(),
    "dup": st.integers(0, 2),
    "size": st.sampled_from([100, LARGE]),
    "ttl": st.sampled_from([False, False, True]),
}


@dataclasses.dataclass
class Letter:
    """A message and its destination."""

    target: str
    name: str
    message_id: str
    session: str
    red: bool
    size: int
    at_ms: int | None
    ttl_ms: int | None
    # Its number was reserved: it comes after what was just sent.
    scheduled: bool = False
    # When the number was reserved: of messages due at the same time, the lower number is first.
    order: int = 0

    def held_bytes(self) -> int:
        return len(self.new().body) + _WORK_BYTES

    def new(self) -> Any:
        return post(
            self.name,
            size=self.size,
            session_id=self.session if self.target == "s" else None,
            ttl_ms=self.ttl_ms,
            scheduled_ms=self.at_ms,
            message_id=self.message_id,
            red=self.red,
        )


@dataclasses.dataclass
class Work:
    """A transaction in its simplest form."""

    txn_id: bytes
    link: Any
    deadline_ms: int
    letters: list[Letter] = dataclasses.field(default_factory=list)
    settlements: list[tuple[str, Held, bytes, str]] = dataclasses.field(default_factory=list)
    forgotten: list[tuple[str, Held, bytes]] = dataclasses.field(default_factory=list)
    # It timed out before it was discharged.
    over: bool = False

    def held_bytes(self) -> int:
        if self.over:
            return 0
        settled = sum(held_bytes(OUTCOMES[how]) + _WORK_BYTES for _, _, _, how in self.settlements)
        return settled + sum(letter.held_bytes() for letter in self.letters)


class TransactionMachine(RuleBasedStateMachine):
    """Everything that can be done in and around a transaction."""

    @initialize(dead_letter=st.booleans())
    def build(self, dead_letter: bool) -> None:
        self.house = TopicHouse()
        common = {"lock_duration_ms": LOCK_MS, "max_delivery_count": COUNT_MAX, "dead_letter_on_expiry": dead_letter}
        unknown = {"requires_duplicate_detection": True, "duplicate_window_ms": WINDOW_MS}
        self.house.namespace.delete_queue("q", self.house.now, self.house.facts)
        self.house.commit()
        self.house.sweep()
        self.house.queue = self.house.create("q", **common, **unknown)
        self.house.create("small", max_megabytes=1, **common)
        self.house.create("s", requires_session=True, **common)
        self.house.subscribe("all", **common)
        self.house.subscribe("red", "red = TRUE", **common)
        self.models = {
            name: Model(
                lock_ms=LOCK_MS,
                ttl_ms=None,
                dead_letter_on_expiry=dead_letter,
                max_count=COUNT_MAX,
                window_ms=WINDOW_MS if name == "q" else None,
            )
            # In the topic itself there are only scheduled messages.
            for name in (*PLACES, "t")
        }
        self.account = Account(HELD_BYTES_MAX)
        self.transactions = ConnectionTransactions(self.account)
        self.links: list[Any] = [object(), object()]
        self.work: list[Work] = []
        self.letters: dict[str, Letter] = {}
        self.sessions: dict[str, MessageSession] = {}
        self.in_flight: list[tuple[dict[str, int], Facts]] = []

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.house.now

    @property
    def steady(self) -> int:
        return self.house.clock.steady_ms()

    def target(self, name: str) -> Queue | Topic:
        return self.house.topic if name == "t" else self.house.namespace.queue(name)

    def queue(self, place: str, part: str = MAIN) -> Queue:
        path = place if place in ("q", "small", "s") else f"t/Subscriptions/{place}"
        queue = self.house.namespace.queue(path)
        if part == MAIN:
            return queue
        assert queue.dead_letters is not None
        return queue.dead_letters

    def letter(self, to: str, session: str, red: bool, dup: int, size: int, at_s: int | None, ttl: bool) -> Letter:
        name = f"m{len(self.letters) + 1}"
        at_ms = None if at_s is None else self.now + at_s * 1000
        known = f"id{dup}" if dup else name
        made = Letter(to, name, known, session, red, size, at_ms, 90_000 if ttl else None)
        self.letters[name] = made
        return made

    def refusal(self, letters: list[Letter]) -> bool:
        """Whether the small queue has no room for them."""
        more = sum(letter.size for letter in letters if letter.target == "small")
        held = sum(held.size for held in self.models["small"].messages)
        return more > 0 and held + more > MEGABYTE

    def accept(self, letter: Letter) -> None:
        """The effect of a send."""
        later = letter.at_ms is not None and letter.at_ms > self.now
        if letter.target == "t" and not later:
            self.publish(letter, self.now + letter.ttl_ms if letter.ttl_ms else None)
            return
        session = letter.session if letter.target == "s" else None
        at_ms = letter.at_ms if later else None
        model = self.models[letter.target]
        held = model.send(letter.name, letter.message_id, session, letter.ttl_ms, at_ms, self.now)
        if held is not None:
            held.size = letter.size
            if later and letter.order:
                held.order = letter.order

    def publish(self, letter: Letter, expires_ms: int | None) -> None:
        for place in ("all", "red") if letter.red else ("all",):
            held = self.models[place].send(letter.name, letter.name, None, None, None, self.now)
            assert held is not None
            held.size, held.expires_ms = letter.size, expires_ms

    def settle(self, model: Model, held: Held, how: str) -> None:
        """The effect of an outcome."""
        held.token = None
        if how == "complete":
            model.messages.remove(held)
        elif how == "dead_letter":
            model.dead_letter(held, "because", "")
            held.changes = {"DeadLetterReason": "because"}
        elif how == "defer":
            held.state = DEFERRED
            held.count += held.queue == MAIN
            held.waits_for = model.group
        else:
            model.give_back(held, how != "release", self.now)

    def locked(self) -> list[tuple[str, Held]]:
        return [(place, held) for place in PLACES for held in self.models[place].locked()]

    def chosen(self, pick: int) -> Work | None:
        return self.work[pick % len(self.work)] if self.work else None

    # --- outside ------------------------------------------------------------------------------------------------------

    @rule(at_s=st.sampled_from([None, None, 5]), count=st.integers(1, 2), **LETTERS)
    def send(self, at_s: int | None, count: int, **fields: Any) -> None:
        letters = [self.letter(at_s=at_s, **fields) for _ in range(count)]
        refused = self.refusal(letters)
        done = self.tried(
            lambda: self.target(letters[0].target).send([it.new() for it in letters], self.now, self.facts)
        )
        assert done is not refused
        if done:
            for letter in letters:
                self.accept(letter)

    @property
    def facts(self) -> Facts:
        return self.house.facts

    def tried(self, call: Callable[[], object]) -> bool:
        """Whether the call succeeded."""
        try:
            call()
        except ServiceError:
            return False
        return True

    @rule(place=st.sampled_from(PLACES), part=st.sampled_from([MAIN, MAIN, DEAD]), count=st.integers(1, 3))
    def receive(self, place: str, part: str, count: int) -> None:
        model = self.models[place]
        if place != "s" or part == DEAD:
            expected = model.pick(part, None, count, self.now)
            found = self.queue(place, part).acquire(count, self.now, self.facts)
        else:
            session = next((name for name in SESSIONS if name in self.sessions), None)
            if session is None:
                for name in SESSIONS:
                    if name not in model.leaving and model.available(MAIN, name):
                        session = name
                        break
                else:
                    return
                accepted = self.queue("s").accept_session(session, self.now)
                assert accepted is not None
                self.sessions[session] = accepted
                model.sessions[session] = self.now + LOCK_MS
            if model.sessions.get(session, 0) <= self.now:
                return
            expected = model.pick(MAIN, session, count, self.now)
            found = self.sessions[session].acquire(count, self.now, self.facts)
        assert self.house.titles(found) == [held.name for held in expected]
        for message, held in zip(found, expected, strict=True):
            assert message.delivery_count == held.count
            held.seq, held.token, held.until_ms = message.seq, message.token, self.now + LOCK_MS

    @rule(pick=st.integers(0, 20))
    def receive_deferred(self, pick: int) -> None:
        deferred = [
            (place, held)
            for place in ("q", "small", "all", "red")
            for held in self.models[place].messages
            if held.state == DEFERRED and held.waits_for is None and not held.token and held.queue == MAIN
        ]
        if not deferred:
            return
        place, held = deferred[pick % len(deferred)]
        assert held.seq is not None
        found = self.queue(place).receive_deferred([held.seq], self.now, self.facts, session=None)
        if held.expires_ms is not None and held.expires_ms <= self.now:
            assert found == []
            self.models[place].expire(held)
            return
        (message,) = found
        held.token, held.until_ms = message.token, self.now + LOCK_MS

    @rule(pick=st.integers(0, 20), how=st.sampled_from(list(OUTCOMES)))
    def settle_outside(self, pick: int, how: str) -> None:
        """A settlement outside any transaction takes effect at once, even if a transaction has settled the message
        too."""
        locked = self.locked()
        if not locked:
            return
        place, held = locked[pick % len(locked)]
        if how == "dead_letter" and held.queue == DEAD:
            return
        queue, token = self.queue(place, held.queue), held.token
        assert token is not None
        arguments = ["because", None] if how == "dead_letter" else []
        done = self.tried(lambda: getattr(queue, how)(token, self.now, self.facts, *arguments))
        assert done is self.models[place].live(held, self.now)
        if done:
            self.settle(self.models[place], held, how)

    @rule(pick=st.integers(0, 20))
    def renew(self, pick: int) -> None:
        locked = [(place, held) for place, held in self.locked() if held.session is None or held.queue == DEAD]
        if locked:
            place, held = locked[pick % len(locked)]
            token = held.token
            assert token is not None
            live = self.models[place].live(held, self.now)
            assert self.tried(lambda: self.queue(place, held.queue).renew(token, self.now)) is live
            if live:
                held.until_ms = self.now + LOCK_MS

    # --- in a transaction ---------------------------------------------------------------------------------------------

    @rule(link=st.integers(0, 1))
    def declare(self, link: int) -> None:
        if len(self.work) < 3:
            txn_id = self.transactions.declare(self.links[link], self.steady)
            self.work.append(Work(txn_id, self.links[link], self.steady + TRANSACTION_MS_MAX))

    def room(self, work: Work, letters: list[Letter]) -> bool:
        """Whether the transaction accepts these as well."""
        if work.over:
            return False
        same = [letter for letter in work.letters if letter.target == letters[0].target]
        if self.refusal([*same, *letters]):
            return False
        return self.held_bytes() + sum(letter.held_bytes() for letter in letters) <= HELD_BYTES_MAX

    def held_bytes(self) -> int:
        """The bytes that all open transactions hold."""
        return sum(work.held_bytes() for work in self.work)

    @precondition(lambda self: self.work)
    @rule(
        pick=st.integers(0, 5),
        count=st.integers(1, 3),
        at_s=st.sampled_from([None, None, None, 5, 130]),
        **LETTERS,
    )
    def send_in(self, pick: int, count: int, at_s: int | None, **fields: Any) -> None:
        work = self.chosen(pick)
        if work is None:
            return
        letters = [self.letter(at_s=at_s, **fields) for _ in range(count)]
        transaction, target = self.transactions.get(work.txn_id), self.target(letters[0].target)
        room = self.room(work, letters)
        messages = [letter.new() for letter in letters]
        if at_s is not None and count == 1:
            letters[0].scheduled = True
            done = self.tried(lambda: transaction.schedule(target, messages, self.facts))
        else:
            done = self.tried(lambda: transaction.send(target, messages))
        assert done is room
        if done:
            work.letters += letters
            if letters[0].scheduled:
                letters[0].order = self.models[letters[0].target].next_order()

    @precondition(lambda self: self.work)
    @rule(
        pick=st.integers(0, 5), which=st.integers(0, 20), how=st.sampled_from(list(OUTCOMES)), forgotten=st.booleans()
    )
    def settle_in(self, pick: int, which: int, how: str, forgotten: bool) -> None:
        work, locked = self.chosen(pick), self.locked()
        if work is None or not locked:
            return
        place, held = locked[which % len(locked)]
        token = held.token
        assert token is not None
        queue, transaction = self.queue(place, held.queue), self.transactions.get(work.txn_id)
        state = OUTCOMES[how]
        done = self.tried(lambda: transaction.settle(queue, token, state, self.now, forgotten=forgotten))
        again = any(each[2] == token for each in work.settlements)
        buried = how == "dead_letter" and held.queue == DEAD
        room = self.held_bytes() + held_bytes(state) + _WORK_BYTES <= HELD_BYTES_MAX
        live = self.models[place].live(held, self.now)
        assert done is (live and room and not again and not buried and not work.over)
        if done:
            work.settlements.append((place, held, token, how))
            if forgotten:
                work.forgotten.append((place, held, token))

    def possible(self, work: Work) -> bool:
        """Whether all of it can be done."""
        if work.over or self.steady > work.deadline_ms or self.refusal(work.letters):
            return False
        return all(held.token == token and self.models[place].live(held, self.now)
                   for place, held, token, _ in work.settlements)  # fmt: skip

    def give_back(self, work: Work) -> None:
        """Messages that only the broker can return count a delivery."""
        for place, held, token in work.forgotten:
            if held.token == token and self.models[place].live(held, self.now):
                self.settle(self.models[place], held, "abandon")

    @precondition(lambda self: self.work)
    @rule(pick=st.integers(0, 5), fail=st.sampled_from([False, False, True]))
    def discharge(self, pick: int, fail: bool) -> None:
        work = self.chosen(pick)
        if work is None:
            return
        self.work.remove(work)
        transaction = self.transactions.discharge(work.txn_id)
        before = self.written()
        done = not fail and self.tried(lambda: transaction.commit(self.now, self.steady, self.facts))
        assert done is (not fail and self.possible(work))
        if done:
            for place, held, _, how in work.settlements:
                self.settle(self.models[place], held, how)
            for letter in sorted(work.letters, key=lambda letter: letter.scheduled):
                self.accept(letter)
        else:
            assert self.written() == before, "a refused commit leaves no trace"
            transaction.roll_back(self.now, self.facts)
            self.give_back(work)
        transaction.let_go()

    @rule(
        place=st.sampled_from(PLACES),
        how=st.sampled_from(list(OUTCOMES)),
        forgotten=st.booleans(),
        end=st.sampled_from(["commit", "commit", "fail", "open"]),
        after=st.sampled_from(["commit", "begin", "crash", "nothing"]),
        **LETTERS,
    )
    def move(self, place: str, how: str, forgotten: bool, end: str, after: str, **fields: Any) -> None:
        """A transaction's usual path, so that a short run gets far."""
        self.declare(0)
        last = len(self.work) - 1
        self.receive(place, MAIN, 2)
        if locked := self.locked():
            self.settle_in(last, len(locked) - 1, how, forgotten)
        self.send_in(last, 1, None, **fields)
        if end != "open":
            self.discharge(last, end == "fail")
        if after == "crash":
            self.crash(0)
        elif after != "nothing":
            getattr(self, after)()

    def written(self) -> tuple[int, ...]:
        facts = self.facts
        return len(facts.bodies), len(facts.index), len(facts.rows), len(facts.deletes), len(facts.then)

    @precondition(lambda self: self.work)
    @rule(link=st.integers(0, 1))
    def lose_control(self, link: int) -> None:
        """A control link is lost, and its transactions are rolled back."""
        lost = self.transactions.abandon(self.links[link])
        mine = [work for work in self.work if work.link is self.links[link]]
        assert len(lost) == len(mine)
        for transaction, work in zip(lost, mine, strict=True):
            transaction.roll_back(self.now, self.facts)
            transaction.let_go()
            self.give_back(work)
            self.work.remove(work)

    # --- time, commits, crashes ---------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 5, 59, 61, 121]), timers=st.booleans(), tick=st.booleans())
    def pass_time(self, seconds: int, timers: bool, tick: bool) -> None:
        self.house.clock.step(seconds=seconds)
        if timers:
            for work in self.work:
                if not work.over and self.steady > work.deadline_ms:
                    self.transactions.get(work.txn_id).expire(self.now, self.facts)
                    self.give_back(work)
                    work.over = True
        if tick:
            self.tick()

    def tick(self) -> None:
        self.commit()
        namespace = self.house.namespace
        while (at_ms := namespace.next_deadline()) is not None and at_ms <= self.now:
            namespace.tick(self.now, self.facts)
        for name, model in self.models.items():
            model.tick(self.now)
            if name == "t":
                due = [held for held in model.messages if held.state == ACTIVE]
                for held in sorted(due, key=lambda held: held.order):
                    model.messages.remove(held)
                    self.publish(self.letters[held.name], held.expires_ms)
        self.sessions = {name: kept for name, kept in self.sessions.items() if name in self.models["s"].sessions}
        self.commit()

    @rule()
    def begin(self) -> None:
        """Close the facts; their commit takes a while."""
        groups = {name: model.close_facts() for name, model in self.models.items()}
        self.in_flight.append((groups, self.house.facts))
        self.house.facts = Facts()

    @rule()
    def commit(self) -> None:
        self.begin()
        for groups, facts in self.in_flight:
            self.house.tables.apply(facts)
            for name, group in groups.items():
                self.models[name].committed(group)
            for call, argument in facts.then:
                call(argument)
        self.in_flight = []
        self.check()

    @rule(survive=st.integers(0, 2))
    def crash(self, survive: int) -> None:
        """Some of the running commits succeeded; open transactions and locks are lost."""
        survived, self.in_flight = self.in_flight[:survive], []
        for _, facts in survived:
            self.house.tables.apply(facts)
        on_disk = {records.unpack_duplicate(row)[1] for row in self.house.tables.rows[Table.DUPLICATES].values()}
        for name, model in self.models.items():
            model.crash([groups[name] for groups, _ in survived], on_disk, self.now)
        self.house.crash()
        self.account = Account(HELD_BYTES_MAX)
        self.transactions = ConnectionTransactions(self.account)
        self.work, self.sessions = [], {}
        self.check()

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The store holds exactly what the models say is durable."""
        places = {self.queue(place, part).entity_id: (place, part) for place in PLACES for part in (MAIN, DEAD)}
        places[self.house.topic.entity_id] = ("t", MAIN)
        rows = self.house.tables.rows
        found = []
        for key, value in rows[Table.INDEX].items():
            record = records.unpack(value)
            name = json.loads(rows[Table.BODIES][body_key(record.body_number)])["name"]
            reason = (record.changes or {}).get("DeadLetterReason")
            place = places[index_numbers(key)[0]]
            found.append((*place, name, STATES[record.state], record.delivery_count, reason))
        expected = [
            (place, held.queue, held.name, held.state, held.count, held.changes.get("DeadLetterReason"))
            for place, model in self.models.items()
            for held in model.durable.messages
        ]
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert len(rows[Table.BODIES]) == len({each[2] for each in expected})

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "models"):
            return
        for place in PLACES:
            counts, model = self.queue(place).counts, self.models[place]
            assert counts.active == model.count(MAIN, ACTIVE)
            assert counts.deferred == model.count(MAIN, DEFERRED)
            assert counts.scheduled == model.count(MAIN, SCHEDULED)
            assert counts.dead_letter == model.count(DEAD, ACTIVE) + model.count(DEAD, DEFERRED)
        assert self.account.held_bytes == self.held_bytes()

    def teardown(self) -> None:
        if hasattr(self, "models"):
            for link in range(2):
                self.lose_control(link)
            assert self.account.held_bytes == 0
            self.commit()
            self.crash(0)
