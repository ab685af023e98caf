"""A served broker under mixed load for any time: `python -m tests.proof soak --minutes 60`.

Promise: once it is warm, the broker's anonymous memory grows by at most 1 MiB an hour, and its descriptors not at all.
Names and ids are never reused. Every lap of the load ends with all connections closed and all messages deleted, and
then a sample is taken: messages that wait in a queue when the machine is busy do not count as growth. The slope is a
regression over the samples of the second half. A run shorter than 20 minutes cannot measure an hourly slope: it may
grow by 3 MiB in its second half.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import linear_regression, median

from tests.proof.suite import Budget, Suite
from twinbus.auth import sas
from twinbus.auth.connection_string import ConnectionString
from twinbus.client import BusClient, Message
from twinbus.errors import ServiceError

NAMESPACE = "soak"
SLOPE_MIB_MAX = 1.0
# Allowed growth of a run whose second half is shorter than this.
HALF_S_MIN = 590.0
WARMING_MIB_MAX = 3.0
SAMPLES_MIN = 4
# The length of a lap when a run is limited by time; when it is limited by rounds, each client does one round a lap.
LAP_S = 10.0
CLIENTS = 3
# In a run limited by time each client starts a round this often, so that the load does not change with the machine's.
ROUND_S = 1.0
# Connections that the broker may not have closed yet when a sample is taken.
CONNECTIONS_MAX = 2
# Another client may have received the message that this one waits for.
WAIT_S = 0.05
CALM_S = 0.05
MALICIOUS = b"AMQP\0\1\0\0" + bytes(range(256))
CONFIG = f"""
[namespaces.{NAMESPACE}.queues.plain]
[namespaces.{NAMESPACE}.queues.other]
[namespaces.{NAMESPACE}.queues.sessions]
requires_session = true
[namespaces.{NAMESPACE}.queues.ids]
requires_duplicate_detection = true
duplicate_window = "PT20S"
[namespaces.{NAMESPACE}.queues.short]
default_ttl = "PT1S"
dead_letter_on_expiry = true
[namespaces.{NAMESPACE}.topics.news.subscriptions.all]
[namespaces.{NAMESPACE}.topics.news.subscriptions.red.rules.red]
sql = "color = 'red' AND n > 1"
"""
HOLDERS = ("plain", "other", "sessions", "ids", "short", "news/subscriptions/all", "news/subscriptions/red")
SERVE = "import sys; from twinbus.cli.main import run; sys.exit(run())"
# Keeps every connection that ends, with some bytes to make it visible.
LEAKY = f"""
from twinbus.broker.connections.connection import BrokerConnection
kept, sound = [], BrokerConnection.connection_lost
def connection_lost(self, error):
    sound(self, error)
    kept.append((self, b"x" * 1_000_000))
BrokerConnection.connection_lost = connection_lost
{SERVE}
"""
# The command that is served; replaced when a bug is planted.
served = SERVE


class Served:
    """`twinbus serve` in its own process, and how to reach it."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        ready = folder / "ready.json"
        (folder / "twinbus.toml").write_text(f"[namespaces.{NAMESPACE}]\nport = {self.port}\n{CONFIG}")
        options = ["--config", folder / "twinbus.toml", "--data", folder / "data", "--ready-file", ready]
        self.log = folder / "broker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", served, "serve", *map(str, options)], stdout=log, stderr=log
            )
        while not ready.exists():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)
        self.string = json.loads(ready.read_text())["namespaces"][NAMESPACE]["connection_string"]
        self.key = ConnectionString.parse(self.string)

    def sample(self) -> tuple[float, float, int]:
        """Time, anonymous MiB, descriptors."""
        place = Path(f"/proc/{self.process.pid}")
        lines = (place / "status").read_text().splitlines()
        anonymous_kib = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
        return time.monotonic(), anonymous_kib / 1024, len(os.listdir(place / "fd"))

    def ask(self, method: str, path: str, body: str | None = None) -> int:
        name, key = self.key.key_name or "", self.key.key or ""
        token = sas.sign(f"http://127.0.0.1:{self.port}/", name, key, int(time.time()) + 600)
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            client.request(method, path, body, {"Authorization": token, "Content-Type": "application/atom+xml"})
            answer = client.getresponse()
            answer.read()
            return answer.status
        finally:
            client.close()


