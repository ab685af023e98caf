"""What users of the SDK expect of a client: credentials, routes, environment, and names that a type checker knows."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import MessagingEntityNotFoundError

from tests.paired.pairs import FAST, Pair, call, opened
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import sign
from twinbus.limits import SYPHON_CONNECT_TIMEOUT_MS
from twinbus.paired import EntityState, PairedServiceBusClient, PairingOptions
from twinbus.paired.arguments import admin_options, bus_options, from_environment, pairing_options, variable

HOSTS = ("contoso.servicebus.windows.net", "fabrikam.servicebus.windows.net")


class Token:
    """A sync token credential."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        parts = [{"alg": "none"}, {"aud": "https://servicebus.azure.net", "exp": int(time.time()) + 3600}]
        text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        return AccessToken(f"{text}.x", int(time.time()) + 3600)


class AsyncToken(Token):
    """An async token credential."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # type: ignore[override]
        return super().get_token(*scopes, **options)

    async def close(self) -> None:
        pass


def credentials(pair: Pair, kind: str, host: str) -> Any:
    parsed = ConnectionString.parse(pair.primary.connection_string())
    name, key = parsed.key_name or "", parsed.key or ""
    if kind == "named key":
        return AzureNamedKeyCredential(name, key)
    if kind == "sas":
        return AzureSasCredential(sign(f"http://{host}/", name, key, int(time.time()) + 3600))
    return Token() if pair.package.__name__.endswith("paired") else AsyncToken()


@pytest.mark.parametrize("port", ["", ":5671"])
@pytest.mark.parametrize("kind", ["named key", "sas", "token"])
async def test_credentials_and_a_custom_endpoint(pair: Pair, kind: str, port: str) -> None:
    """As through an application gateway: pings, backlog, administration and the syphon use it as well."""
    first, second = (f"{host}{port}" for host in HOSTS)
    client = pair.package.PairedServiceBusClient(
        first,
        credentials(pair, kind, HOSTS[0]),
        second,
        credentials(pair, kind, HOSTS[1]),
        primary_options={"custom_endpoint_address": f"sb://localhost:{pair.primary.endpoint().port}"},
        secondary_options={"custom_endpoint_address": f"sb://localhost:{pair.secondary.endpoint().port}"},
        transport_type=TransportType.Amqp,
        connection_verify=str(pair.bundle),
        on_event=pair.events.append,
        enable_syphon=True,
        **{**FAST, "failover_interval": 0},
    )
    async with opened(client), opened(client.get_queue_sender("orders")) as sender:
        await call(client.wait_until_paired, 20)
        assert len(client.backlog_queues) == 3
        await call(sender.send_messages, ServiceBusMessage("direct"))
        with pair.primary.fault("refusing", "orders"):
            await call(sender.send_messages, ServiceBusMessage("diverted"))
        # The ping that ends the failover takes the same route, and so does the syphon.
        found = {message.body for message in await pair.in_primary(2, wait_s=20)}
    assert found == {b"direct", b"diverted"}


async def test_a_missing_entity_behind_a_custom_endpoint_is_the_callers(pair: Pair) -> None:
    """There the SDK raises a connection error for every refused token."""
    async with pair.client(
        primary_options={"custom_endpoint_address": f"sb://localhost:{pair.primary.endpoint().port}"},
        transport_type=TransportType.Amqp,
        connection_verify=str(pair.bundle),
        failover_interval=0,
    ) as client:
        await call(client.wait_until_paired, 20)
        with pytest.raises(MessagingEntityNotFoundError):
            await call(client.get_queue_sender("ordres").send_messages, ServiceBusMessage("misspelled"))
        assert client.entity_states == {"ordres": EntityState.HEALTHY}
        assert pair.told("failed-over") == []


async def test_the_environment_tells_it_all(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pair.package.PairedServiceBusClient
    for name in ("TWINBUS_PRIMARY", "TWINBUS_SECONDARY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="TWINBUS_PRIMARY is not set"):
        kind.from_environment()
    monkeypatch.setenv("TWINBUS_PRIMARY", pair.primary.connection_string())
    monkeypatch.setenv("TWINBUS_SECONDARY", pair.secondary.connection_string())
    monkeypatch.setenv("TWINBUS_PAIRING", "responsive")
    monkeypatch.setenv("TWINBUS_BACKLOG_QUEUE_COUNT", "2")
    monkeypatch.setenv("TWINBUS_SESSION_ORDER", "true")
    monkeypatch.setenv("TWINBUS_PRIMARY_NAME", "contoso")
    monkeypatch.setenv("TWINBUS_PING_PRIMARY_INTERVAL", "7.5")
    async with opened(kind.from_environment(max_in_flight=4)) as client:
        options = client.options
        assert (options.backlog_queue_count, options.session_order, options.primary_name) == (2, True, "contoso")
        assert (options.ping_primary_interval, options.max_in_flight) == (7.5, 4)
        assert options.failover_interval == PairingOptions.responsive().failover_interval
        await call(client.wait_until_paired)
        assert len(client.backlog_queues) == 2
    for name, value in (("TWINBUS_SESSION_ORDER", "maybe"), ("TWINBUS_BACKLOG_QUEUE_COUNT", "two")):
        monkeypatch.setenv(name, value)
        with pytest.raises(ValueError, match=f"{name} is '{value}'"):
            kind.from_environment()
        monkeypatch.delenv(name)
    monkeypatch.setenv("TWINBUS_PAIRING", "eager")
    with pytest.raises(ValueError, match="TWINBUS_PAIRING is 'eager'"):
        kind.from_environment()


def test_names_count_for_more_than_options() -> None:
    options = pairing_options({"options": PairingOptions.responsive(), "failover_interval": 9})
    assert (options.failover_interval, options.try_timeout) == (9, PairingOptions.responsive().try_timeout)
    assert pairing_options({}) == PairingOptions()


def test_administration_goes_the_same_way() -> None:
    proxy = {"proxy_hostname": "proxy", "proxy_port": 8080, "username": "u@x", "password": "p:w"}
    given: dict[str, Any] = {
        "http_proxy": proxy,
        "connection_verify": "ca.pem",
        "retry_total": 5,
        "retry_mode": "fixed",
    }
    found = admin_options(given, "primary", 17)
    assert found["proxies"] == {"http": "http://u%40x:p%3Aw@proxy:8080", "https": "http://u%40x:p%3Aw@proxy:8080"}
    assert (found["connection_verify"], found["retry_total"], found["read_timeout"]) == ("ca.pem", 5, 17)
    assert found["retry_mode"] == "fixed"
    given = {"secondary_options": {"connection_verify": "b.pem"}, "admin_options": {"read_timeout": 1}}
    assert admin_options(given, "primary", 17) == {"connection_timeout": 17, "read_timeout": 1, "retry_total": 0}
    assert admin_options(given, "secondary", 7)["connection_verify"] == "b.pem"
    assert admin_options({}, "primary", 7)["connection_timeout"] == 10, "nobody waits for it"
    assert admin_options({"http_proxy": {"proxy_hostname": "p", "proxy_port": 1}}, "primary", 7)["proxies"] == {
        "http": "http://p:1",
        "https": "http://p:1",
    }


def test_uamqp_is_refused() -> None:
    text = "Endpoint=sb://{}.example.net;SharedAccessKeyName=n;SharedAccessKey=k"
    for options in ({"uamqp_transport": True}, {"secondary_options": {"uamqp_transport": True}}):
        with pytest.raises(ValueError, match="uamqp_transport"):
            PairedServiceBusClient.from_connection_strings(text.format("a"), text.format("b"), **options)


@pytest.mark.parametrize("side", ["primary_options", "secondary_options"])
def test_an_unknown_option_of_one_namespace_is_refused(side: str) -> None:
    text = "Endpoint=sb://{}.example.net;SharedAccessKeyName=n;SharedAccessKey=k"
    for name, near in (("conection_verify", "connection_verify"), ("retry_totl", "retry_total")):
        with pytest.raises(TypeError, match=f"{side} has no option '{name}'. Did you mean '{near}'?"):
            PairedServiceBusClient.from_connection_strings(text.format("a"), text.format("b"), **{side: {name: 1}})


TYPED = """
from datetime import datetime, timedelta
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender, TransportType
from azure.servicebus.amqp import AmqpAnnotatedMessage
from twinbus.paired import PairedServiceBusClient, PairingOptions
from twinbus.paired.aio import PairedServiceBusClient as AsyncClient


