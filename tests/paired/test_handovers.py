"""Every way to hand a message to a sender: what goes out is what the SDK's own sender would send, byte by byte.

The table is generated: kinds of messages x ids x calls. Each row is sent by the SDK and by the pair, to the primary and
to the backlog. The only difference is the id of a message that has none: the pair chooses one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus._common import message as sdk_message
from azure.servicebus._pyamqp import sender as sdk_link
from azure.servicebus._pyamqp.aio import _sender_async as sdk_link_async
from azure.servicebus._transport import _pyamqp_transport as sdk_transport
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.paired.pairs import Pair, call, opened
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.reader import data_sections, items, locate
from twinbus.amqp.sections import NULL
from twinbus.client.envelope import unwrap
from twinbus.paired.sdk_internals import encoded

WHEN = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
# What the SDK does with no id, and with one that is empty, differs from call to call.
IDS: dict[str, Any] = {
    "none": None,
    "text": "caller's",
    "empty": "",
    "bytes": b"\x00caller's\xff",
    "uuid": UUID(int=7),
    "number": 2**30,
    "zero": 0,
}
FIELDS: dict[str, Any] = {
    "session_id": "s",
    "partition_key": "s",
    "time_to_live": timedelta(seconds=90),
    "content_type": "text/plain",
    "correlation_id": "c",
    "subject": "label",
    "to": "there",
    "reply_to": "here",
    "reply_to_session_id": "r",
}


def properties() -> dict[Any, Any]:
    """Of every type that the SDK encodes. It changes the mapping while it sends, so each message has its own."""
    return {
        "text": "é",
        "bytes": b"raw",
        b"key": 1,
        "big": 2**30,
        "real": 0.5,
        "flag": True,
        "uuid": UUID(int=3),
        "when": WHEN,
        "nothing": None,
    }


class OrderMessage(ServiceBusMessage):
    """A subclass as applications write them: other arguments, an attribute, and a slot."""

    __slots__ = ("number",)

    def __init__(self, number: int, body: str, **fields: Any) -> None:
        super().__init__(body, **fields)
        self.number = number
        self.customer = "contoso"

    @property
    def message_id(self) -> str | None:
        return f"order-{self.number}"

    @message_id.setter
    def message_id(self, value: str | None) -> None:
        ServiceBusMessage.message_id.fset(self, value)  # type: ignore[attr-defined]


class Annotated(AmqpAnnotatedMessage):
    """A subclass of the other kind."""


class Wrapper:
    """Not a message of the SDK, but it has what the SDK asks a message for."""

    def __init__(self, message: ServiceBusMessage) -> None:
        self.raw_amqp_message = message.raw_amqp_message
        self.message_id, self.session_id = message.message_id, message.session_id
        self.partition_key = message.partition_key


def identified(message: ServiceBusMessage, given: Any) -> ServiceBusMessage:
    """The SDK replaces an empty id when a message is created."""
    message.message_id = given
    return message


def annotated(given: Any, kind: type[AmqpAnnotatedMessage] = AmqpAnnotatedMessage, **body: Any) -> AmqpAnnotatedMessage:
    return kind(
        header={"time_to_live": 90_000, "durable": True, "priority": 7},
        properties={"message_id": given, "group_id": "s", "user_id": b"me", "content_encoding": "gzip"},
        application_properties=properties(),
        annotations={"x-mine": "a"},
        delivery_annotations={"x-yours": 1},
        footer={"x-sum": 5},
        **body,
    )


def received(message: Any) -> ServiceBusReceivedMessage:
    """The same message as a receiver gets it."""
    raw = getattr(message, "raw_amqp_message", message)
    # The SDK reads a time as a number that it cannot send.
    del raw.application_properties["when"]
    return ServiceBusReceivedMessage.from_bytes(encoded(message)[0])


# Each takes a body and an id.
KINDS: dict[str, Callable[[str, Any], Any]] = {
    "message": lambda body, given: identified(
        ServiceBusMessage(body, application_properties=properties(), **FIELDS), given
    ),
    "subclass": lambda body, given: identified(
        OrderMessage(5, body, application_properties=properties(), **FIELDS), given
    ),
    "received": lambda body, given: received(KINDS["message"](body, given)),
    "received, annotated": lambda body, given: received(KINDS["annotated, value"](body, given)),
    "mapping": lambda body, given: {
        "body": body,
        "message_id": given,
        "application_properties": properties(),
        **FIELDS,
    },
    "annotated": lambda body, given: annotated(given, data_body=[body.encode(), b"more"]),
    "annotated, value": lambda body, given: annotated(given, value_body={"body": body, "n": 5}),
    "annotated, sequence": lambda body, given: annotated(given, sequence_body=[body, 5]),
    "annotated, subclass": lambda body, given: annotated(given, Annotated, data_body=body),
    "bare": lambda body, given: AmqpAnnotatedMessage(
        data_body=body, properties=None if given is None else {"message_id": given}
    ),
    "wrapper": lambda body, given: Wrapper(KINDS["message"](body, given)),
}
# What each hands over: a message and another one.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "send": lambda first, second: first,
    "send a list": lambda first, second: [first, second],
    "send a tuple": lambda first, second: (first, second),
    "send a generator": lambda first, second: (each for each in [first, second]),
    "send a batch": lambda first, second: [first, second],
    "send the SDK's batch": lambda first, second: [first, second],
    "schedule": lambda first, second: first,
    "schedule a list": lambda first, second: [first, second],
}
# The SDK schedules a wrapper in no way, and the paired sender says the same: see test_same_errors.py.
ROWS = [row for row in product(KINDS, IDS, CALLS) if not (row[0] == "wrapper" and row[2].startswith("schedule"))]


class Sent(NamedTuple):
    """A transfer: where to, and its bytes."""

    target: str
    format: int
    payload: bytes


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK writes the time into a message with a time to live."""
    stopped = SimpleNamespace(**{**vars(time), "mktime": lambda moment: 1_700_000_000.0})
    monkeypatch.setattr(sdk_message, "time", stopped)
    monkeypatch.setattr(sdk_transport, "time", stopped)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    """All that the SDK sends from now on, but for tokens."""
    sent: list[Sent] = []
    payload = bytearray()
    encode = sdk_link.encode_payload

    def encode_and_keep(output: bytearray, message: Any) -> bytearray:
        encode(output, message)
        # The session cuts it into frames.
        payload[:] = output
        return output

    def note(link: Any, delivery: Any) -> None:
        target = link.target.address
        target = target.decode() if isinstance(target, bytes) else target
        if "$cbs" not in target:
            target = urlsplit(target).path.removeprefix("/")
            sent.append(Sent(target, delivery.frame["message_format"], bytes(payload)))

    sync_transfer, async_transfer = sdk_link.SenderLink._outgoing_transfer, sdk_link_async.SenderLink._outgoing_transfer

    def transfer(self: Any, delivery: Any) -> Any:
        done = sync_transfer(self, delivery)
        note(self, delivery)
        return done

    async def transfer_async(self: Any, delivery: Any) -> Any:
        done = await async_transfer(self, delivery)
        note(self, delivery)
        return done

    for module in (sdk_link, sdk_link_async):
        monkeypatch.setattr(module, "encode_payload", encode_and_keep)
    monkeypatch.setattr(sdk_link.SenderLink, "_outgoing_transfer", transfer)
    monkeypatch.setattr(sdk_link_async.SenderLink, "_outgoing_transfer", transfer_async)
    return sent


