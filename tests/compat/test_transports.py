"""Every way the official clients come to the one port: TLS and WebSocket, Python in both colours, admin, and Node.

`docs/transports.md` says which setting of a client leads to which socket; each line of it that says "shown" is here.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdmin
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient as SyncAdmin
from python_sdk import COLOURS, RETRIES, aio, call, opened, sync
from test_node_sdk import FOLDER

from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.testing import Broker

# What the SDK's own WebSocket transport does in aio: a setting that its HTTP library calls old, and a session that it
# leaves to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
]

LARGE = b"x" * 200_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # With keys of its own: the SAS tokens must be good whatever host and port they are made for.
    with Broker([NamespaceConfig("contoso", amqps_port=0)], dev=False) as broker:
        yield broker


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What the SDK leaves to the collector is collected here, and not in a test that has nothing to do with it."""
    yield
    gc.collect()


@pytest.fixture
def queue(broker: Broker) -> str:
    return broker.create_queue(f"q-{uuid.uuid4().hex}").path


def encrypted(broker: Broker) -> str:
    """The connection string of a broker that is not taken for the emulator."""
    return broker.connection_string().replace("UseDevelopmentEmulator=true;", "")


def here(broker: Broker, host: str = "localhost") -> str:
    return f"sb://{host}:{broker.endpoint().port}"


def ways(broker: Broker) -> dict[str, tuple[str, dict[str, Any]]]:
    """By name: connection string and options of a client."""
    verify = {"connection_verify": str(broker.ca_file)}
    websocket = {"transport_type": TransportType.AmqpOverWebsocket}
    plain, tls = broker.connection_string(), encrypted(broker)
    return {
        "plain": (plain, {}),
        "tls": (
            tls,
            {"custom_endpoint_address": here(broker), "transport_type": TransportType.Amqp, **verify},
        ),
        "tls by address": (
            tls,
            {"custom_endpoint_address": here(broker, "127.0.0.1"), "transport_type": TransportType.Amqp, **verify},
        ),
        "ws": (plain, {"custom_endpoint_address": here(broker), **websocket}),
        "wss": (tls, {"custom_endpoint_address": here(broker), **websocket, **verify}),
        # A custom endpoint alone means WebSocket to this SDK.
        "wss unasked": (tls, {"custom_endpoint_address": here(broker), **verify}),
    }


WAYS = ("plain", "tls", "tls by address", "ws", "wss", "wss unasked")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("colour", COLOURS)
async def test_messages_go_through(broker: Broker, queue: str, colour: str, way: str) -> None:
    package: Any = sync if colour == "sync" else aio
    connection_string, options = ways(broker)[way]
    client = package.ServiceBusClient.from_connection_string(connection_string, **RETRIES, **options)
    async with opened(client):
        async with opened(client.get_queue_sender(queue)) as sender:
            await call(sender.send_messages, ServiceBusMessage("small"))
            await call(sender.send_messages, ServiceBusMessage(LARGE))
        async with opened(client.get_queue_receiver(queue)) as receiver:
            bodies = []
            while len(bodies) < 2:
                for message in await call(receiver.receive_messages, 2, max_wait_time=5):
                    bodies.append(b"".join(message.body))
                    await call(receiver.complete_message, message)
            assert bodies == [b"small", LARGE]
            # The management link runs on the same stream.
            assert await call(receiver.peek_messages) == []


@pytest.mark.parametrize("colour", COLOURS)
async def test_a_client_that_does_not_know_our_ca_does_not_come(broker: Broker, queue: str, colour: str) -> None:
    package: Any = sync if colour == "sync" else aio
    client = package.ServiceBusClient.from_connection_string(
        encrypted(broker), custom_endpoint_address=here(broker), transport_type=TransportType.Amqp, **RETRIES
    )
    async with opened(client):
        sender = client.get_queue_sender(queue)
        with pytest.raises(ServiceBusError):
            await call(sender.send_messages, ServiceBusMessage("no"))
        await call(sender.close)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("emulator", [True, False])
async def test_the_admin_client_takes_the_same_connection_string(
    broker: Broker, queue: str, colour: str, emulator: bool
) -> None:
    text = broker.connection_string() if emulator else encrypted(broker)
    kind: Any = SyncAdmin if colour == "sync" else AioAdmin
    async with opened(kind.from_connection_string(text, connection_verify=str(broker.ca_file))) as client:
        found = await call(client.get_queue, queue)
        assert found.name == queue


SCRIPT = """
const { ServiceBusClient, ServiceBusAdministrationClient } = require("@azure/service-bus");
const WebSocket = require("ws");
const [connectionString, queue] = process.argv.slice(-2);
const retryOptions = { maxRetries: 0, timeoutInMs: 10000 };
async function exchange(options) {
  const client = new ServiceBusClient(connectionString, { retryOptions, ...options });
  try {
    const sender = client.createSender(queue);
    await sender.sendMessages({ body: "from node" });
    const receiver = client.createReceiver(queue);
    const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 5000 });
    await receiver.completeMessage(message);
    return message.body;
  } finally {
    await client.close();
  }
}
async function main() {
  const admin = new ServiceBusAdministrationClient(connectionString, { retryOptions: { maxRetries: 0 } });
  const facts = { amqp: await exchange({}), websocket: await exchange({ webSocketOptions: { webSocket: WebSocket } }) };
  facts.admin = (await admin.getQueue(queue)).name;
  console.log(JSON.stringify(facts));
}
main().catch((error) => { console.error(error); process.exit(1); });
"""


def ran(node: str, broker: Broker, queue: str, connection_string: str, **environment: str) -> Any:
    return subprocess.run(
        [node, "-e", SCRIPT, connection_string, queue],
        cwd=FOLDER,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def test_node_over_tls(node: str, broker: Broker, queue: str) -> None:
    done = ran(node, broker, queue, encrypted(broker), NODE_EXTRA_CA_CERTS=str(broker.ca_file))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"amqp": "from node", "websocket": "from node", "admin": queue}
