"""A namespace says who it is to everybody who opens a connection, whatever their rights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.paired.pairs import Pair
from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.client import BusClient
from twinbus.errors import ConnectionForcedError, ServiceError
from twinbus.paired.asking import asked, check_identity, told_in
from twinbus.paired.homes import NamespaceAnswer
from twinbus.testing import Broker

NOBODY = "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"


def test_every_right_is_told_the_same(tmp_path: Path) -> None:
    policies = [Policy(str(right), frozenset({right}), "a2V5" * 8) for right in (Right.SEND, Right.LISTEN)]
    with Broker([NamespaceConfig("contoso", policies=policies)], dev=False, sync=False, data=tmp_path) as broker:
        identity = broker.call(lambda server: server.hosts["contoso"].identity)
        root = broker.connection_string()
        texts = [root]
        for policy in policies:
            parts = [part for part in root.split(";") if not part.startswith("SharedAccessKey")]
            texts.append(
                ";".join([*parts, f"SharedAccessKeyName={policy.name}", f"SharedAccessKey={policy.primary_key}"])
            )
        for text in texts:
            answer = asyncio.run(asked(lambda text=text: BusClient.from_connection_string(text), 20))
            assert answer == NamespaceAnswer("contoso", identity)


async def test_nobody_answers() -> None:
    with pytest.raises(ServiceError):
        await asked(lambda: BusClient.from_connection_string(NOBODY), 20)
    with pytest.raises(ConnectionForcedError, match="did not say who it is within"):
        await asked(lambda: BusClient.from_connection_string(NOBODY), 0.05)


@pytest.mark.parametrize("pair", ["aio"], indirect=True)
async def test_a_client_can_insist_on_a_namespace(pair: Pair) -> None:
    from twinbus.paired.syphon.bus_port import BusPort

    identity = pair.primary.call(lambda server: server.hosts["contoso"].identity)
    text = pair.primary.connection_string()
    port = BusPort(BusClient.from_connection_string(text))
    port.expect(identity)
    await port.connect()
    await port.close()
    port = BusPort(BusClient.from_connection_string(text))
    port.expect("another")
    for opening in (port.connect, lambda: port.destination("orders"), lambda: port.source("orders")):
        with pytest.raises(ConnectionForcedError, match="Another namespace"):
            await opening()
    await port.close()


@pytest.mark.parametrize(
    ("properties", "answer"),
    [
        ({}, NamespaceAnswer()),
        ({"product": "Twinbus", "version": "0.1"}, NamespaceAnswer()),
        ({"product": "Other", "identity": "x", "namespace": "n"}, NamespaceAnswer()),
        ({b"product": b"Twinbus", b"identity": b"x", b"namespace": b"n"}, NamespaceAnswer("n", "x")),
        ({"product": "Twinbus", "identity": "x", "namespace": "a/b"}, NamespaceAnswer(None, "x")),
    ],
)
def test_what_an_open_says(properties: dict[object, object], answer: NamespaceAnswer) -> None:
    assert told_in(properties) == answer


def test_only_the_expected_one_will_do() -> None:
    check_identity(NamespaceAnswer("a", "x"), "x")
    for told in (NamespaceAnswer("a", "y"), NamespaceAnswer()):
        with pytest.raises(ConnectionForcedError):
            check_identity(told, "x")
