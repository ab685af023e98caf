"""How fast a topic with many subscriptions is: `python bench/fanout.py` prints one JSON object.

1 KB messages with four properties, one sender; every send is confirmed after all copies are on disk. `sql` has a
hundred subscriptions with a SQL filter each, of which one, ten or all select a message. `correlation` has one
subscription that selects each message, among ten or ten thousand correlation filters; their ratio is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import cpu_s, machine
from twinbus_peer import NAMESPACE, TwinbusPeer

from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.types import Int
from twinbus.client import BusClient
from twinbus.errors import ServiceError

SUBSCRIPTIONS = 100
RULES_PER_SUBSCRIPTION = 10
WINDOW = 200


def topic(name: str) -> list[str]:
    return [f"[namespaces.{NAMESPACE}.topics.{name}]"]


def subscription(topic_name: str, name: str, rules: dict[str, str]) -> list[str]:
    place = f"namespaces.{NAMESPACE}.topics.{topic_name}.subscriptions.{name}"
    lines = [f"[{place}]"]
    for rule, text in rules.items():
        lines += [f"[{place}.rules.{rule}]", text]
    return lines


def sql_topic(name: str, selecting: int) -> list[str]:
    """A hundred subscriptions, of which `selecting` select each message."""
    lines = topic(name)
    for number in range(SUBSCRIPTIONS):
        color = "blue" if number < selecting else f"color{number}"
        text = f"color = '{color}' AND quantity > 5 AND sys.Label LIKE 'order%'"
        lines += subscription(name, f"s{number}", {"sql": f'sql = "{text}"'})
    return lines


def correlation_topic(name: str, filters: int) -> list[str]:
    """`filters` correlation filters, ten per subscription; every message matches one of the first ten."""
    lines = topic(name)
    for start in range(0, filters, RULES_PER_SUBSCRIPTION):
        rules = {
            f"r{number}": f'correlation = {{ subject = "order", properties = {{ customer = "c{number}" }} }}'
            for number in range(start, start + RULES_PER_SUBSCRIPTION)
        }
        lines += subscription(name, f"s{start}", rules)
    return lines


TOPICS = {
    "sql_1_of_100": sql_topic("sql_1_of_100", 1),
    "sql_10_of_100": sql_topic("sql_10_of_100", 10),
    "sql_100_of_100": sql_topic("sql_100_of_100", 100),
    "correlation_10": correlation_topic("correlation_10", 10),
    "correlation_10000": correlation_topic("correlation_10000", 10_000),
}


def payload(number: int) -> bytes:
    message = AmqpMessage()
    message.message_id = f"m{number}"
    message.subject = "order"
    message.application_properties = {
        "color": "blue",
        "quantity": Int(10),
        "customer": f"c{number % RULES_PER_SUBSCRIPTION}",
        "price": 42.5,
    }
    message.data = [b"x" * 1024]
    return message.encode()


async def send(peer: TwinbusPeer, address: str, count: int) -> dict[str, Any]:
    payloads = [payload(number) for number in range(100)]
    waits: list[float] = []
    errors: list[ServiceError] = []

    def answered(error: ServiceError | None, sent_at: float) -> None:
        waits.append(time.perf_counter() - sent_at)
        if error is not None:
            errors.append(error)

    async with BusClient.with_password("127.0.0.1", peer.port, peer.user, peer.password) as client:
        sender = await client.sender(address, window=WINDOW)
        before, started = cpu_s(peer.pid), time.perf_counter()
        for number in range(count):
            while sender.room() <= 0:
                await sender.wait_for_room()
            sender.submit(payloads[number % len(payloads)], answered, time.perf_counter())
        await sender.idle()
        seconds = time.perf_counter() - started
        used = cpu_s(peer.pid) - before
    if errors:
        raise errors[0]
    ordered = sorted(waits)
    return {
        "messages": count,
        "messages_s": round(count / seconds),
        "broker_cpu_us": round(used / count * 1e6, 1),
        "accept_p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5_000, help="messages for each topic")
    parser.add_argument("--rounds", type=int, default=2, help="the better round counts")
    options = parser.parse_args()
    figures: dict[str, Any] = {"machine": machine(), "topics": {}}
    lines = [line for each in TOPICS.values() for line in each]
    with tempfile.TemporaryDirectory() as folder, TwinbusPeer(Path(folder), topics=lines) as peer:
        for _ in range(options.rounds):
            for name in TOPICS:
                # A hundred copies per message fill a disk quickly.
                count = options.count // 5 if name == "sql_100_of_100" else options.count
                found = asyncio.run(send(peer, name, count))
                known = figures["topics"].get(name)
                if known is None or found["messages_s"] > known["messages_s"]:
                    figures["topics"][name] = found
    few, many = (figures["topics"][f"correlation_{count}"]["broker_cpu_us"] for count in (10, 10_000))
    figures["correlation_10000_to_10_cpu"] = round(many / few, 2)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