async def hand_over(sender: Any, way: str, first: Any, second: Any) -> None:
    given = CALLS[way](first, second)
    if way.startswith("schedule"):
        await call(sender.schedule_messages, given, WHEN)
        return
    if way.endswith("batch"):
        batch = ServiceBusMessageBatch() if "SDK" in way else await call(sender.create_message_batch)
        for each in given:
            batch.add_message(each)
        given = batch
    await call(sender.send_messages, given)


def content(sent: Sent) -> Any:
    """What a transfer says: all of its bytes. A request has a random id of its own, so that of it is what it asks."""
    if "$management" not in sent.target:
        return sent
    span = locate(sent.payload).body
    return sent.target, sent.payload[span[0] : span[1]] if span is not None else None


def messages_in(sent: Sent) -> list[bytes]:
    """The messages in a transfer."""
    if "$management" in sent.target:
        return [bytes(each["message"]) for each in AmqpMessage.decode(sent.payload).value["messages"]]
    span = locate(sent.payload).body
    return data_sections(sent.payload, span) if sent.format and span is not None else [sent.payload]


def client_of(pair: Pair) -> Any:
    """The SDK's client of the primary."""
    import azure.servicebus as sdk
    import azure.servicebus.aio as sdk_aio

    package: Any = sdk_aio if pair.package.__name__.endswith("aio") else sdk
    return package.ServiceBusClient.from_connection_string(pair.primary.connection_string())


