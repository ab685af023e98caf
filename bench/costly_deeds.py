"""Deeds for `bench/bystander.py` that are few messages and much work: rules, pages, peeks, and nested values."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from twinbus.amqp.codec import encode
from twinbus.amqp.types import Int, Timestamp
from twinbus.client import BusClient, Message

if TYPE_CHECKING:
    from bystander import Stage

# A piece of a LIKE pattern that nothing in LONG_TEXT ends, although every character of it begins one.
LONG_PIECE = "a_" * 20 + "c"
LONG_TEXT = "ab" * 15_000


def nested(size: int) -> bytes:
    """An encoded value of about so many bytes: lists of empty lists, each of one byte."""
    inner = encode([[]] * 60_000)
    return encode([[]] * min(size, 60_000)) if size < len(inner) else _list(inner, size // len(inner))


def _list(item: bytes, count: int) -> bytes:
    body = item * count
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def value_message(size: int) -> bytes:
    """A message whose body is such a value."""
    return b"\x00\x53\x77" + nested(size)


async def _create_rules(stage: Stage, filters: list[dict[str, Any]]) -> None:
    """A topic `judged` with a subscription `s` that has these rules, and no other."""
    stage.create("judged", "TopicDescription ")
    stage.create("judged/subscriptions/s", "SubscriptionDescription ")
    async with BusClient.from_connection_string(stage.string, timeout_ms=600_000) as client:
        node = await client.management("judged/subscriptions/s")
        rules = [{"rule-name": f"r{at}", "rule-description": each} for at, each in enumerate(filters)]
        for start in range(0, len(rules), 200):
            adding = (node.ask("com.microsoft:add-rule", rule) for rule in rules[start : start + 200])
            await asyncio.gather(*adding)
        await node.ask("com.microsoft:remove-rule", {"rule-name": "$Default"})


def _sql(expression: str) -> dict[str, Any]:
    return {"sql-filter": {"expression": expression}}


def _equal(properties: dict[str, Any]) -> dict[str, Any]:
    return {"correlation-filter": {"properties": properties}}


def _batch(stage: Stage, count: int, properties: dict[str, Any]) -> Callable[[], Awaitable[None]]:
    async def deed() -> None:
        async with BusClient.from_connection_string(stage.string, timeout_ms=600_000) as client:
            sender = await client.sender("judged")
            await sender.send_batch([Message(b"x", application_properties=properties) for _ in range(count)])

    return deed


async def like_rules(stage: Stage) -> Any:
    await _create_rules(stage, [_sql(f"p LIKE '%{LONG_PIECE}{at}%'") for at in range(stage.count(300))])
    return _batch(stage, 3, {"p": LONG_TEXT})


async def correlation_rules(stage: Stage) -> Any:
    await _create_rules(stage, [_equal({"p": "x", f"q{at}": "y"}) for at in range(stage.count(8_000))])
    return _batch(stage, stage.count(1_000), {"p": "x"})


async def equal_rules(stage: Stage) -> Any:
    await _create_rules(stage, [_equal({"p": "x"}) for _ in range(stage.count(8_000))])
    return _batch(stage, stage.count(1_000), {"p": "x"})


def _asked(stage: Stage, path: str, operation: str, request: dict[str, Any], count: int) -> Any:
    """Send so many equal requests at once."""

    async def deed() -> None:
        async with BusClient.from_connection_string(stage.string, timeout_ms=600_000) as client:
            node = await client.management(path)
            await asyncio.gather(*(node.ask(f"com.microsoft:{operation}", request) for _ in range(count)))

    return deed


async def session_pages(stage: Stage) -> Any:
    stage.create("pages", "QueueDescription <RequiresSession>true</RequiresSession>")
    count = stage.count(100_000)
    async with BusClient.from_connection_string(stage.string, timeout_ms=600_000) as client:
        sender = await client.sender("pages")
        for outcome in await sender.send_batches(Message(b"x", session_id=str(at)) for at in range(count)):
            if outcome is not None:
                raise outcome
    request = {"last-updated-time": Timestamp(253_402_300_800_000), "skip": Int(count - 10), "top": Int(100)}
    return _asked(stage, "pages", "get-message-sessions", request, 400)


async def session_peeks(stage: Stage) -> Any:
    stage.create("peeks", "QueueDescription <RequiresSession>true</RequiresSession>")
    later_ms = int(time.time() * 1000) + 86_400_000
    await stage.fill("peeks", stage.count(100_000), session_id="s", scheduled_ms=later_ms)
    request = {"from-sequence-number": stage.count(100_000) - 10, "message-count": Int(5), "session-id": "s"}
    return _asked(stage, "peeks", "peek-message", request, 200)


async def rule_pages(stage: Stage) -> Any:
    await _create_rules(stage, [_equal({"p": str(at)}) for at in range(stage.count(8_000))])
    request = {"skip": Int(stage.count(8_000) - 10), "top": Int(100)}
    return _asked(stage, "judged/subscriptions/s", "enumerate-rules", request, 400)


async def nested_rest(stage: Stage) -> Any:
    peer = stage.connect()
    link = peer.sender("large")
    link.send(value_message(stage.count(10_000_000)), tag=b"1", settled=True)
    peer.flush()
    time.sleep(2)

    def deed() -> None:
        status, _ = stage.ask("DELETE", "/large/messages/head?timeout=5")
        if status != 200:
            raise RuntimeError(f"{status}")

    return deed


async def nested_console(stage: Stage) -> Any:
    peer = stage.connect()
    link = peer.sender("large")
    for at in range(10):
        link.send(value_message(stage.count(256 * 1024)), tag=bytes([at]), settled=True)
        peer.flush()
    time.sleep(1)
    client = http.client.HTTPConnection("127.0.0.1", stage.peer.port, timeout=300)
    site = f"localhost:{stage.peer.port}"
    login = json.dumps({"namespace": "", "policy": stage.peer.user, "key": stage.peer.password})
    headers = {"Host": site, "Content-Type": "application/json"}
    client.request("POST", "/console/$api/login", login, headers)
    answer = client.getresponse()
    answer.read()
    cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]

    def deed() -> None:
        query = urlencode({"namespace": "bench", "entity": "large"})
        client.request("GET", f"/console/$api/messages?{query}", headers={"Host": site, "Cookie": cookie})
        answer = client.getresponse()
        if answer.status != 200 or not json.loads(answer.read())["rows"]:
            raise RuntimeError(f"{answer.status}")

    return deed


async def copies(stage: Stage) -> Any:
    stage.create("wide", "TopicDescription ")
    for number in range(stage.count(1_000)):
        stage.create(f"wide/subscriptions/s{number}", "SubscriptionDescription ")

    async def deed() -> None:
        async with BusClient.from_connection_string(stage.string, timeout_ms=600_000) as client:
            sender = await client.sender("wide")
            await asyncio.gather(*(sender.send(Message(b"x" * 50)) for _ in range(stage.count(300))))

    return deed


async def long_xml(stage: Stage) -> Any:
    """Elements whose names get the prefix of a long namespace."""
    space = "x" * 500_000
    names = "".join(f"<e{at}/>" for at in range(9_000))
    body = f'<entry xmlns="{space}">{names}</entry>'

    def deed() -> None:
        for _ in range(5):
            status, _ = stage.ask("PUT", "/strange?api-version=2021-05", body)
            if status != 400:
                raise RuntimeError(f"{status}")

    return deed


COSTLY = {
    "like": ("300 LIKE rules, 3 messages with a long property", like_rules),
    "correlation": ("8,000 correlation rules, a batch of 1,000", correlation_rules),
    "equal-rules": ("8,000 equal rules, a batch of 1,000", equal_rules),
    "session-pages": ("400 last pages of 100,000 sessions", session_pages),
    "session-peeks": ("200 peeks among 100,000 scheduled messages", session_peeks),
    "rule-pages": ("400 last pages of 8,000 rules", rule_pages),
    "nested-rest": ("10 MB of nested lists received over HTTP", nested_rest),
    "nested-console": ("a console page of 256 KiB nested lists", nested_console),
    "copies": ("300 messages to 1,000 subscriptions, one by one", copies),
    "xml": ("5 descriptions with names of 500 KB", long_xml),
}
