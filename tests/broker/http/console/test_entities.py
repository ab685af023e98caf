"""The console's views: namespaces, entities, backlog, ledger; live, bounded, and free when nobody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.broker.http.console.window import Window, event
from tests.broker.peer import Peer, text
from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.http.console import streams
from twinbus.clock import SystemClock
from twinbus.entities.filters import CorrelationFilter
from twinbus.ledger.records import FailoverEvent, encode
from twinbus.ledger.words import Event, LedgerSource
from twinbus.limits import CONSOLE_ENTITIES_PAGE, CONSOLE_EVENTS_MAX, CONSOLE_STREAMS_MAX
from twinbus.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(["contoso", "fabrikam"], queues=["orders"], sync=False, allow_faults=True) as broker:
        yield broker


@pytest.fixture
def window(broker: Broker) -> Window:
    window = Window(broker, "contoso")
    window.greet()
    return window


def sent(broker: Broker, path: str = "orders", count: int = 1, **own: Any) -> None:
    with Peer(broker, "contoso") as peer:
        link = peer.sender(path)
        for _ in range(count):
            message = text("x")
            message.application_properties = own or None
            peer.send(link, message)


# --- lists ------------------------------------------------------------------------------------------------------------


def test_all_namespaces_with_their_numbers(broker: Broker, window: Window) -> None:
    sent(broker, count=2)
    with broker.fault("slow", "orders", "contoso"):
        here, there = window.get("namespaces").json["namespaces"]
    assert (here["name"], here["here"], here["active"], here["queues"]) == ("contoso", True, 2, 1)
    assert (there["name"], there["here"], there["active"]) == ("fabrikam", False, 0)
    assert there["port"] == broker.endpoint("fabrikam").port
    assert [fault["mode"] for fault in here["faults"]] == ["slow"]
    assert here["store"] == "ok"


def test_a_namespace_that_is_down_still_shows_itself(broker: Broker, window: Window) -> None:
    with broker.fault("down", namespace="contoso"):
        found = window.get("entities").json
    assert found["faults"][0]["mode"] == "down"


def test_entities_come_in_pages(broker: Broker, window: Window) -> None:
    count = CONSOLE_ENTITIES_PAGE + 5
    for number in range(count):
        broker.create_queue(f"p{number:04}", "contoso")
    first = window.get("entities", search="P0").json
    assert len(first["rows"]) == CONSOLE_ENTITIES_PAGE
    assert first["more"] is True
    second = window.get("entities", search="P0", skip=CONSOLE_ENTITIES_PAGE).json
    assert [row["path"] for row in second["rows"]] == [
        f"p{number:04}" for number in range(CONSOLE_ENTITIES_PAGE, count)
    ]
    assert second["more"] is False
    exactly = window.get("entities", search="P0", skip=5).json
    assert (len(exactly["rows"]), exactly["more"]) == (CONSOLE_ENTITIES_PAGE, False)
    assert window.get("entities", search="<nothing>").json["rows"] == []
    assert window.get("entities", skip="x").status == 400


def test_topics_subscriptions_and_rules(broker: Broker, window: Window) -> None:
    broker.create_topic("t", "contoso")
    broker.create_subscription("t", "all", "contoso")
    broker.create_subscription("t", "some", "contoso", filter=CorrelationFilter(label="<b>", properties={"n": 7}))
    sent(broker, "t")
    rows = {row["path"]: row for row in window.get("entities").json["rows"]}
    assert rows["t"]["subscriptions"] == 2
    assert (rows["t/Subscriptions/all"]["active"], rows["t/Subscriptions/all"]["topic"]) == (1, "t")
    (rule,) = window.get("entity", entity="t/Subscriptions/all").json["rules"]
    assert (rule["name"], rule["condition"]) == ("$Default", "every message")
    (rule,) = window.get("entity", entity="t/Subscriptions/some").json["rules"]
    assert rule["condition"] == "label = <b>, property n = 7"
    dead = window.get("entity", entity="orders/$DeadLetterQueue").json
    assert dead["path"] == "orders", "a dead-letter queue is a part of its queue"


# --- live -------------------------------------------------------------------------------------------------------------


def test_a_stream_tells_when_numbers_change(broker: Broker, window: Window) -> None:
    connection, response = window.stream("entities", namespace="contoso")
    assert response.getheader("Content-Type") == "text/event-stream"
    assert response.getheader("Cache-Control") == "no-store"
    kind, found = event(response)
    assert (kind, found["rows"][0]["active"]) == ("message", 0)
    sent(broker, count=3)
    _, found = event(response)
    assert found["rows"][0]["active"] == 3
    broker.create_queue("new", "contoso")
    _, found = event(response)
    assert [row["path"] for row in found["rows"]] == ["new", "orders"]
    connection.close()


def live(broker: Broker) -> int:
    return broker.call(lambda server: server.console().streams.count, "contoso")


def until(broker: Broker, count: int) -> None:
    async def wait() -> None:
        async with asyncio.timeout(120):
            while broker.server and broker.server.console().streams.count != count:
                await asyncio.sleep(0.02)

    broker._wait(wait())


def test_streams_are_bounded_and_end_with_their_browser(
    broker: Broker, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CONSOLE_STREAM_INTERVAL_MS", 50)
    held = [window.stream("namespaces") for _ in range(CONSOLE_STREAMS_MAX)]
    assert {response.status for _, response in held} == {200}
    connection, response = window.stream("namespaces")
    assert response.status == 503
    connection.close()
    for connection, response in held:
        response.close()
        connection.close()
    until(broker, 0)
    connection, response = window.stream("namespaces")
    assert response.status == 200
    connection.close()


def test_nothing_runs_while_nobody_looks(broker: Broker, window: Window) -> None:
    def tasks(_: Any) -> set[str]:
        return {str(task.get_coro()) for task in asyncio.all_tasks(broker._loop) if "console" in str(task.get_coro())}

    connection, response = window.stream("entities")
    event(response)
    assert live(broker) == 1
    response.close()
    connection.close()
    until(broker, 0)
    assert broker.call(tasks, "contoso") == set()


def test_a_stream_ends_when_the_login_does(broker: Broker, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONSOLE_STREAM_INTERVAL_MS", 50)
    connection, response = window.stream("namespaces")
    event(response)
    window.post("logout")
    assert event(response) == ("end", {"status": 401})
    assert response.read() == b""
    connection.close()


def test_a_stream_ends_when_its_entity_does(broker: Broker, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONSOLE_STREAM_INTERVAL_MS", 50)
    connection, response = window.stream("entity", entity="orders")
    event(response)
    broker.delete_queue("orders", "contoso")
    assert event(response) == ("end", {"status": 404})
    connection.close()


def test_a_quiet_stream_says_that_it_lives(broker: Broker, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONSOLE_STREAM_INTERVAL_MS", 20)
    monkeypatch.setattr(streams, "CONSOLE_STREAM_QUIET_MS", 40)
    connection, response = window.stream("entities", namespace="fabrikam")
    event(response)
    assert response.readline() == b":\n"
    connection.close()


def test_a_stream_has_a_reader(window: Window) -> None:
    assert window.request("HEAD", "/console/$api/live?view=namespaces").status == 405


def test_only_some_views_are_live(window: Window) -> None:
    for view in ("messages", "message", "body", "ledger", "", "login"):
        connection, response = window.stream(view, entity="orders", seq=1)
        assert response.status == 400
        connection.close()
    connection, response = window.stream("entity", entity="nowhere")
    assert response.status == 404, "refused at once, so the browser does not try again"
    connection.close()


def test_a_broker_with_streams_stops_at_once(window: Window, broker: Broker) -> None:
    connection, response = window.stream("namespaces")
    event(response)
    broker.stop()
    assert response.read() == b""
    connection.close()
    broker.start()


# --- backlog ----------------------------------------------------------------------------------------------------------


def test_the_backlog_by_primary(broker: Broker, window: Window) -> None:
    for index in (10, 9, 0):
        broker.create_queue(f"fabrikam/x-servicebus-transfer/{index}", "contoso")
    sent(broker, "fabrikam/x-servicebus-transfer/9", 2, **{"x-ms-path": "orders"})
    sent(broker, "fabrikam/x-servicebus-transfer/9", 1, **{"x-ms-path": "<b>"})
    sent(broker, "fabrikam/x-servicebus-transfer/9", 1)
    found = window.get("backlog").json
    assert [queue["index"] for queue in found["queues"]] == ["0", "9", "10"]
    assert (found["total"], found["active"]) == (3, 4)
    nine = found["queues"][1]
    assert nine["primary"] == "fabrikam"
    assert nine["destinations"] == [["orders", 2], ["<b>", 1], ["no destination", 1]]
    assert nine["oldest_ms"] <= SystemClock().now_ms()
    assert found["queues"][0]["oldest_ms"] is None
    assert window.get("backlog", namespace="fabrikam").json["queues"] == []


# --- ledger -----------------------------------------------------------------------------------------------------------


def test_the_last_hour_of_the_ledger(tmp_path: Path) -> None:
    with Broker(["contoso", "fabrikam"], queues=["orders"], ledger=tmp_path, sync=False) as broker:
        window = Window(broker, "contoso")
        window.greet()
        sent(broker, count=3)
        with Peer(broker, "contoso") as peer:
            ping = text("", content_type="application/vnd.ms-servicebus-ping")
            peer.send(peer.sender("orders"), ping)
        broker.call(lambda server: server.hosts["contoso"].meter.flush(), "contoso")
        found = wait_for(window, 4)
        assert (found["since"], found["pings"], found["empty_polls"], found["failed"]) == ("hour", 1, 0, 0)
        assert {each["kind"]: each["count"] for each in found["kinds"]} == {"send": 3, "ping": 1}
        assert sum(found["minutes"]) == 4
        assert len(found["minutes"]) == 60
        assert window.get("ledger", namespace="fabrikam").json["operations"] == 0
    with Broker(["contoso"], ledger=tmp_path, sync=False) as broker:
        window = Window(broker)
        window.greet()
        assert window.get("ledger").json["operations"] == 4, "complete files count as well as the open one"
        assert window.get("ledger").json["operations"] == 4, "and are counted once"


def wait_for(window: Window, operations: int) -> Any:
    """Wait for the ledger, which a thread writes."""
    for _ in range(5_000):
        found = window.get("ledger").json
        if found["operations"] >= operations:
            return found
    raise AssertionError(f"only {found['operations']} operations")


def test_without_a_ledger_the_counters_are_shown(broker: Broker, window: Window) -> None:
    sent(broker, count=2)
    found = window.get("ledger").json
    assert (found["since"], found["operations"], found["minutes"]) == ("start", 2, [])
    assert window.get("events").json == {"ledger": False, "events": []}


def failed_over(number: int, now_ms: int, namespace: str = "contoso") -> str:
    return encode(
        FailoverEvent(
            id=f"r-{number}",
            start_ms=now_ms + number,
            end_ms=now_ms + number,
            source=LedgerSource.CLIENT,
            namespace=namespace,
            entity="orders",
            event=Event.FAILED_OVER,
            cause="ServiceBusConnectionError",
        )
    )


def file_name(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("client-%Y%m%dT%H%M%SZ-r-000001.jsonl")


def test_events_of_pairs_the_latest_first(tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms() - 60_000
    name = file_name(now_ms)
    lines = [failed_over(number, now_ms) for number in range(CONSOLE_EVENTS_MAX + 5)]
    (tmp_path / name).write_text("nonsense\n" + "".join(lines) + '{"v":1,"type":"failov')
    (tmp_path / "client-20200101T000000Z-old-000001.jsonl").write_text(failed_over(0, now_ms))
    (tmp_path / "other.jsonl").write_text(failed_over(0, now_ms))
    with Broker(["contoso"], ledger=tmp_path, sync=False) as broker:
        window = Window(broker)
        window.greet()
        found = window.get("events").json["events"]
    assert len(found) == CONSOLE_EVENTS_MAX
    assert found[0]["at_ms"] == now_ms + CONSOLE_EVENTS_MAX + 4
    assert (found[0]["event"], found[0]["cause"]) == ("failed-over", "ServiceBusConnectionError")


def test_events_of_namespaces_one_may_not_see_are_not_shown(tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms() - 1_000
    name = file_name(now_ms)
    (tmp_path / name).write_text(failed_over(0, now_ms) + failed_over(1, now_ms, "fabrikam"))
    key = "bm90LWEtcmVhbC1rZXktb2Ytb3Vycw=="
    look = NamespaceConfig("contoso", policies=[Policy("look", frozenset({Right.LISTEN}), key)])
    with Broker([look, NamespaceConfig("fabrikam")], dev=False, ledger=tmp_path, sync=False) as broker:
        window = Window(broker, "contoso")
        window.login("look", key)
        assert [each["namespace"] for each in window.get("events").json["events"]] == ["contoso"]


def test_a_list_is_ordered_and_narrowed(broker: Broker, window: Window) -> None:
    broker.create_topic("b-topic", "contoso")
    broker.create_subscription("b-topic", "s", "contoso")
    for name in ("a-queue", "c-queue"):
        broker.create_queue(name, "contoso")
    window.post("send", namespace="contoso", entity="c-queue", body="x", copies=3)
    window.post("send", namespace="contoso", entity="b-topic", body="x", copies=2)

    def found(**query: Any) -> list[str]:
        rows = window.get("entities", namespace="contoso", search="-", **query).json["rows"]
        return [row["path"] for row in rows]

    assert found() == ["a-queue", "b-topic", "b-topic/Subscriptions/s", "c-queue"], "by name, whatever the kind"
    assert found(sort="active")[:2] == ["c-queue", "b-topic/Subscriptions/s"]
    assert found(kind="topic") == ["b-topic"]
    assert found(kind="queue") == ["a-queue", "c-queue"]
    assert found(topic="B-Topic") == ["b-topic/Subscriptions/s"]
    assert found(only="dead") == []
    (first, *_) = window.get("messages", namespace="contoso", entity="c-queue").json["rows"]
    window.post("dead-letter", namespace="contoso", entity="c-queue", numbers=[first["seq"]])
    assert found(only="dead") == ["c-queue"]
    assert found(sort="dead")[0] == "c-queue"
    assert found(sort="nonsense") == found()
