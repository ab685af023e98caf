"""Reserved names, and ids for messages without one."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from twinbus.paired.envelope import RESERVED, encoded
from twinbus.paired.messages import PairedMessageBatch, next_message_id, prepared


def anonymous(body: str, **options: Any) -> ServiceBusMessage:
    """The SDK gives its messages an id, which can be removed."""
    message = ServiceBusMessage(body, **options)
    message.message_id = None
    return message


@pytest.mark.parametrize("name", sorted(RESERVED, key=str), ids=str)
def test_a_taken_name_is_refused_wherever_it_comes(name: Any) -> None:
    text = name if isinstance(name, str) else name.decode()
    own = {name: "mine"}
    foreign = ServiceBusMessageBatch()
    foreign.add_message(ServiceBusMessage("x", application_properties=own))
    annotated = AmqpAnnotatedMessage(data_body=b"x", application_properties=own)
    message = ServiceBusMessage("x", application_properties=own)
    for each in (message, annotated, [message], [annotated], foreign, {"body": "x", "application_properties": own}):
        with pytest.raises(ValueError, match=f"'{text}' is a name that a message needs"):
            prepared(each)
    with pytest.raises(ValueError, match=text):
        PairedMessageBatch(ServiceBusMessageBatch()).add_message(message)


def test_who_has_an_id_is_left_alone() -> None:
    for message in (
        ServiceBusMessage("x", message_id="mine"),
        AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id="mine")),
    ):
        assert prepared(message) is message


def test_who_has_none_gets_one_on_a_copy() -> None:
    message = anonymous("x", subject="s", application_properties={"a": 1})
    first, second = prepared(message), prepared(message)
    assert message.message_id is None
    assert len({first.message_id, second.message_id, next_message_id()}) == 3
    assert (str(first), first.subject, first.application_properties) == ("x", "s", {"a": 1})
    annotated = AmqpAnnotatedMessage(data_body=b"x")
    copied = prepared(annotated)
    assert annotated.properties is None
    assert len(copied.properties.message_id) == 44


def test_everything_that_the_sdk_takes_is_taken() -> None:
    assert str(prepared({"body": "x"})) == "x"
    made = prepared(anonymous(str(n)) for n in range(2))
    assert len({each.message_id for each in made}) == 2
    # The SDK itself refuses what it does not accept.
    assert prepared({"no": "message"}) == {"no": "message"}
    assert prepared(7) == 7


def test_a_batch_has_ids_from_the_start() -> None:
    batch = PairedMessageBatch(ServiceBusMessageBatch(1000))
    batch.add_message(anonymous("x"))
    batch.add_message({"body": "y", "message_id": "mine"})
    assert [len(each.message_id or "") for each in batch._messages] == [44, 4]
    assert (len(batch), batch.max_size_in_bytes) == (2, 1000)
    assert prepared(batch) is batch


def test_a_batch_of_the_sdk_gets_ids_as_well() -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(anonymous("x"))
    ready = prepared(batch)
    assert ready is not batch
    assert ready._messages[0].message_id.encode() in encoded(ready)[0]
    identified = ServiceBusMessageBatch()
    identified.add_message(ServiceBusMessage("x", message_id="m"))
    assert prepared(identified) is identified


def test_ids_that_do_not_fit_into_a_batch_are_left_out() -> None:
    batch = ServiceBusMessageBatch(1000)
    batch.add_message(anonymous("x" * 940))
    assert prepared(batch) is batch, "it is sent as it is"
    roomy = ServiceBusMessageBatch(1000)
    roomy.add_message(anonymous("x" * 800))
    ready = prepared(roomy)
    assert ready is not roomy
    assert ready.size_in_bytes > roomy.size_in_bytes
    assert ready.size_in_bytes <= 1000
    many = ServiceBusMessageBatch(1000)
    for _ in range(5):
        many.add_message(anonymous("x" * 100))
    assert len(prepared(many)) == 5
    assert prepared(many).max_size_in_bytes == 1000 + 5 * 64, "an id of 44 characters, and what belongs to it"
