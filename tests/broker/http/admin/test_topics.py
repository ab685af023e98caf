"""Topics, subscriptions and rules through the administration API of a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.servicebus.management._generated.models import (
    RuleDescriptionEntry,
    RuleDescriptionFeed,
    SubscriptionDescriptionEntry,
    SubscriptionDescriptionFeed,
    TopicDescriptionEntry,
    TopicDescriptionFeed,
)
from azure.servicebus.management._models import (
    RuleProperties,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicProperties,
    TopicRuntimeProperties,
)

from tests.broker.http.admin.desk import UPDATE, Desk, body, missing, parsed, queue_body, queue_titles, refused
from tests.broker.peer import text
from twinbus.broker.http.admin.xml_out import ATOM
from twinbus.broker.server import Server
from twinbus.limits import UNLIMITED_MS
from twinbus.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(sync=False) as broker:
        yield broker


@pytest.fixture
def desk(broker: Broker) -> Desk:
    return Desk(broker)


def topic_body(inner: str = "") -> str:
    return body("TopicDescription", inner)


def subscription_body(inner: str = "") -> str:
    return body("SubscriptionDescription", inner)


def rule_body(inner: str = "") -> str:
    return body("RuleDescription", inner)


def sql(expression: str) -> str:
    return f'<Filter x:type="SqlFilter"><SqlExpression>{expression}</SqlExpression></Filter>'


CORRELATION = '<Filter x:type="CorrelationFilter"><CorrelationId>c</CorrelationId></Filter>'


def topic(desk: Desk, path: str, kind: Any = TopicProperties, **query: str) -> Any:
    response = desk.get(f"/{path}", **query)
    assert response.status == 200, response.body
    content = TopicDescriptionEntry.deserialize(parsed(response)).content
    return kind._from_internal_entity(path, content.topic_description)


def subscription(desk: Desk, path: str, kind: Any = SubscriptionProperties) -> Any:
    response = desk.get(f"/{path}")
    assert response.status == 200, response.body
    content = SubscriptionDescriptionEntry.deserialize(parsed(response)).content
    return kind._from_internal_entity(path, content.subscription_description)


def rule(desk: Desk, path: str) -> RuleProperties:
    response = desk.get(f"/{path}")
    assert response.status == 200, response.body
    content = RuleDescriptionEntry.deserialize(parsed(response)).content
    return RuleProperties._from_internal_entity(path, content.rule_description)


def titles(desk: Desk, path: str, feed: Any, **query: str) -> list[str]:
    response = desk.get(path, **query)
    assert response.status == 200, response.body
    return [entry.title for entry in feed.deserialize(parsed(response)).entry or []]


def test_a_topic_is_made_shown_changed_and_deleted(desk: Desk) -> None:
    assert desk.put("/news", topic_body("<SupportOrdering>false</SupportOrdering>")).status == 201
    first = topic(desk, "NEWS")
    assert (first.support_ordering, first.status, first.availability_status) == (False, "Active", "Available")
    inner = "<DefaultMessageTimeToLive>P1D</DefaultMessageTimeToLive><UserMetadata>mine</UserMetadata>"
    assert desk.put("/News", topic_body(inner), UPDATE).status == 200
    changed = topic(desk, "news")
    assert (changed.default_message_time_to_live, changed.user_metadata) == (timedelta(days=1), "mine")
    assert changed.support_ordering is False
    assert titles(desk, "/$Resources/topics", TopicDescriptionFeed) == ["news"]
    assert queue_titles(desk.get("/$Resources/queues")) == []
    assert desk.request("DELETE", "/news").status == 200
    missing(desk.get("/news"))


def test_queues_and_topics_share_their_names(desk: Desk) -> None:
    desk.put("/q", queue_body())
    desk.put("/t", topic_body())
    assert refused(desk.put("/q", topic_body()), 409)
    assert refused(desk.put("/T", queue_body()), 409)
    assert refused(desk.put("/q", topic_body(), UPDATE), 400, "QueueDescription")
    assert refused(desk.put("/t/Subscriptions/s", queue_body()), 400, "SubscriptionDescription")


def test_a_subscription_is_made_shown_changed_and_deleted(desk: Desk) -> None:
    desk.put("/a/b", topic_body())
    made = desk.put("/a%2Fb/subscriptions/S1", subscription_body("<LockDuration>PT9S</LockDuration>"))
    assert made.status == 201
    id_text = parsed(made).findtext(f"{{{ATOM}}}id") or ""
    assert urlsplit(id_text).path == "/a/b/Subscriptions/S1"
    assert subscription(desk, "a/b/Subscriptions/s1").lock_duration == timedelta(seconds=9)
    desk.put("/A/B/Subscriptions/s2", subscription_body())
    assert titles(desk, "/a/b/Subscriptions", SubscriptionDescriptionFeed) == ["S1", "s2"]
    assert titles(desk, "/a/b/Subscriptions", SubscriptionDescriptionFeed, **{"$skip": "1"}) == ["s2"]
    inner = "<MaxDeliveryCount>3</MaxDeliveryCount><DeadLetteringOnFilterEvaluationExceptions>false"
    inner += "</DeadLetteringOnFilterEvaluationExceptions><Status>ReceiveDisabled</Status>"
    assert desk.put("/a/b/subscriptions/s1", subscription_body(inner), UPDATE).status == 200
    changed = subscription(desk, "a/b/Subscriptions/s1")
    assert (changed.max_delivery_count, changed.status) == (3, "ReceiveDisabled")
    assert changed.lock_duration == timedelta(seconds=9)
    assert changed.dead_lettering_on_filter_evaluation_exceptions is False
    assert desk.request("DELETE", "/a/b/subscriptions/s1").status == 200
    assert titles(desk, "/a/b/Subscriptions", SubscriptionDescriptionFeed) == ["s2"]
    refused(desk.put("/a/b/Subscriptions/S2", subscription_body()), 409, "exists")


def test_a_rule_is_made_shown_changed_and_deleted(desk: Desk) -> None:
    desk.put("/t", topic_body())
    desk.put("/t/subscriptions/s", subscription_body())
    assert titles(desk, "/t/subscriptions/s/rules", RuleDescriptionFeed) == ["$Default"]
    assert type(rule(desk, "t/subscriptions/s/rules/$default").filter).__name__ == "TrueRuleFilter"
    made = desk.put("/t/subscriptions/s/rules/R", rule_body(sql("a = 1")))
    assert made.status == 201
    id_text = parsed(made).findtext(f"{{{ATOM}}}id") or ""
    assert urlsplit(id_text).path == "/t/Subscriptions/s/Rules/R"
    assert rule(desk, "t/Subscriptions/s/Rules/R").filter.sql_expression == "a = 1"
    refused(desk.put("/t/subscriptions/s/rules/r", rule_body(CORRELATION)), 409)
    etag = made.headers["ETag"]
    action = '<Action x:type="SqlRuleAction"><SqlExpression>SET b = 2</SqlExpression></Action>'
    changed = desk.put("/t/subscriptions/s/rules/r", rule_body(CORRELATION + action), {"If-Match": etag})
    assert changed.status == 200
    assert changed.headers["ETag"] != etag
    refused(desk.put("/t/subscriptions/s/rules/r", rule_body(), {"If-Match": etag}), 412)
    now = rule(desk, "t/subscriptions/s/rules/R")
    assert (now.name, now.filter.correlation_id, now.action.sql_expression) == (
        "t/subscriptions/s/rules/R",
        "c",
        "SET b = 2",
    )
    assert titles(desk, "/t/subscriptions/s/rules", RuleDescriptionFeed) == ["$Default", "R"]
    assert desk.request("DELETE", "/t/subscriptions/s/rules/%24Default").status == 200
    assert titles(desk, "/t/subscriptions/s/rules/", RuleDescriptionFeed) == ["R"]
    refused(desk.get("/t/subscriptions/s/rules/$Default"), 404)


def test_a_subscription_with_a_first_rule_of_its_own(desk: Desk) -> None:
    desk.put("/t", topic_body())
    first = f"<DefaultRuleDescription>{sql('a = 1')}<Name>mine</Name></DefaultRuleDescription>"
    assert desk.put("/t/subscriptions/s", subscription_body(first)).status == 201
    assert titles(desk, "/t/subscriptions/s/rules", RuleDescriptionFeed) == ["mine"]
    wrong = f"<DefaultRuleDescription>{sql('a = ')}</DefaultRuleDescription>"
    refused(desk.put("/t/subscriptions/x", subscription_body(wrong)), 400, "SQL filter")
    missing(desk.get("/t/subscriptions/x"))


def test_counts(desk: Desk, broker: Broker) -> None:
    desk.put("/t", topic_body())
    desk.put("/t/subscriptions/all", subscription_body())
    desk.put("/t/subscriptions/none", subscription_body())
    desk.request("DELETE", "/t/subscriptions/none/rules/$Default")
    desk.put("/t/subscriptions/none/rules/c", rule_body(CORRELATION))
    desk.put("/t/subscriptions/none/rules/s", rule_body(sql("a = 1")))

    def send(server: Server) -> None:
        host = server.hosts["contoso"]
        now_ms = host.clock.now_ms()
        news = [host.intake.message(text(f"{number}").encode(), now_ms, UNLIMITED_MS) for number in range(3)]
        host.entities.topic("t").send(news, now_ms, host.commits.facts)

    broker.call(send)
    runtime = topic(desk, "t", TopicRuntimeProperties, **{"api-version": "2024-05"})
    assert (runtime.subscription_count, runtime.sql_filter_count, runtime.correlation_filter_count) == (2, 2, 1)
    assert runtime.scheduled_message_count == 0
    assert topic(desk, "t", TopicRuntimeProperties).sql_filter_count is None
    for name, count in (("all", 3), ("none", 0)):
        counts = subscription(desk, f"t/subscriptions/{name}", SubscriptionRuntimeProperties)
        assert (counts.total_message_count, counts.active_message_count) == (count, count)


@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        ("/t2", topic_body("<DefaultMessageTimeToLive>PT0S</DefaultMessageTimeToLive>"), "DefaultMessageTimeToLive"),
        ("/t2", topic_body("<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>"), "Premium"),
        ("/t2%20", topic_body(), "entity path"),
        ("/t/subscriptions/x", subscription_body("<LockDuration>PT1S</LockDuration>"), "LockDuration"),
        ("/t/subscriptions/x", subscription_body("<ForwardTo>sb://h/nowhere</ForwardTo>"), "'nowhere'"),
        ("/t/subscriptions/" + "x" * 51, subscription_body(), "50"),
        ("/t/subscriptions/x%20y", subscription_body(), "name"),
        ("/t/subscriptions/s/rules/" + "x" * 51, rule_body(), "50"),
        ("/t/subscriptions/s/rules/x", rule_body(sql("a ==")), "SQL filter"),
        ("/t/subscriptions/s/rules/x", rule_body(sql("x" * 1025)), "1024"),
        ("/t/subscriptions/s/rules/x", rule_body('<Filter x:type="CorrelationFilter"/>'), "correlation"),
    ],
)
def test_mistakes(desk: Desk, path: str, data: str, words: str) -> None:
    desk.put("/t", topic_body())
    desk.put("/t/subscriptions/s", subscription_body())
    assert refused(desk.put(path, data), 400, "SubCode=40000", words)
    if "/rules/" in path:
        assert refused(desk.get(path), 404)
    else:
        missing(desk.get(path))


def test_what_is_missing(desk: Desk) -> None:
    desk.put("/t", topic_body())
    desk.put("/q", queue_body())
    for path, data in [
        ("/none/subscriptions/s", subscription_body()),
        ("/q/subscriptions/s", subscription_body()),
        ("/t/subscriptions/none/rules/r", rule_body()),
    ]:
        assert refused(desk.put(path, data), 404)
        assert refused(desk.put(path, data, UPDATE), 404)
        if "/rules/" in path:
            assert refused(desk.get(path), 404)
        else:
            missing(desk.get(path))
        assert refused(desk.request("DELETE", path), 404)
    for path in ("/none/subscriptions", "/q/subscriptions", "/t/subscriptions/none/rules"):
        assert refused(desk.get(path), 404)
        assert refused(desk.put(path, rule_body()), 405)


def test_what_is_fixed_at_creation(desk: Desk) -> None:
    desk.put("/t", topic_body())
    desk.put("/t/subscriptions/s", subscription_body())
    assert refused(
        desk.put("/t", topic_body("<EnablePartitioning>true</EnablePartitioning>"), UPDATE), 400, "EnablePartitioning"
    )
    fixed = subscription_body("<RequiresSession>true</RequiresSession>")
    assert refused(desk.put("/t/subscriptions/s", fixed, UPDATE), 400, "RequiresSession")


def test_a_topic_takes_everything_along_and_what_was_answered_stays(desk: Desk, broker: Broker) -> None:
    for name in ("t", "u"):
        desk.put(f"/{name}", topic_body())
        desk.put(
            f"/{name}/subscriptions/s", subscription_body("<ForwardTo>sb://h/t</ForwardTo>" if name == "u" else "")
        )
        desk.put(f"/{name}/subscriptions/s/rules/r", rule_body(sql("a = 1")))
    assert desk.request("DELETE", "/t").status == 200
    broker.restart()
    assert titles(desk, "/$Resources/topics", TopicDescriptionFeed) == ["u"]
    assert titles(desk, "/u/subscriptions/s/rules", RuleDescriptionFeed) == ["$Default", "r"]
    assert subscription(desk, "u/subscriptions/s").forward_to == "sb://localhost:5300/t"
    desk.put("/t", topic_body())
    assert titles(desk, "/t/subscriptions", SubscriptionDescriptionFeed) == []
