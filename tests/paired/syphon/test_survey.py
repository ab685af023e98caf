"""What backlog queues hold, as the commands show it."""

from __future__ import annotations

import pytest

from twinbus.client import BusClient, Message
from twinbus.errors import ConnectionForcedError, EntityNotFoundError
from twinbus.paired.syphon.monitor import Count
from twinbus.paired.syphon.survey import (
    admin_client,
    admin_counts,
    delete_queue,
    list_queues,
    look_inside,
    peeked,
)

from .conftest import Pair
from .test_syphon import numbered


async def test_queues_and_their_counts(pair: Pair) -> None:
    await pair.divert("orders", numbered(3))
    text = pair.secondary.connection_string()
    async with admin_client(text, {}) as admin:
        looks = await list_queues(admin, pair.name.upper())
        assert [look.name for look in looks] == pair.queues
        assert [(look.active, look.dead, look.other, look.index) for look in looks] == [(3, 0, 0, 0), (0, 0, 0, 1)]
        assert looks[0].size_bytes > 0
        assert looks[1].size_bytes == 0
        assert [look.empty for look in looks] == [False, True]
        assert await list_queues(admin, "nobody") == []
        assert {look.name for look in await list_queues(admin)} >= set(pair.queues)
        await delete_queue(admin, pair.queues[1])
        assert len(await list_queues(admin, pair.name)) == 1
        with pytest.raises(EntityNotFoundError):
            await delete_queue(admin, pair.queues[1])
    counts = await admin_counts(text, {})(pair.queues)
    assert counts == {pair.queues[0]: Count(3, looks[0].size_bytes, 0)}


async def test_what_is_inside(pair: Pair) -> None:
    await pair.divert("orders", numbered(2))
    await pair.divert("news", numbered(1))
    await pair.put([Message(b"no path").encode()], queue=1)
    text = pair.secondary.connection_string()
    async with BusClient.from_connection_string(text) as client:
        source = await client.receiver(pair.queues[1])
        (message,) = await source.receive_batch(1, 5)
        await source.dead_letter(message, "Broken", "in two")
        await source.close()
        async with admin_client(text, {}) as admin:
            looks = await list_queues(admin, pair.name)
            assert [(look.active, look.dead) for look in looks] == [(3, 0), (0, 1)]
            await look_inside(client, looks, sample=3)
        assert looks[0].destinations == {"orders": 2, "news": 1}
        assert looks[1].reasons == {"Broken": 1}
        assert [look.sampled for look in looks] == [False, False]
        assert looks[0].oldest_ms is not None
        assert looks[0].oldest_dead_ms is None
        assert looks[1].oldest_dead_ms is not None
        await look_inside(client, looks, sample=2)
        assert [look.sampled for look in looks] == [True, False]
        looks[1].dead = 3
        await look_inside(client, looks, sample=2)
        assert looks[1].sampled
        found = [each async for each in peeked(client, pair.queues[0], 2)]
        assert [(each.path, each.message_id, each.packed) for each in found] == [
            ("orders", "m0", False),
            ("orders", "m1", False),
        ]
        (dead,) = [each async for each in peeked(client, pair.queues[1], 5, dead=True)]
        assert (dead.reason, dead.description, dead.path) == ("Broken", "in two", None)
        assert found[0].reason is None
        assert found[0].body_bytes == len(numbered(2)[0].body)


async def test_an_administration_that_does_not_answer_says_so() -> None:
    nobody = "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
    async with admin_client(nobody, {"retry_total": 0}) as admin:
        with pytest.raises(ConnectionForcedError, match="administration API of the secondary"):
            await list_queues(admin)
