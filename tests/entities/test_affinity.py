"""Subscriptions that links make: their names, and what stays after a crash."""

from __future__ import annotations

import pytest
from topic_house import TopicHouse

from twinbus.entities.affinity import ClientAffinity, affinity_of, durable_keys, is_entity_name
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings
from twinbus.errors import ArgumentError
from twinbus.limits import CLIENT_ID_CHARS_MAX, JMS_NAME_CHARS_MAX


@pytest.mark.parametrize(
    ("link", "durable", "shared", "everyone", "key", "entity"),
    [
        ("daily", True, False, False, ("c", "daily", True), "daily$c$D"),
        ("a|b", True, False, False, ("c", "a|b", True), "a_b~5dd1a4ff$c$D"),
        ("work", True, True, False, ("c", "work", True), "work$c$D"),
        ("work|2", True, True, False, ("c", "work", True), "work$c$D"),
        ("work|global", True, True, True, (None, "work", True), "work$$D"),
        ("work|global2", True, True, True, (None, "work", True), "work$$D"),
        ("work|global-volatile1", False, True, True, (None, "work", False), "work$$ND"),
        ("work|volatile3", False, True, False, ("c", "work", False), "work$c$ND"),
    ],
)
def test_names(
    link: str, durable: bool, shared: bool, everyone: bool, key: tuple[str | None, str, bool], entity: str
) -> None:
    affinity = affinity_of(link, "c", durable, shared, everyone)
    assert affinity.key == key
    assert affinity.entity_name.split("$")[1:] == entity.split("$")[1:]
    if "|b" not in link:
        assert affinity.entity_name == entity
    assert is_entity_name(affinity.entity_name)
    assert ClientAffinity.from_json(affinity.to_json()) == affinity
    if durable and not link.endswith("2"):
        assert durable_keys(link, "c") == key


def test_different_names_make_different_entities() -> None:
    odd = ["a b", "a_b", "a:b", "ä", "x" * 128, "x" * 127 + "y", "a$b"]
    entities = {affinity_of(name, "c", True, False, False).entity_name for name in odd}
    assert len(entities) == len(odd)
    assert all(map(is_entity_name, entities))
    assert not is_entity_name("plain")


def test_bounds() -> None:
    affinity_of("n" * JMS_NAME_CHARS_MAX, "c" * CLIENT_ID_CHARS_MAX, True, False, False)
    for name, client in (("n" * (JMS_NAME_CHARS_MAX + 1), "c"), ("n", "c" * (CLIENT_ID_CHARS_MAX + 1)), ("", "c")):
        with pytest.raises(ArgumentError):
            affinity_of(name, client, True, False, False)


def test_an_index_of_links_survives_a_crash_and_a_deletion() -> None:
    house = TopicHouse()
    affinity = affinity_of("daily", "c", True, False, False)
    settings = SubscriptionSettings(topic=house.topic.path, name=affinity.entity_name, affinity=affinity)
    made = house.namespace.create_subscription(settings, house.now, house.facts)
    house.namespace.create_queue(QueueSettings(path="passing"), house.now, house.facts, temporary=True)
    house.commit()
    assert house.namespace.affine == {affinity.key: made}
    house.crash()
    (again,) = house.namespace.affine.values()
    assert again.settings.affinity == affinity
    assert list(house.namespace.temporary) == ["passing"]
    house.namespace.delete_subscription(house.topic.path, again.name, house.now, house.facts)
    house.namespace.delete_queue("passing", house.now, house.facts)
    house.commit()
    house.crash()
    assert not house.namespace.affine
    assert not house.namespace.temporary
    plain = SubscriptionSettings(topic=house.topic.path, name="a$b$D")
    with pytest.raises(ArgumentError, match="only the link"):
        house.namespace.create_subscription(plain, house.now, house.facts)
