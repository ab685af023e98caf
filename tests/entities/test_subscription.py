from __future__ import annotations

import random

import pytest
from rules_house import tag
from topic_house import TopicHouse, post

from twinbus.entities.filters import TrueFilter
from twinbus.entities.message import Relayed
from twinbus.entities.rule import Rule
from twinbus.entities.topic_settings import SubscriptionSettings
from twinbus.errors import MessageLockLostError, NotAllowedError


def test_nobody_sends_to_a_subscription() -> None:
    house = TopicHouse()
    subscription = house.subscribe("s")
    with pytest.raises(NotAllowedError, match="send to its topic"):
        subscription.send([post()], house.now, house.facts)
    with pytest.raises(NotAllowedError):
        subscription.schedule([post(scheduled_ms=house.now + 1)], house.now, house.facts)


def test_it_is_received_from_like_a_queue() -> None:
    house = TopicHouse()
    subscription = house.subscribe("s", max_delivery_count=2, lock_duration_ms=5_000)
    other = house.subscribe("other")
    house.publish("a", "b", "c")
    first, second, third = house.taken(subscription)
    lapsed = tag(third)
    subscription.abandon(tag(first), house.now, house.facts)
    subscription.defer(tag(second), house.now, house.facts)
    house.commit()
    house.step(seconds=6)
    with pytest.raises(MessageLockLostError):
        subscription.complete(lapsed, house.now, house.facts)
    again = house.taken(subscription)
    assert house.titles(again) == ["a", "c"]
    assert [message.delivery_count for message in again] == [1, 1]
    for message in again:
        subscription.abandon(tag(message), house.now, house.facts)
    house.commit()
    assert subscription.counts == (0, 0, 1, 2)
    assert other.counts == (3, 0, 0, 0), "what one does to its copies is its own business"
    house.crash()
    subscription, dead = house.sub("s"), house.sub("s").dead_letters
    assert dead is not None
    (deferred,) = subscription.receive_deferred([second.seq], house.now, house.facts, session=None)
    assert isinstance(deferred, Relayed)
    assert deferred.origin_seq == 2
    assert [message.origin_seq for message in house.taken(dead) if isinstance(message, Relayed)] == [1, 3]


def test_dead_letters_of_a_copy_share_the_body() -> None:
    house = TopicHouse()
    one, two = house.subscribe("one"), house.subscribe("two")
    house.publish("a")
    (message,) = house.taken(one)
    one.dead_letter(tag(message), house.now, house.facts, "bad", "very", {"more": "x"})
    house.commit()
    house.crash()
    assert house.finish(house.sub("two")) == ["a"]
    dead = house.sub("one").dead_letters
    assert dead is not None
    (letter,) = house.taken(dead)
    assert letter.changes == {"more": "x", "DeadLetterReason": "bad", "DeadLetterErrorDescription": "very"}
    dead.complete(tag(letter), house.now, house.facts)
    house.commit()
    assert house.bodies == 0
    assert two.path == "t/Subscriptions/two"


def test_sessions() -> None:
    house = TopicHouse()
    subscription = house.subscribe("s", requires_session=True)
    house.subscribe("plain")
    house.publish("a", "b", session_id="red")
    house.publish("c", session_id="blue")
    session = subscription.accept_session(None, house.now)
    assert session is not None
    assert session.id == "red"
    assert house.titles(session.acquire(10, house.now, house.facts)) == ["a", "b"]
    assert house.finish(house.sub("plain")) == ["a", "b", "c"]
    house.crash()
    session = house.sub("s").accept_session("blue", house.now)
    assert session is not None
    assert house.titles(session.acquire(10, house.now, house.facts)) == ["c"]


def test_a_copy_without_a_session_id_is_a_dead_letter() -> None:
    house = TopicHouse()
    subscription = house.subscribe("s", requires_session=True)
    house.publish("a")
    assert subscription.counts == (0, 0, 0, 1)
    assert subscription.dead_letters is not None
    (letter,) = house.taken(subscription.dead_letters)
    assert (letter.changes or {})["DeadLetterReason"] == "Session ID is null."


def test_sessions_of_scheduled_messages_are_found_again() -> None:
    house = TopicHouse()
    house.subscribe("s", requires_session=True)
    house.topic.schedule([post("a", session_id="red", scheduled_ms=house.now + 1_000)], house.now, house.facts)
    house.commit()
    house.crash()
    house.step(seconds=2)
    session = house.sub("s").accept_session("red", house.now)
    assert session is not None
    assert house.titles(session.acquire(10, house.now, house.facts)) == ["a"]


def test_those_who_wait_are_told_once_a_commit() -> None:
    house = TopicHouse()
    house.subscribe("one")
    house.subscribe("two")
    house.heard.clear()
    house.topic.send([post("a"), post("b")], house.now, house.facts)
    house.topic.send([post("c")], house.now, house.facts)
    assert house.heard == [], "nothing is seen before it is durable"
    assert house.sub("one").counts.active == 0
    house.commit()
    assert sorted(house.heard) == ["available t/Subscriptions/one", "available t/Subscriptions/two"]


def test_settings_change_and_stay() -> None:
    house = TopicHouse()
    house.subscribe("s")
    wanted = SubscriptionSettings(topic="T", name="S", lock_duration_ms=7_000, max_delivery_count=3)
    house.namespace.update_subscription(wanted, house.now, house.facts)
    house.commit()
    house.crash()
    assert house.sub("s").settings == wanted
    assert house.sub("s").dead_letters is not None
    (rule,) = house.subscription("s").rules
    assert (rule.name, rule.filter) == ("$Default", TrueFilter())


def test_rules_are_listed_by_name_from_anywhere() -> None:
    house = TopicHouse()
    house.subscribe("s")
    subscription = house.sub("s").subscription
    assert subscription is not None
    names = ["$Default"]
    chance = random.Random(1)
    for number in range(200):
        if number % 3 == 2:
            gone = names.pop(chance.randrange(len(names)))
            subscription.remove_rule(gone.upper(), house.now, house.facts)
        else:
            names.append(f"Rule-{chance.randrange(10**6)}")
            subscription.add_rule(Rule(names[-1], TrueFilter(), None, house.now), house.now, house.facts)
        names.sort(key=str.lower)
        skip = chance.randrange(len(names) + 1)
        assert [rule.name for rule in subscription.rules_from(skip, 7)] == names[skip : skip + 7]
        assert [rule.name for rule in subscription.rules] == names
    subscription.update_rule(Rule(names[0], TrueFilter(), None, house.now), house.now, house.facts)
    assert [rule.name for rule in subscription.rules] == names


def test_a_page_of_many_rules_is_as_cheap_as_of_few() -> None:
    def work_at(count: int) -> int:
        house = TopicHouse()
        house.subscribe("s")
        subscription = house.sub("s").subscription
        assert subscription is not None
        for number in range(count):
            subscription.add_rule(Rule(f"r{number}", TrueFilter(), None, house.now), house.now, house.facts)
        subscription.rules_from(0, 1)
        watched = subscription._sorted
        page = subscription.rules_from(count - 5, 5)
        assert subscription._sorted is watched, "nothing is sorted again"
        return len(page)

    assert work_at(50) == work_at(1_000)
