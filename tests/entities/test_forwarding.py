from __future__ import annotations

import dataclasses

import pytest
from rules_house import tag
from topic_house import TopicHouse, post, rule

from twinbus.entities.message import Relayed
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ArgumentError
from twinbus.limits import FORWARD_COPIES_MAX, TICK_MESSAGES_MAX
from twinbus.store.facts import Table


def transfer(queue: Queue) -> Queue:
    return queue.open_transfer()


def send(house: TopicHouse, path: str, *names: str, **fields: object) -> None:
    house.namespace.queue(path).send([post(name, **fields) for name in names], house.now, house.facts)  # type: ignore[arg-type]
    house.commit()


def test_a_message_leaves_and_arrives_in_one_commit() -> None:
    house = TopicHouse()
    source = house.create("source", forward_to="q")
    send(house, "source", "a", "b")
    assert source.counts.active == 2
    assert house.namespace.next_deadline() is not None, "forwarding is due at once"
    house.namespace.tick(house.now, house.facts)
    facts = house.commit()
    assert len([key for table, key in facts.deletes if table == Table.INDEX]) == 2
    assert (len(facts.index), len(facts.bodies)) == (2, 0), "the bodies do not move"
    assert source.counts.active == 0
    house.crash()
    first, second = house.taken(house.queue)
    assert isinstance(first, Relayed)
    assert (first.seq, first.origin_seq, first.hops) == (1, 1, 1)
    assert house.titles([first, second]) == ["a", "b"]
    assert house.finish(house.namespace.queue("source")) == []


def test_a_subscription_forwards_to_a_queue() -> None:
    house = TopicHouse()
    house.subscribe("s", "n > 0", "SET n = n + 1", forward_to="q")
    house.subscribe("stays")
    house.publish("a", n=1)
    house.tick()
    (message,) = house.taken(house.queue)
    assert isinstance(message, Relayed)
    assert (message.origin_seq, message.hops, message.changes) == (1, 1, {"n": b"2"})
    house.queue.complete(tag(message), house.now, house.facts)
    house.commit()
    assert house.bodies == 1
    assert house.finish(house.sub("stays")) == ["a"]
    assert house.bodies == 0


def test_a_queue_forwards_to_a_topic_whose_rules_look_at_it() -> None:
    house = TopicHouse()
    house.subscribe("all")
    house.subscribe("blue", "color = 'blue'")
    house.create("source", forward_to="t")
    send(house, "source", "a", color="blue")
    send(house, "source", "b", color="red")
    house.tick()
    (copy,) = house.taken(house.sub("blue"))
    assert isinstance(copy, Relayed)
    assert (copy.origin_seq, copy.hops) == (1, 1)
    house.sub("blue").complete(tag(copy), house.now, house.facts)
    assert house.finish(house.sub("all")) == ["a", "b"]
    assert house.bodies == 0


def test_rules_of_the_next_topic_see_what_the_last_one_changed() -> None:
    house = TopicHouse()
    house.namespace.create_topic(TopicSettings(path="next"), house.now, house.facts)
    house.subscribe("s", "n = 1", "SET n = 2; SET sys.Label = 'hot'", forward_to="next")
    house.namespace.create_subscription(SubscriptionSettings(topic="next", name="s"), house.now, house.facts)
    next_one = house.namespace.subscription("next", "s")
    next_one.remove_rule("$Default", house.now, house.facts)
    next_one.add_rule(rule("two", "n = 2 AND sys.Label = 'hot'", "SET n = 3"), house.now, house.facts)
    house.publish("a", n=1)
    house.tick()
    (copy,) = house.taken(next_one.queue)
    assert copy.changes == {"n": b"3", "\0Label": b'"hot"'}


def test_a_topic_that_nobody_reads_swallows_it() -> None:
    house = TopicHouse()
    house.create("source", forward_to="t")
    send(house, "source", "a")
    house.tick()
    assert house.bodies == 0


