from __future__ import annotations

import pytest
from rules_house import tag
from topic_house import TopicHouse, post

from twinbus.entities.filters import CorrelationFilter
from twinbus.entities.message import Relayed
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import (
    ArgumentError,
    EntityDisabledError,
    EntityExistsError,
    EntityNotFoundError,
    MessageNotFoundError,
    MessageTooLargeError,
    QuotaExceededError,
)
from twinbus.limits import SUBSCRIPTIONS_PER_TOPIC_MAX
from twinbus.store.facts import Table

IDLE_MS = 300_000


def test_every_subscription_gets_its_copy_of_the_one_body() -> None:
    house = TopicHouse()
    subscriptions = [house.subscribe(f"s{number}") for number in range(3)]
    house.publish("a", "b")
    assert house.bodies == 2
    assert len(house.tables.rows[Table.INDEX]) == 6
    for left, subscription in zip((2, 2, 0), subscriptions, strict=True):
        assert house.finish(subscription) == ["a", "b"]
        assert house.bodies == left, "a body goes with its last copy"
    assert house.tables.rows[Table.INDEX] == {}


def test_a_copy_has_a_number_of_its_own_and_the_topics() -> None:
    house = TopicHouse()
    house.subscribe("all")
    house.subscribe("late", "n = 3")
    for n in range(1, 4):
        house.publish(f"m{n}", n=n)
    (late,) = house.taken(house.sub("late"))
    assert isinstance(late, Relayed)
    assert (late.seq, late.origin_seq, late.hops) == (1, 3, 0)
    numbers = [(copy.seq, copy.origin_seq) for copy in house.taken(house.sub("all")) if isinstance(copy, Relayed)]
    assert numbers == [(1, 1), (2, 2), (3, 3)]


def test_a_message_nobody_wants_is_not_even_stored() -> None:
    house = TopicHouse()
    house.publish("nobody subscribed")
    house.subscribe("blue", "color = 'blue'")
    house.publish("red", color="red")
    assert house.bodies == 0
    house.publish("blue", color="blue")
    (message,) = house.taken(house.sub("blue"))
    assert isinstance(message, Relayed)
    assert message.origin_seq == 3, "it has taken a number all the same"


def test_pings_are_counted_and_never_copied() -> None:
    house = TopicHouse()
    house.subscribe("all")
    house.publish("ping", ping=True)
    assert house.topic.pings == 1
    assert house.sub("all").counts.active == 0
    assert house.bodies == 0


def test_copies_and_their_bodies_survive_a_crash() -> None:
    house = TopicHouse()
    for name in ("one", "two", "blue"):
        house.subscribe(name, "color = 'blue'" if name == "blue" else None)
    house.publish("a", color="red")
    house.publish("b", color="blue")
    house.finish(house.sub("one"))
    house.crash()
    assert [each.name for each in house.topic.subscriptions] == ["blue", "one", "two"]
    assert house.bodies == 2
    assert house.finish(house.sub("blue")) == ["b"]
    assert house.bodies == 2
    house.crash()
    assert house.finish(house.sub("two")) == ["a", "b"]
    assert house.bodies == 0
    house.publish("c", color="blue")
    (copy,) = house.taken(house.sub("blue"))
    assert isinstance(copy, Relayed)
    assert copy.seq > 1, "no number is used twice"
    assert copy.origin_seq > 2


def test_a_batch_is_all_or_none() -> None:
    house = TopicHouse(max_message_bytes=1024)
    house.subscribe("all")
    with pytest.raises(MessageTooLargeError):
        house.topic.send([post("a"), post("b", size=2000)], house.now, house.facts)
    house.commit()
    assert house.sub("all").counts.active == 0


def test_duplicates_are_dropped_by_the_topic() -> None:
    house = TopicHouse(requires_duplicate_detection=True, duplicate_window_ms=20_000)
    house.subscribe("all")
    house.publish("a", "a", "b")
    house.crash()
    house.publish("a")
    assert house.finish(house.sub("all")) == ["a", "b"]
    house.step(seconds=22)
    house.publish("a")
    assert house.finish(house.sub("all")) == ["a"]


def test_the_shortest_time_to_live_counts() -> None:
    house = TopicHouse(default_ttl_ms=60_000)
    house.subscribe("short", default_ttl_ms=10_000)
    house.subscribe("long")
    house.publish("own", ttl_ms=30_000)
    house.publish("none")
    short = house.taken(house.sub("short"))
    long = house.taken(house.sub("long"))
    assert [message.expires_ms for message in short] == [house.now + 10_000] * 2
    assert [message.expires_ms for message in long] == [house.now + 30_000, house.now + 60_000]


