"""A transaction that makes many copies is on disk as a whole or not at all, after a crash at any of its commits."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.entities.rules_house import new, tag
from tests.entities.topic_house import TopicHouse, post
from twinbus.amqp.states import Accepted, Modified, Rejected
from twinbus.broker.links.long_commit import LongCommit
from twinbus.broker.links.pending_changes import PendingChanges
from twinbus.entities.queue import Queue
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import MessageLockLostError
from twinbus.store.facts import Table

SUBSCRIPTIONS = ("one", "two", "three")


def house() -> TopicHouse:
    made = TopicHouse(requires_duplicate_detection=True)
    made.create("other", requires_duplicate_detection=True)
    for name in SUBSCRIPTIONS:
        made.subscribe(name)
    made.queue.send([post(name) for name in ("complete", "abandon", "dead-letter")], made.now, made.facts)
    made.commit()
    return made


def begun(made: TopicHouse) -> LongCommit:
    """Settle three messages, send to a topic and a queue, schedule on both."""
    tokens = [tag(message) for message in made.queue.acquire(3, made.now, made.facts)]
    states = [Accepted(), Modified(True, False, None), Rejected(None)]
    other = made.namespace.queue("other")
    later = made.now + 60_000
    schedules: dict[Any, Any] = {}
    for target, message in ((made.topic, post("t later", scheduled_ms=later)), (other, new("o", scheduled_ms=later))):
        schedules[target] = {message: target.reserve_numbers(1, made.facts)[0]}
    return LongCommit(
        {token: (made.queue, state) for token, state in zip(tokens, states, strict=True)},
        {made.topic: [post(f"m{number}") for number in range(120)], other: [post("sent"), post("sent")]},
        schedules,
        PendingChanges(),
        made.now,
    )


def seen(made: TopicHouse) -> dict[str, object]:
    queues = [made.queue, made.namespace.queue("other"), *(made.sub(name) for name in SUBSCRIPTIONS)]
    return {queue.path: (queue.counts, queue.size_bytes) for queue in queues} | {"t": made.topic.counts}


def finish(made: TopicHouse, work: LongCommit) -> None:
    work.finish(made.facts)
    made.commit()
    list(work.show())
    for topic in work.topics:
        topic.let_go(made.now)


def test_a_crash_after_any_commit_but_the_last_leaves_nothing() -> None:
    made = house()
    before, rows = seen(made), copy.deepcopy(made.tables.rows)
    work = begun(made)
    disks = []
    for _ in work.steps(lambda: made.facts):
        made.commit()
        disks.append(copy.deepcopy(made.tables.rows))
    assert len(disks) > 6
    finish(made, work)
    whole = seen(made)
    assert made.queue.counts[0] == 1, "of the three one is abandoned"
    assert made.queue.counts.dead_letter == 1
    assert [made.sub(name).counts.active for name in SUBSCRIPTIONS] == [120, 120, 120]
    assert made.namespace.queue("other").counts[:2] == (1, 1)
    made.crash()
    assert seen(made) == whole
    for disk in disks:
        made.tables.rows = disk
        made.crash()
        assert seen(made) == before
        made.sweep()
        for table in (Table.INDEX, Table.BODIES, Table.DUPLICATES):
            assert disk[table] == rows[table]


def test_entities_deleted_in_the_middle_leave_nothing() -> None:
    made = house()
    work = begun(made)
    for number, _ in enumerate(work.steps(lambda: made.facts)):
        if number == 2:
            for path in ("q", "other"):
                made.namespace.delete_queue(path, made.now, made.facts)
        if number == 5:
            made.namespace.delete_topic("t", made.now, made.facts)
        made.commit()
        made.sweep()
    finish(made, work)
    made.sweep()
    scan = copy.deepcopy(made.tables.rows)
    for table in (Table.INDEX, Table.BODIES, Table.DUPLICATES):
        assert scan[table] == {}
    assert not [key for key in scan[Table.META] if key.startswith((b"pending", b"deleted"))]


def shared() -> tuple[TopicHouse, Queue, Queue]:
    """A second topic whose two subscriptions have copies of the same messages."""
    made = house()
    made.namespace.create_topic(TopicSettings(path="src"), made.now, made.facts)
    for name in ("a", "b"):
        wanted = SubscriptionSettings(topic="src", name=name)
        made.namespace.create_subscription(wanted, made.now, made.facts)
    made.namespace.topic("src").send([post(f"s{number}") for number in range(5)], made.now, made.facts)
    made.commit()
    return made, *(made.namespace.subscription("src", name).queue for name in ("a", "b"))


def completing(made: TopicHouse, queue: Queue) -> LongCommit:
    """Complete all messages of a queue, and send to a topic."""
    tokens = [tag(message) for message in queue.acquire(5, made.now, made.facts)]
    settlements = {token: (queue, Accepted()) for token in tokens}
    return LongCommit(
        settlements, {made.topic: [post(f"m{number}") for number in range(120)]}, {}, PendingChanges(), made.now
    )


def test_a_crash_after_others_completed_their_copies_loses_nothing() -> None:
    made, a, b = shared()
    work = completing(made, a)
    for number, _ in enumerate(work.steps(lambda: made.facts)):
        if number == 3:
            assert made.finish(b) == [f"s{number}" for number in range(5)]
        made.commit()
    made.crash()
    assert made.finish(made.namespace.subscription("src", "a").queue) == [f"s{number}" for number in range(5)]
    made.sweep()
    assert made.bodies == 3, "those of the queue"


def test_pinned_locks_neither_expire_nor_settle_otherwise() -> None:
    made, a, _ = shared()
    tokens = [tag(message) for message in a.acquire(5, made.now, made.facts)]
    settlements = {token: (a, Accepted()) for token in tokens}
    work = LongCommit(settlements, {made.topic: [post("m")]}, {}, PendingChanges(), made.now)
    for token in tokens:
        with pytest.raises(MessageLockLostError):
            a.complete(token, made.now, made.facts)
    for _ in work.steps(lambda: made.facts):
        made.commit()
    made.step(seconds=600)
    assert a.counts.active == 5
    assert not a.has_available()
    finish(made, work)
    assert a.counts.active == 0
    assert made.sub("one").counts.active == 1


def test_a_session_waits_for_a_message_that_may_return() -> None:
    made = house()
    queue = made.create("s", requires_session=True)
    queue.send([post(name, session_id="x") for name in ("first", "second")], made.now, made.facts)
    made.commit()
    session = queue.accept_session("x", made.now)
    assert session is not None
    (first,) = session.acquire(1, made.now, made.facts)
    heard: list[str] = []
    session.on_available = lambda session: heard.append(session.id)
    work = LongCommit(
        {tag(first): (queue, Modified(True, False, None))}, {made.topic: [post("m")]}, {}, PendingChanges(), made.now
    )
    for _ in work.steps(lambda: made.facts):
        made.commit()
        assert session.acquire(1, made.now, made.facts) == []
    finish(made, work)
    assert heard == ["x", "x"], "told of the message that returned, and that the next ones need not wait"
    assert made.titles(session.acquire(5, made.now, made.facts)) == ["first", "second"]


@pytest.mark.parametrize("at", [1, 4, 6])
def test_a_step_that_fails_leaves_nothing_in_memory(at: int) -> None:
    made = house()
    before, sizes = seen(made), made.topic.size_bytes
    work = begun(made)
    steps = work.steps(lambda: made.facts)
    for _ in range(at):
        next(steps)
        made.commit()
    work.undo(made.facts)
    for topic in work.topics:
        topic.let_go(made.now)
    made.commit()
    assert seen(made) == before
    assert made.topic.size_bytes == sizes
    assert made.titles(made.queue.acquire(5, made.now, made.facts)) == ["complete", "abandon", "dead-letter"]
    made.publish("m0", "m1", "m2")
    assert made.finish(made.sub("one")) == ["m0", "m1", "m2"], "their ids are not known from the failed attempt"
    made.crash()
    made.sweep()
    assert made.finish(made.sub("two")) == ["m0", "m1", "m2"]
    assert made.namespace.set_aside.count == 0
    assert not [key for key in made.tables.rows[Table.META] if key.startswith(b"pending")]