def test_a_chain_ends_after_four_hops() -> None:
    house = TopicHouse()
    for number in range(5, -1, -1):
        target = {} if number == 5 else {"forward_to": f"q{number + 1}"}
        house.create(f"q{number}", **target)
    send(house, "q0", "a")
    house.tick()
    last = house.namespace.queue("q4")
    assert last.counts == (0, 0, 0, 1)
    assert last.dead_letters is not None
    (letter,) = house.taken(last.dead_letters)
    assert isinstance(letter, Relayed)
    assert letter.hops == 4
    assert (letter.changes or {})["DeadLetterReason"] == "MaxTransferHopCountExceeded"
    send(house, "q1", "b")
    house.tick()
    assert house.finish(house.namespace.queue("q5")) == ["b"]


def test_a_circle_ends() -> None:
    house = TopicHouse()
    house.create("a")
    house.create("b", forward_to="a")
    settings = QueueSettings(path="a", forward_to="b", forward_dead_letters_to="a")
    house.namespace.update_queue(settings, house.now, house.facts)
    send(house, "a", "round")
    house.tick()
    a = house.namespace.queue("a")
    assert a.counts.active == 0
    # Its dead letters cannot be forwarded any more either.
    (message,) = house.taken(transfer(a))
    assert (message.changes or {})["DeadLetterReason"] == "MaxTransferHopCountExceeded"


def test_dead_letters_are_forwarded_with_their_source() -> None:
    house = TopicHouse()
    source = house.create("source", forward_dead_letters_to="q", default_ttl_ms=5_000, dead_letter_on_expiry=True)
    send(house, "source", "late")
    house.step(seconds=7)
    assert source.counts == (0, 0, 0, 0)
    house.crash()
    (message,) = house.taken(house.queue)
    assert isinstance(message, Relayed)
    assert message.dead_letter_source == "source"
    assert (message.changes or {})["DeadLetterReason"] == "TTLExpiredException"
    assert message.expires_ms is None, "its time is over already: it gets a new one"
    assert message.delivery_count == 0


def test_dead_letters_of_a_subscription_are_forwarded() -> None:
    house = TopicHouse()
    subscription = house.subscribe("s", forward_dead_letters_to="q")
    house.publish("a")
    (message,) = house.taken(subscription)
    subscription.dead_letter(tag(message), house.now, house.facts, "bad", None)
    house.commit()
    house.tick()
    (moved,) = house.taken(house.queue)
    assert isinstance(moved, Relayed)
    assert (moved.dead_letter_source, moved.origin_seq) == ("t/Subscriptions/s", 1)


# --- targets that cannot take it --------------------------------------------------------------------------------------


def refused(house: TopicHouse) -> str:
    """The reason why the source's message could not be forwarded."""
    source = house.namespace.queue("source")
    assert source.counts.active == 0
    assert source.transfer_dead_letter_count == 1
    house.crash()
    waiting = house.namespace.queue("source/$Transfer/$DeadLetterQueue")
    (message,) = house.taken(waiting)
    assert house.title(message) == "a"
    waiting.complete(tag(message), house.now, house.facts)
    house.commit()
    assert house.bodies == 0
    assert house.tables.rows[Table.INDEX] == {}
    return str((message.changes or {})["DeadLetterReason"])


@pytest.mark.parametrize("status", ["Disabled", "SendDisabled"])
def test_a_disabled_target(status: str) -> None:
    house = TopicHouse()
    house.create("target", status=status)
    house.create("source", forward_to="target")
    send(house, "source", "a")
    house.tick()
    assert refused(house) == "MessagingEntityDisabled"


def test_a_deleted_target() -> None:
    house = TopicHouse()
    house.create("target")
    house.create("source", forward_to="target")
    house.namespace.delete_queue("target", house.now, house.facts)
    send(house, "source", "a")
    house.tick()
    assert refused(house) == "MessagingEntityNotFound"