def test_a_copy_that_expires_takes_only_its_reference() -> None:
    house = TopicHouse()
    house.subscribe("short", default_ttl_ms=10_000, dead_letter_on_expiry=True)
    house.subscribe("dropped", default_ttl_ms=10_000)
    house.subscribe("long")
    house.publish("a")
    house.step(seconds=12)
    dead = house.sub("short").dead_letters
    assert dead is not None
    (message,) = house.taken(dead)
    assert isinstance(message, Relayed)
    assert (message.changes or {})["DeadLetterReason"] == "TTLExpiredException"
    assert house.sub("dropped").counts.active == 0
    assert house.bodies == 1
    dead.complete(tag(message), house.now, house.facts)
    house.commit()
    assert house.finish(house.sub("long")) == ["a"]
    assert house.bodies == 0


# --- scheduling -------------------------------------------------------------------------------------------------------


def test_a_scheduled_message_is_handed_out_when_its_time_comes() -> None:
    house = TopicHouse()
    house.subscribe("all")
    (seq,) = house.topic.schedule(
        [post("a", scheduled_ms=house.now + 5_000, ttl_ms=60_000, color="blue")], house.now, house.facts
    )
    house.commit()
    assert (house.topic.counts.scheduled, house.sub("all").counts.active, house.bodies) == (1, 0, 1)
    house.crash()
    # The rules in force at activation count.
    house.subscribe("blue", "color = 'blue'")
    house.subscribe("red", "color = 'red'")
    house.step(seconds=6)
    assert house.topic.counts.scheduled == 0
    (copy,) = house.taken(house.sub("all"))
    assert isinstance(copy, Relayed)
    assert copy.origin_seq > seq
    assert copy.expires_ms == house.now + 60_000
    assert house.finish(house.sub("blue")) == ["a"]
    assert house.sub("red").counts.active == 0
    house.sub("all").complete(tag(copy), house.now, house.facts)
    house.commit()
    assert house.bodies == 0


def test_messages_scheduled_for_the_past_are_handed_out_by_ticks() -> None:
    house = TopicHouse()
    for number in range(20):
        house.subscribe(f"s{number}")
    house.topic.schedule([post(scheduled_ms=-5, ttl_ms=60_000) for _ in range(100)], house.now, house.facts)
    assert len(house.facts.index) == 100, "no copies yet: there may be thousands for each"
    house.commit()
    house.tick()
    assert [house.sub(name).counts.active for name in ("s0", "s19")] == [100, 100]


def test_a_scheduled_message_that_nobody_wants_goes_when_its_time_comes() -> None:
    house = TopicHouse()
    house.topic.schedule([post("a", scheduled_ms=house.now + 5_000)], house.now, house.facts)
    house.commit()
    house.step(seconds=6)
    assert house.bodies == 0
    assert house.tables.rows[Table.INDEX] == {}


def test_scheduled_messages_can_be_cancelled() -> None:
    house = TopicHouse()
    house.subscribe("all")
    numbers = house.topic.schedule(
        [post(name, scheduled_ms=house.now + 5_000) for name in "ab"], house.now, house.facts
    )
    house.commit()
    with pytest.raises(MessageNotFoundError):
        house.topic.cancel([numbers[0], 999], house.now, house.facts)
    house.topic.cancel([numbers[0]], house.now, house.facts)
    house.commit()
    house.step(seconds=6)
    assert house.finish(house.sub("all")) == ["b"]
    assert house.bodies == 0


def test_many_scheduled_messages_are_handed_out_a_bounded_number_a_tick() -> None:
    house = TopicHouse()
    for number in range(4):
        house.subscribe(f"s{number}")
    house.topic.schedule([post(scheduled_ms=house.now + 1_000) for _ in range(1_000)], house.now, house.facts)
    house.commit()
    house.clock.step(seconds=2)
    house.namespace.tick(house.now, house.facts)
    assert 75 < 1_000 - house.topic.counts.scheduled < 150
    house.tick()
    assert house.sub("s0").counts.active == 1_000


# --- status and size --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["Disabled", "SendDisabled"])
def test_a_disabled_topic_takes_nothing(status: str) -> None:
    house = TopicHouse(status=status)
    house.subscribe("all")
    with pytest.raises(EntityDisabledError):
        house.topic.check_send([post()])
    house.namespace.update_topic(TopicSettings(path="t"), house.now, house.facts)
    house.publish("a")
    assert house.finish(house.sub("all")) == ["a"]


