"""A batch delivered over several commits is there completely or not at all, and in order."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from rules_house import tag
from topic_house import TopicHouse, post

from twinbus.entities.fan_out import FanOut
from twinbus.entities.message import NewMessage, Relayed
from twinbus.entities.queue import Queue
from twinbus.errors import ServerBusyError
from twinbus.limits import FAN_OUT_COPIES_MAX
from twinbus.store.facts import Table

NAMES = [f"m{number}" for number in range(60)]
SUBSCRIPTIONS = ["all", "blue", "grouped", "odd"]


def house(**settings: object) -> TopicHouse:
    """A topic whose subscriptions take everything, some, into sessions, and into the dead-letter queue."""
    made = TopicHouse(**settings)
    made.subscribe("all")
    made.subscribe("blue", "color = 'blue'", "SET seen = 'yes'")
    made.subscribe("grouped", requires_session=True)
    made.subscribe("odd", "color > 5", dead_letter_on_filter_error=True)
    return made


def batch() -> list[NewMessage]:
    made = []
    for number, name in enumerate(NAMES):
        odd = {"unreadable": True} if number % 7 == 0 else {}
        session_id = None if number % 10 == 0 else f"g{number % 3}"
        made.append(post(name, color=("blue", "red")[number % 2], session_id=session_id, **odd))
    return made


def hand_out(made: TopicHouse, messages: list[NewMessage]) -> list[dict[Table, dict[bytes, bytes]]]:
    """Deliver with a commit for each step; returns what was on disk after each."""
    disks = []
    work = made.topic.hand_out(messages, made.now)
    for _ in work.steps(lambda: made.facts):
        made.commit()
        disks.append(copy.deepcopy(made.tables.rows))
    finish(made, work)
    made.topic.let_go(made.now)
    return disks


def finish(made: TopicHouse, work: FanOut) -> None:
    work.finish(made.facts)
    made.commit()
    list(work.show())


def seen(made: TopicHouse) -> dict[str, Any]:
    """What receivers can get, including from dead-letter queues."""
    found: dict[str, Any] = {}
    for name in SUBSCRIPTIONS:
        queue = made.sub(name)
        for part in queue.parts:
            parts = [part.messages.available]
            if part.sessions is not None:
                parts = [part.sessions.by_id[key].available for key in sorted(part.sessions.by_id)]
            found[part.path] = [
                (made.title(message), message.seq, message.origin_seq, message.size, message.changes)
                for available in parts
                for message in available.browse(0, 2**63)
                if isinstance(message, Relayed)
            ]
            found[f"{part.path} counts"] = part.counts, part.size_bytes
    return found


def test_it_leaves_what_a_send_leaves() -> None:
    plain, stepped = house(), house()
    plain.topic.send(batch(), plain.now, plain.facts)
    plain.commit()
    hand_out(stepped, batch())
    assert seen(stepped) == seen(plain)
    assert stepped.namespace._commons.bodies.references == plain.namespace._commons.bodies.references
    assert stepped.tables.rows[Table.INDEX] == plain.tables.rows[Table.INDEX]
    assert stepped.tables.rows[Table.BODIES] == plain.tables.rows[Table.BODIES]
    stepped.crash()
    plain.crash()
    assert seen(stepped) == seen(plain)


def test_a_crash_after_any_commit_but_the_last_leaves_nothing() -> None:
    made = house(requires_duplicate_detection=True)
    made.publish("before", color="blue", session_id="g1")
    before = seen(made)
    rows = copy.deepcopy(made.tables.rows)
    disks = hand_out(made, batch())
    assert len(disks) > len(NAMES)
    whole = seen(made)
    made.crash()
    assert seen(made) == whole
    for disk in [rows, *disks]:
        made.tables.rows = disk
        made.crash()
        assert seen(made) == before
        made.sweep()
        assert disk[Table.INDEX] == rows[Table.INDEX]
        assert disk[Table.BODIES] == rows[Table.BODIES]
        assert disk[Table.DUPLICATES] == rows[Table.DUPLICATES], "the sender's next try must be no duplicate"
        assert not [key for key in disk[Table.META] if key.startswith(b"pending")]
        assert made.namespace.set_aside.count == 0


def test_a_crash_in_the_middle_takes_no_number_twice() -> None:
    made = house()
    disks = hand_out(made, batch())
    made.tables.rows = disks[len(disks) // 2]
    made.crash()
    made.publish("next", color="blue", session_id="g1")
    made.sweep()
    assert made.finish(made.sub("all")) == ["next"]
    made.crash()
    assert made.finish(made.sub("blue")) == ["next"]


def test_nobody_sees_a_copy_before_the_last_commit() -> None:
    made = house()
    work = made.topic.hand_out(batch(), made.now)
    for _ in work.steps(lambda: made.facts):
        made.commit()
        assert not any(made.sub(name).has_available() for name in SUBSCRIPTIONS)
    work.finish(made.facts)
    made.commit()
    assert not any(made.sub(name).has_available() for name in SUBSCRIPTIONS)
    list(work.show())
    assert made.finish(made.sub("all")) == NAMES


def test_pings_duplicates_and_scheduled_ones_are_as_in_a_send() -> None:
    made = house(requires_duplicate_detection=True)
    made.publish("known", color="blue")
    later = post("later", color="blue", scheduled_ms=made.now + 5_000)
    hand_out(made, [post("a"), post("p", ping=True), later, post("known"), post("a"), post("b")])
    assert made.finish(made.sub("all")) == ["known", "a", "b"]
    assert (made.topic.pings, made.topic.scheduled_count) == (1, 1)
    made.publish("later", color="blue")
    made.step(6)
    made.crash()
    made.publish("b", "later")
    assert made.finish(made.sub("all")) == ["later"], "ids are known after a restart"


@pytest.mark.parametrize("first", ["scheduled", "at once"])
def test_duplicates_of_scheduled_ones_are_as_in_a_send(first: str) -> None:
    plain, stepped = house(requires_duplicate_detection=True), house(requires_duplicate_detection=True)
    later = plain.now + 5_000
    messages = [post("a", scheduled_ms=later), post("a", scheduled_ms=later), post("a"), post("b")]
    if first == "at once":
        messages.reverse()
    plain.topic.send(messages, plain.now, plain.facts)
    plain.commit()
    hand_out(stepped, messages)
    for made in (plain, stepped):
        made.step(6)
    assert stepped.finish(stepped.sub("all")) == plain.finish(plain.sub("all"))


def test_what_nobody_takes_leaves_no_body() -> None:
    made = TopicHouse()
    made.subscribe("blue", "color = 'blue'")
    hand_out(made, [post("a", color="red"), post("b", color="blue"), post("c", color="red")])
    assert made.bodies == 1
    assert made.finish(made.sub("blue")) == ["b"]
    assert made.bodies == 0


@pytest.mark.parametrize("at", [1, 30, 62, 65])
def test_a_subscription_deleted_in_the_middle_leaves_nothing(at: int) -> None:
    made = house()
    work = made.topic.hand_out(batch(), made.now)
    disks = []
    for number, _ in enumerate(work.steps(lambda: made.facts)):
        if number == at:
            made.namespace.delete_subscription("t", "all", made.now, made.facts)
        made.commit()
        made.sweep()
        disks.append(copy.deepcopy(made.tables.rows))
    finish(made, work)
    made.topic.let_go(made.now)
    disks.append(copy.deepcopy(made.tables.rows))
    made.sweep()
    for name in ("blue", "odd"):
        dead = made.sub(name).dead_letters
        assert dead is not None
        for queue in (made.sub(name), dead):
            made.finish(queue)
    grouped = made.sub("grouped")
    empty(made, grouped)
    assert (made.bodies, made.tables.rows[Table.INDEX]) == (0, {})
    for disk in disks:
        made.tables.rows = disk
        made.crash()
        assert made.namespace.set_aside.count == 0
        made.sweep()
        assert not [key for key in disk[Table.META] if key.startswith((b"pending", b"deleted"))]


def test_a_subscription_deleted_before_it_shows_its_copies_leaves_nothing() -> None:
    made = house()
    work = made.topic.hand_out(batch(), made.now)
    for _ in work.steps(lambda: made.facts):
        made.commit()
    work.finish(made.facts)
    made.commit()
    made.namespace.delete_subscription("t", "all", made.now, made.facts)
    made.commit()
    disks = []
    while made.namespace.sweep(made.facts, 7):
        made.commit()
        disks.append(copy.deepcopy(made.tables.rows))
    made.commit()
    list(work.show())
    assert len(disks) > 5
    for disk in disks:
        made.tables.rows = disk
        made.crash()
        assert made.namespace.set_aside.count == 0
        made.sweep()
        assert not [key for key in disk[Table.META] if key.startswith((b"pending", b"deleted"))]


def empty(made: TopicHouse, queue: Queue) -> None:
    assert queue.dead_letters is not None
    made.finish(queue.dead_letters)
    while (session := queue.accept_session(None, made.now)) is not None:
        for message in session.acquire(1_000, made.now, made.facts):
            queue.complete(tag(message), made.now, made.facts)
        queue.release_session(session, made.now, made.facts)
        made.commit()


def test_a_topic_deleted_in_the_middle_leaves_nothing() -> None:
    made = house(requires_duplicate_detection=True)
    work = made.topic.hand_out(batch(), made.now)
    for number, _ in enumerate(work.steps(lambda: made.facts)):
        if number == 63:
            made.namespace.delete_topic("t", made.now, made.facts)
        made.commit()
        made.sweep()
    finish(made, work)
    work.topic.let_go(made.now)
    made.crash()
    made.sweep()
    assert made.namespace.set_aside.count == 0
    for table in (Table.INDEX, Table.BODIES, Table.DUPLICATES):
        assert made.tables.rows[table] == {}


def test_a_subscription_made_in_the_middle_gets_none_of_it() -> None:
    made = house()
    work = made.topic.hand_out(batch(), made.now)
    for number, _ in enumerate(work.steps(lambda: made.facts)):
        if number == 30:
            made.subscribe("new")
        made.commit()
    finish(made, work)
    assert made.sub("new").counts.active == 0


def test_the_topic_is_held_meanwhile() -> None:
    made = house(requires_duplicate_detection=True)
    made.topic.schedule([post("due", scheduled_ms=made.now + 1_000)], made.now, made.facts)
    made.namespace.update_queue(replace(made.queue.settings, forward_to="t"), made.now, made.facts)
    made.commit()
    work = made.topic.hand_out(batch(), made.now)
    steps = work.steps(lambda: made.facts)
    next(steps)
    made.clock.step(seconds=2)
    made.queue.send([post("forwarded")], made.now, made.facts)
    made.commit()
    made.namespace.tick(made.now, made.facts)
    made.commit()
    with pytest.raises(ServerBusyError):
        made.topic.send([post("other")], made.now, made.facts)
    with pytest.raises(ServerBusyError):
        made.topic.schedule([post("m5", scheduled_ms=made.now + 1_000)], made.now, made.facts)
    for _ in steps:
        made.commit()
    finish(made, work)
    made.topic.let_go(made.now)
    made.tick()
    names = made.finish(made.sub("all"))
    assert names[: len(NAMES)] == NAMES
    assert sorted(names[len(NAMES) :]) == ["due", "forwarded"]


def test_messages_that_return_meanwhile_keep_their_place() -> None:
    made = house()
    made.publish("first", color="blue")
    message = made.taken(made.sub("all"))[0]
    made.sub("all").dead_letter(tag(message), made.now, made.facts, None, None)
    made.commit()
    work = made.topic.hand_out(batch(), made.now)
    for _ in work.steps(lambda: made.facts):
        made.commit()
    queue = made.sub("all")
    assert queue.dead_letters is not None
    queue.resubmit(queue.dead_letters, None, 0, made.now, made.facts)
    made.commit()
    finish(made, work)
    found = queue.messages.available.browse(0, 1_000)
    assert len(found) == len(NAMES) + 1
    fresh = [each.seq for each in queue.messages.available.fresh]
    assert fresh == sorted(fresh)
    assert made.finish(queue) == [*NAMES, "first"]


def test_only_many_copies_are_handed_out_in_steps() -> None:
    made = TopicHouse()
    for name in SUBSCRIPTIONS:
        made.subscribe(name)
    assert not made.topic.hands_out_long([post("a")] * (FAN_OUT_COPIES_MAX // 4))
    assert made.topic.hands_out_long([post("a")] * (FAN_OUT_COPIES_MAX // 4 + 1))
    # A rule with an action may make a copy of its own.
    made.add_rule("all", "more", "1 = 1", "SET seen = 1")
    assert made.topic.hands_out_long([post("a")] * (FAN_OUT_COPIES_MAX // 4))


def test_much_work_for_the_rules_is_done_in_steps() -> None:
    made = TopicHouse()
    made.subscribe("s", "p LIKE '%a_b%'")
    short, long = post("a", p="x" * 100), post("a", p="x" * 30_000, size=30_100)
    assert not made.topic.hands_out_long([short] * 50)
    assert not made.topic.hands_out_long([long])
    # A large body is nothing to a rule.
    assert not made.topic.hands_out_long([post("a", size=10**8)] * 10)
    for number in range(300):
        made.add_rule("s", str(number), f"p LIKE '%a_{number}%'")
    assert not made.topic.hands_out_long([short])
    assert made.topic.hands_out_long([short] * 50)
    assert made.topic.hands_out_long([long])
    for number in range(300):
        made.subscription("s").remove_rule(str(number), made.now, made.facts)
    assert not made.topic.hands_out_long([long])


def test_stored_rules_are_compiled_in_steps_with_the_first_message() -> None:
    made = TopicHouse()
    made.subscribe("s")
    for number in range(100):
        made.add_rule("s", str(number), f"color = 'blue' AND number = {number}")
    assert not made.topic.hands_out_long([post("a")])
    made.crash()
    assert made.topic.hands_out_long([post("a")])
    work = made.topic.hand_out([post("a")], made.now)
    assert len(list(work.steps(lambda: made.facts))) >= 100
    finish(made, work)
    made.topic.let_go(made.now)
    # The subscription takes everything, so that nobody evaluates them; they are compiled all the same.
    assert not made.topic.hands_out_long([post("a")])
    assert made.finish(made.sub("s")) == ["a"]