class Load:
    """One client that does something else each time; three of them work at once."""

    def __init__(self, broker: Served, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        # Connects in the way that the round draws.
        self.client = BusClient.from_connection_string(broker.string)

    def name(self) -> str:
        return f"{self.chance.getrandbits(64):x}"

    def messages(self, count: int, **fields: object) -> list[Message]:
        size = int(10 ** self.chance.uniform(1, 4.3))
        properties = {"color": self.chance.choice(["red", "blue"]), "n": self.chance.randrange(5), "id": self.name()}
        return [Message(b"x" * size, self.name(), application_properties=properties, **fields) for _ in range(count)]  # type: ignore[arg-type]

    async def round(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.locked, self.deleted, self.sessions, self.scheduled, self.topic, self.moved, self.duplicates,
            self.expired, self.entity, self.rest, self.refused, self.rubbish, self.rules,
        ]  # fmt: skip
        websocket = self.chance.random() < 0.2
        async with BusClient.from_connection_string(self.broker.string, websocket=websocket) as self.client:
            for kind in self.chance.sample(kinds, 4):
                await kind()
        await asyncio.sleep(CALM_S)

    async def taken(self, path: str, count: int, *, dead_letters: bool = False) -> None:
        """Receive as many messages as were sent, no matter by which client."""
        receiver = await self.client.receiver(path, dead_letters=dead_letters)
        found = await receiver.receive_batch(count, WAIT_S)
        await receiver.complete_many(found)
        await receiver.close()

    async def locked(self) -> None:
        sender = await self.client.sender("plain")
        await sender.send_batch(self.messages(10))
        receiver = await self.client.receiver("plain", prefetch=self.chance.choice([0, 20]))
        dead = 0
        for message in await receiver.receive_batch(10, WAIT_S):
            how = self.chance.randrange(6)
            if how == 0:
                await receiver.dead_letter(message, "reason", self.name())
                dead += 1
            elif how == 1:
                await receiver.abandon(message, {"tried": self.name()})
            elif how == 2 and message.sequence_number is not None:
                await receiver.defer(message)
                (again,) = await receiver.receive_deferred([message.sequence_number])
                await receiver.complete(again)
            else:
                await receiver.renew_lock(message)
                await receiver.complete(message)
        await receiver.close()
        await self.taken("plain", 30)
        await self.taken("plain", dead + 3, dead_letters=True)

    async def deleted(self) -> None:
        sender = await self.client.sender("other")
        await sender.send_many(self.messages(20))
        management = await self.client.management("other")
        await management.peek(10)
        receiver = await self.client.receiver("other", delete=True, prefetch=50)
        await receiver.receive_batch(25, WAIT_S)

    async def sessions(self) -> None:
        session_id = self.name()
        sender = await self.client.sender("sessions")
        await sender.send_batch(self.messages(5, session_id=session_id))
        receiver = await self.client.accept_session("sessions", session_id)
        await receiver.set_state(b"x" * 100)
        await receiver.complete_many(await receiver.receive_batch(5, 5.0))
        await receiver.set_state(None)
        await receiver.close()

    async def scheduled(self) -> None:
        management = await self.client.management("other")
        later_ms = int(time.time() * 1000) + 3_600_000
        await management.cancel(await management.schedule(self.messages(5, scheduled_ms=later_ms)))

    async def topic(self) -> None:
        sender = await self.client.sender("news")
        await sender.send_batch(self.messages(5))
        await self.taken("news/subscriptions/all", 10)
        await self.taken("news/subscriptions/red", 10)

    async def moved(self) -> None:
        sender = await self.client.sender("plain")
        await sender.send_many(self.messages(3))
        receiver = await self.client.receiver("plain")
        taken = await receiver.receive_batch(3, WAIT_S)
        other = await self.client.sender("other")
        payload = Message(b"moved").encode()
        transactions = await self.client.transactions(other)
        await transactions.move(receiver, [(message, payload) for message in taken])
        await self.taken("other", 10)

    async def duplicates(self) -> None:
        sender = await self.client.sender("ids")
        await sender.send_batch(twins := self.messages(5))
        await sender.send_batch(twins)
        await self.taken("ids", 8)

    async def expired(self) -> None:
        sender = await self.client.sender("short")
        await sender.send_batch(self.messages(5))
        await self.taken("short", 20, dead_letters=True)

    async def entity(self) -> None:
        path = f"/{self.name()}?api-version=2021-05"
        made = (
            '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns='
            '"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
        )
        for method, body in (("PUT", made), ("GET", None), ("DELETE", None), ("GET", None)):
            await asyncio.to_thread(self.broker.ask, method, path, body)
        await asyncio.to_thread(self.broker.ask, "GET", "/metrics")

    async def rest(self) -> None:
        for method, path, body in (("POST", "messages", "hello"), ("DELETE", "messages/head?timeout=0", None)):
            await asyncio.to_thread(self.broker.ask, method, f"/other/{path}", body)

    async def refused(self) -> None:
        for path in (self.name(), f"plain/{self.name()}"):
            try:
                await self.client.sender(path)
            except ServiceError:
                continue
            raise AssertionError(f"{path} does not exist, and was attached to")

    async def rubbish(self) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self.broker.port)
        writer.write(MALICIOUS[: self.chance.randrange(len(MALICIOUS))])
        writer.close()

    async def rules(self) -> None:
        management, name = await self.client.management("news/subscriptions/red"), self.name()
        sql = {"sql-filter": {"expression": f"color = '{name}'"}, "rule-name": name}
        await management.ask("com.microsoft:add-rule", {"rule-name": name, "rule-description": sql})
        await management.ask("com.microsoft:remove-rule", {"rule-name": name})