def test_a_disabled_subscription_loses_nothing() -> None:
    house = TopicHouse()
    house.subscribe("off", status="Disabled")
    house.publish("a")
    with pytest.raises(EntityDisabledError):
        house.taken(house.sub("off"))
    house.namespace.update_subscription(SubscriptionSettings(topic="t", name="off"), house.now, house.facts)
    house.commit()
    assert house.finish(house.sub("off")) == ["a"]


def test_a_full_topic_refuses_until_copies_are_received() -> None:
    house = TopicHouse(max_megabytes=1, max_message_bytes=1024 * 1024)
    house.subscribe("one")
    house.subscribe("two")
    house.publish("a", size=200_000)
    house.publish("b", size=200_000)
    assert house.topic.size_bytes == 800_000
    with pytest.raises(QuotaExceededError, match="Topic: 't'"):
        house.topic.check_send([post(size=300_000)])
    house.finish(house.sub("one"))
    house.topic.check_send([post(size=300_000)])
    house.topic.schedule([post(size=500_000, scheduled_ms=house.now + 5_000)], house.now, house.facts)
    with pytest.raises(QuotaExceededError):
        house.topic.check_send([post(size=300_000)])


# --- the namespace's part ---------------------------------------------------------------------------------------------


def test_queues_and_topics_share_their_names() -> None:
    house = TopicHouse()
    with pytest.raises(EntityExistsError):
        house.create("T")
    with pytest.raises(EntityExistsError):
        house.namespace.create_topic(TopicSettings(path="Q"), house.now, house.facts)
    with pytest.raises(EntityNotFoundError):
        house.namespace.queue("t")
    with pytest.raises(EntityNotFoundError):
        house.namespace.topic("q")
    with pytest.raises(EntityNotFoundError):
        house.namespace.delete_queue("t", house.now, house.facts)
    with pytest.raises(EntityNotFoundError):
        house.namespace.update_queue(QueueSettings(path="t"), house.now, house.facts)


def test_paths_lead_to_every_part() -> None:
    house = TopicHouse()
    house.namespace.create_topic(TopicSettings(path="a/Subscriptions/b"), house.now, house.facts)
    made = house.namespace.create_subscription(
        SubscriptionSettings(topic="A/subscriptions/B", name="C"), house.now, house.facts
    ).queue
    find = house.namespace.entity
    assert find("T") is house.topic
    assert find("q") is house.queue
    assert find("a/subscriptions/b/SUBSCRIPTIONS/c") is made
    assert find("a/subscriptions/b/subscriptions/c/$deadletterqueue") is made.dead_letters
    assert find("q/$Transfer/$DeadLetterQueue") is house.queue.transfer_dead_letters
    assert house.namespace.queue("a/subscriptions/b/subscriptions/c/$Transfer/$DeadLetterQueue").owner is made
    for path in ("t/$DeadLetterQueue", "t/Subscriptions/nobody", "q/Subscriptions/x", "Subscriptions/x"):
        with pytest.raises(EntityNotFoundError, match="could not be found"):
            find(path)
    assert house.namespace.queues() == [house.queue]
    assert [topic.path for topic in house.namespace.topics()] == ["a/Subscriptions/b", "t"]


