"""Which queues a syphon empties, with and without the right to list them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.client import BusClient, Message
from twinbus.client.envelope import wrap
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ConnectionForcedError, ServiceError, UnauthorizedError
from twinbus.paired.homes import Home, HomeMark, NamespaceAnswer, home_of
from twinbus.paired.options import NamespaceAddress
from twinbus.paired.syphon.roster import BacklogRoster, described
from twinbus.paired.syphon.survey import known_queues, try_queues
from twinbus.testing import Broker

HERE = NamespaceAddress.parse("localhost:5672")
A, B = "a" * 32, "b" * 32
KEY = "a2V5" * 8
# By name: the identity in the mark; an empty one for a guess, None for no mark.
QUEUES = {
    "contoso/x-servicebus-transfer/0": A,
    "contoso/x-servicebus-transfer/1": B,
    "contoso-aaaaaaaa/x-servicebus-transfer/1": A,
    "contoso/x-servicebus-transfer/2": None,
    "localhost-5672/x-servicebus-transfer/0": "",
    "localhost-5672/x-servicebus-transfer/1": None,
    "renamed/x-servicebus-transfer/0": A,
    "fabrikam/x-servicebus-transfer/0": None,
    "orders": None,
}
OWN = {
    "contoso/x-servicebus-transfer/0",
    "contoso-aaaaaaaa/x-servicebus-transfer/1",
    "contoso/x-servicebus-transfer/2",
}


@pytest.fixture(scope="module")
def secondary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    policies = [Policy(str(right), frozenset({right}), KEY) for right in (Right.SEND, Right.LISTEN)]
    queues = [
        QueueSettings(
            path=name,
            user_metadata=None
            if identity is None
            else str(HomeMark(identity) if identity else HomeMark(guess="localhost:5672")),
        )
        for name, identity in QUEUES.items()
    ]
    folder: Path = tmp_path_factory.mktemp("roster")
    with Broker([NamespaceConfig("second", policies=policies)], queues, dev=False, sync=False, data=folder) as broker:
        yield broker


def with_key(broker: Broker, right: Right) -> str:
    parts = [part for part in broker.connection_string().split(";") if not part.startswith("SharedAccessKey")]
    return ";".join([*parts, f"SharedAccessKeyName={right}", f"SharedAccessKey={KEY}"])


def roster(text: str, *, answered: bool = True, listing: bool = True) -> BacklogRoster:
    async def home() -> Home:
        return home_of(HERE, told=NamespaceAnswer("contoso", A) if answered else None)

    return BacklogRoster(
        home, known_queues(text, None) if listing else None, lambda: BusClient.from_connection_string(text), count=3
    )


async def put(broker: Broker, queue: str) -> None:
    async with BusClient.from_connection_string(broker.connection_string()) as client:
        await (await client.sender(queue)).send_many([wrap(Message(b"x").encode(), "orders")])


async def test_with_manage_its_own_are_found_under_every_name(secondary: Broker) -> None:
    await put(secondary, "localhost-5672/x-servicebus-transfer/1")
    found = await roster(secondary.connection_string()).find()
    assert set(found.own) == OWN | {"renamed/x-servicebus-transfer/0"}
    assert found.homeless == ("localhost-5672/x-servicebus-transfer/1",), "the other one is empty"


async def test_one_that_may_only_listen_tries_the_names(secondary: Broker) -> None:
    await put(secondary, "localhost-5672/x-servicebus-transfer/0")
    await put(secondary, "localhost-5672/x-servicebus-transfer/1")
    found = await roster(with_key(secondary, Right.LISTEN)).find()
    assert set(found.own) == OWN, "not the one whose mark is another's"
    assert set(found.homeless) == {f"localhost-5672/x-servicebus-transfer/{number}" for number in (0, 1)}
    assert set((await roster(with_key(secondary, Right.LISTEN), listing=False).find()).own) == OWN


async def test_nothing_is_emptied_before_the_primary_has_answered(secondary: Broker) -> None:
    unsure = roster(secondary.connection_string(), answered=False)
    with pytest.raises(ConnectionForcedError, match="localhost:5672 cannot be reached"):
        await unsure.find()
    assert unsure.expected == []


def test_without_a_loop(secondary: Broker) -> None:
    assert set(roster(secondary.connection_string()).find_now().own) >= OWN


async def test_what_a_broker_says_about_a_queue(secondary: Broker) -> None:
    name = "contoso/x-servicebus-transfer/0"
    async with BusClient.from_connection_string(with_key(secondary, Right.LISTEN)) as client:
        assert await described(client, name) == (str(HomeMark(A)), 0)
        receiver = await client.receiver(name)
        assert (await described(client, name)).receivers == 1
        await receiver.close()
        assert (await described(client, "orders")).home is None
    async with BusClient.from_connection_string(with_key(secondary, Right.SEND)) as client:
        with pytest.raises(ServiceError):
            await described(client, name)


async def test_a_queue_is_counted_by_peeking(secondary: Broker) -> None:
    name = "fabrikam/x-servicebus-transfer/0"
    await put(secondary, name)
    async with BusClient.from_connection_string(with_key(secondary, Right.LISTEN)) as client:
        looks = await try_queues(client, [name, "fabrikam/x-servicebus-transfer/7"])
        assert [(look.name, look.active, look.dead, look.size_bytes) for look in looks] == [(name, 1, 0, None)]
        (look,) = await try_queues(client, [name], sample=1)
        assert (look.active, look.waits) == (None, True), "there may be more"
    async with BusClient.from_connection_string(with_key(secondary, Right.SEND)) as client:
        with pytest.raises(UnauthorizedError):
            await try_queues(client, [name])
