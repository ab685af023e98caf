"""What the paired client knows of the SDK's inside is still so: the message names what an SDK version has changed."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp import _connection, _transport, client
from azure.servicebus._pyamqp.aio import _client_async, _connection_async, _transport_async
from azure.servicebus._version import VERSION

from tests.paired.pairs import Pair, call
from twinbus.paired import sdk_internals
from twinbus.paired.sdk_internals import Connections

TEXT = "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"


def changed(what: str) -> str:
    return f"azure-servicebus {VERSION} has changed {what}: twinbus/paired/sdk_internals.py has to follow"


@pytest.mark.parametrize("package", [sdk, sdk_aio])
def test_senders_and_receivers(package: Any) -> None:
    made = package.ServiceBusClient.from_connection_string(TEXT)
    for handler in (made.get_queue_sender("q"), made.get_queue_receiver("q")):
        assert handler._running is False, changed("_running")
        assert handler._shutdown.is_set() is False, changed("_shutdown")
        assert handler._handler is None, changed("_handler")
        assert inspect.isfunction(type(handler)._create_handler), changed("_create_handler")
        assert not inspect.iscoroutinefunction(type(handler)._create_handler), changed("_create_handler")
        assert list(inspect.signature(type(handler)._create_handler).parameters) == ["self", "auth"], changed(
            "_create_handler's parameters"
        )
    assert callable(made.get_queue_receiver("q")._check_live), changed("_check_live")
    assert made.get_queue_receiver("q")._receive_mode is not None, changed("_receive_mode")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (client.AMQPClient, {"_connection", "_shutdown", "_session"}),
        (_client_async.AMQPClientAsync, {"_connection", "_shutdown", "_session"}),
        (_connection.Connection, {"_transport"}),
        (_connection_async.Connection, {"_transport"}),
        (_transport._AbstractTransport, {"sock"}),
        (_transport_async.AsyncTransport, {"writer"}),
    ],
)
def test_clients_connections_and_transports(kind: type, names: set[str]) -> None:
    source = "".join(inspect.getsource(each) for each in kind.__mro__ if each is not object)
    for name in names:
        assert f"self.{name}" in source, changed(f"{kind.__name__}.{name}")


def test_batches() -> None:
    batch = ServiceBusMessageBatch(1000)
    batch.add_message(ServiceBusMessage("x", message_id="m"))
    (payload,) = sdk_internals.encoded(batch)
    assert payload == sdk_internals.encoded(ServiceBusMessage("x", message_id="m"))[0], changed("a batch's data")
    assert [each.message_id for each in sdk_internals.messages_of(batch)] == ["m"], changed("a batch's messages")
    other = sdk_internals.batch_like(batch, 2000)
    sdk_internals.extend(other, [payload, payload], 500)
    assert (len(other), other.size_in_bytes, other.max_size_in_bytes) == (2, 500, 2000), changed("a batch's size")
    assert sdk_internals.encoded(other) == [payload, payload]


async def test_a_connection_that_is_cut_fails_who_waits_for_it(pair: Pair) -> None:
    """Both colours of the SDK: an opening that hangs ends when its socket is cut."""
    package = sdk if pair.package.__name__.endswith("paired") else sdk_aio
    made = package.ServiceBusClient.from_connection_string(pair.primary.connection_string(), retry_total=0)
    sender: Any = made.get_queue_sender("orders")
    connections = Connections(sender)
    before = threading.active_count()
    with pair.primary.fault("silent"):
        opening = asyncio.create_task(call(sender.__aenter__ if package is sdk_aio else sender.__enter__))
        await asyncio.sleep(0.3)
        assert not opening.done(), "the opening hangs"
        connections.cut()
        with pytest.raises(Exception):  # noqa: B017 - which error is the SDK's affair
            await asyncio.wait_for(opening, 5)
    await call(made.close)
    assert threading.active_count() <= before + 1
