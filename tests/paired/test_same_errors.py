"""Every public method with every bad argument, healthy and failed over: the SDK's error, or a difference that
docs/paired.md explains.

The table is generated from the signatures of the SDK's client, sender and receiver: each parameter takes each value of
a wrong kind while the others are right. A call that is accepted must return the same kind of result.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.paired.pairs import Pair, call, opened

PAGE = Path(__file__).parents[2] / "docs" / "paired.md"
SOON = datetime(2020, 1, 2, tzinfo=UTC)


class Thing:
    """Of no use to any method."""

    def __repr__(self) -> str:
        return "a thing"


def message(**fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage("x", message_id="m", **fields)


def with_id(given: Any) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": given})


def batch() -> ServiceBusMessageBatch:
    made = ServiceBusMessageBatch()
    made.add_message(message())
    return made


# Values for every parameter.
ANY: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "5": lambda: 5,
    "-1": lambda: -1,
    "huge": lambda: 2**70,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "text": lambda: "text",
    "empty text": lambda: "",
    "long text": lambda: "x" * 300,
    "bytes": lambda: b"bytes",
    "list": list,
    "list of None": lambda: [None],
    "list of text": lambda: ["text"],
    "tuple": lambda: (),
    "mapping": dict,
    "generator": lambda: iter(()),
    "thing": Thing,
    "class": lambda: ServiceBusMessage,
    "date": lambda: date(2020, 1, 2),
    "message": message,
}
MESSAGES: dict[str, Callable[[], Any]] = {
    "unknown field": lambda: {"no": 1},
    "body of a wrong type": lambda: {"body": 5},
    "long id": lambda: {"body": "x", "message_id": "x" * 129},
    "long session": lambda: {"body": "x", "session_id": "x" * 129},
    "other partition key": lambda: {"body": "x", "session_id": "a", "partition_key": "b"},
    "list of a list": lambda: [[message()]],
    "list with None": lambda: [message(), None],
    "list of a batch": lambda: [batch()],
    "list of a bad mapping": lambda: [{"body": 5}],
    "mapping of messages": lambda: {"a": message()},
    "empty batch": ServiceBusMessageBatch,
    "unencodable property": lambda: message(application_properties={"p": Thing()}),
    "huge property": lambda: message(application_properties={"p": 2**70}),
    "nested property": lambda: message(application_properties={"p": {"q": Thing()}}),
    "unencodable property in a list": lambda: [message(application_properties={"p": Thing()})],
    "properties of a wrong type": lambda: message(application_properties=5),  # type: ignore[arg-type]
    "properties as a list": lambda: message(application_properties=[["p"]]),  # type: ignore[arg-type]
    "unencodable id": lambda: with_id(Thing()),
    "negative id": lambda: with_id(-1),
    "huge id": lambda: with_id(2**70),
    "list of an unencodable id": lambda: [with_id(Thing())],
    "body that cannot be encoded": lambda: AmqpAnnotatedMessage(value_body=Thing()),
    "too large": lambda: ServiceBusMessage("x" * 2_000_000, message_id="m"),
    "list that is too large": lambda: [message(), ServiceBusMessage("x" * 2_000_000, message_id="m")],
    "reserved property": lambda: message(application_properties={"x-ms-path": "x"}),
}
# Listing opens a connection for each call, so it gets a few of them.
LISTING = ("None", "0", "-1", "text", "empty text", "list", "thing")
# By parameter: a right value, and more wrong ones.
PARAMETERS: dict[str, tuple[Callable[[], Any], dict[str, Callable[[], Any]]]] = {
    "message": (message, MESSAGES),
    "messages": (message, MESSAGES),
    "schedule_time_utc": (
        lambda: SOON,
        {"naive": lambda: datetime(2020, 1, 2), "last": lambda: datetime.max.replace(tzinfo=UTC)},  # noqa: DTZ001
    ),
    "sequence_numbers": (
        lambda: [12345],
        {
            "unknown": lambda: 12345,
            "list of -1": lambda: [-1],
            "list of huge": lambda: [2**70],
            "list of 1.5": lambda: [1.5],
            "with text": lambda: [12345, "text"],
        },
    ),
    "timeout": (lambda: None, {"inf": lambda: float("inf"), "-inf": lambda: float("-inf"), "1e300": lambda: 1e300}),
    "max_size_in_bytes": (lambda: None, {"more than the link takes": lambda: 2**40}),
    "queue_name": (lambda: "orders", {}),
    "topic_name": (lambda: "news", {}),
    "subscription_name": (lambda: "all", {}),
    "client_identifier": (lambda: None, {}),
    "socket_timeout": (lambda: None, {}),
    "session_id": (lambda: None, {}),
    "sub_queue": (lambda: None, {}),
    "receive_mode": (lambda: "peeklock", {}),
    "max_wait_time": (lambda: 5, {}),
    "auto_lock_renewer": (lambda: None, {"a renewer of the other kind": AutoLockRenewer}),
    "prefetch_count": (lambda: 0, {}),
    "state_updated_after": (lambda: None, {}),
    "max_message_count": (lambda: 1, {}),
    "sequence_number": (lambda: 0, {}),
    "reason": (lambda: None, {}),
    "error_description": (lambda: None, {}),
}


class Row(NamedTuple):
    """A call: of which class, which method, and which parameter has which wrong value."""

    kind: str
    method: str
    parameter: str
    value: str

    def arguments(self, received: Any) -> dict[str, Any]:
        """All arguments by name; fresh ones, because the SDK changes messages."""
        found = {}
        for name in parameters(self.kind, self.method):
            right, wrong = PARAMETERS[name]
            if name == self.parameter:
                found[name] = {**ANY, **wrong}[self.value]()
            else:
                found[name] = received if self.kind == "receiver" and name == "message" else right()
        return found


CLASSES = {"client": sdk.ServiceBusClient, "sender": sdk.ServiceBusSender, "receiver": sdk.ServiceBusReceiver}
# Properties without arguments, and what has a test of its own.
APART = {"close", "client_identifier", "session", "from_connection_string"}


def methods(kind: str) -> list[str]:
    return [name for name in dir(CLASSES[kind]) if not name.startswith("_") and name not in APART]


def parameters(kind: str, method: str) -> list[str]:
    found = inspect.signature(getattr(CLASSES[kind], method)).parameters.values()
    return [each.name for each in found if each.name != "self" and each.kind is not each.VAR_KEYWORD]


def rows(kind: str) -> Iterator[Row]:
    for method in methods(kind):
        for parameter in parameters(kind, method):
            for value in {**ANY, **PARAMETERS[parameter][1]}:
                if kind == "receiver" and parameter == "message" and value in MESSAGES:
                    continue
                if value == "nan" and parameter == "max_wait_time":
                    # The SDK waits for ever.
                    continue
                if method.startswith("list_") and value not in LISTING:
                    continue
                yield Row(kind, method, parameter, value)
        yield Row(kind, method, "", "")


def told(text: str) -> str:
    """The text of an error without what differs from call to call, and with the SDK's names."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|\bG\d+\b", "WHEN", text)
    text = text.replace("contoso/x-servicebus-transfer/0", "orders")
    return text.replace("PairedServiceBus", "ServiceBus")