def send(primary: str, secondary: str) -> list[int]:
    with PairedServiceBusClient.from_connection_strings(
        primary,
        secondary,
        options=PairingOptions.responsive(),
        failover_interval=timedelta(seconds=10),
        transport_type=TransportType.Amqp,
    ) as client:
        with client.get_queue_sender("orders", client_identifier="me") as sender:
            sender.send_messages(ServiceBusMessage("hello"), timeout=5)
            sender.send_messages([{"body": "a"}, ServiceBusMessage("b"), AmqpAnnotatedMessage(data_body=b"c")])
            sender.send_messages(sender.create_message_batch())
            sender.schedule_messages((ServiceBusMessage(str(n)) for n in range(3)), datetime.now())
        with client.get_subscription_receiver("news", "all", prefetch_count=5, max_wait_time=1) as receiver:
            receiver.receive_messages()
            return []


def sends(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    # What an application has already.
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("hello"))
    sender.send_messages(ServiceBusMessage("hello"))


def hand_over(client: PairedServiceBusClient) -> None:
    sends(client, client.get_queue_sender("orders"))


async def send_async(primary: str, secondary: str) -> None:
    async with AsyncClient.from_connection_strings(primary, secondary, max_in_flight=3) as client:
        async with client.get_topic_sender("news") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))
