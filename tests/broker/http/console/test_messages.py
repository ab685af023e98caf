"""Messages in the console: pages, a whole message, hostile content, and oversized messages."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.http.console.window import Window
from tests.broker.peer import Peer, text
from twinbus.amqp.codec import encode
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import AmqpError, state_rejected
from twinbus.amqp.types import Described, Symbol, Timestamp
from twinbus.entities.settings import QueueSettings
from twinbus.limits import (
    CONSOLE_BODY_BYTES_MAX,
    CONSOLE_MESSAGES_PAGE,
    CONSOLE_PROPERTIES_MAX,
    CONSOLE_TEXT_CHARS_MAX,
    CONSOLE_VALUES_MAX,
)
from twinbus.testing import Broker

HOSTILE = "<script>alert('owned')</script><img src=x onerror=alert(1)>\u202e\x00"


@pytest.fixture
def broker() -> Iterator[Broker]:
    queues = [QueueSettings(path="q", max_message_bytes=8 * 1024 * 1024), QueueSettings(path="empty")]
    with Broker(queues=queues, sync=False) as broker:
        yield broker


@pytest.fixture
def window(broker: Broker) -> Window:
    window = Window(broker)
    window.greet()
    return window


def sent(broker: Broker, *messages: AmqpMessage) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        for message in messages:
            peer.send(link, message)


def lines(found: list[list[str]]) -> dict[str, tuple[str, str]]:
    return {name: (kind, value) for name, kind, value in found}


def detail(window: Window, seq: int = 1) -> Any:
    return window.get("message", entity="q", seq=seq).json


def test_pages_follow_each_other(broker: Broker, window: Window) -> None:
    count = CONSOLE_MESSAGES_PAGE + 3
    sent(broker, *(text(f"body {number}", message_id=f"m{number}") for number in range(count)))
    first = window.get("messages", entity="q").json
    assert len(first["rows"]) == CONSOLE_MESSAGES_PAGE
    assert first["rows"][0]["preview"] == "body 0"
    second = window.get("messages", entity="q", **{"from": first["next"]}).json
    assert [row["id"] for row in second["rows"]] == ["m50", "m51", "m52"]
    assert second["next"] is None
    assert window.get("messages", entity="empty").json == {"rows": [], "looked": 0, "next": None}


def test_a_page_is_bounded_in_bytes_too(broker: Broker, window: Window) -> None:
    sent(broker, *(AmqpMessage.of_data(b"x" * 500_000) for _ in range(3)))
    first = window.get("messages", entity="q").json
    assert len(first["rows"]) == 1
    assert len(window.get("messages", entity="q", **{"from": first["next"]}).json["rows"]) == 1


def test_looking_locks_nothing_and_is_counted(broker: Broker, window: Window) -> None:
    sent(broker, text("a"), text("b"))
    window.get("messages", entity="q")
    detail(window)

    def peeks(server: Any) -> int:
        return sum(c.count for c in server.hosts["contoso"].meter.entity("q") if c.kind == "peek")

    assert broker.call(peeks) == 3
    with Peer(broker) as peer:
        peer.receive(peer.receiver("q", 1))


def test_everything_of_a_message(broker: Broker, window: Window) -> None:
    message = text('{"a":12345678901234567890}', message_id="m", subject="s", group_id="g", reply_to="r")
    message.content_type = Symbol("application/json")
    message.correlation_id = uuid.UUID(int=7)
    message.ttl = 60_000
    message.application_properties = {
        "text": "x",
        "number": 2**40,
        "yes": True,
        "none": None,
        "when": Timestamp(1_700_000_000_123),
        "span": Described(Symbol("com.microsoft:timespan"), 10_000_000),
        "bytes": b"\x00\xff",
    }
    message.message_annotations = {Symbol("x-own"): "mine", Symbol("x-opt-partition-key"): "g"}
    sent(broker, message)
    found = detail(window)
    own = lines(found["application"])
    assert own["text"] == ("string", "x")
    assert own["number"] == ("long", str(2**40))
    assert own["yes"] == ("bool", "true")
    assert own["none"] == ("null", "null")
    assert own["when"] == ("timestamp", "2023-11-14 22:13:20.123 UTC")
    assert own["span"] == ("time span", "0:00:01")
    assert own["bytes"] == ("binary", "00 ff")
    properties = lines(found["properties"])
    assert properties["session_id"] == ("string", "g")
    assert properties["correlation_id"] == ("uuid", str(uuid.UUID(int=7)))
    system = lines(found["system"])
    assert system["sequence_number"][1] == "1"
    assert system["time_to_live_ms"][1] == "60000"
    assert system["x-own"] == ("string", "mine")
    assert found["expires_ms"] == found["enqueued_ms"] + 60_000
    body = found["body"]
    assert (body["kind"], base64.b64decode(body["base64"])) == ("data", b'{"a":12345678901234567890}')


@pytest.mark.parametrize(
    ("message", "kind", "content", "size"),
    [
        (AmqpMessage.of_value("text"), "text value", b"text", 4),
        (AmqpMessage.of_value(b"\x01"), "binary value", b"\x01", 1),
        (AmqpMessage.of_value({"a": [1, b"\x02"]}), "value", b'{"a": [1, "02"]}', len(encode({"a": [1, b"\x02"]}))),
        (AmqpMessage.of_value(None), "empty", b"", 0),
        (AmqpMessage.of_data(b"a", b"b"), "data", b"ab", 2),
    ],
)
def test_bodies_of_every_kind(
    broker: Broker, window: Window, message: AmqpMessage, kind: str, content: bytes, size: int
) -> None:
    sent(broker, message)
    body = detail(window)["body"]
    (row,) = window.get("messages", entity="q").json["rows"]
    assert body["size"] == row["body_bytes"] == size
    assert (body["kind"], base64.b64decode(body["base64"])) == (kind, content)
    assert window.get("body", entity="q", seq=1).body == content


def test_hostile_content_is_data(broker: Broker, window: Window) -> None:
    message = text(HOSTILE, message_id=HOSTILE[:60], subject=HOSTILE)
    message.application_properties = {HOSTILE: HOSTILE, "__proto__": "x", "constructor": "y"}
    sent(broker, message)
    answer = window.get("messages", entity="q")
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.json["rows"][0]["subject"] == HOSTILE
    assert lines(detail(window)["application"])[HOSTILE] == ("string", HOSTILE)
    download = window.get("body", entity="q", seq=1)
    assert download.headers["Content-Type"] == "application/octet-stream"
    assert download.headers["Content-Disposition"] == 'attachment; filename="message-1.bin"'
    assert download.body.decode() == HOSTILE


def test_what_is_shown_is_bounded(broker: Broker, window: Window) -> None:
    message = AmqpMessage.of_data(b"x" * (CONSOLE_BODY_BYTES_MAX + 1))
    message.application_properties = {f"p{number:04}": number for number in range(CONSOLE_PROPERTIES_MAX + 1)}
    message.subject = "s" * (CONSOLE_TEXT_CHARS_MAX + 1)
    sent(broker, message)
    found = detail(window)
    assert found["body"]["bytes"] == CONSOLE_BODY_BYTES_MAX + 1
    assert len(base64.b64decode(found["body"]["base64"])) == found["body"]["shown_bytes"] == CONSOLE_BODY_BYTES_MAX
    assert len(found["application"]) == CONSOLE_PROPERTIES_MAX + 1, "the last one says that there are more"
    assert len(found["subject"]) == CONSOLE_TEXT_CHARS_MAX
    assert len(window.get("body", entity="q", seq=1).body) == CONSOLE_BODY_BYTES_MAX + 1


def test_a_message_that_does_not_read_is_shown_as_bytes(broker: Broker, window: Window) -> None:
    # Application properties that are not a map; accepted, because nobody decoded them.
    payload = b"\x00\x53\x74\xa1\x01x" + AmqpMessage.of_data(b"body").encode()
    with Peer(broker) as peer:
        peer.send(peer.sender("q"), payload)
    assert window.get("messages", entity="q").json["rows"][0]["unreadable"] is True
    found = detail(window)
    assert found["unreadable"] is True
    assert b"body" in base64.b64decode(found["body"]["base64"])


def test_what_is_not_there(window: Window) -> None:
    assert window.get("message", entity="q", seq=1).status == 404
    assert window.get("body", entity="q", seq=1).status == 404
    assert window.get("messages", entity="nowhere").status == 404
    assert window.get("messages").status == 400
    assert window.get("messages", entity="q", part="other").status == 400
    for wrong in ("-1", "x", "1" * 30, "1.5", "²"):
        assert window.get("message", entity="q", seq=wrong).status == 400
    assert window.get("nothing").status == 404


def test_dead_letters_tell_why(broker: Broker, window: Window) -> None:
    sent(broker, text("a"))
    with Peer(broker) as peer:
        delivery = peer.receive(peer.receiver("q", 1))
        told = {Symbol("DeadLetterReason"): "Bad", Symbol("DeadLetterErrorDescription"): HOSTILE}
        peer.settle(delivery, state_rejected(AmqpError("com.microsoft:dead-letter", "", told)))
    (row,) = window.get("messages", entity="q", part="dead").json["rows"]
    assert (row["reason"], row["description"]) == ("Bad", HOSTILE)
    assert window.get("messages", entity="q").json["rows"] == []
    found = window.get("message", entity="q", part="dead", seq=1).json
    assert found["reason"] == "Bad"
    assert json.dumps(found), "all of it is JSON"


def test_a_body_with_many_values_is_shown_encoded(broker: Broker, window: Window) -> None:
    few, many = AmqpMessage.of_value([0] * 1_000), AmqpMessage.of_value([[]] * (CONSOLE_VALUES_MAX + 1))
    sent(broker, few, many)
    rows = window.get("messages", entity="q").json["rows"]
    assert [row["preview"] for row in rows] == ["(a value with many parts)"] * 2
    assert [row.get("unreadable") for row in rows] == [None, None]
    assert detail(window)["body"]["kind"] == "value"
    found = window.get("message", entity="q", seq=2).json["body"]
    assert (found["kind"], base64.b64decode(found["base64"])) == ("encoded value", many.encode())
    assert window.get("body", entity="q", seq=1).body == b"[" + b", ".join([b"0"] * 1_000) + b"]"
    # A changed copy of it keeps its body, which cannot be edited.
    assert window.post("resend", entity="q", seq="2", subject="again", keep=True).status == 200
    assert window.get("body", entity="q", seq=3).body == window.get("body", entity="q", seq=2).body
    assert window.post("resend", entity="q", seq="2", body="text", keep=True).status != 200


def test_a_page_decodes_few_values_whatever_the_bodies_hold(
    broker: Broker, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(broker, *[AmqpMessage.of_value([[]] * 15_000) for _ in range(20)])
    counts: list[int] = []
    decode = AmqpMessage.decode

    def counting(payload: bytes, *most: int | None) -> AmqpMessage:
        found = decode(payload, *most)
        counts.append(0 if found.value is None else len(found.value))
        return found

    monkeypatch.setattr(AmqpMessage, "decode", counting)
    assert len(window.get("messages", entity="q").json["rows"]) == 20
    assert len(window.get("messages", entity="q", search="x", field="").json["rows"]) == 0
    assert sum(counts) == 0
