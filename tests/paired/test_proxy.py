"""All of a pair's traffic can go through an HTTP proxy: sends, pings, backlog, administration, syphon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage

from tests.paired.connect_proxy import connect_proxy
from tests.paired.pairs import COLOURS, FAST, Pair, call, opened
from twinbus.auth.connection_string import ConnectionString
from twinbus.testing import Broker

# No name server knows them, so only the proxy can reach them.
HOSTS = ("contoso.invalid", "fabrikam.invalid")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker, Path]]:
    with (
        Broker(["contoso"], sync=False, allow_faults=True, tls_names=[HOSTS[0]]) as primary,
        Broker(["fabrikam"], sync=False, allow_faults=True, tls_names=[HOSTS[1]]) as secondary,
    ):
        bundle = tmp_path_factory.mktemp("ca") / "both.pem"
        bundle.write_text(primary.ca_file.read_text() + secondary.ca_file.read_text())
        yield primary, secondary, bundle


# The SDK passes its proxy password to aiohttp in a deprecated way.
@pytest.mark.filterwarnings("ignore:(BasicAuth|The 'proxy_auth'):DeprecationWarning")
@pytest.mark.parametrize("pair", COLOURS, indirect=True)
async def test_a_pair_behind_a_proxy(pair: Pair) -> None:
    parsed = ConnectionString.parse(pair.primary.connection_string())
    credential = AzureNamedKeyCredential(parsed.key_name or "", parsed.key or "")
    ports = {HOSTS[0]: pair.primary.endpoint().port, HOSTS[1]: pair.secondary.endpoint().port}
    with connect_proxy(ports) as proxy:
        is_aio = pair.package.__name__.endswith("aio")
        options: dict[str, Any] = {**FAST, "failover_interval": 0, "enable_syphon": True}
        client = pair.package.PairedServiceBusClient(
            HOSTS[0],
            credential,
            HOSTS[1],
            credential,
            http_proxy=proxy.options("http://" if is_aio else ""),
            connection_verify=str(pair.bundle),
            on_event=pair.events.append,
            **options,
        )
        async with opened(client), opened(client.get_queue_sender("orders")) as sender:
            await call(client.wait_until_paired, 20)
            await call(sender.send_messages, ServiceBusMessage("direct"))
            with pair.primary.fault("refusing", "orders"):
                await call(sender.send_messages, ServiceBusMessage("diverted"))
            # The ping that ends the failover and the syphon have no other route.
            found = {message.body for message in await pair.in_primary(2, wait_s=20)}
        assert found == {b"direct", b"diverted"}
        assert not proxy.refused
        assert all(proxy.tunnels[host] for host in HOSTS)