async def outcome(target: Any, row: Row, received: Any = None) -> str:
    """What a call returns or raises."""
    try:
        result = await asyncio.wait_for(call(getattr(target, row.method), **row.arguments(received)), 30)
        if row.method.startswith("list_"):
            result = [each async for each in result] if hasattr(result, "__aiter__") else await call(list, result)
    except Exception as error:
        return f"{type(error).__name__}: {told(str(error))}"
    if result is None:
        return "returned None"
    if isinstance(result, list):
        return f"returned a list of {len(result)}"
    kinds = [kind for kind in type(result).__mro__ if kind.__module__.startswith("azure")]
    name = getattr(result, "entity_name", None)
    return told(f"returned a {(kinds or [type(result)])[0].__name__}{'' if name is None else f' of {name}'}")


@asynccontextmanager
async def targets(client: Any) -> AsyncIterator[dict[str, Any]]:
    async with (
        opened(client.get_queue_sender("orders")) as sender,
        opened(client.get_queue_receiver("stock", max_wait_time=5)) as receiver,
    ):
        yield {"client": client, "sender": sender, "receiver": receiver}


async def outcomes(client: Any, table: list[Row]) -> dict[Row, str]:
    found = {}
    async with targets(client) as handlers:
        for row in table:
            received = None
            if row.kind == "receiver" and "message" in parameters(row.kind, row.method):
                (received,) = await call(handlers["receiver"].receive_messages, 1, max_wait_time=30)
            found[row] = await outcome(handlers[row.kind], row, received)
    return found