def made(kind: str, name: str, given: Any, chosen: list[Any] | None = None) -> tuple[Any, Any]:
    """Two messages with that id, or with those that the pair chose."""
    if chosen is None:
        return KINDS[kind](name, given), KINDS[kind](f"{name}, 2", given)
    first, second = [*chosen, None][:2]
    if kind.startswith("received"):
        # An id that is received as text is bytes in the SDK.
        return identified(KINDS[kind](name, None), first), identified(KINDS[kind](f"{name}, 2", None), second)
    return KINDS[kind](name, first), KINDS[kind](f"{name}, 2", second)


def has_none(kind: str, id_name: str, way: str) -> bool:
    """Whether the SDK's bytes would have no id, or one that it draws itself."""
    # The SDK takes an empty id for none when it creates a message, and when it schedules one.
    return id_name == "none" or (id_name in ("empty", "zero") and (kind == "mapping" or way.startswith("schedule")))


def chosen_ids(row: tuple[str, str, str], messages: list[bytes]) -> list[Any] | None:
    """The ids that the pair chose for a row without one; None if it had ids, which it must keep."""
    found = [AmqpMessage.decode(each).message_id for each in messages]
    if has_none(*row):
        assert len(set(found)) == len(found), f"{row}: {found}"
        assert all(isinstance(each, str) and len(each) >= 36 for each in found), f"{row}: {found}"
        return found
    return None


async def differences(wire: list[Sent], sdk: Any, row: tuple[str, str, str], name: str, sent: list[Any]) -> list[str]:
    """How the contents of transfers differ from those that the SDK sends for a row."""
    ids = chosen_ids(row, [message for each in sent for message in messages_in(each)])
    wire.clear()
    await hand_over(sdk, row[2], *made(row[0], name, IDS[row[1]], ids))
    wanted = [content(each) for each in wire]
    found = [content(each) for each in sent]
    return [] if found == wanted else [f"{', '.join(row)}: {found} instead of {wanted}"]


@pytest.mark.timeout(300)
async def test_the_primary_gets_the_sdks_bytes(pair: Pair, wire: list[Sent]) -> None:
    wrong = []
    async with (
        pair.sender() as sender,
        opened(client_of(pair)) as client,
        opened(client.get_queue_sender("orders")) as sdk,
    ):
        for number, row in enumerate(ROWS):
            wire.clear()
            await hand_over(sender, row[2], *made(row[0], f"row {number}", IDS[row[1]]))
            sent = [each for each in wire if each.target.startswith("orders")]
            wrong += await differences(wire, sdk, row, f"row {number}", sent)
    assert wrong == []


