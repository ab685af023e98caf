"""The demo's applications: senders on a paired client, and receivers on the primary with the plain SDK.

Rules:
- Messages are due at a steady rate, whatever happens; those that a failing primary delays are sent as soon as possible.
- A message is recorded as sent once its send has returned, and as received before it is completed.
- A receiver that loses its connection opens a new one. It has no backlog to turn to, so it waits for the primary.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusError

from twinbus.clock import MonotonicClock
from twinbus.demo.account import MessageAccount
from twinbus.ledger.words import Event
from twinbus.paired import PairedEvent, PairingError
from twinbus.paired.aio import PairedServiceBusClient
from twinbus.paired.state import EntityState

QUEUE: Final = "orders"
TOPIC: Final = "events"
SUBSCRIPTIONS: Final = ("audit", "billing")
# Entity -> where its messages arrive.
PLACES: Final = {QUEUE: (QUEUE,), TOPIC: tuple(f"{TOPIC}/{name}" for name in SUBSCRIPTIONS)}
# Each sender picks its own backlog queue.
_SENDERS: Final = {QUEUE: 4, TOPIC: 2}
_SHARES: Final = {QUEUE: 2 / 3, TOPIC: 1 / 3}
# The primary's initial entities. Locks are short, so that messages locked before the kill are soon redelivered.
ENTITIES: Final = f"""
[namespaces.contoso.queues.{QUEUE}]
lock_duration = "PT10S"
max_delivery_count = 100
""" + "".join(
    f"""
[namespaces.contoso.topics.{TOPIC}.subscriptions.{name}]
lock_duration = "PT10S"
max_delivery_count = 100
"""
    for name in SUBSCRIPTIONS
)

FAILOVER_INTERVAL_S: Final = 2.0
PING_INTERVAL_S: Final = 1.0
BACKLOG_QUEUES: Final = 4
# On a slow machine everything takes longer, and nothing may fail for that: the kill closes connections, so no timeout
# is needed to notice it.
_TRY_TIMEOUT_S: Final = 15.0
_SEND_TIMEOUT_S: Final = 600.0
_RECEIVE_MAX: Final = 100
_RECEIVE_WAIT_S: Final = 1.0
_PAUSE_S: Final = 0.5
_FAULTS: Final = (AzureError, ServiceBusError, OSError, ValueError)


class DemoSenders:
    """An application that sends through a paired client until it is told to stop."""

    def __init__(self, account: MessageAccount, rate: float, rng: Random, told: Callable[[PairedEvent], None]) -> None:
        self._account = account
        # Messages per second across all entities.
        self._rate = rate
        self._rng = rng
        self._told = told
        self._client: PairedServiceBusClient | None = None
        self.diverted = dict.fromkeys(PLACES, 0)
        self._stopping = asyncio.Event()
        self._clock = MonotonicClock()

    @property
    def paired(self) -> bool:
        """Whether the backlog queues exist."""
        return self._client is not None

    @property
    def states(self) -> dict[str, EntityState]:
        """The failover state of each entity."""
        found = {} if self._client is None else self._client.entity_states
        return {entity: found.get(entity, EntityState.HEALTHY) for entity in PLACES}

    def stop(self) -> None:
        """Start no new sends; let those in progress finish."""
        self._stopping.set()

    async def run(self, primary: str, secondary: str, ca: Path, ledger: Path) -> None:
        client = PairedServiceBusClient.from_connection_strings(
            primary,
            secondary,
            primary_name="contoso",
            backlog_queue_count=BACKLOG_QUEUES,
            failover_interval=FAILOVER_INTERVAL_S,
            ping_primary_interval=PING_INTERVAL_S,
            try_timeout=_TRY_TIMEOUT_S,
            retry_total=0,
            rng=self._rng,
            on_event=self._event,
            ledger=ledger,
            admin_options={"connection_verify": str(ca)},
        )
        async with client, asyncio.TaskGroup() as group:
            # The demo is about an outage of the primary, so the backlog queues exist when it begins.
            while not client.backlog_queues:
                with suppress(PairingError):
                    await client.wait_until_paired()
            self._client = client
            for entity, senders in _SENDERS.items():
                due = self._due(self._rate * _SHARES[entity])
                for _ in range(senders):
                    sender = client.get_topic_sender(entity) if entity == TOPIC else client.get_queue_sender(entity)
                    group.create_task(self._send(sender, entity, due))

    def _event(self, event: PairedEvent) -> None:
        if event.kind is Event.DIVERTED:
            self.diverted[event.entity] += event.count or 1
        self._told(event)

    def _due(self, rate: float) -> Iterator[tuple[int, float]]:
        """Yield message numbers with the times they are due."""
        start_ms = self._clock.now_ms()
        return ((number, start_ms + 1000 * number / rate) for number in count())

    async def _send(self, sender: Any, entity: str, due: Iterator[tuple[int, float]]) -> None:
        async with sender:
            for number, at_ms in due:
                wait_s = (at_ms - self._clock.now_ms()) / 1000
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                if self._stopping.is_set():
                    return
                message = self._message(entity, number)
                try:
                    await sender.send_messages(message, timeout=_SEND_TIMEOUT_S)
                except _FAULTS:
                    self._account.raised += 1
                else:
                    self._account.sent(entity, str(message.message_id))

    def _message(self, entity: str, number: int) -> ServiceBusMessage:
        body = {"number": number, "customer": self._rng.randrange(1_000), "note": "x" * self._rng.randrange(50, 800)}
        return ServiceBusMessage(
            json.dumps(body),
            message_id=f"{entity}-{number:06d}",
            content_type="application/json",
            application_properties={"number": number},
        )


async def receive(place: str, connection_string: str, account: MessageAccount, over: asyncio.Event) -> None:
    """Receive from a queue or subscription until `over`, through every outage."""
    while not over.is_set():
        try:
            async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
                topic, _, subscription = place.partition("/")
                made = (
                    client.get_subscription_receiver(topic, subscription)
                    if subscription
                    else client.get_queue_receiver(topic)
                )
                async with made as receiver:
                    while not over.is_set():
                        for message in await receiver.receive_messages(_RECEIVE_MAX, _RECEIVE_WAIT_S):
                            account.received(place, str(message.message_id))
                            await receiver.complete_message(message)
        except _FAULTS:
            await asyncio.sleep(_PAUSE_S)


async def watch_backlog(depths: dict[str, int], connection_string: str, ca: Path, over: asyncio.Event) -> None:
    """Keep the depths of the backlog queues up to date until `over`."""
    async with ServiceBusAdministrationClient.from_connection_string(
        connection_string, connection_verify=str(ca)
    ) as admin:
        while not over.is_set():
            try:
                async for queue in admin.list_queues_runtime_properties():
                    depths[queue.name] = queue.active_message_count or 0
            except _FAULTS:
                pass
            await asyncio.sleep(_PAUSE_S)