def test_a_target_for_smaller_messages() -> None:
    house = TopicHouse()
    house.create("target", max_message_bytes=1024)
    house.create("source", forward_to="target")
    send(house, "source", "a", size=5_000)
    house.tick()
    assert refused(house) == "MessageSizeExceeded"


def test_a_full_target() -> None:
    house = TopicHouse()
    target = house.create("target", max_megabytes=1, max_message_bytes=1024 * 1024)
    house.create("source", forward_to="target")
    send(house, "target", "big", size=1024 * 1024)
    send(house, "source", "a")
    house.tick()
    house.finish(target)
    assert refused(house) == "QuotaExceeded"


def test_a_target_with_sessions() -> None:
    house = TopicHouse()
    target = house.create("target", requires_session=True)
    house.create("source", forward_to="target")
    send(house, "source", "fine", session_id="red")
    send(house, "source", "a")
    house.tick()
    session = target.accept_session("red", house.now)
    assert session is not None
    (message,) = session.acquire(2, house.now, house.facts)
    assert house.title(message) == "fine"
    target.complete(tag(message), house.now, house.facts)
    house.commit()
    assert refused(house) == "Session ID is null."


@pytest.mark.parametrize("needs", ["requires_duplicate_detection", "requires_session"])
def test_a_target_that_must_look_into_a_message_that_does_not_read(needs: str) -> None:
    house = TopicHouse()
    house.create("target", **{needs: True})
    house.create("source", forward_to="target")
    send(house, "source", "a", system={"unreadable": True})
    house.tick()
    assert refused(house) == "MessageUnreadable"


def test_a_target_that_knows_the_message_drops_it() -> None:
    house = TopicHouse()
    target = house.create("target", requires_duplicate_detection=True)
    house.create("source", forward_to="target")
    send(house, "source", "a", "a")
    house.tick()
    assert house.finish(target) == ["a"]
    assert house.bodies == 0


def test_a_topic_that_knows_the_message_drops_it() -> None:
    house = TopicHouse(requires_duplicate_detection=True)
    house.subscribe("s")
    house.create("source", forward_to="t")
    send(house, "source", "a", "a")
    house.tick()
    assert house.finish(house.sub("s")) == ["a"]
    assert house.bodies == 0


# --- when -------------------------------------------------------------------------------------------------------------


def test_what_waits_goes_when_forwarding_is_set_and_stays_when_it_is_not() -> None:
    house = TopicHouse()
    source = house.create("source")
    send(house, "source", "a", "b")
    (locked,) = source.acquire(1, house.now, house.facts)
    house.namespace.update_queue(QueueSettings(path="source", forward_to="q"), house.now, house.facts)
    house.commit()
    house.tick()
    assert house.finish(house.queue) == ["b"]
    source.abandon(tag(locked), house.now, house.facts)
    house.commit()
    house.tick()
    assert house.finish(house.queue) == ["a"]
    house.namespace.update_queue(QueueSettings(path="source"), house.now, house.facts)
    house.commit()
    send(house, "source", "c")
    house.tick()
    assert house.finish(source) == ["c"]


def test_forwarding_goes_on_after_a_crash() -> None:
    house = TopicHouse()
    house.create("source", forward_to="q")
    send(house, "source", "a")
    house.crash()
    house.tick()
    assert house.finish(house.queue) == ["a"]


def test_an_entity_that_cannot_be_received_from_forwards_nothing() -> None:
    house = TopicHouse()
    source = house.create("source", forward_to="q", status="ReceiveDisabled")
    send(house, "source", "a")
    house.tick()
    assert source.counts.active == 1
    active = dataclasses.replace(source.settings, status="Active")
    assert isinstance(active, QueueSettings)
    house.namespace.update_queue(active, house.now, house.facts)
    house.commit()
    house.tick()
    assert house.finish(house.queue) == ["a"]