async def emptied(broker: Served) -> None:
    """Delete what the load has left in all entities and their dead-letter queues."""
    async with BusClient.from_connection_string(broker.string) as client:
        for path in HOLDERS:
            for part in (path, f"{path}/$deadletterqueue"):
                management = await client.management(part)
                while await management.delete_batch(1_000, before_ms=int(time.time() * 1000) + 1_000):
                    pass


async def soaked(budget: Budget, broker: Served) -> tuple[int, list[tuple[float, float, int]]]:
    """The number of rounds, and a sample after each lap."""
    samples = []
    rounds = 0
    cases = iter(budget)

    async def work(end_s: float) -> None:
        nonlocal rounds
        for chance in cases:
            next_s = time.monotonic() + round_s
            await Load(broker, chance).round()
            rounds += 1
            if time.monotonic() >= end_s:
                return
            await asyncio.sleep(next_s - time.monotonic())

    lap_s, round_s = (0.0, 0.0) if budget.minutes is None else (LAP_S, ROUND_S)
    before = -1
    while before < rounds:
        before, end_s = rounds, time.monotonic() + lap_s
        await asyncio.gather(*(work(end_s) for _ in range(CLIENTS)))
        await emptied(broker)
        await asyncio.sleep(CALM_S)
        samples.append(broker.sample())
    return rounds, samples


def run(budget: Budget) -> str:
    """Load a served broker with everything at once: its memory and its descriptors do not grow."""
    with tempfile.TemporaryDirectory() as folder:
        broker = Served(Path(folder))
        try:
            rounds, samples = asyncio.run(soaked(budget, broker))
            text = broker.log.read_text()
        finally:
            broker.process.terminate()
            broker.process.wait()
    assert "Traceback" not in text, text[-3_000:]
    half = samples[len(samples) // 2 :]
    assert len(half) >= SAMPLES_MIN, f"{len(half)} samples are too few"
    half_s = half[-1][0] - half[0][0]
    slope = 3_600 * linear_regression([at for at, _, _ in half], [mib for _, mib, _ in half]).slope
    third = len(half) // 3
    files = median(each[2] for each in half[-third:]) - median(each[2] for each in half[:third])
    figures = (
        f"{rounds:,} rounds, {samples[0][1]:.1f} MiB at first, {half[0][1]:.1f} at half, {half[-1][1]:.1f} at last"
    )
    figures += f", {slope:+.2f} MiB an hour over the last {half_s / 60:.1f} minutes, {files:+.0f} descriptors"
    assert slope <= (SLOPE_MIB_MAX if half_s >= HALF_S_MIN else WARMING_MIB_MAX * 3_600 / half_s), figures
    assert files <= CONNECTIONS_MAX, figures
    return figures


@contextmanager
def planted() -> Iterator[None]:
    """The broker keeps every connection that ended."""
    global served
    served = LEAKY
    try:
        yield
    finally:
        served = SERVE


SUITE = Suite("rounds", 24, 20_000, run, planted)