# What differs, and the words of docs/paired.md that say why.
EXPLAINED = {
    r"messages?=reserved property\): ValueError: The application property 'x-ms-path'": "reserved property name",
    r"send_messages\(message=generator\): returned None INSTEAD OF ServiceBusError: A batch must": "empty generator",
    r"timeout=nan\): ValueError: The timeout must be greater than 0": "A timeout that is not a number",
    r"cancel_scheduled_messages\(.*-1\): MessageInBacklogError": "negative number",
    r"failed over: .*too large\): MessageSizeExceededError.*INSTEAD OF MessageSizeExceededError": "too large",
    r"failed over: schedule_messages\(schedule_time_utc=.*\): ServiceBusError: Scheduling messages failed. .*it must "
    r"be a datetime. INSTEAD OF ServiceBusError: Scheduling messages failed": "schedule time",
    r"failed over: schedule_messages\(schedule_time_utc=last\): returned": "only the service can find",
}


def explained(line: str) -> bool:
    page = " ".join(PAGE.read_text().split())
    return any(re.search(pattern, line) and words in page for pattern, words in EXPLAINED.items())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", list(CLASSES))
async def test_errors_are_the_sdks(pair: Pair, kind: str) -> None:
    package: Any = sdk_aio if pair.package.__name__.endswith("aio") else sdk
    table = list(rows(kind))
    pair.primary.create_queue("stock")
    async with opened(
        package.ServiceBusClient.from_connection_string(pair.primary.connection_string(), retry_total=0)
    ) as client:
        async with opened(client.get_queue_sender("stock")) as sender:
            await call(sender.send_messages, [ServiceBusMessage("x") for _ in range(1500)])
        wanted = await outcomes(client, table)
    async with pair.client(backlog_queue_count=1, failover_interval=0) as client:
        healthy = await outcomes(client, table)
        with pair.primary.fault("refusing", "orders"):
            async with opened(client.get_queue_sender("orders")) as sender:
                await call(sender.send_messages, message())
            # Listing has no state.
            over = await outcomes(client, [row for row in table if not row.method.startswith("list_")])
    wrong = []
    for row in table:
        for state, found in (("healthy", healthy), ("failed over", over)):
            outcome_here = found.get(row, wanted[row])
            line = f"{state}: {row.method}({row.parameter}={row.value}): {outcome_here} INSTEAD OF {wanted[row]}"
            if outcome_here != wanted[row] and not explained(line):
                wrong.append(line)
    assert not wrong, "\n".join(["", *wrong])


async def test_they_fit_where_the_sdks_are_asked_for(pair: Pair) -> None:
    package: Any = sdk_aio if pair.package.__name__.endswith("aio") else sdk
    async with pair.client() as client:
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        assert isinstance(client, package.ServiceBusClient)
        assert isinstance(sender, package.ServiceBusSender)
        assert isinstance(receiver, package.ServiceBusReceiver)
        host = client.fully_qualified_namespace
        assert (sender.fully_qualified_namespace, sender.entity_name) == (host, "orders")
        assert repr(sender) == "PairedServiceBusSender(entity_name='orders', state='healthy')"
        secret = pair.primary.connection_string().partition("SharedAccessKey=")[2].partition(";")[0]
        for text in (repr(client), str(client), repr(sender), str(sender)):
            assert secret not in text
        hosts = [
            urlsplit(broker.connection_string().partition("=")[2].partition(";")[0]).netloc
            for broker in (pair.primary, pair.secondary)
        ]
        assert repr(client) == f"PairedServiceBusClient(primary={hosts[0]!r}, secondary={hosts[1]!r})"
    # Nothing of the base may be used: its parts do not exist.
    for name in ("ServiceBusClient", "ServiceBusSender"):
        public = {each for each in dir(getattr(package, name)) if not each.startswith("_")}
        own = set(vars(getattr(pair.package, f"Paired{name}")))
        assert public - own == set()
        assert {"__aenter__", "__aexit__"} <= own or {"__enter__", "__exit__"} <= own


async def test_one_connection_string_is_not_enough(pair: Pair) -> None:
    with pytest.raises(TypeError, match=r"from_connection_strings\(primary, secondary\)"):
        pair.package.PairedServiceBusClient.from_connection_string(pair.primary.connection_string(), retry_total=1)
