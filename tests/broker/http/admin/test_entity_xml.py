"""Any queue settings, written by us, read by the SDK's model, written by the SDK and read by us, are the same."""

from __future__ import annotations

import contextlib
import dataclasses
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

from azure.servicebus.management._generated.models import (
    CreateQueueBody,
    CreateQueueBodyContent,
    QueueDescriptionEntry,
)
from azure.servicebus.management._models import QueueProperties
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.http.admin.desk import queue_body
from twinbus.auth.policies import ALL_RIGHTS, Policy, Right
from twinbus.broker.http.admin.authorization_xml import policies_in
from twinbus.broker.http.admin.entity_xml import entry_of, settings_in
from twinbus.broker.http.admin.feed import Site, entry_text
from twinbus.broker.http.admin.resource import message_bytes
from twinbus.broker.http.admin.xml_in import description_in
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.settings import STATUSES, QueueSettings
from twinbus.errors import EntityExistsError
from twinbus.limits import (
    AUTO_DELETE_ON_IDLE_MS_MIN,
    DUPLICATE_WINDOW_MS_MAX,
    DUPLICATE_WINDOW_MS_MIN,
    LOCK_DURATION_MS_MAX,
    LOCK_DURATION_MS_MIN,
    MAX_DELIVERY_COUNT_MAX,
    MESSAGE_BYTES_DEFAULT,
    QUEUE_MEGABYTES_MAX,
    UNLIMITED_MS,
)
from twinbus.store.facts import Facts

SITE = Site("localhost:5300", "contoso", "2024-05")

# Text that XML can contain; an empty text is the same as none.
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=99
)
# No part of a path is "." or "..": each starts and ends with a letter or digit.
_PART = r"[A-Za-z0-9]([A-Za-z0-9._~-]{0,20}[A-Za-z0-9])?"
paths = st.from_regex(rf"{_PART}(/{_PART})?", fullmatch=True)
# A thousand years: longer than anybody waits, and short enough for the SDK's parser not to lose digits.
long_ms = st.integers(AUTO_DELETE_ON_IDLE_MS_MIN, 365_000 * 86_400_000) | st.just(UNLIMITED_MS)
every_setting = st.builds(
    QueueSettings,
    path=paths,
    lock_duration_ms=st.integers(LOCK_DURATION_MS_MIN, LOCK_DURATION_MS_MAX),
    max_megabytes=st.integers(1, QUEUE_MEGABYTES_MAX),
    requires_duplicate_detection=st.booleans(),
    requires_session=st.booleans(),
    default_ttl_ms=long_ms,
    dead_letter_on_expiry=st.booleans(),
    duplicate_window_ms=st.integers(DUPLICATE_WINDOW_MS_MIN, DUPLICATE_WINDOW_MS_MAX),
    max_delivery_count=st.integers(1, MAX_DELIVERY_COUNT_MAX),
    enable_batched_operations=st.booleans(),
    status=st.sampled_from(STATUSES),
    auto_delete_on_idle_ms=long_ms,
    enable_partitioning=st.booleans(),
    enable_express=st.booleans(),
    forward_to=st.none() | paths,
    forward_dead_letters_to=st.none() | paths,
    user_metadata=st.none() | texts,
    max_message_bytes=st.integers(1024, 102_400).map(lambda kilobytes: kilobytes * 1024),
)
policies = st.lists(
    st.builds(
        Policy,
        name=texts.filter(str.isprintable),
        rights=st.sets(st.sampled_from(list(Right)), min_size=1).map(frozenset),
        primary_key=texts,
        secondary_key=texts,
        scope=st.just("q"),
        created_ms=st.integers(0, 10**12),
        modified_ms=st.integers(0, 10**12),
    ),
    max_size=3,
    unique_by=lambda policy: policy.name.lower(),
)


def queue_of(wanted: QueueSettings) -> Queue:
    """Targets must exist, and only an existing queue can forward to itself."""
    namespace = Namespace("n", tokens=lambda: b"0" * 16)
    plain = dataclasses.replace(wanted, forward_to=None, forward_dead_letters_to=None)
    namespace.create_queue(plain, 1_700_000_000_123, Facts())
    make_targets(namespace, wanted.forward_to, wanted.forward_dead_letters_to)
    return namespace.update_queue(wanted, 1_700_000_000_123, Facts())


def make_targets(namespace: Namespace, *targets: str | None) -> None:
    for target in targets:
        if target is not None:
            with contextlib.suppress(EntityExistsError):
                namespace.create_queue(QueueSettings(path=target), 0, Facts())


