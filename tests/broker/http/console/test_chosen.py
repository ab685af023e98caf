"""Chosen messages are deleted, dead-lettered, edited and resent: exactly those, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.broker.http.console.window import Window
from tests.broker.peer import Peer, decoded, text
from twinbus.amqp.types import Symbol, Timestamp
from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.messages.intake import PING_CONTENT_TYPE
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

KEY = "bm90LWEtcmVhbC1rZXktb2Ytb3Vycw=="


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    queues = [
        "q",
        "other",
        QueueSettings(path="s", requires_session=True),
        QueueSettings(path="d", requires_duplicate_detection=True),
    ]
    with Broker(queues=queues, sync=False) as broker:
        broker.create_topic("t")
        broker.create_subscription("t", "one")
        broker.create_subscription("t", "two")
        broker.create_topic("nobody")
        yield broker


@pytest.fixture
def broker(running: Broker) -> Broker:
    """The broker, emptied."""
    window = Window(running)
    window.greet()
    for entity in ("q", "other", "s", "d", "t/Subscriptions/one", "t/Subscriptions/two"):
        for part in ("messages", "dead"):
            window.post("purge", entity=entity, part=part)
    return running


@pytest.fixture
def window(broker: Broker) -> Window:
    window = Window(broker)
    window.greet()
    return window


def sent(window: Window, *bodies: str, entity: str = "q", **fields: Any) -> list[str]:
    """Send messages and return their sequence numbers."""
    for body in bodies:
        assert window.post("send", entity=entity, body=body, **fields).status == 200
    return [row["seq"] for row in window.get("messages", entity=entity).json["rows"]]


def previews(window: Window, entity: str = "q", part: str = "messages") -> list[str]:
    return [row["preview"] for row in window.get("messages", entity=entity, part=part).json["rows"]]


def test_exactly_the_chosen_messages_are_deleted(broker: Broker, window: Window) -> None:
    numbers = sent(window, *"abcde")
    with Peer(broker) as peer:
        held = peer.receive(peer.receiver("q", 1))
        answer = window.post("remove", entity="q", numbers=[numbers[0], numbers[2], numbers[3], "999999"])
        assert answer.json == {"removed": 2, "left": 2}, "one is locked, one was never there"
        assert decoded(held).data == [b"a"]
    assert previews(window) == ["a", "b", "e"]


def test_scheduled_messages_of_a_topic_are_deleted(window: Window) -> None:
    (number,) = sent(window, "later", entity="t", delay_s=3600)
    assert window.post("remove", entity="t", numbers=[number, "5555"]).json == {"removed": 1, "left": 1}
    assert window.get("entity", entity="t").json["scheduled"] == 0


def test_chosen_messages_are_dead_lettered_and_come_back(window: Window) -> None:
    numbers = sent(window, *"abc")
    answer = window.post("dead-letter", entity="q", numbers=numbers[1:2], reason="Bad", description="It was bad.")
    assert answer.json == {"moved": 1, "left": 0}
    (dead,) = window.get("messages", entity="q", part="dead").json["rows"]
    assert (dead["preview"], dead["reason"], dead["description"]) == ("b", "Bad", "It was bad.")
    assert window.post("dead-letter", entity="q", part="dead", numbers=[dead["seq"]]).status == 400
    assert window.post("resubmit", entity="q", part="dead", numbers=[dead["seq"]]).json["resubmitted"] == 1
    assert previews(window) == ["a", "c", "b"]


@pytest.mark.parametrize("numbers", [None, [], [1], ["x"], ["-1"], ["٣"], [str(each) for each in range(51)]])
@pytest.mark.parametrize("command", ["remove", "dead-letter"])
def test_numbers_are_checked(window: Window, command: str, numbers: Any) -> None:
    assert window.post(command, entity="q", numbers=numbers).status == 400


# --- edit and resend --------------------------------------------------------------------------------------------------


def test_an_edited_message_takes_the_place_of_the_original(broker: Broker, window: Window) -> None:
    message = text("old", message_id="m", subject="before", content_type="text/plain")
    unique = UUID(int=5)
    message.application_properties = {"kept": unique, "changed": 1, "gone": "x", "DeadLetterReason": "Old"}
    message.message_annotations = {Symbol("x-opt-partition-key"): "p", Symbol("x-own"): Timestamp(7)}
    with Peer(broker) as peer:
        peer.send(peer.sender("q"), message)
    (number,) = [row["seq"] for row in window.get("messages", entity="q").json["rows"]]
    answer = window.post(
        "resend",
        entity="q",
        seq=number,
        body="new",
        subject="after",
        properties={"changed": 2, "added": True},
        removed_properties=["gone"],
    )
    assert answer.json == {"sent": 1, "to": "q", "removed": 1}
    with Peer(broker) as peer:
        found = decoded(peer.receive(peer.receiver("q", 1, settled=True)))
    assert (found.data, found.message_id, found.subject, found.content_type) == ([b"new"], "m", "after", "text/plain")
    assert found.application_properties == {"kept": unique, "changed": 2, "added": True}
    assert found.message_annotations is not None
    assert found.message_annotations["x-opt-partition-key"] == "p"
    assert found.message_annotations["x-own"] == 7
    assert window.get("entity", entity="q").json["active"] == 0


def test_the_original_can_stay_and_the_copy_can_go_elsewhere(window: Window) -> None:
    (number,) = sent(window, "a")
    assert window.post("resend", entity="q", seq=number, to="other", keep=True).json["removed"] == 0
    assert (previews(window), previews(window, "other")) == (["a"], ["a"])
    assert window.post("resend", entity="q", seq=number, to="nowhere").status == 404
    assert previews(window) == ["a"]


def test_a_dead_letter_is_edited_and_sent_back(window: Window) -> None:
    numbers = sent(window, "a")
    window.post("dead-letter", entity="q", numbers=numbers, reason="Bad")
    answer = window.post("resend", entity="q", part="dead", seq=numbers[0], body="mended")
    assert answer.json == {"sent": 1, "to": "q", "removed": 1}
    assert (previews(window), previews(window, part="dead")) == (["mended"], [])
    (row,) = window.get("messages", entity="q").json["rows"]
    assert row["reason"] is None


def test_a_subscriptions_message_goes_back_to_that_subscription_only(window: Window) -> None:
    sent(window, "a", entity="t")
    (row,) = window.get("messages", entity="t/Subscriptions/one").json["rows"]
    answer = window.post("resend", entity="t/Subscriptions/one", seq=row["seq"], body="b")
    assert answer.json == {"sent": 1, "to": "t/Subscriptions/one", "removed": 1}
    assert previews(window, "t/Subscriptions/one") == ["b"]
    assert previews(window, "t/Subscriptions/two") == ["a"]


def test_what_is_locked_is_not_resent(broker: Broker, window: Window) -> None:
    (number,) = sent(window, "a")
    with Peer(broker) as peer:
        peer.receive(peer.receiver("q", 1))
        answer = window.post("resend", entity="q", seq=number, body="b")
        assert answer.status == 400
        assert "locked" in answer.error
    assert previews(window) == ["a"], "nothing was sent"


def test_a_copy_that_would_be_dropped_is_refused_and_the_original_stays(window: Window) -> None:
    (number,) = sent(window, "a", entity="d", message_id="known")
    assert "change the message id" in window.post("resend", entity="d", seq=number, body="b").error
    assert previews(window, "d") == ["a"]
    assert window.post("resend", entity="d", seq=number, body="b", message_id="fresh").status == 200
    assert previews(window, "d") == ["b"]
    (number,) = sent(window, "a")
    answer = window.post("resend", entity="q", seq=number, content_type=PING_CONTENT_TYPE)
    assert "ping" in answer.error
    assert "No subscription" in window.post("resend", entity="q", seq=number, to="nobody").error
    assert "SessionId" in window.post("resend", entity="q", seq=number, to="s").error
    assert previews(window) == ["a"]


def test_a_body_that_is_no_text_is_resent_as_it_is(broker: Broker, window: Window) -> None:
    message = text("")
    message.data, message.value, message.has_value = None, [1, {"a": b"\xff"}], True
    with Peer(broker) as peer:
        peer.send(peer.sender("q"), message)
    (row,) = window.get("messages", entity="q").json["rows"]
    assert window.post("resend", entity="q", seq=row["seq"], body="x").status == 400
    assert window.post("resend", entity="q", seq=row["seq"], subject="s").status == 200
    with Peer(broker) as peer:
        found = decoded(peer.receive(peer.receiver("q", 1, settled=True)))
    assert (found.value, found.subject) == ([1, {"a": b"\xff"}], "s")


def test_an_edited_message_keeps_its_schedule(window: Window) -> None:
    (number,) = sent(window, "later", delay_s=3600)
    assert window.post("resend", entity="q", seq=number, body="edited").status == 200
    found = window.get("entity", entity="q").json
    assert (found["active"], found["scheduled"]) == (0, 1)
    (row,) = window.get("messages", entity="q").json["rows"]
    assert window.post("remove", entity="q", numbers=[row["seq"]]).json["removed"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"keep": "no"},
        {"removed_properties": "x"},
        {"properties": {"a": []}},
        {"body": 1},
        {"body": "\ud800"},
        {"seq": 7},
    ],
)
def test_a_wrong_edit_changes_nothing(window: Window, fields: dict[str, Any]) -> None:
    (number,) = sent(window, "a")
    assert window.post("resend", **{"entity": "q", "seq": number, **fields}).status == 400
    assert previews(window) == ["a"]


# --- search -----------------------------------------------------------------------------------------------------------


def test_messages_are_found_by_id_property_and_body(window: Window) -> None:
    window.post("send", entity="q", body='{"city": "Ulm"}', message_id="Order-1", properties={"region": "eu", "n": 12})
    window.post("send", entity="q", body="plain", message_id="order-2", subject="ULM", properties={"eu": "x"})
    window.post("send", entity="q", body="third", message_id="x")

    def found(search: str, field: str = "") -> list[str]:
        answer = window.get("messages", entity="q", search=search, field=field).json
        assert (answer["looked"], answer["next"]) == (3, None)
        return [row["id"] for row in answer["rows"]]

    assert found("order-", "id") == ["Order-1", "order-2"]
    assert found("ulm", "id") == ["order-2"]
    assert found("ulm", "body") == ["Order-1"]
    assert found("ulm") == ["Order-1", "order-2"]
    assert found("eu", "property") == ["Order-1", "order-2"]
    assert found("region=eu", "property") == ["Order-1"]
    assert found("n = 12", "property") == ["Order-1"]
    assert found("n=13", "property") == []
    assert window.get("messages", entity="q", search="x", field="header").status == 400


def test_a_search_goes_on_where_it_stopped(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.broker.http.console.messages.CONSOLE_SEARCH_MESSAGES_MAX", 2)
    numbers = sent(window, "a", "b", "needle", "c", "needle 2")
    first = window.get("messages", entity="q", search="needle").json
    assert (first["rows"], first["looked"], first["next"]) == ([], 2, numbers[2])
    second = window.get("messages", entity="q", search="needle", **{"from": first["next"]}).json
    assert [row["preview"] for row in second["rows"]] == ["needle"]
    third = window.get("messages", entity="q", search="needle", **{"from": second["next"]}).json
    assert ([row["preview"] for row in third["rows"]], third["next"]) == (["needle 2"], None)
    from_there = window.get("messages", entity="q", **{"from": numbers[3]}).json
    assert [row["preview"] for row in from_there["rows"]] == ["c", "needle 2"]


def test_a_sessions_messages(window: Window) -> None:
    for name in "abab":
        sent(window, name, entity="s", session_id=name)
    assert window.get("sessions", entity="s").json == {"sessions": ["a", "b"]}
    assert window.get("sessions", entity="q").json == {"sessions": []}
    for part in ("messages", "dead"):
        rows = window.get("messages", entity="s", session="b", part=part).json["rows"]
        assert [row["preview"] for row in rows] == ["b", "b"]
        numbers = [row["seq"] for row in rows]
        if part == "messages":
            assert window.post("dead-letter", entity="s", numbers=numbers).json["moved"] == 2
    assert window.get("messages", entity="s", session="nobody").json["rows"] == []


# --- rights -----------------------------------------------------------------------------------------------------------


def test_each_command_needs_its_right() -> None:
    policies = [
        Policy(name, frozenset({right}), KEY + name)
        for name, right in (("RootManageSharedAccessKey", Right.MANAGE), ("look", Right.LISTEN), ("mail", Right.SEND))
    ]
    config = NamespaceConfig("contoso", queues=[QueueSettings(path="q")], policies=policies)
    with Broker([config], dev=False, sync=False) as broker:
        root, look, mail = (Window(broker) for _ in range(3))
        for window, policy in zip((root, look, mail), policies, strict=True):
            assert window.login(policy.name, policy.primary_key).status == 200
        (number, *_) = sent(root, "a", "b")
        for command, fields in (
            ("remove", {"numbers": [number]}),
            ("resend", {"seq": number}),
            ("update", {"settings": {"status": "Disabled"}}),
        ):
            assert look.post(command, entity="q", **fields).status == 403, command
        for command, fields in (
            ("remove", {"numbers": [number]}),
            ("dead-letter", {"numbers": [number]}),
            ("resend", {"seq": number}),
            ("receive", {}),
            ("settle", {"how": "complete"}),
            ("update", {"settings": {}}),
        ):
            assert mail.post(command, entity="q", **fields).status == 403, command
        assert mail.get("sessions", entity="q").status == 403
        assert mail.get("messages", entity="q", search="a").status == 403
        assert look.post("dead-letter", entity="q", numbers=[number]).status == 200
        assert previews(root) == ["b"]
        shown = look.post("connection-string").json
        assert shown["connection_string"].count("SharedAccessKeyName=look;SharedAccessKey=" + KEY + "look") == 1
        assert root.get("connection-string").status == 404, "never by a plain GET"
