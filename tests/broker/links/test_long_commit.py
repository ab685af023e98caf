"""A transaction that makes many copies is on disk as a whole or not at all, after a crash at any of its commits."""

from __future__ import annotations

import copy
from typing import Any

from tests.entities.rules_house import new, tag
from tests.entities.topic_house import TopicHouse, post
from twinbus.amqp.states import Accepted, Modified, Rejected
from twinbus.broker.links.long_commit import LongCommit
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
