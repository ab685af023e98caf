"""Any settings of a topic and of a subscription, through the SDK's own models and back, are the same."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

from azure.servicebus.management._generated.models import (
    CreateSubscriptionBody,
    CreateSubscriptionBodyContent,
    CreateTopicBody,
    CreateTopicBodyContent,
    SubscriptionDescriptionEntry,
    TopicDescriptionEntry,
)
from azure.servicebus.management._models import SubscriptionProperties, TopicProperties
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.http.admin.test_entity_xml import SITE, long_ms, make_targets, paths, texts
from twinbus.broker.http.admin.entity_xml import entry_of, settings_in
from twinbus.broker.http.admin.feed import entry_text
from twinbus.broker.http.admin.resource import message_bytes
from twinbus.broker.http.admin.xml_in import description_in
from twinbus.entities.namespace import Namespace
from twinbus.entities.settings import STATUSES
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.limits import (
    DUPLICATE_WINDOW_MS_MAX,
    DUPLICATE_WINDOW_MS_MIN,
    LOCK_DURATION_MS_MAX,
    LOCK_DURATION_MS_MIN,
    MAX_DELIVERY_COUNT_MAX,
    MESSAGE_BYTES_DEFAULT,
    QUEUE_MEGABYTES_MAX,
)
from twinbus.store.facts import Facts

NOW_MS = 1_700_000_000_123

topic_settings = st.builds(
    TopicSettings,
    path=paths,
    max_megabytes=st.integers(1, QUEUE_MEGABYTES_MAX),
    requires_duplicate_detection=st.booleans(),
    duplicate_window_ms=st.integers(DUPLICATE_WINDOW_MS_MIN, DUPLICATE_WINDOW_MS_MAX),
    default_ttl_ms=long_ms,
    enable_batched_operations=st.booleans(),
    status=st.sampled_from(STATUSES),
    auto_delete_on_idle_ms=long_ms,
    enable_partitioning=st.booleans(),
    enable_express=st.booleans(),
    support_ordering=st.booleans(),
    filter_before_publishing=st.booleans(),
    user_metadata=st.none() | texts,
    max_message_bytes=st.integers(1024, 102_400).map(lambda kilobytes: kilobytes * 1024),
)
subscription_settings = st.builds(
    SubscriptionSettings,
    topic=st.just("t"),
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,48}[A-Za-z0-9]", fullmatch=True),
    lock_duration_ms=st.integers(LOCK_DURATION_MS_MIN, LOCK_DURATION_MS_MAX),
    requires_session=st.booleans(),
    default_ttl_ms=long_ms,
    dead_letter_on_expiry=st.booleans(),
    dead_letter_on_filter_error=st.booleans(),
    max_delivery_count=st.integers(1, MAX_DELIVERY_COUNT_MAX),
    enable_batched_operations=st.booleans(),
    status=st.sampled_from(STATUSES),
    auto_delete_on_idle_ms=long_ms,
    forward_to=st.none() | paths,
    forward_dead_letters_to=st.none() | paths,
    user_metadata=st.none() | texts,
)


def namespace() -> Namespace:
    return Namespace("n", tokens=lambda: b"0" * 16)


@settings(deadline=None)
@given(topic_settings)
def test_topics(wanted: TopicSettings) -> None:
    topic = namespace().create_topic(wanted, NOW_MS, Facts())
    text = entry_text(entry_of(topic, [], SITE), SITE, root=True)
    entry = TopicDescriptionEntry.deserialize(ElementTree.fromstring(text))
    properties = TopicProperties._from_internal_entity(entry.title, entry.content.topic_description)
    assert properties.name == wanted.path
    content = CreateTopicBodyContent(topic_description=properties._to_internal_entity())
    sent = ElementTree.tostring(CreateTopicBody(content=content).serialize(is_xml=True), encoding="utf-8")
    kind, description = description_in(sent)
    assert kind == "TopicDescription"
    values = message_bytes(settings_in(description, "topic"), MESSAGE_BYTES_DEFAULT, "Premium")
    assert dataclasses.replace(TopicSettings(path=wanted.path), **values) == wanted


@settings(deadline=None)
@given(subscription_settings)
def test_subscriptions(wanted: SubscriptionSettings) -> None:
    home = namespace()
    home.create_topic(TopicSettings(path="t"), NOW_MS, Facts())
    make_targets(home, wanted.forward_to, wanted.forward_dead_letters_to)
    subscription = home.create_subscription(wanted, NOW_MS, Facts())
    text = entry_text(entry_of(subscription.queue, [], SITE), SITE, root=True)
    entry = SubscriptionDescriptionEntry.deserialize(ElementTree.fromstring(text))
    properties = SubscriptionProperties._from_internal_entity(entry.title, entry.content.subscription_description)
    assert properties.name == wanted.name
    content = CreateSubscriptionBodyContent(subscription_description=properties._to_internal_entity("localhost:5300"))
    sent = ElementTree.tostring(CreateSubscriptionBody(content=content).serialize(is_xml=True), encoding="utf-8")
    kind, description = description_in(sent)
    assert kind == "SubscriptionDescription"
    values = settings_in(description, "subscription")
    assert dataclasses.replace(SubscriptionSettings(topic="t", name=wanted.name), **values) == wanted
