"""Queues through the administration API of a running broker: created, updated, listed, deleted, and rejected."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.broker.http.admin.desk import (
    UPDATE,
    Desk,
    body,
    missing,
    namespace_properties,
    parsed,
    queue_body,
    queue_properties,
    queue_runtime,
    queue_titles,
    refused,
)
from tests.broker.peer import Peer, text
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.http.admin.xml_out import ATOM
from twinbus.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(sync=False) as broker:
        yield broker


@pytest.fixture
def desk(broker: Broker) -> Desk:
    return Desk(broker)


def test_a_queue_is_made_shown_changed_and_deleted(desk: Desk) -> None:
    made = desk.put("/orders", queue_body("<LockDuration>PT10S</LockDuration><UserMetadata>mine</UserMetadata>"))
    assert made.status == 201
    assert made.headers["Content-Type"] == "application/atom+xml;type=entry;charset=utf-8"
    assert queue_properties("orders", made).lock_duration == timedelta(seconds=10)
    assert desk.queue("ORDERS").user_metadata == "mine"
    changed = desk.put("/Orders", queue_body("<LockDuration>PT20S</LockDuration>"), UPDATE)
    assert changed.status == 200
    queue = desk.queue("orders")
    assert queue.lock_duration == timedelta(seconds=20)
    # An update removes optional settings that it omits; the name keeps its first spelling.
    assert queue.user_metadata is None
    assert queue_titles(desk.get("/$Resources/queues")) == ["orders"]
    gone = desk.request("DELETE", "/orders")
    assert (gone.status, gone.body) == (200, b"")
    missing(desk.get("/orders"))
    refused(desk.request("DELETE", "/orders"), 404)


def test_names_with_slashes(desk: Desk) -> None:
    assert desk.put("/txt%2F.-_123", queue_body()).status == 201
    assert queue_properties("x", desk.get("/txt/.-_123")).name == "x"
    id_text = parsed(desk.get("/txt%2f.-_123")).findtext(f"{{{ATOM}}}id") or ""
    assert urlsplit(id_text).path == "/txt/.-_123"
    assert urlsplit(id_text).netloc == "localhost:5300"


def test_what_a_message_changes_is_shown(desk: Desk, broker: Broker) -> None:
    desk.put("/q", queue_body())
    with Peer(broker) as peer:
        sender = peer.sender("q")
        for number in range(3):
            assert peer.send(sender, text(f"message {number}")) is not None
    response = desk.get("/q")
    runtime = queue_runtime("q", response)
    assert (runtime.total_message_count, runtime.active_message_count) == (3, 3)
    assert runtime.dead_letter_message_count == runtime.scheduled_message_count == 0
    assert runtime.transfer_message_count == runtime.transfer_dead_letter_message_count == 0
    assert runtime.size_in_bytes > 0
    assert runtime.created_at_utc <= runtime.accessed_at_utc


def test_the_namespace_says_what_it_is(desk: Desk, broker: Broker) -> None:
    first = namespace_properties(desk.get("/$namespaceinfo"))
    assert (first.name, first.messaging_sku, first.namespace_type) == ("contoso", "Standard", "Messaging")
    broker.restart()
    assert namespace_properties(desk.get("/$namespaceinfo")).created_time == first.created_time


def test_pages(desk: Desk) -> None:
    names = [f"q{number:03d}" for number in range(205)]
    for name in names:
        assert desk.put(f"/{name}", queue_body()).status == 201
    seen: list[str] = []
    query: dict[str, str] = {}
    while True:
        response = desk.get("/$Resources/queues", **query)
        seen += queue_titles(response)
        links = parsed(response).findall(f"{{{ATOM}}}link")
        assert [link.get("rel") for link in links] == ["self", "next"][: len(links)]
        if len(links) == 1:
            break
        asked = parse_qs(urlsplit(links[1].get("href") or "").query)
        query = {"$skip": asked["$skip"][0], "$top": asked["$top"][0]}
    assert seen == names
    assert queue_titles(desk.get("/$resources/queues", **{"$skip": "203", "$top": "1"})) == ["q203"]
    assert queue_titles(desk.get("/$resources/queues", **{"$skip": "900"})) == []
    assert queue_titles(desk.get("/$resources/queues", **{"$top": "0"})) == []
    refused(desk.get("/$resources/queues", **{"$top": "-1"}), 400, "$top")


def test_etags(desk: Desk) -> None:
    first = desk.put("/q", queue_body()).headers["ETag"]
    assert desk.get("/q").headers["ETag"] == first
    second = desk.put("/q", queue_body("<LockDuration>PT9S</LockDuration>"), {"If-Match": first}).headers["ETag"]
    assert second != first
    refused(desk.put("/q", queue_body(), {"If-Match": first}), 412, "SubCode=41200", "changed")
    refused(desk.request("DELETE", "/q", headers={"If-Match": first}), 412)
    assert desk.queue("q").lock_duration == timedelta(seconds=9)
    assert desk.put("/q", queue_body(), {"If-Match": f'"x", W/{second}'}).status == 200
    # A missing entity is not found, whatever If-Match says.
    refused(desk.put("/none", queue_body(), {"If-Match": first}), 404)
    refused(desk.put("/none", queue_body(), UPDATE), 404)


MISTAKES = [
    ("<LockDuration>PT4S</LockDuration>", "LockDuration (milliseconds) 4000 is out of range: 5000 to 300000"),
    ("<LockDuration>PT5M1S</LockDuration>", "LockDuration"),
    ("<LockDuration>soon</LockDuration>", "LockDuration is 'soon'"),
    ("<MaxDeliveryCount>0</MaxDeliveryCount>", "MaxDeliveryCount 0 is out of range"),
    ("<MaxSizeInMegabytes>0</MaxSizeInMegabytes>", "MaxSizeInMegabytes"),
    ("<DefaultMessageTimeToLive>PT0S</DefaultMessageTimeToLive>", "DefaultMessageTimeToLive"),
    ("<AutoDeleteOnIdle>PT4M</AutoDeleteOnIdle>", "AutoDeleteOnIdle"),
    ("<DuplicateDetectionHistoryTimeWindow>P8D</DuplicateDetectionHistoryTimeWindow>", "DuplicateDetectionHistory"),
    ("<Status>Sleepy</Status>", "Status 'Sleepy'"),
    ("<RequiresSession>perhaps</RequiresSession>", "RequiresSession"),
    (f"<UserMetadata>{'x' * 1025}</UserMetadata>", "UserMetadata"),
    ("<ForwardTo>sb://localhost/nowhere</ForwardTo>", "'nowhere'"),
    ("<ForwardTo>sb://localhost/</ForwardTo>", "address of an entity"),
    ("<ForwardDeadLetteredMessagesTo>q/$DeadLetterQueue</ForwardDeadLetteredMessagesTo>", "neither a queue"),
    ("<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>", "Premium"),
]


@pytest.mark.parametrize(("inner", "words"), MISTAKES)
def test_a_mistake_in_a_description_changes_nothing(desk: Desk, inner: str, words: str) -> None:
    assert desk.put("/q", queue_body()).status == 201
    before = desk.get("/q")
    refused(desk.put("/new", queue_body(inner)), 400, "SubCode=40000", words)
    missing(desk.get("/new"))
    refused(desk.put("/q", queue_body(inner), UPDATE), 400, words)
    assert desk.get("/q").headers["ETag"] == before.headers["ETag"]


def test_other_mistakes(desk: Desk) -> None:
    assert desk.put("/q", queue_body()).status == 201
    refused(desk.put("/Q", queue_body()), 409, "SubCode=40900", "exists")
    refused(desk.put("/", queue_body()), 400, "no entity")
    refused(desk.put("/q%20q", queue_body()), 400, "entity path")
    refused(desk.put("/$x", queue_body()), 400, "entity path")
    refused(desk.put("/" + "x" * 261, queue_body()), 400, "260")
    missing(desk.get("/q/$DeadLetterQueue"))
    missing(desk.get("/$management"))
    refused(desk.put("/r", b"<html/>"), 400, "entry")
    refused(desk.put("/r", b"\xff\xfe<"), 400, "XML")
    refused(desk.put("/r", body("RuleDescription", "")), 400, "QueueDescription")
    refused(desk.put("/r", b"x" * 2_000_000), 413)
    refused(desk.request("POST", "/q"), 405, "PUT")
    assert desk.request("PATCH", "/$namespaceinfo").headers["Allow"] == "GET"
    refused(desk.put("/$Resources/queues", queue_body()), 405)
    refused(desk.get("/q", **{"api-version": "1999-12"}), 400, "1999-12", "2017-04")


@pytest.mark.parametrize("name", ["RequiresSession", "RequiresDuplicateDetection", "EnablePartitioning"])
def test_what_is_fixed_at_creation(desk: Desk, name: str) -> None:
    desk.put("/q", queue_body())
    text = f"The value for the {name} property of an existing Queue cannot be changed"
    words = [text, "Partitioning cannot be changed for Queue. "] if name == "EnablePartitioning" else [text]
    refused(desk.put("/q", queue_body(f"<{name}>true</{name}>"), UPDATE), 400, *words)
    # A fixed setting that an update does not mention stays.
    desk.put("/r", queue_body(f"<{name}>true</{name}>"))
    assert desk.put("/r", queue_body(), UPDATE).status == 200
    assert f"<{name}>true</{name}>".encode() in desk.get("/r").body


def test_a_partitioned_entity_has_sixteen_times_the_size(desk: Desk) -> None:
    size, partitioned = "<MaxSizeInMegabytes>{}</MaxSizeInMegabytes>", "<EnablePartitioning>true</EnablePartitioning>"
    for path, kind in (("/q", "QueueDescription"), ("/t", "TopicDescription")):
        assert size.format(65_536).encode() in desk.put(path, body(kind, size.format(4_096) + partitioned)).body
        # What was read can be written back; a new size is again that of one partition.
        assert size.format(65_536).encode() in desk.put(path, body(kind, size.format(65_536)), UPDATE).body
        assert size.format(16_384).encode() in desk.put(path, body(kind, size.format(1_024)), UPDATE).body
        assert size.format(16_384).encode() in desk.put(path + "d", body(kind, partitioned)).body
        assert size.format(4_096).encode() in desk.put(path + "n", body(kind, size.format(4_096))).body


def test_a_size_out_of_range(desk: Desk) -> None:
    given = queue_body("<MaxSizeInMegabytes>100000</MaxSizeInMegabytes>")
    assert refused(
        desk.put("/q", given), 400, "The specified value 100000 is invalid. The property 'MaxSizeInMegabytes'"
    )


def test_an_unused_entity_was_never_accessed(desk: Desk, broker: Broker) -> None:
    never = b"<AccessedAt>0001-01-01T00:00:00Z</AccessedAt>"
    for path, kind in (("/q", "QueueDescription"), ("/t", "TopicDescription")):
        assert never in desk.put(path, body(kind, "")).body
        assert never in desk.put(path, body(kind, ""), UPDATE).body
    # Creating a subscription counts as use.
    assert never not in desk.put("/t/subscriptions/s", body("SubscriptionDescription", "")).body
    assert never not in desk.get("/t/subscriptions/s").body
    with Peer(broker, "contoso") as peer:
        peer.send(peer.sender("q"), text())
    assert never not in desk.get("/q").body


def test_forwarding_is_kept_as_a_path_and_shown_as_an_address(desk: Desk, broker: Broker) -> None:
    desk.put("/a/b", queue_body())
    inner = "<ForwardTo>sb://localhost:5300/a/b</ForwardTo>"
    inner += "<ForwardDeadLetteredMessagesTo>https://other/A%2FB/</ForwardDeadLetteredMessagesTo>"
    assert desk.put("/q", queue_body(inner)).status == 201
    queue = desk.queue("q")
    assert queue.forward_to == "sb://localhost:5300/a/b"
    assert queue.forward_dead_lettered_messages_to == "sb://localhost:5300/A/B"
    # Shown as it was written, to every reader at any time.
    assert desk.put("/q", queue_body(inner.replace("sb:", "https:")), UPDATE).status == 200
    broker.restart()
    assert desk.queue("q").forward_to == "https://localhost:5300/a/b"
    assert desk.put("/q", queue_body(inner), UPDATE).status == 200
    assert desk.queue("q").forward_to == "sb://localhost:5300/a/b"
    # A target that is deleted later does not prevent other changes.
    desk.request("DELETE", "/a/b")
    assert desk.put("/q", queue_body(inner + "<LockDuration>PT7S</LockDuration>"), UPDATE).status == 200
    assert desk.put("/q", queue_body(), UPDATE).status == 200
    assert desk.queue("q").forward_to is None
    # To itself, which the service allows for an existing queue.
    assert desk.put("/q", queue_body("<ForwardTo>sb://localhost:5300/q</ForwardTo>"), UPDATE).status == 200


def test_what_was_answered_is_there_after_a_restart(desk: Desk, broker: Broker) -> None:
    desk.put("/q", queue_body("<LockDuration>PT11S</LockDuration>"))
    desk.put("/gone", queue_body())
    desk.request("DELETE", "/gone")
    etag = desk.get("/q").headers["ETag"]
    broker.restart()
    assert desk.get("/q").headers["ETag"] == etag
    assert desk.queue("q").lock_duration == timedelta(seconds=11)
    assert queue_titles(desk.get("/$Resources/queues")) == ["q"]


def test_premium_lets_clients_choose_the_largest_message() -> None:
    with Broker([NamespaceConfig("contoso", sku="Premium")], sync=False) as broker:
        desk = Desk(broker)
        info = namespace_properties(desk.get("/$namespaceinfo"))
        assert (info.messaging_sku, info.messaging_units) == ("Premium", 1)
        desk.put("/q", queue_body("<MaxMessageSizeInKilobytes>12345</MaxMessageSizeInKilobytes>"))
        desk.put("/r", queue_body())
        assert desk.queue("q").max_message_size_in_kilobytes == 12345
        assert desk.queue("r").max_message_size_in_kilobytes == 1024
        for wrong in (1023, 102_401):
            inner = f"<MaxMessageSizeInKilobytes>{wrong}</MaxMessageSizeInKilobytes>"
            words = "value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400"
            refused(desk.put("/s", queue_body(inner)), 400, words)
            refused(desk.put("/q", queue_body(inner), UPDATE), 400, words)


def test_standard_takes_back_the_size_it_told(desk: Desk, broker: Broker) -> None:
    broker.create_queue("large", max_message_bytes=5 * 1024 * 1024)
    for path, size in (("q", 256), ("large", 5120)):
        inner = f"<MaxMessageSizeInKilobytes>{size}</MaxMessageSizeInKilobytes>"
        if path == "q":
            assert desk.put("/q", queue_body(inner)).status == 201
        assert desk.put(f"/{path}", queue_body(inner), UPDATE).status == 200
        assert desk.queue(path).max_message_size_in_kilobytes == size