def read_by_sdk(queue: Queue, rules: list[Policy]) -> QueueProperties:
    text = entry_text(entry_of(queue, rules, SITE), SITE, root=True)
    entry = QueueDescriptionEntry.deserialize(ElementTree.fromstring(text))
    return QueueProperties._from_internal_entity(entry.title, entry.content.queue_description)


def written_by_sdk(properties: QueueProperties) -> bytes:
    content = CreateQueueBodyContent(queue_description=properties._to_internal_entity("localhost:5300"))
    element = CreateQueueBody(content=content).serialize(is_xml=True)
    return ElementTree.tostring(element, encoding="utf-8")


def span(ms: int) -> timedelta:
    if ms == UNLIMITED_MS:
        return timedelta(days=10675199, seconds=10085, microseconds=477581)
    return timedelta(milliseconds=ms)


@settings(deadline=None)
@given(every_setting)
def test_the_sdk_reads_every_setting(wanted: QueueSettings) -> None:
    properties = read_by_sdk(queue_of(wanted), [])
    seen: dict[str, Any] = {
        "name": wanted.path,
        "lock_duration": span(wanted.lock_duration_ms),
        "max_size_in_megabytes": wanted.max_megabytes,
        "requires_duplicate_detection": wanted.requires_duplicate_detection,
        "requires_session": wanted.requires_session,
        "default_message_time_to_live": span(wanted.default_ttl_ms),
        "dead_lettering_on_message_expiration": wanted.dead_letter_on_expiry,
        "duplicate_detection_history_time_window": span(wanted.duplicate_window_ms),
        "max_delivery_count": wanted.max_delivery_count,
        "enable_batched_operations": wanted.enable_batched_operations,
        "status": wanted.status,
        "auto_delete_on_idle": span(wanted.auto_delete_on_idle_ms),
        "enable_partitioning": wanted.enable_partitioning,
        "enable_express": wanted.enable_express,
        "forward_to": wanted.forward_to and f"sb://localhost:5300/{wanted.forward_to}",
        "forward_dead_lettered_messages_to": wanted.forward_dead_letters_to
        and f"sb://localhost:5300/{wanted.forward_dead_letters_to}",
        "user_metadata": wanted.user_metadata,
        "max_message_size_in_kilobytes": wanted.max_message_bytes // 1024,
        "availability_status": "Available",
    }
    assert {name: properties[name] for name in seen} == seen


@settings(deadline=None)
@given(every_setting)
def test_what_the_sdk_sends_back_is_what_it_got(wanted: QueueSettings) -> None:
    kind, description = description_in(written_by_sdk(read_by_sdk(queue_of(wanted), [])))
    assert kind == "QueueDescription"
    values = message_bytes(settings_in(description, "queue"), MESSAGE_BYTES_DEFAULT, "Premium")
    assert dataclasses.replace(QueueSettings(path=wanted.path), **values) == wanted


@settings(deadline=None)
@given(policies)
def test_policies_survive_the_journey(wanted: list[Policy]) -> None:
    properties = read_by_sdk(queue_of(QueueSettings(path="q")), wanted)
    assert [rule.key_name for rule in properties.authorization_rules or []] == [policy.name for policy in wanted]
    _, description = description_in(written_by_sdk(properties))
    back = policies_in(description, "q", (), 0, lambda count: b"\0" * count)
    assert (back or []) == wanted


def test_a_policy_without_keys_gets_some() -> None:
    rule = "<Rights><AccessRights>Manage</AccessRights></Rights><KeyName>k</KeyName>"
    rules = f"<AuthorizationRules><AuthorizationRule>{rule}</AuthorizationRule></AuthorizationRules>"
    _, description = description_in(queue_body(rules).encode())
    made = policies_in(description, "q", (), 5, lambda count: b"\1" * count)
    assert made is not None
    assert made[0].rights == ALL_RIGHTS
    assert len(made[0].primary_key) == 44
    assert made[0].created_ms == made[0].modified_ms == 5
    # An update without keys keeps them, and nothing changes.
    again = policies_in(description, "q", made, 9, lambda count: b"\2" * count)
    assert again == made
    assert again[0].modified_ms == 5
    # A description without policies leaves them alone.
    assert policies_in(description_in(queue_body().encode())[1], "q", made, 9, bytes) is None


def test_older_versions_know_no_message_size() -> None:
    queue = queue_of(QueueSettings(path="q"))
    assert "MaxMessageSizeInKilobytes" not in entry_of(queue, [], Site("h", "n", "2017-04")).content
    assert "MaxMessageSizeInKilobytes" in entry_of(queue, [], Site("h", "n", "2021-05")).content
