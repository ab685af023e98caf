"""What rules see of a message, and the effect of their changes."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pytest

from twinbus.amqp.codec import decode
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.types import Byte, Described, Float32, Int, Symbol, Timestamp, UInt, ULong
from twinbus.broker.messages.changes import SYSTEM, changed
from twinbus.broker.messages.intake import Intake
from twinbus.broker.messages.message_view import StoredViews, TopicMessageView
from twinbus.entities.filters import REMOVED, SYSTEM_PROPERTIES, Changes
from twinbus.entities.message import NewMessage, QueuedMessage, Relayed
from twinbus.errors import FilterEvaluationError, StoreCorruptError
from twinbus.limits import APPLICATION_PROPERTIES_BYTES_MAX, UNLIMITED_MS

NOW = 1_700_000_000_000


def taken_in(**fields: Any) -> NewMessage:
    message = AmqpMessage()
    message.message_id = "m1"
    message.data = [b"hello"]
    for name, value in fields.items():
        setattr(message, name, value)
    return Intake(lambda: "made").message(message.encode(), NOW, UNLIMITED_MS)


def nothing(number: int) -> bytes:
    raise AssertionError("the store is not needed")


def view_of(**fields: Any) -> TopicMessageView:
    view = StoredViews(nothing).of_new(taken_in(**fields))
    view.place(7, NOW, NOW + 5_000)
    return view


def test_every_system_property_can_be_asked_for() -> None:
    view = view_of(
        subject="label",
        to="to",
        reply_to="reply",
        correlation_id="c",
        content_type="text/plain",
        group_id="s",
        reply_to_group_id="r",
        durable=True,
        message_annotations={
            Symbol("x-opt-partition-key"): "s",
            Symbol("x-opt-via-partition-key"): "v",
            Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5),
        },
    )
    found = {name: view.system(name) for name in SYSTEM_PROPERTIES}
    assert found.pop("Size") > 0
    assert found == {
        "ContentType": "text/plain",
        "CorrelationId": "c",
        "DeadLetterSource": None,
        "DeliveryCount": 0,
        "EnqueuedSequenceNumber": 7,
        "EnqueuedTimeUtc": NOW,
        "ExpiresAtUtc": NOW + 5_000,
        "ForcePersistence": True,
        "Label": "label",
        "LockToken": None,
        "LockedUntilUtc": None,
        "MessageId": "m1",
        "PartitionKey": "s",
        "ReplyTo": "reply",
        "ReplyToSessionId": "r",
        "ScheduledEnqueueTimeUtc": 5,
        "SequenceNumber": 7,
        "SessionId": "s",
        "State": 0,
        "TimeToLive": 5_000,
        "To": "to",
        "ViaPartitionKey": "v",
    }


def test_a_message_with_nothing() -> None:
    view = view_of()
    assert view.system("Label") is None
    assert view.system("PartitionKey") is None
    assert view.system("ForcePersistence") is False
    assert view.properties.folded == {}
    assert view.new_id() != view.new_id()


@pytest.mark.parametrize("value", [uuid.UUID(int=5), ULong(5), b"5"])
def test_ids_of_any_type_are_text(value: Any) -> None:
    expected = str(value) if not isinstance(value, bytes) else "5"
    assert view_of(correlation_id=value).system("CorrelationId") == expected


def test_what_dotnet_describes_is_what_it_means() -> None:
    ticks = 621_355_968_000_000_000 + 10_000_000
    view = view_of(
        application_properties={
            "Span": Described(Symbol("com.microsoft:timespan"), 50_000_000),
            "When": Described(Symbol("com.microsoft:datetime-offset"), ticks),
            "Uri": Described(Symbol("com.microsoft:uri"), "http://x"),
            "Other": Described(Symbol("x"), 1),
        }
    )
    found = view.properties.folded
    assert found["span"] == datetime.timedelta(seconds=5)
    assert found["when"] == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    assert found["uri"] == "http://x"
    assert isinstance(found["other"], Described)


def test_changes_made_since_are_seen() -> None:
    new = taken_in(application_properties={"n": Int(1), "gone": True}, subject="cold")
    message = Relayed(
        1, 9, 10, NOW, None, 0, 0, None, {"n": b"\x54\x05", "gone": b"", SYSTEM + "Label": "hot"}, 3, 1, "from"
    )
    view = StoredViews(lambda number: new.body if number == 9 else b"").of_stored(message)
    assert view.properties.folded == {"n": 5}
    assert view.system("Label") == "hot"
    assert view.system("EnqueuedSequenceNumber") == 3
    assert view.system("DeadLetterSource") == "from"


def test_a_damaged_body_fails_the_rules_and_nothing_else() -> None:
    def damaged(number: int) -> bytes:
        raise StoreCorruptError("damaged")

    view = StoredViews(damaged).of_stored(QueuedMessage(1, 9, 10, NOW, None, 0, 0, None, None))
    with pytest.raises(FilterEvaluationError):
        _ = view.properties
    with pytest.raises(FilterEvaluationError):
        view.system("Label")


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        (Int(5), 6, Int(6)),
        (UInt(5), 6, UInt(6)),
        (Byte(5), 1_000, 1_000),
        (UInt(5), -1, -1),
        (Timestamp(5), 6, Timestamp(6)),
        (Float32(1.5), 2.5, Float32(2.5)),
        (5, 6, 6),
        ("text", 6, 6),
        (None, 6, 6),
        (True, 6, 6),
        (Int(5), True, True),
        (Int(5), "text", "text"),
        (1.5, Decimal("2.5"), 2.5),
        (None, datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC), Timestamp(1_000)),
        (None, datetime.datetime(1970, 1, 1, 0, 0, 1), Timestamp(1_000)),  # noqa: DTZ001
        (None, datetime.timedelta(seconds=5), Described(Symbol("com.microsoft:timespan"), 50_000_000)),
        (None, None, None),
    ],
)
def test_values_keep_the_type_they_had(before: Any, value: Any, after: Any) -> None:
    view = view_of(application_properties={} if before is None else {"N": before})
    encoded = view.encode(Changes({"N": value}, {}))["N"]
    assert isinstance(encoded, bytes)
    found = decode(encoded, 0)[0]
    assert found == after
    assert type(found) is type(after)


def test_system_properties_are_changed_in_their_places() -> None:
    new = taken_in(
        subject="cold",
        to="there",
        ttl=UInt(60_000),
        message_annotations={Symbol("x-opt-partition-key"): "p", Symbol("mine"): "kept"},
        application_properties={"a": 1},
    )
    view = StoredViews(nothing).of_new(new)
    system = {
        "Label": "hot",
        "To": REMOVED,
        "ReplyToSessionId": "r",
        "TimeToLive": 1_000,
        "ForcePersistence": True,
        "PartitionKey": REMOVED,
        "ViaPartitionKey": "v",
        "ScheduledEnqueueTimeUtc": 5,
    }
    after = StoredViews(nothing).of_new(
        NewMessage("m", changed(new.body, view.encode(Changes({"a": REMOVED, "b": 2}, system))), 1)
    )
    for name, value in system.items():
        if name != "TimeToLive":
            assert after.system(name) == (None if value is REMOVED else value), name
    assert after.properties.folded == {"b": 2}
    assert after.system("MessageId") == "m1"


def test_changes_have_a_bound() -> None:
    half = "x" * (APPLICATION_PROPERTIES_BYTES_MAX // 2)
    view = view_of()
    assert view.encode(Changes({"a": half}, {}))
    with pytest.raises(FilterEvaluationError, match="are too large"):
        view.encode(Changes({"a": half, "b": half}, {}))
    with pytest.raises(FilterEvaluationError, match="are too large"):
        view.encode(Changes({"\u20ac" * (APPLICATION_PROPERTIES_BYTES_MAX // 3 + 1): 1}, {}))


def test_what_rules_may_look_at_is_not_the_body() -> None:
    plain = view_of().looked_bytes()
    assert 0 < plain < 50
    assert view_of(data=[b"x" * 100_000]).looked_bytes() == plain
    more = {"application_properties": {"p": "x" * 1_000}, "message_annotations": {Symbol("a"): "y" * 500}}
    assert plain + 1_500 < view_of(**more).looked_bytes() < plain + 1_600
