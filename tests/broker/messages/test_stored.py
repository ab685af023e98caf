"""From the wire to disk and back: what a sender wrote comes out, plus only the broker's own annotations."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from twinbus.amqp.codec import encode
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.types import Int, Symbol, Timestamp, UInt, ULong
from twinbus.broker.messages.intake import BATCH_FORMAT, Intake
from twinbus.broker.messages.stored import render, without_body
from twinbus.entities.message import DEFERRED, GONE, QueuedMessage, Relayed
from twinbus.errors import ArgumentError, DecodeError
from twinbus.limits import BATCH_MESSAGES_MAX, TIME_MS_MAX, UNLIMITED_MS

NOW = 1_700_000_000_000
TOKEN = bytes(range(16))


def intake() -> Intake:
    return Intake(lambda: "made-id")


def message(**fields: Any) -> AmqpMessage:
    made = AmqpMessage()
    made.message_id = "m1"
    made.data = [b"hello"]
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def held(**fields: Any) -> QueuedMessage:
    made = QueuedMessage(42, 7, 100, NOW, None, 0, 0, None, None)
    made.locked_until_ms = NOW + 60_000
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def through(sent: AmqpMessage, kept: QueuedMessage | None = None, token: bytes | None = TOKEN) -> AmqpMessage:
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)
    return AmqpMessage.decode(render(new.body, kept if kept is not None else held(), token))


@pytest.mark.parametrize("own", [{}, {Symbol("mine"): Int(1)}, {Symbol(f"mine-{n}"): "x" * 40 for n in range(20)}])
def test_an_omitted_body_is_told_by_its_size(own: dict[Symbol, Any]) -> None:
    new = intake().message(message(delivery_annotations=own).encode(), NOW, UNLIMITED_MS)
    payload = render(new.body, held(), None)
    got = AmqpMessage.decode(without_body(payload))
    assert got.delivery_annotations == {**own, "omitted-message-body-size": 10}
    assert (got.data or [], got.message_id) == ([], "m1")


def test_a_message_without_a_body_has_nothing_to_omit() -> None:
    new = intake().message(message(data=None).encode(), NOW, UNLIMITED_MS)
    payload = render(new.body, held(), None)
    assert without_body(payload) == payload


def test_locked_delivery_has_exactly_the_service_annotations() -> None:
    got = through(message())
    assert got.message_annotations == {
        "x-opt-sequence-number": 42,
        "x-opt-enqueued-time": NOW,
        "x-opt-locked-until": NOW + 60_000,
    }
    assert got.delivery_annotations == {"x-opt-lock-token": uuid.UUID(bytes_le=TOKEN)}
    assert (got.durable, got.priority, got.ttl, got.first_acquirer, got.delivery_count) == (None, None, None, None, 0)
    assert got.data == [b"hello"]


def test_unlocked_delivery_says_that_it_has_no_delivery_annotations() -> None:
    got = through(message(), token=None)
    assert got.delivery_annotations == {}
    assert "x-opt-locked-until" not in (got.message_annotations or {})


def test_taken_message_is_shown_as_active() -> None:
    got = through(message(), held(state=3), token=None)
    assert "x-opt-message-state" not in (got.message_annotations or {})


@pytest.mark.parametrize("state", [1, 2])
def test_state_is_told_when_it_is_not_active(state: int) -> None:
    got = through(message(), held(state=state))
    assert (got.message_annotations or {})["x-opt-message-state"] == state


def test_senders_header_and_annotations_are_kept() -> None:
    sent = message(
        durable=True,
        priority=7,
        message_annotations={Symbol("x-own"): Int(5), Symbol("x-opt-partition-key"): "p"},
        delivery_annotations={Symbol("hop"): "h"},
        footer={Symbol("f"): 1},
    )
    got = through(sent, held(delivery_count=3))
    assert (got.durable, got.priority, got.delivery_count) == (True, 7, 3)
    assert (got.message_annotations or {})["x-own"] == 5
    assert isinstance((got.message_annotations or {})["x-own"], Int)
    assert (got.message_annotations or {})["x-opt-partition-key"] == "p"
    assert got.delivery_annotations == {"hop": "h", "x-opt-lock-token": uuid.UUID(bytes_le=TOKEN)}
    assert got.footer == {"f": 1}


def test_broker_owned_annotations_of_a_resent_message_are_replaced() -> None:
    sent = message(
        delivery_count=UInt(9),
        message_annotations={
            Symbol("x-opt-sequence-number"): 999,
            Symbol("x-opt-enqueued-time"): Timestamp(1),
            Symbol("x-opt-locked-until"): Timestamp(1),
            Symbol("x-opt-message-state"): Int(1),
        },
        delivery_annotations={Symbol("x-opt-lock-token"): uuid.uuid4()},
    )
    got = through(sent)
    assert (got.message_annotations or {})["x-opt-sequence-number"] == 42
    assert len(got.message_annotations or {}) == 3
    assert got.delivery_annotations == {"x-opt-lock-token": uuid.UUID(bytes_le=TOKEN)}
    assert got.delivery_count == 0


@pytest.mark.parametrize(
    ("value", "due_ms"), [(Timestamp(0), 0), (-(2**62), 0), (TIME_MS_MAX, TIME_MS_MAX), ("soon", None)]
)
def test_a_schedule_is_a_moment(value: Any, due_ms: int | None) -> None:
    sent = AmqpMessage.of_data(b"")
    sent.message_annotations = {Symbol("x-opt-scheduled-enqueue-time"): value}
    assert intake().message(sent.encode(), NOW, UNLIMITED_MS).scheduled_ms == due_ms


@pytest.mark.parametrize("value", [TIME_MS_MAX + 1, ULong(2**64 - 1)])
def test_a_schedule_after_the_year_9999_is_refused(value: Any) -> None:
    sent = AmqpMessage.of_data(b"")
    sent.message_annotations = {Symbol("x-opt-scheduled-enqueue-time"): value}
    with pytest.raises(ArgumentError, match="after the year 9999"):
        intake().message(sent.encode(), NOW, UNLIMITED_MS)


def test_missing_message_id_is_made() -> None:
    sent = message(message_id=None, subject="s")
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)
    assert new.message_id == "made-id"
    got = AmqpMessage.decode(render(new.body, held(), TOKEN))
    assert (got.message_id, got.subject) == ("made-id", "s")
    bare = AmqpMessage()
    bare.data = [b"x"]
    assert through(bare).message_id == "made-id"


@pytest.mark.parametrize("message_id", [uuid.UUID(int=5), b"\x01\x02", "text", "ü" * 60])
def test_message_id_keeps_its_type(message_id: Any) -> None:
    got = through(message(message_id=message_id))
    assert got.message_id == message_id
    assert type(got.message_id) is type(message_id)


def test_identity_is_read() -> None:
    sent = message(
        group_id="s1", content_type=Symbol("application/vnd.ms-servicebus-ping"), subject="s", to="t", reply_to="r"
    )
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)
    assert (new.message_id, new.session_id, new.ping) == ("m1", "s1", True)
    assert intake().message(message(group_id="").encode(), NOW, UNLIMITED_MS).session_id == ""
    assert intake().message(message().encode(), NOW, UNLIMITED_MS).session_id is None


def test_ids_sent_again_as_binary_are_the_same_ids() -> None:
    sent = message(message_id=b"m1", group_id=b"s1", message_annotations={Symbol("x-opt-partition-key"): b"s1"})
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)
    assert (new.message_id, new.session_id, new.partition_key) == ("m1", "s1", "s1")
    assert intake().message(message(message_id=b"\xff\xfe").encode(), NOW, UNLIMITED_MS).message_id == "fffe"


def test_time_to_live_is_capped_by_the_entity_and_gives_the_expiry() -> None:
    sent = message(ttl=UInt(90_000))
    new = intake().message(sent.encode(), NOW, 60_000)
    assert new.ttl_ms == 60_000
    got = AmqpMessage.decode(render(new.body, held(), TOKEN))
    assert got.ttl == 60_000
    assert got.absolute_expiry_time == NOW + 60_000
    unlimited = intake().message(message().encode(), NOW, UNLIMITED_MS)
    assert unlimited.ttl_ms is None


def test_the_times_of_a_message_tell_the_senders_time_to_live_exactly() -> None:
    # The sender's clock is behind: its two times would give another difference to ours.
    sent = message(ttl=UInt(86_400_000), creation_time=NOW - 102_000, absolute_expiry_time=NOW + 86_298_000)
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)
    got = AmqpMessage.decode(render(new.body, held(), TOKEN))
    assert (got.creation_time, got.absolute_expiry_time) == (NOW, NOW + 86_400_000)


def test_relayed_with_less_time_has_both_times_of_its_own() -> None:
    new = intake().message(message(ttl=UInt(90_000)).encode(), NOW, UNLIMITED_MS)
    copy = Relayed(1, 7, 100, NOW + 5_000, NOW + 20_000, 0, 0, None, None, 9, 1, None)
    got = AmqpMessage.decode(render(new.body, copy))
    assert (got.ttl, got.creation_time, got.absolute_expiry_time) == (15_000, NOW + 5_000, NOW + 20_000)


@pytest.mark.parametrize("days", [49.8, 400])
def test_a_time_to_live_too_long_for_the_header_comes_from_the_times(days: float) -> None:
    lives_ms = int(days * 86_400_000)
    sent = message(ttl=UInt(0xFFFFFFFF), creation_time=NOW - 7, absolute_expiry_time=NOW - 7 + lives_ms)
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)
    assert new.ttl_ms == lives_ms
    got = AmqpMessage.decode(render(new.body, held(), TOKEN))
    assert (got.ttl, got.creation_time, got.absolute_expiry_time) == (0xFFFFFFFF, NOW, NOW + lives_ms)
    capped = intake().message(sent.encode(), NOW, 60_000)
    assert capped.ttl_ms == 60_000


def test_a_header_of_all_ones_without_the_times_is_no_time_to_live() -> None:
    assert intake().message(message(ttl=UInt(0xFFFFFFFF)).encode(), NOW, UNLIMITED_MS).ttl_ms is None


def test_a_long_time_to_live_of_the_entity_is_told() -> None:
    lives_ms = 100 * 86_400_000
    new = intake().message(message().encode(), NOW, lives_ms)
    got = AmqpMessage.decode(render(new.body, held(), TOKEN))
    assert (new.ttl_ms, got.ttl, got.absolute_expiry_time) == (lives_ms, 0xFFFFFFFF, NOW + lives_ms)


@pytest.mark.parametrize("given", [None, False, True])
def test_first_acquirer_is_the_senders_until_a_delivery_failed(given: bool | None) -> None:
    assert through(message(first_acquirer=given)).first_acquirer is given
    assert through(message(first_acquirer=given), held(delivery_count=1)).first_acquirer is (given and False)


def test_a_message_that_was_scheduled_says_so_when_it_is_received() -> None:
    sent = message(message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW + 5_000)})
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)

    def state(kept: QueuedMessage, token: bytes | None) -> int | None:
        return (AmqpMessage.decode(render(new.body, kept, token)).message_annotations or {}).get("x-opt-message-state")

    assert state(held(), TOKEN) == 2
    assert state(held(state=GONE), None) == 2
    assert state(held(state=DEFERRED), TOKEN) == 1
    # A peek shows its current state.
    assert state(held(), None) is None


def test_a_message_scheduled_for_a_time_gone_by_was_not_scheduled() -> None:
    sent = message(message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW)})
    assert "x-opt-message-state" not in (through(sent).message_annotations or {})


def test_keys_of_a_footer_come_out_as_symbols() -> None:
    sent = message().encode() + b"\x00\x53\x78" + encode({"text": 1, Symbol("symbol"): "two"})
    new = intake().message(sent, NOW, UNLIMITED_MS)
    assert render(new.body, held(), TOKEN).endswith(encode({Symbol("text"): 1, Symbol("symbol"): "two"}))


def test_schedule_is_read_and_kept() -> None:
    sent = message(message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW + 5_000)})
    new = intake().message(sent.encode(), NOW, UNLIMITED_MS)
    assert new.scheduled_ms == NOW + 5_000
    got = AmqpMessage.decode(render(new.body, held(), TOKEN))
    assert (got.message_annotations or {})["x-opt-scheduled-enqueue-time"] == NOW + 5_000


def test_changes_are_merged_into_application_properties() -> None:
    sent = message(application_properties={"a": Int(1), "b": "two"})
    got = through(sent, held(changes={"a": encode(Int(5)), "DeadLetterReason": "why"}))
    assert got.application_properties == {"a": 5, "b": "two", "DeadLetterReason": "why"}
    assert isinstance((got.application_properties or {})["a"], Int)
    without = through(message(), held(changes={"DeadLetterReason": "why"}))
    assert without.application_properties == {"DeadLetterReason": "why"}
    assert without.data == [b"hello"]


def test_many_application_properties_with_changes() -> None:
    sent = message(application_properties={f"k{number}": "v" * 20 for number in range(200)})
    got = through(sent, held(changes={"k7": "changed"}))
    assert len(got.application_properties or {}) == 200
    assert (got.application_properties or {})["k7"] == "changed"


def test_batch_is_taken_apart() -> None:
    envelope = AmqpMessage()
    envelope.message_id = "envelope"
    envelope.data = [message(message_id=f"m{number}").encode() for number in range(3)]
    found = intake().messages(envelope.encode(), BATCH_FORMAT, NOW, UNLIMITED_MS)
    assert [new.message_id for new in found] == ["m0", "m1", "m2"]


def test_batch_bounds() -> None:
    empty = AmqpMessage()
    empty.message_id = "envelope"
    with pytest.raises(ArgumentError, match="at least one"):
        intake().messages(empty.encode(), BATCH_FORMAT, NOW, UNLIMITED_MS)
    many = AmqpMessage()
    many.data = [message().encode()] * (BATCH_MESSAGES_MAX + 1)
    with pytest.raises(ArgumentError, match=str(BATCH_MESSAGES_MAX)):
        intake().messages(many.encode(), BATCH_FORMAT, NOW, UNLIMITED_MS)


def test_application_property_bounds() -> None:
    with pytest.raises(ArgumentError, match="'big'"):
        intake().message(message(application_properties={"big": "x" * 33_000}).encode(), NOW, UNLIMITED_MS)
    properties = {f"k{number}": "x" * 1_000 for number in range(70)}
    with pytest.raises(ArgumentError, match="all together"):
        intake().message(message(application_properties=properties).encode(), NOW, UNLIMITED_MS)
    fits = {"a": "x" * 30_000, "b": "x" * 30_000}
    assert intake().message(message(application_properties=fits).encode(), NOW, UNLIMITED_MS).message_id == "m1"


@pytest.mark.parametrize("payload", [b"\x00", b"nonsense", b"\x00\x53\x73\x40\x00", b"\x00\x53\x75\xa0\xff"])
def test_nonsense_is_a_decode_error(payload: bytes) -> None:
    with pytest.raises((DecodeError, ArgumentError)):
        intake().message(payload, NOW, UNLIMITED_MS)