def sections(payload: bytes) -> list[Any]:
    """The sections in the order of the specification, each item as its bytes, without fields at the end that are null.

    The SDK writes delivery annotations last, and all fields of a list. Neither means anything else.
    """
    found = locate(payload)
    lists = [items(payload, span) for span in (found.header, found.properties)]
    for fields in lists:
        while fields and fields[-1] == NULL:
            fields.pop()
    maps = (found.delivery_annotations, found.message_annotations, found.application_properties, found.footer)
    body = found.body
    return [*lists, *(items(payload, span) for span in maps), None if body is None else payload[body[0] : body[1]]]


@pytest.mark.timeout(300)
async def test_the_syphon_brings_home_the_sdks_bytes(pair: Pair, wire: list[Sent]) -> None:
    counts = [1 if way in ("send", "schedule") else 2 for _, _, way in ROWS]
    async with pair.sender(failover_interval=0, backlog_queue_count=1) as sender:
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("the first one fails over"))
            for number, row in enumerate(ROWS):
                await hand_over(sender, row[2], *made(row[0], f"row {number}", IDS[row[1]]))
            ((_, held),) = (await pair.in_backlog(1 + sum(counts), names=1)).items()
    restored = iter([payload for each in held[1:] for payload in unwrap(each.payload).payloads])
    wrong = []
    async with opened(client_of(pair)) as client, opened(client.get_queue_sender("orders")) as sdk:
        for number, row in enumerate(ROWS):
            found = list(islice(restored, counts[number]))
            wire.clear()
            await hand_over(sdk, row[2], *made(row[0], f"row {number}", IDS[row[1]], chosen_ids(row, found)))
            wanted = [sections(message) for each in wire for message in messages_in(each)]
            got = [sections(message) for message in found]
            if row[1] == "empty":
                # A service takes an empty id for none, and draws one: here that of the backlog queue, as the next test
                # shows. The other fields are compared.
                for message in [*wanted, *got]:
                    message[1][0] = b""
            if got != wanted:
                wrong.append(f"{', '.join(row)}: {got} instead of {wanted}")
    assert wrong == []


async def test_an_empty_id_is_none_for_the_service(pair: Pair) -> None:
    async with opened(client_of(pair)) as client, opened(client.get_queue_sender("orders")) as sdk:
        await call(sdk.send_messages, identified(ServiceBusMessage("x"), ""))
    (message,) = await pair.in_primary(1)
    assert message.message_id


async def test_duplicates_stay_duplicates(pair: Pair) -> None:
    """A router forwards what it received, twice: a queue that detects duplicates stores it once, by whatever way."""
    pair.primary.create_queue("source")
    pair.primary.create_queue("once", requires_duplicate_detection=True)
    async with pair.client(failover_interval=0, backlog_queue_count=1) as client:
        async with opened(client.get_queue_sender("source")) as sender:
            for number in range(3):
                await call(sender.send_messages, ServiceBusMessage("x", message_id=f"m{number}"))
        async with (
            opened(client.get_queue_receiver("source", receive_mode="receiveanddelete")) as receiver,
            opened(client.get_queue_sender("once")) as router,
        ):
            received: list[Any] = []
            while len(received) < 3:
                received += await call(receiver.receive_messages, 3, max_wait_time=5)
            for _ in range(2):
                for message in received:
                    await call(router.send_messages, message)
                await call(router.send_messages, received)
                for number in range(3):
                    await call(router.send_messages, OrderMessage(number, "x", message_id=f"sub{number}"))
            with pair.primary.fault("refusing", "once"):
                for message in received:
                    await call(router.send_messages, message)
            ((_, held),) = (await pair.in_backlog(3, names=1)).items()
    assert [each.message_id for each in held] == [b"m0", b"m1", b"m2"], "as the SDK forwards a text: as bytes"
    found = await pair.in_primary(6, queue="once")
    assert [each.message_id for each in found] == [b"m0", b"m1", b"m2", "sub0", "sub1", "sub2"]
