"""The console's commands: send, create, delete, purge, resubmit, each on disk before it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.http.console.window import Window
from tests.broker.peer import Peer, decoded, text
from twinbus.amqp.states import AmqpError, state_rejected
from twinbus.entities.settings import QueueSettings
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX, CONSOLE_COPIES_MAX, CONSOLE_PROPERTIES_MAX, ENTITY_PATH_CHARS_MAX
from twinbus.testing import Broker

REJECTED = state_rejected(AmqpError("com.microsoft:dead-letter", "", {}))


@pytest.fixture
def broker() -> Iterator[Broker]:
    queues = ["q", QueueSettings(path="sessions", requires_session=True)]
    with Broker(queues=queues, sync=False) as broker:
        yield broker


@pytest.fixture
def window(broker: Broker) -> Window:
    window = Window(broker)
    window.greet()
    return window


def row(window: Window, entity: str) -> Any:
    return window.get("entity", entity=entity).json


def bury(broker: Broker, count: int, path: str = "q") -> None:
    with Peer(broker) as peer:
        receiver = peer.receiver(path, count)
        for _ in range(count):
            peer.settle(peer.receive(receiver), REJECTED)


# --- sending ----------------------------------------------------------------------------------------------------------


def test_a_message_arrives_as_it_was_written(broker: Broker, window: Window) -> None:
    fields = {
        "body": '{"a": "ä"}',
        "content_type": "application/json",
        "message_id": "m",
        "subject": "s",
        "correlation_id": "c",
        "properties": {"text": "x", "number": 7, "half": 0.5, "yes": True, "__proto__": "z"},
    }
    assert window.post("send", entity="q", **fields).json == {"sent": 1}
    with Peer(broker) as peer:
        message = decoded(peer.receive(peer.receiver("q", 1, settled=True)))
    assert message.data == ['{"a": "ä"}'.encode()]
    assert (message.message_id, message.subject, message.correlation_id) == ("m", "s", "c")
    assert message.content_type == "application/json"
    assert message.application_properties == {"text": "x", "number": 7, "half": 0.5, "yes": True, "__proto__": "z"}


def test_copies_have_ids_of_their_own(window: Window) -> None:
    assert window.post("send", entity="q", body="x", copies=3).json == {"sent": 3}
    ids = {each["id"] for each in window.get("messages", entity="q").json["rows"]}
    assert len(ids) == 3


def test_sessions_and_delays(window: Window) -> None:
    answer = window.post("send", entity="sessions", body="x")
    assert answer.status == 400
    assert "SessionId" in answer.error
    assert window.post("send", entity="sessions", body="x", session_id="s").status == 200
    assert window.get("messages", entity="sessions").json["rows"][0]["session"] == "s"
    assert window.post("send", entity="q", body="x", delay_s=3600).status == 200
    assert row(window, "q")["scheduled"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"copies": 0},
        {"copies": CONSOLE_COPIES_MAX + 1},
        {"copies": "2"},
        {"copies": True},
        {"body": 7},
        {"body": "\ud800"},
        {"properties": []},
        {"properties": {"x": [1]}},
        {"properties": {"x": None}},
        {"properties": {"x": 2**70}},
        {"properties": {f"p{number}": 1 for number in range(CONSOLE_PROPERTIES_MAX + 1)}},
        {"time_to_live_s": "x"},
        {"delay_s": -1},
        {"content_type": "ä"},
        {"message_id": "m" * 129},
    ],
)
def test_what_cannot_be_sent_is_told_why(window: Window, fields: dict[str, Any]) -> None:
    answer = window.post("send", **{"entity": "q", "body": "x", **fields})
    assert answer.status == 400
    assert answer.error
    assert row(window, "q")["active"] == 0


def test_sending_where_nothing_can_be_sent(broker: Broker, window: Window) -> None:
    broker.create_topic("t")
    broker.create_subscription("t", "s")
    assert window.post("send", entity="nowhere", body="x").status == 404
    assert window.post("send", entity="t/Subscriptions/s", body="x").status == 400
    assert window.post("send", entity="q", body="x" * 300_000).status == 403, "too large for the queue"
    assert window.post("send", entity="t", body="x").status == 200
    assert row(window, "t/Subscriptions/s")["active"] == 1


# --- entities ---------------------------------------------------------------------------------------------------------


def test_entities_are_made_and_deleted(broker: Broker, window: Window) -> None:
    settings = {"requires_session": True, "max_delivery_count": 3, "lock_duration_ms": 30_000}
    assert window.post("create", kind="queue", name="made/here", settings=settings).json == {"path": "made/here"}
    found = row(window, "made/here")
    assert (found["kind"], found["sessions"], found["settings"]["max_delivery_count"]) == ("queue", True, 3)
    window.post("create", kind="topic", name="t")
    made = window.post("create", kind="subscription", topic="t", name="s", filter="n > 1").json
    assert made == {"path": "t/Subscriptions/s"}
    window.post("create", kind="rule", topic="t", subscription="s", name="r", filter="n < 0", action="SET x = 1")
    shown = {each["name"]: (each["condition"], each["action"]) for each in row(window, "t/Subscriptions/s")["rules"]}
    assert shown == {"$Default": ("n > 1", None), "r": ("n < 0", "SET x = 1")}
    assert window.post("delete", entity="t/Subscriptions/s", rule="r").status == 200
    assert len(row(window, "t/Subscriptions/s")["rules"]) == 1
    broker.restart()
    again = Window(broker)
    again.greet()
    assert row(again, "made/here")["sessions"] is True
    for entity in ("t/Subscriptions/s", "t", "made/here"):
        assert again.post("delete", entity=entity).status == 200
        assert again.get("entity", entity=entity).status == 404


@pytest.mark.parametrize(
    "name",
    [
        "",
        "<script>alert(1)</script>",
        "a b",
        "../x",
        "a//b",
        "a%20b",
        "__proto__",
        "a/",
        "$x",
        "q?x=1",
        "q#x",
        "x" * (ENTITY_PATH_CHARS_MAX + 1),
        "a\u202eb",
        "a\x00b",
        "a/../b",
        "x/.",
    ],
)
def test_names_that_are_none(window: Window, name: str) -> None:
    for kind in ("queue", "topic"):
        answer = window.post("create", kind=kind, name=name)
        assert answer.status == 400
        assert answer.headers["Content-Type"].startswith("application/json"), "a name told back is data, not a page"


@pytest.mark.parametrize("name", ["a/.b/b..", "constructor", "console/api/x", "x" * ENTITY_PATH_CHARS_MAX])
def test_odd_names_are_names(window: Window, name: str) -> None:
    assert window.post("create", kind="queue", name=name).status == 200
    assert window.post("send", entity=name, body="x").status == 200
    assert row(window, name)["active"] == 1
    assert name in [each["path"] for each in window.get("entities", search=name).json["rows"]]
    assert window.post("delete", entity=name.upper()).status == 200, "names are the same whatever their case"


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "other", "name": "x"},
        {"kind": "queue", "name": "q"},
        {"kind": "queue", "name": "x", "settings": {"forward_to": "q"}},
        {"kind": "queue", "name": "x", "settings": {"requires_session": 1}},
        {"kind": "queue", "name": "x", "settings": {"max_delivery_count": True}},
        {"kind": "queue", "name": "x", "settings": {"max_delivery_count": 0}},
        {"kind": "queue", "name": "x", "settings": []},
        {"kind": "topic", "name": "x", "settings": {"requires_session": True}},
        {"kind": "subscription", "topic": "none", "name": "s"},
        {"kind": "subscription", "topic": "q", "name": "s"},
        {"kind": "rule", "topic": "q", "subscription": "s", "name": "r"},
    ],
)
def test_what_cannot_be_made(window: Window, fields: dict[str, Any]) -> None:
    answer = window.post("create", **fields)
    assert answer.status in (400, 404, 409)
    assert answer.error


def test_a_filter_that_is_none_makes_no_subscription(broker: Broker, window: Window) -> None:
    broker.create_topic("t")
    answer = window.post("create", kind="subscription", topic="t", name="s", filter="this is (not SQL")
    assert answer.status == 400
    assert row(window, "t")["subscriptions"] == 0


# --- purging and resubmitting -----------------------------------------------------------------------------------------


def test_purging_takes_what_nobody_holds(broker: Broker, window: Window) -> None:
    with Peer(broker) as peer:
        sender = peer.sender("q")
        for number in range(BATCH_DELETE_MESSAGES_MAX + 2):
            peer.send(sender, text(str(number)))
        held = peer.receive(peer.receiver("q", 1))
        assert window.post("purge", entity="q").json == {"purged": BATCH_DELETE_MESSAGES_MAX + 1, "more": False}
        assert row(window, "q")["active"] == 1
        peer.settle(held)
    assert row(window, "q")["active"] == 0
    assert window.post("purge", entity="q").json["purged"] == 0


def test_purging_sessions_and_dead_letters(broker: Broker, window: Window) -> None:
    for session in ("a", "b", "b"):
        window.post("send", entity="sessions", body="x", session_id=session)
    assert window.post("purge", entity="sessions").json["purged"] == 3
    window.post("send", entity="q", body="x", copies=2)
    bury(broker, 1)
    assert window.post("purge", entity="q", part="dead").json["purged"] == 1
    found = row(window, "q")
    assert (found["active"], found["dead"]) == (1, 0), "the others stay"
    broker.create_topic("t")
    assert window.post("purge", entity="t").status == 400


def test_dead_letters_go_back(broker: Broker, window: Window) -> None:
    window.post("send", entity="q", body="x", copies=3)
    bury(broker, 3)
    assert row(window, "q")["dead"] == 3
    answer = window.post("resubmit", entity="q", part="dead", numbers=["2"])
    assert answer.json == {"resubmitted": 1, "refused": 0, "more": False}
    answer = window.post("resubmit", entity="q", part="dead")
    assert answer.json == {"resubmitted": 2, "refused": 0, "more": False}
    found = row(window, "q")
    assert (found["active"], found["dead"]) == (3, 0)
    for each in window.get("messages", entity="q").json["rows"]:
        assert (each["deliveries"], each["reason"]) == (0, None)
    broker.restart()
    again = Window(broker)
    again.greet()
    assert row(again, "q")["active"] == 3


def test_more_than_one_commit_of_dead_letters(broker: Broker, window: Window) -> None:
    count = BATCH_DELETE_MESSAGES_MAX + 5
    for _ in range(count // CONSOLE_COPIES_MAX):
        window.post("send", entity="q", body="x", copies=CONSOLE_COPIES_MAX)
    window.post("send", entity="q", body="x", copies=count % CONSOLE_COPIES_MAX)
    bury(broker, count)
    assert window.post("resubmit", entity="q", part="dead").json["resubmitted"] == count
    assert row(window, "q")["active"] == count


def test_a_dead_letter_of_a_session_returns_to_it(broker: Broker, window: Window) -> None:
    window.post("send", entity="sessions", body="x", session_id="s")

    def bury_it(server: Any) -> None:
        host = server.hosts["contoso"]
        queue = host.entities.queue("sessions")
        now_ms, facts = host.clock.now_ms(), host.commits.facts
        session = queue.accept_session("s", now_ms)
        (message,) = session.acquire(1, now_ms, facts)
        queue.dead_letter(message.token, now_ms, facts, "Bad", None)
        host.commits.request()

    broker.call(bury_it)
    assert row(window, "sessions")["dead"] == 1
    assert window.post("resubmit", entity="sessions", part="dead").json["resubmitted"] == 1
    assert window.get("messages", entity="sessions").json["rows"][0]["session"] == "s"


def test_one_that_expired_is_not_expired_to_its_receiver(broker: Broker, window: Window) -> None:
    """Clients use the property with the expiry time, so it must be the new one."""
    window.post("send", entity="q", body="x", time_to_live_s=300)
    before = window.get("message", entity="q", seq=1).json
    bury(broker, 1)
    window.post("resubmit", entity="q", part="dead")
    (shown,) = window.get("messages", entity="q").json["rows"]
    assert shown["expires_ms"] > before["expires_ms"]
    with Peer(broker) as peer:
        message = decoded(peer.receive(peer.receiver("q", 1, settled=True)))
    assert message.absolute_expiry_time == shown["expires_ms"]


@pytest.mark.parametrize(
    "fields",
    [
        {"part": "messages"},
        {"part": "dead", "numbers": "1"},
        {"part": "dead", "numbers": [1]},
        {"part": "dead", "numbers": ["-1"]},
        {"part": "dead", "numbers": ["1"] * (BATCH_DELETE_MESSAGES_MAX + 1)},
        {"part": "other"},
    ],
)
def test_what_cannot_be_resubmitted(window: Window, fields: dict[str, Any]) -> None:
    assert window.post("resubmit", entity="q", **fields).status == 400


def test_there_is_no_other_command(window: Window) -> None:
    assert window.post("stop").status == 404


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_and_status_are_changed_and_the_others_stay(broker: Broker, window: Window) -> None:
    broker.create_topic("t")
    broker.create_subscription("t", "s")
    changed = {"lock_duration_ms": 30_000, "status": "SendDisabled", "forward_to": "t", "dead_letter_on_expiry": True}
    assert window.post("update", entity="q", settings=changed).json == {"path": "q"}
    settings = row(window, "q")["settings"]
    assert {name: settings[name] for name in changed} == changed
    assert settings["max_delivery_count"] == 10
    assert window.post("send", entity="q", body="x").status in (400, 403)
    assert window.post("update", entity="q", settings={"forward_to": "", "status": "Active"}).status == 200
    assert row(window, "q")["settings"]["forward_to"] is None
    assert window.post("update", entity="t", settings={"default_ttl_ms": 60_000}).status == 200
    assert window.post("update", entity="t/Subscriptions/s", settings={"max_delivery_count": 3}).status == 200
    assert row(window, "t/Subscriptions/s")["settings"]["max_delivery_count"] == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"requires_session": True},
        {"path": "other"},
        {"status": "Sleeping"},
        {"lock_duration_ms": 1},
        {"lock_duration_ms": True},
        {"lock_duration_ms": "60000"},
        {"forward_to": "nowhere"},
        {"nothing": 1},
        [],
    ],
)
def test_a_wrong_setting_changes_nothing(window: Window, settings: Any) -> None:
    before = row(window, "q")["settings"]
    assert window.post("update", entity="q", settings=settings).status in (400, 404)
    assert row(window, "q")["settings"] == before