def test_what_is_fixed_cannot_be_changed() -> None:
    house = TopicHouse()
    house.subscribe("s")
    with pytest.raises(ArgumentError, match="requires_duplicate_detection"):
        house.namespace.update_topic(TopicSettings(path="t", requires_duplicate_detection=True), house.now, house.facts)
    with pytest.raises(ArgumentError, match="requires_session"):
        house.namespace.update_subscription(
            SubscriptionSettings(topic="t", name="s", requires_session=True), house.now, house.facts
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"default_ttl_ms": 999},
        {"max_megabytes": 0},
        {"duplicate_window_ms": 1},
        {"status": "Asleep"},
        {"auto_delete_on_idle_ms": 1},
        {"user_metadata": "x" * 1025},
        {"max_message_bytes": 1},
    ],
)
def test_topic_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        TopicSettings(path="t", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a/b", "x" * 51, "-a", "a b", "$"])
def test_subscription_names_are_checked(name: str) -> None:
    with pytest.raises(ArgumentError, match="subscription name"):
        SubscriptionSettings(topic="t", name=name)


def test_settings_read_back_as_they_were() -> None:
    topic = TopicSettings(path="t", max_megabytes=5, user_metadata="x")
    assert TopicSettings.from_json(topic.to_json()) == topic
    subscription = SubscriptionSettings(topic="t", name="s", requires_session=True, forward_to="q")
    assert SubscriptionSettings.from_json(subscription.to_json()) == subscription
    assert subscription.path == "t/Subscriptions/s"


def test_deleting_a_topic_takes_everything_with_it() -> None:
    house = TopicHouse()
    house.subscribe("one")
    house.subscribe("two", CorrelationFilter(label="x"))
    house.add_rule("two", "more", "n > 1")
    house.publish("a", n=2)
    house.topic.schedule([post("b", scheduled_ms=house.now + 1_000)], house.now, house.facts)
    house.commit()
    house.namespace.delete_topic("T", house.now, house.facts)
    house.commit()
    house.sweep()
    assert {"deleted t/Subscriptions/one", "deleted t/Subscriptions/two"} <= set(house.heard)
    assert house.bodies == 0
    assert house.tables.rows[Table.INDEX] == {}
    assert len(house.tables.rows[Table.ENTITIES]) == 1, "the queue's"
    house.crash()
    assert house.namespace.topics() == []


def test_the_rows_of_a_deleted_subscription_are_swept_after_a_crash_too() -> None:
    house = TopicHouse()
    house.subscribe("gone")
    house.subscribe("stays")
    house.publish("a", "b")
    house.namespace.delete_subscription("t", "gone", house.now, house.facts)
    house.commit()
    house.crash()
    house.sweep()
    assert house.bodies == 2
    assert house.finish(house.sub("stays")) == ["a", "b"]
    assert house.bodies == 0


def test_a_deleted_name_can_be_used_again_at_once() -> None:
    house = TopicHouse()
    house.subscribe("s")
    house.publish("old")
    house.namespace.delete_subscription("t", "s", house.now, house.facts)
    house.namespace.create_subscription(SubscriptionSettings(topic="t", name="s"), house.now, house.facts)
    house.commit()
    house.sweep()
    house.crash()
    assert house.sub("s").counts.active == 0
    assert len(house.subscription("s").rules) == 1


def test_a_topic_has_a_bounded_number_of_subscriptions() -> None:
    house = TopicHouse()
    for number in range(SUBSCRIPTIONS_PER_TOPIC_MAX):
        wanted = SubscriptionSettings(topic="t", name=f"s{number}")
        house.namespace.create_subscription(wanted, house.now, house.facts)
    with pytest.raises(QuotaExceededError, match="at most 2000 subscriptions"):
        house.subscribe("more")
    with pytest.raises(EntityExistsError):
        house.subscribe("S1")
    with pytest.raises(EntityNotFoundError):
        house.namespace.create_subscription(SubscriptionSettings(topic="x", name="s"), house.now, house.facts)


# --- idleness ---------------------------------------------------------------------------------------------------------


def test_an_idle_topic_is_deleted_with_its_subscriptions() -> None:
    house = TopicHouse(auto_delete_on_idle_ms=IDLE_MS)
    house.subscribe("s")
    house.step(seconds=200)
    house.publish("a")
    house.step(seconds=200)
    house.finish(house.sub("s"))  # using a subscription is using the topic
    house.step(seconds=299)
    assert house.topic.path == "t"
    house.step(seconds=2)
    assert house.namespace.topics() == []
    house.sweep()
    assert house.tables.rows[Table.INDEX] == {}


@pytest.mark.parametrize("keeper", ["link", "subscription link", "schedule"])
def test_a_topic_in_use_is_not_idle(keeper: str) -> None:
    house = TopicHouse(auto_delete_on_idle_ms=IDLE_MS)
    house.subscribe("s")
    if keeper == "link":
        house.topic.links = 1
    elif keeper == "subscription link":
        house.sub("s").links = 1
    else:
        house.topic.schedule([post(scheduled_ms=house.now + 400_000)], house.now, house.facts)
        house.commit()
    house.step(seconds=310)
    assert house.topic.path == "t"


def test_an_idle_subscription_is_deleted_alone() -> None:
    house = TopicHouse()
    house.subscribe("idle", auto_delete_on_idle_ms=IDLE_MS)
    house.subscribe("stays")
    house.step(seconds=200)
    house.publish("a")  # a copy counts as use
    house.step(seconds=200)
    assert len(house.topic.subscriptions) == 2
    house.step(seconds=101)
    assert [each.name for each in house.topic.subscriptions] == ["stays"]
    house.publish("b")
    house.sweep()
    assert house.finish(house.sub("stays")) == ["a", "b"]
    assert house.bodies == 0
