"""Random messages, rules, receivers, commits and crashes on a real topic, compared with the naive one in `topic_model`.

Checked at every commit: each entity has exactly the right copies, each message with copies has one body, and references
are counted correctly. In the end everything is consumed, and no body is left behind.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from topic_house import TopicHouse, post
from topic_model import DEAD, RULES, Copy, Model, made

from twinbus.entities import records
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings
from twinbus.errors import EntityNotFoundError
from twinbus.store.facts import Table, body_key, index_numbers

SUBSCRIPTIONS = ("a", "b", "c")
ENTITIES = (*SUBSCRIPTIONS, *(name + DEAD for name in SUBSCRIPTIONS), "q", "q" + DEAD)

kinds = st.integers(0, len(RULES) - 1)


class TopicMachine(RuleBasedStateMachine):
    """A topic with up to three subscriptions; `c` forwards to the queue, which may forward back to the topic."""

    @initialize(forward=st.booleans(), circle=st.booleans())
    def build(self, forward: bool, circle: bool) -> None:
        self.house = TopicHouse()
        self.model = Model()
        self.sent = 0
        self.forward = forward
        if forward:
            self.model.forwards["c"] = "q"
        if circle:
            self.model.forwards["q"] = "t"
            self.house.namespace.update_queue(QueueSettings(path="q", forward_to="t"), self.house.now, self.house.facts)
        self.commit()

    # --- parts ------------------------------------------------------------------------------------------------------

    def entity(self, name: str) -> Queue | None:
        try:
            if name.startswith("q"):
                return self.house.namespace.queue(name)
            return self.house.namespace.queue(f"t/Subscriptions/{name}")
        except EntityNotFoundError:
            return None

    def message(self, color: str, n: int) -> str:
        self.sent += 1
        name = f"m{self.sent}"
        self.model.has[name] = {"color": color, "n": n}
        return name

    def commit(self) -> None:
        self.house.commit()
        self.model.commit()
        self.check()

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(color=st.sampled_from(["red", "blue"]), n=st.integers(0, 2), count=st.integers(1, 2))
    def publish(self, color: str, n: int, count: int) -> None:
        batch = []
        for _ in range(count):
            name = self.message(color, n)
            batch.append(post(name, color=color, n=n))
            self.model.publish(name, None, 0)
        self.house.topic.send(batch, self.house.now, self.house.facts)

    @rule(color=st.sampled_from(["red", "blue"]), n=st.integers(0, 2), delay_s=st.integers(1, 5))
    def schedule(self, color: str, n: int, delay_s: int) -> None:
        name = self.message(color, n)
        at_ms = self.house.now + delay_s * 1000
        self.house.topic.schedule([post(name, color=color, n=n, scheduled_ms=at_ms)], self.house.now, self.house.facts)
        self.model.state.copies.append(Copy("t", name, None, at_ms=at_ms))

    @rule(name=st.sampled_from(SUBSCRIPTIONS), kind=kinds)
    def subscribe(self, name: str, kind: int) -> None:
        if name in self.model.state.rules:
            return
        target = "q" if name == "c" and self.forward else None
        wanted = SubscriptionSettings(topic="t", name=name, forward_to=target, max_delivery_count=1000)
        self.house.namespace.create_subscription(wanted, self.house.now, self.house.facts, made("first", kind))
        self.model.state.rules[name] = {"first": kind}

    @rule(name=st.sampled_from(SUBSCRIPTIONS), number=st.integers(0, 2), kind=kinds)
    def add_rule(self, name: str, number: int, kind: int) -> None:
        rules = self.model.state.rules.get(name)
        if rules is None:
            return
        subscription = self.house.subscription(name)
        if f"r{number}" in rules:
            subscription.update_rule(made(f"r{number}", kind), self.house.now, self.house.facts)
        else:
            subscription.add_rule(made(f"r{number}", kind), self.house.now, self.house.facts)
        rules[f"r{number}"] = kind

    @rule(name=st.sampled_from(SUBSCRIPTIONS))
    def remove_rule(self, name: str) -> None:
        rules = self.model.state.rules.get(name)
        if rules:
            gone = sorted(rules)[0]
            self.house.subscription(name).remove_rule(gone, self.house.now, self.house.facts)
            del rules[gone]

    @rule(name=st.sampled_from(SUBSCRIPTIONS))
    def unsubscribe(self, name: str) -> None:
        if name not in self.model.state.rules:
            return
        # Rows of deleted subscriptions are removed in steps, which the model does not have.
        self.house.commit()
        self.model.commit()
        self.house.namespace.delete_subscription("t", name, self.house.now, self.house.facts)
        self.house.commit()
        self.house.sweep()
        del self.model.state.rules[name]
        self.model.state.copies = [each for each in self.model.state.copies if each.entity not in (name, name + DEAD)]
        self.model.commit()
        self.check()

    @rule(
        name=st.sampled_from(ENTITIES),
        count=st.integers(1, 3),
        how=st.sampled_from(["complete", "complete", "abandon", "dead_letter", "take", "return"]),
    )
    def receive(self, name: str, count: int, how: str) -> None:
        queue = self.entity(name)
        if queue is None:
            return
        now, facts = self.house.now, self.house.facts
        if how in ("take", "return"):
            found = queue.take(count, now, facts)
        else:
            found = queue.acquire(count, now, facts)
        expected = self.model.visible(name)
        assert len(found) == min(count, len(expected))
        for message in found:
            title, mark = self.house.title(message), self.mark(message.changes)
            (held, *_) = [each for each in expected if (each.message, each.mark) == (title, mark)]
            expected.remove(held)
            token = message.token
            if how == "complete":
                assert token
                queue.complete(token, now, facts)
                self.model.state.copies.remove(held)
            elif how == "take":
                queue.remove_taken([message], facts)
                self.model.state.copies.remove(held)
            elif how == "return":
                queue.return_taken([message], now, facts)
                held.visible = False
            elif how == "abandon" or name.endswith(DEAD):
                assert token
                queue.abandon(token, now, facts)
                held.visible = False
            else:
                assert token
                queue.dead_letter(token, now, facts, "r", None)
                held.entity, held.visible = name + DEAD, False

    @rule(seconds=st.integers(0, 6))
    def pass_time(self, seconds: int) -> None:
        """Do everything that is due, commit by commit."""
        self.commit()
        self.house.clock.step(seconds=seconds)
        self.house.tick()
        self.house.commit()
        while self.model.tick(self.house.now):
            self.model.commit()
        self.model.commit()
        self.check()

    @rule()
    def commit_now(self) -> None:
        self.commit()

    @rule()
    def crash(self) -> None:
        # Abandoned messages may be invisible in the model; after a crash everything durable is visible.
        self.house.crash()
        self.model.crash()
        self.check()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @staticmethod
    def mark(changes: dict[str, str | bytes] | None) -> str | None:
        mark = (changes or {}).get("mark")
        return None if mark is None else str(json.loads(mark))

    def check(self) -> None:
        rows = self.house.tables.rows
        names = {}
        for name in ("t", *ENTITIES):
            queue = self.house.topic if name == "t" else self.entity(name)
            if queue is not None:
                names[queue.entity_id] = name
        found = []
        bodies: dict[int, int] = {}
        for key, value in rows[Table.INDEX].items():
            entity_id, _ = index_numbers(key)
            record = records.unpack(value)
            bodies[record.body_number] = bodies.get(record.body_number, 0) + 1
            title = json.loads(rows[Table.BODIES][body_key(record.body_number)])["name"]
            found.append((names[entity_id], title, self.mark(record.changes), record.hops))
        expected = [(each.entity, each.message, each.mark, each.hops) for each in self.model.durable.copies]
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert len(rows[Table.BODIES]) == len({each.message for each in self.model.durable.copies})
        shared = {body: count for body, count in bodies.items() if count > 1}
        assert self.house.namespace._commons.bodies.references == shared
        assert self.house.topic.size_bytes == 100 * sum(
            not each.entity.startswith("q") for each in self.model.state.copies
        )

    def teardown(self) -> None:
        """Consume everything: nothing may be left on disk."""
        if not hasattr(self, "house"):
            return
        self.commit()
        for _ in range(3):
            self.pass_time(6)
        for name in ENTITIES:
            queue = self.entity(name)
            if queue is not None:
                while found := queue.take(100, self.house.now, self.house.facts):
                    queue.remove_taken(found, self.house.facts)
                    self.house.commit()
        self.house.commit()
        assert self.house.tables.rows[Table.BODIES] == {}
        assert self.house.tables.rows[Table.INDEX] == {}
        assert self.house.namespace._commons.bodies.references == {}


@pytest.mark.parametrize("seed", range(3))
def test_a_walk_leaves_no_body_behind(seed: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        TopicMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=60,
            deadline=None,
            derandomize=seed == 0,
            suppress_health_check=list(HealthCheck),
        ),
    )