"""


@pytest.mark.timeout(180)
def test_a_checker_knows_the_names(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(TYPED)
    text = TYPED.replace("max_in_flight=3", 'max_in_flght=3, failover_interval="x"')
    text = text.replace("client_identifier=", "client_identifer=").replace("prefetch_count=", "prefetch=")
    bad.write_text(text.replace("send_messages(sender.create_message_batch())", "send_messages(7)"))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(good)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([*command[:-1], str(bad)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert 'Unexpected keyword argument "max_in_flght"' in done.stdout
    assert 'Argument "failover_interval"' in done.stdout
    assert 'Unexpected keyword argument "client_identifer"' in done.stdout
    assert 'Unexpected keyword argument "prefetch"' in done.stdout
    assert 'Argument 1 to "send_messages"' in done.stdout


def test_tracing_reaches_diverted_messages() -> None:
    """With the SDK's tracing on, a diverted message carries its context like a direct one."""
    from azure.core.settings import settings

    from twinbus.client.message import ReceivedMessage
    from twinbus.paired.sdk_internals import encoded

    class Span:
        def __init__(self, **_: Any) -> None:
            self.kind = None

        def __enter__(self) -> Span:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def to_header(self) -> dict[str, str]:
            return {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

        def add_attribute(self, name: str, value: Any) -> None:
            pass

    settings.tracing_implementation.set_value(Span)
    try:
        (payload,) = encoded(ServiceBusMessage("x", application_properties={"mine": 1}))
    finally:
        settings.tracing_implementation.unset_value()
    own = ReceivedMessage(payload, None, b"").application_properties
    assert own["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert own["mine"] == 1


def test_options_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAIRING", "PRIMARY_NAME", "HOLD_SENDS", "MAX_IN_FLIGHT", "TRY_TIMEOUT"):
        monkeypatch.delenv(f"TWINBUS_{name}", raising=False)
    assert from_environment({}) == {}
    monkeypatch.setenv("TWINBUS_PAIRING", "Responsive")
    monkeypatch.setenv("TWINBUS_PRIMARY_NAME", " contoso ")
    monkeypatch.setenv("TWINBUS_HOLD_SENDS", "off")
    monkeypatch.setenv("TWINBUS_MAX_IN_FLIGHT", "4")
    monkeypatch.setenv("TWINBUS_TRY_TIMEOUT", "2.5")
    monkeypatch.setenv("TWINBUS_SESSION_ORDER", "")
    found = from_environment({"max_in_flight": 5})
    assert found == {
        "options": PairingOptions.responsive(),
        "primary_name": "contoso",
        "hold_sends": False,
        "max_in_flight": 5,
        "try_timeout": 2.5,
    }
    monkeypatch.setenv("TWINBUS_PAIRING", " responsive ")
    assert from_environment({})["options"] == PairingOptions.responsive()
    for nothing in ("default", "", " "):
        monkeypatch.setenv("TWINBUS_PAIRING", nothing)
        assert "options" not in from_environment({})
    monkeypatch.setenv("TWINBUS_HOLD_SENDS", "Yes")
    assert from_environment({})["hold_sends"] is True
    assert "options" not in from_environment({})
    for name, value, text in (
        ("HOLD_SENDS", "maybe", "it must be true or false"),
        ("MAX_IN_FLIGHT", "2.5", "it must be a number"),
        ("PAIRING", "eager", "it must be 'default' or 'responsive'"),
    ):
        monkeypatch.setenv(f"TWINBUS_{name}", value)
        with pytest.raises(ValueError, match=f"TWINBUS_{name} is '{value}': {text}"):
            from_environment({})
        monkeypatch.delenv(f"TWINBUS_{name}")
    monkeypatch.setenv("TWINBUS_PRIMARY", " text ")
    assert variable("PRIMARY") == "text"
    monkeypatch.setenv("TWINBUS_PRIMARY", "  ")
    with pytest.raises(ValueError, match="TWINBUS_PRIMARY is not set"):
        variable("PRIMARY")


def test_our_own_client_goes_the_way_of_the_sdks() -> None:
    plain = {"timeout_ms": SYPHON_CONNECT_TIMEOUT_MS}
    assert bus_options({"retry_total": 5}) == plain
    assert bus_options({"transport_type": TransportType.Amqp}) == plain
    assert bus_options({"transport_type": TransportType.AmqpOverWebsocket}) == {**plain, "websocket": True}
    address = {"custom_endpoint_address": "sb://gateway:443"}
    assert bus_options(address) == {**plain, "address": "sb://gateway:443", "websocket": True}
    by_tcp = {**address, "transport_type": TransportType.Amqp}
    assert bus_options(by_tcp) == {**plain, "address": "sb://gateway:443"}
    for host in ("proxy", "http://proxy"):
        proxy = {"proxy_hostname": host, "proxy_port": 8080, "username": "who", "password": "p@ss"}
        assert bus_options({"http_proxy": proxy}) == {
            **plain,
            "websocket": True,
            "proxy": "http://who:p%40ss@proxy:8080",
        }
