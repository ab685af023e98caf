"""What the paired client assumes about the SDK's internals still holds: failures name what a version has changed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
import certifi
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp import _connection, _transport, client
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.aio import _client_async, _connection_async, _transport_async
from azure.servicebus._pyamqp.error import (
    AMQPConnectionError,
    AMQPException,
    AMQPLinkError,
    AuthenticationException,
    ErrorCondition,
    MessageException,
    TokenAuthFailure,
)
from azure.servicebus._version import VERSION
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.paired.pairs import Pair, call
from twinbus.client import ReceivedMessage
from twinbus.client.delivered import delivered_part
from twinbus.paired import sdk_internals
from twinbus.paired.sdk_internals import Connections, is_running

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


def test_messages() -> None:
    reserved = frozenset({"x-ms-path"})
    message = ServiceBusMessage(b"x", message_id="m", application_properties={"mine": 1})
    assert sdk_internals.is_ready(message, reserved), changed("a message's attributes")
    message.application_properties = {"x-ms-path": 1}
    assert not sdk_internals.is_ready(message, reserved), changed("a message's application properties")
    message.application_properties, message.message_id = None, None
    assert not sdk_internals.is_ready(message, reserved), changed("a message's id")
    raw = AmqpAnnotatedMessage(data_body=[b"one", b"two"])
    copied = sdk_internals.with_content(message, raw)
    assert (copied.raw_amqp_message, message.raw_amqp_message) != (message.raw_amqp_message, raw)
    assert b"".join(copied.body) == b"onetwo", changed("_raw_amqp_message")
    assert sdk_internals.data_body(raw) == [b"one", b"two"], changed("_data_body")
    assert sdk_internals.data_body(AmqpAnnotatedMessage(value_body=7)) is None, changed("_data_body")


def test_errors() -> None:
    error = ServiceBusError("no", condition=b"amqp:not-found")
    assert sdk_internals.condition_of(error) == "amqp:not-found", changed("_condition")
    refused = ServiceBusError("no", error=TokenAuthFailure(404, b"gone"))
    assert sdk_internals.refused_token(refused) == (404, "gone"), changed("TokenAuthFailure")
    failed = ServiceBusError("no", error=AuthenticationException(b"amqp:client-error", error=OSError("no name")))
    assert sdk_internals.failed_to_connect(failed), changed("AuthenticationException")
    assert not sdk_internals.failed_to_connect(refused)


async def test_the_bytes_of_messages_that_come(pair: Pair) -> None:
    async with sdk_aio.ServiceBusClient.from_connection_string(pair.primary.connection_string()) as made:
        sent = ServiceBusMessage(b"x" * 200_000, message_id="m", application_properties={"number": 2**30})
        async with made.get_queue_sender("orders") as sender, made.get_queue_receiver("orders") as receiver:
            await sender.send_messages([sent, ServiceBusMessage("second", message_id="n")])
            payloads = sdk_internals.Payloads(receiver)
            await payloads.watch()
            await payloads.watch()
            received: list[Any] = []
            while len(received) < 2:
                received += await receiver.receive_messages(2, max_wait_time=5)
            found = [ReceivedMessage(payloads.take(each), None, b"") for each in received]
            assert [each.message_id for each in found] == ["m", "n"], changed("how transfers come")
            assert found[0].body == b"x" * 200_000, changed("how transfers come")
            assert payloads.take(received[0]) == b"", "each is taken once"


def _messages() -> list[ServiceBusMessage]:
    """New ones each time: a send changes them."""
    later = datetime(2030, 1, 1, tzinfo=UTC)
    return [
        ServiceBusMessage(b"x", message_id="bytes"),
        ServiceBusMessage("é" * 300, message_id="text", subject="s", content_type="text/plain", to="t"),
        ServiceBusMessage(None, message_id="nothing"),
        ServiceBusMessage(b"x" * 200_000, message_id="large"),
        ServiceBusMessage(b"x", message_id="o" * 128, correlation_id="c", reply_to="r", reply_to_session_id="s"),
        ServiceBusMessage(b"x", message_id="p", session_id="p", partition_key="p"),
        ServiceBusMessage(b"x", message_id="l", time_to_live=timedelta(days=1), scheduled_enqueue_time_utc=later),
        ServiceBusMessage(b"x", message_id="a", application_properties={"n": 2**30, "é": [1.5, None, b"b", True]}),
        ServiceBusMessage(b"x", message_id="empty", application_properties={}),
    ]


class _Sends:
    """An open SDK sender, with what its link is given to send."""

    def __init__(self, package: Any, sender: Any) -> None:
        self.sender = sender
        self.sent: list[tuple[bytes, float]] = []
        # Raised by the link.
        self.error: BaseException | None = None
        self.one = sdk_internals.send_one if package is sdk else sdk_internals.async_send_one
        name = "send_message" if package is sdk else "send_message_async"
        inner = getattr(sender._handler, name)

        def note(message: Any, timeout: float) -> None:
            output = bytearray()
            encode_payload(output, message)
            self.sent.append((bytes(output), timeout))
            if self.error is not None:
                raise self.error

        def send(message: Any, *, timeout: float) -> None:
            note(message, timeout)
            inner(message, timeout=timeout)

        async def send_async(message: Any, *, timeout: float) -> None:
            note(message, timeout)
            await inner(message, timeout=timeout)

        setattr(sender._handler, name, send if package is sdk else send_async)

    async def outcome(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, ...]:
        """What comes of a send: the error, its message and cause, and what is left of the link."""
        try:
            await call(method, *arguments, **options)
        except Exception as error:
            cause = getattr(error, "inner_exception", None)
            return type(error), str(error), type(cause), is_running(self.sender), sdk_internals.is_shut(self.sender)
        return (None,)


@asynccontextmanager
async def _sends(pair: Pair, **options: Any) -> AsyncIterator[_Sends]:
    package = sdk if pair.package.__name__.endswith("paired") else sdk_aio
    text = pair.primary.connection_string()
    made = package.ServiceBusClient.from_connection_string(text, retry_total=0, **options)
    sender: Any = made.get_queue_sender("orders")
    await call(sender.__aenter__ if package is sdk_aio else sender.__enter__)
    try:
        yield _Sends(package, sender)
    finally:
        await call(made.close)


async def test_one_message_goes_out_as_by_the_sdk(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    # With each send the SDK writes the present second into a message with a time to live.
    monkeypatch.setattr(time, "mktime", lambda moment: 1_800_000_000.0)
    async with _sends(pair) as sends:
        for ours, theirs in zip(_messages(), _messages(), strict=True):
            for _ in range(2):
                await call(sends.sender.send_messages, theirs, timeout=30)
                await call(sends.one, sends.sender, ours, 30)
                (expected, their_s), (found, our_s) = sends.sent[-2:]
                assert found == expected, changed(f"how it encodes '{ours.message_id}'")
                assert our_s == 30 >= their_s > 0, changed("what a link is told about the timeout")


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("late"),
        OSError("broken"),
        ValueError("odd"),
        AttributeError("odd"),
        MessageException(ErrorCondition.LinkMessageSizeExceeded, description="too large"),
        MessageException(b"com.microsoft:server-busy", description="busy"),
        AMQPConnectionError(ErrorCondition.SocketError, description="gone"),
        AMQPLinkError(ErrorCondition.NotFound, description="gone"),
        AMQPLinkError(ErrorCondition.LinkDetachForced, description="idle"),
        AMQPException(ErrorCondition.UnauthorizedAccess, description="no"),
    ],
    ids=lambda error: f"{type(error).__name__}-{getattr(error, 'condition', '')}",
)
async def test_one_message_fails_as_by_the_sdk(pair: Pair, error: Exception) -> None:
    async def failed(way: str) -> tuple[Any, ...]:
        async with _sends(pair) as sends:
            sends.error = error
            (message, *_) = _messages()
            if way == "sdk":
                return await sends.outcome(sends.sender.send_messages, message, timeout=30)
            return await sends.outcome(sends.one, sends.sender, message, 30)

    assert await failed("ours") == await failed("sdk"), changed("how a send fails")


async def test_a_message_that_cannot_be_sent_is_refused_as_by_the_sdk(pair: Pair) -> None:
    async with _sends(pair) as sends:
        found = []
        for method in (partial(sends.one, sends.sender, timeout_s=30), partial(sends.sender.send_messages, timeout=30)):
            message = ServiceBusMessage(b"x", message_id="m")
            message._raw_amqp_message = None  # type: ignore[assignment]
            found.append(await sends.outcome(method, message))
        assert found[0] == found[1], changed("which messages it takes")
        assert found[0][0] is TypeError
        assert sends.sent == []


@pytest.mark.parametrize("why", ["link", "closed", "try_timeout", "tracing", "replaced"])
async def test_a_send_that_does_more_is_left_to_the_sdk(pair: Pair, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"try_timeout": 20} if why == "try_timeout" else {}
    async with _sends(pair, **options) as sends:
        sender, left = sends.sender, []
        inner = sender.send_messages

        def send(message: Any, *, timeout: float) -> Any:
            left.append(timeout)
            return inner(message, timeout=timeout)

        sender.send_messages = send
        (message, *_) = _messages()
        if why == "tracing":
            monkeypatch.setattr(sdk_internals, "is_tracing_enabled", lambda: True)
        elif why == "replaced":
            monkeypatch.setattr(
                type(sender), "send_messages", lambda *arguments, **options: inner(*arguments, **options)
            )
        elif why == "link":
            await call(sender._close_handler)
        elif why == "closed":
            await call(sender.close)
        outcome = await sends.outcome(sends.one, sender, message, 30)
        assert left == [30]
        assert outcome[0] is (ValueError if why == "closed" else None)


def test_the_sdks_own_sends_are_known() -> None:
    kinds = {sdk.ServiceBusSender, sdk_aio.ServiceBusSender}
    assert set(sdk_internals._SDK_SENDS) == kinds, changed("where senders are defined")


def test_nothing_else_uses_what_the_sdk_does_not_document() -> None:
    folder = Path(sdk_internals.__file__).parent
    trees = {path: ast.parse(path.read_text()) for path in folder.rglob("*.py")}
    nodes = {path: list(ast.walk(tree)) for path, tree in trees.items()}
    ours = {"_replace"}
    for each in nodes.values():
        for node in each:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                ours.add(node.name)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                ours.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                ours.add(node.target.id)
    strange = []
    for path, each in nodes.items():
        for node in each if path.name != "sdk_internals.py" else ():
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
                name = str(getattr(node.args[1], "value", ""))
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if (name.startswith("_") and not name.startswith("__") and name not in ours) or (
                module.startswith("azure") and "._" in module
            ):
                strange.append(f"{path.relative_to(folder)}:{node.lineno}: {name or module}")  # type: ignore[attr-defined]
    assert strange == [], "move it to sdk_internals.py"


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
    """Sync and async: a hanging open ends when its socket is cut."""
    package = sdk if pair.package.__name__.endswith("paired") else sdk_aio
    made = package.ServiceBusClient.from_connection_string(pair.primary.connection_string(), retry_total=0)
    sender: Any = made.get_queue_sender("orders")
    connections = Connections(sender)
    with pair.primary.fault("silent"):
        opening = asyncio.create_task(call(sender.__aenter__ if package is sdk_aio else sender.__enter__))
        await asyncio.sleep(0.3)
        assert not opening.done(), "the opening hangs"
        connections.cut()
        with pytest.raises(Exception):  # noqa: B017 - which error is the SDK's affair
            await asyncio.wait_for(opening, 5)
    await call(made.close)


def test_what_is_cut() -> None:
    """Every kind of transport that the SDK has: two of asyncio, a socket, and a socket inside another object."""
    aborted: list[int] = []
    writer = SimpleNamespace(transport=SimpleNamespace(abort=lambda: aborted.append(1)))
    sdk_internals._cut(SimpleNamespace(writer=writer, sock=None))
    assert aborted == [1]
    for kind in ("socket", "wrapped", "aiohttp"):
        near, far = socket.socketpair()
        sock: Any = near
        if kind == "wrapped":
            sock = SimpleNamespace(sock=near)
        elif kind == "aiohttp":
            sock = SimpleNamespace(get_extra_info=lambda name, near=near: {"socket": near}[name])
        sdk_internals._cut(SimpleNamespace(writer=None, sock=sock))
        assert far.recv(1) == b"", kind
        near.close()
        far.close()
    other: list[int] = []
    sdk_internals._cut(SimpleNamespace(sock=SimpleNamespace(shutdown=other.append)))
    assert other == [socket.SHUT_RDWR]
    sdk_internals._cut(SimpleNamespace(sock=None))


class _Handler:
    """An SDK sender as far as its connections go."""

    def __init__(self) -> None:
        self._handler: Any = None
        self.aborted: list[int] = []

    def _create_handler(self, auth: Any) -> None:
        number = len(self.aborted)
        writer = SimpleNamespace(transport=SimpleNamespace(abort=lambda: self.aborted.append(number)))
        transport = SimpleNamespace(writer=writer)
        self._handler = _Client(transport)


class _Client:
    def __init__(self, transport: Any) -> None:
        self._connection: Any = SimpleNamespace(_transport=transport)
        self._shutdown = False
        self._ssl_opts: dict[str, Any] = {}
        self._use_tls = True


def test_every_connection_is_cut_once() -> None:
    handler: Any = _Handler()
    connections = Connections(handler)
    handler._create_handler(None)
    first = handler._handler
    handler._create_handler(None)
    second = handler._handler
    handler._create_handler(None)
    second._connection = None
    connections.cut()
    assert len(handler.aborted) == 2, "one had been closed"
    assert first._shutdown
    assert connections.transports == [first._connection._transport, handler._handler._connection._transport]
    connections.cut()
    assert len(handler.aborted) == 2
    first._connection = None
    handler._create_handler(None)
    assert connections._clients == [handler._handler], "forgotten ones are dropped"


def test_a_transport_is_closed_even_if_its_client_fails() -> None:
    closed: list[int] = []

    class Client:
        def __init__(self) -> None:
            self._connection: Any = SimpleNamespace(_transport=SimpleNamespace(close=lambda: closed.append(1)))

        def close(self) -> None:
            self._connection = None
            raise OSError("broken")

    client: Any = Client()
    sdk_internals._close_for_certain(client)
    with pytest.raises(OSError, match="broken"):
        client.close()
    assert closed == [1]
    with pytest.raises(OSError, match="broken"):
        client.close()
    assert closed == [1]


async def test_the_bytes_of_a_message_in_pieces() -> None:
    seen: list[Any] = []

    class Link:
        async def _incoming_transfer(self, frame: Any) -> None:
            seen.append(frame)

    async def opened() -> None:
        pass

    link: Any = Link()
    payloads = sdk_internals.Payloads(SimpleNamespace(_open=opened, _handler=SimpleNamespace(_link=link)))
    await payloads.watch()
    watched = link._incoming_transfer
    await payloads.watch()
    assert link._incoming_transfer is watched, "once"

    def frame(number: int | None, tag: bytes, more: bool, payload: bytes) -> list[Any]:
        return [0, number, tag, 0, None, more, *[None] * 5, payload]

    for each in (frame(1, b"a", True, b"on"), frame(None, b"", False, b"e"), frame(2, b"b", False, b"two")):
        await watched(each)
    # Only the last piece has something for the SDK: what it needs to settle the message.
    one, two = delivered_part(b"one"), delivered_part(b"two")
    assert seen == [frame(1, b"a", True, b""), frame(None, b"", False, one), frame(2, b"b", False, two)]
    assert payloads.take(SimpleNamespace(_delivery_tag=b"b")) == b"two"
    assert payloads.take(SimpleNamespace(_delivery_tag=b"a")) == b"one"
    assert payloads.take(SimpleNamespace(_delivery_tag=b"a")) == b""
    none = sdk_internals.Payloads(SimpleNamespace(_open=opened, _handler=None))
    await none.watch()


def test_certificate_authorities_are_loaded_once_for_each_state_of_their_file(tmp_path: Path) -> None:
    def shared(use_tls: bool = True, **options: Any) -> Any:
        client: Any = SimpleNamespace(_ssl_opts=options, _use_tls=use_tls)
        sdk_internals._share_authorities(client)
        return client._ssl_opts

    file = tmp_path / "ca.pem"
    missing = str(tmp_path / "none.pem")
    file.write_bytes(Path(certifi.where()).read_bytes())
    first = shared(ca_certs=str(file))["context"]
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert first.check_hostname
    assert shared(ca_certs=str(file))["context"] is first
    assert shared(ca_certs=missing) == {"ca_certs": missing}, "the SDK reports it"
    own = ssl.create_default_context()
    assert shared(context=own) == {"context": own}, "the application's own"
    assert shared(use_tls=False, ca_certs=str(file)) == {"ca_certs": str(file)}, "the sync client does not load it"
    file.write_bytes(file.read_bytes() + b"\n")
    assert shared(ca_certs=str(file))["context"] is not first, "the file was replaced"
    file.write_text("no certificate")
    assert shared(ca_certs=str(file)) == {"ca_certs": str(file)}
    for number in range(2 * sdk_internals.CONTEXTS_MAX):
        path = tmp_path / f"{number}.pem"
        path.write_bytes(Path(certifi.where()).read_bytes()[:2000].rpartition(b"-----END CERTIFICATE-----")[0])
        shared(ca_certs=str(path))
    assert len(sdk_internals._contexts) <= sdk_internals.CONTEXTS_MAX