def test_sessions_are_never_forwarded() -> None:
    house = TopicHouse()
    source = house.create("source", forward_to="q", requires_session=True)
    send(house, "source", "a", session_id="red")
    house.tick()
    assert source.counts.active == 1


def test_scheduled_messages_are_forwarded_when_they_are_due() -> None:
    house = TopicHouse()
    house.create("source", forward_to="q")
    send(house, "source", "a", scheduled_ms=house.now + 5_000)
    house.step(seconds=4)
    assert house.queue.counts.active == 0
    house.step(seconds=2)
    assert house.finish(house.queue) == ["a"]


def test_what_has_expired_is_not_forwarded() -> None:
    house = TopicHouse()
    source = house.create("source", forward_to="q", default_ttl_ms=5_000)
    send(house, "source", "a")
    house.clock.step(seconds=6)
    house.tick()
    assert (source.counts.active, house.queue.counts.active) == (0, 0)


def test_a_message_keeps_the_shorter_time() -> None:
    house = TopicHouse()
    house.create("target", default_ttl_ms=10_000)
    house.create("source", forward_to="target", default_ttl_ms=60_000)
    send(house, "source", "long")
    send(house, "source", "short", ttl_ms=5_000)
    house.tick()
    found = house.taken(house.namespace.queue("target"))
    assert [message.expires_ms for message in found] == [house.now + 10_000, house.now + 5_000]


def test_a_tick_forwards_a_bounded_number() -> None:
    house = TopicHouse()
    source = house.create("source", forward_to="t")
    for number in range(10):
        house.subscribe(f"s{number}")
    send(house, "source", *(f"m{number}" for number in range(100)))
    source.tick(house.now, house.facts)
    house.commit()
    moved = 100 - source.counts.active
    assert moved == FORWARD_COPIES_MAX // 10, "each copy counts"
    house.tick()
    assert house.sub("s9").counts.active == 100


def test_targets_must_exist_when_they_are_set() -> None:
    house = TopicHouse()
    for name in ("forward_to", "forward_dead_letters_to"):
        with pytest.raises(ArgumentError, match=f"{name} names 'nobody'"):
            house.create("source", **{name: "nobody"})
        with pytest.raises(ArgumentError, match=name):
            house.subscribe("s", **{name: "nobody"})
    assert [queue.path for queue in house.namespace.queues()] == ["q"]
    source = house.create("source", forward_to="Q")
    house.namespace.delete_queue("q", house.now, house.facts)
    # An existing target that has since been deleted may stay.
    still = dataclasses.replace(source.settings, max_delivery_count=5)
    assert isinstance(still, QueueSettings)
    house.namespace.update_queue(still, house.now, house.facts)


def test_a_deleted_queue_takes_its_transfer_dead_letters_along() -> None:
    house = TopicHouse()
    house.create("target", status="Disabled")
    house.create("source", forward_to="target")
    send(house, "source", "a")
    house.tick()
    house.namespace.delete_queue("source", house.now, house.facts)
    house.commit()
    house.crash()
    house.sweep()
    assert house.bodies == 0
    assert house.tables.rows[Table.INDEX] == {}


def test_a_tick_makes_a_bounded_number_of_copies_whoever_forwards() -> None:
    house = TopicHouse()
    for number in range(100):
        house.subscribe(f"s{number}")
    queues = [house.create(f"source{number}", forward_to="t") for number in range(3)]
    for queue in queues:
        queue.send([post(str(number)) for number in range(20)], house.now, house.facts)
    house.commit()
    most = 0
    while (at_ms := house.namespace.next_deadline()) is not None and at_ms <= house.now:
        house.namespace.tick(house.now, house.facts)
        most = max(most, len(house.facts.index))
        house.commit()
    assert len(house.finish(house.sub("s7"))) == 60
    assert most <= TICK_MESSAGES_MAX + 3 * 100
