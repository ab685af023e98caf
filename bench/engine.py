"""How fast the AMQP engine is by itself: no sockets, no broker. Prints JSON, microseconds per message.

    python bench/engine.py [--messages 20000] [--rounds 5] [--bytes 1024]

decode: a one-frame transfer from bytes to its event. encode: a delivery from `Link.send` to the joined output.
send_accept: client engine to server engine and the accepted dispositions back. receive_settle: server engine to client
engine, the client's dispositions and the server's answers back. locate: finding the sections of a message.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable

from twinbus.amqp import (
    STATE_ACCEPTED,
    AmqpEvent,
    AmqpMessage,
    Attached,
    Connection,
    Credit,
    Disposed,
    Link,
    Outcome,
    Role,
    SaslInit,
    Source,
    Target,
    Transfer,
    locate,
)
from twinbus.amqp import connection as connection_module

BURST = 100


class Pair:
    """A client and a server engine, connected in memory."""

    def __init__(self) -> None:
        self.client = Connection(Role.CLIENT, container_id="client", hostname="localhost")
        self.server = Connection(Role.SERVER, container_id="server")
        self.server_links: list[Link] = []
        self.client.start(sasl=("ANONYMOUS", None))
        session = self.client.begin()
        self.sender = session.attach_sender("out", target=Target("q"))
        self.receiver = session.attach_receiver("in", source=Source("q"), credit=100_000_000)
        for _ in range(5):
            self.to_server(self.client.take_output())
            self.client.receive(self.server.take_output())

    def to_server(self, data: bytes) -> None:
        events = self.server.receive(data)
        while events:
            event = events.pop(0)
            if isinstance(event, SaslInit):
                events.extend(self.server.sasl_outcome(True))
            elif isinstance(event, Attached):
                event.link.accept(max_message_size=1 << 20, credit=0 if event.link.sender else 1000)
                self.server_links.append(event.link)


def payload_of(size: int) -> bytes:
    message = AmqpMessage.of_data(b"x" * size)
    message.message_id = "3f2504e04f8911d39a0c0305e82c3301"
    message.ttl = 60_000
    message.application_properties = {"kind": "order", "number": 7}
    return message.encode()


def decode(messages: int, payload: bytes) -> float:
    pair = Pair()
    for number in range(messages):
        pair.sender.send(payload, tag=number.to_bytes(4, "big"), settled=False)
        if number % 4_000 == 3_999:
            pair.sender.session.remote_window += 4_000
    data = pair.client.take_output()
    receive = pair.server.receive
    chunks = [data[offset : offset + 65_536] for offset in range(0, len(data), 65_536)]
    start = time.perf_counter()
    count = 0
    for chunk in chunks:
        count += len(receive(chunk))
    elapsed = time.perf_counter() - start
    assert count == messages
    return elapsed


def encode(messages: int, payload: bytes) -> float:
    pair = Pair()
    link = next(link for link in pair.server_links if link.sender)
    link.session.remote_window = messages
    tags = [number.to_bytes(16, "big") for number in range(messages)]
    take_output = pair.server.take_output
    start = time.perf_counter()
    for number in range(messages):
        link.send(payload, tag=tags[number], settled=False)
        if number % BURST == BURST - 1:
            take_output()
    return time.perf_counter() - start


def settle_all(server: Connection, data: bytes) -> None:
    for event in server.receive(data):
        if isinstance(event, Transfer):
            event.link.session.settle(event.delivery_id, STATE_ACCEPTED)


def send_accept(messages: int, payload: bytes) -> float:
    pair = Pair()
    client, server = pair.client, pair.server
    accepted = 0
    number = 0
    start = time.perf_counter()
    while accepted < messages:
        for _ in range(min(BURST, messages - number)):
            pair.sender.send(payload, tag=number.to_bytes(4, "big"), settled=False)
            number += 1
        settle_all(server, client.take_output())
        for event in client.receive(server.take_output()):
            if isinstance(event, Disposed):
                accepted += len(event.deliveries)
    return time.perf_counter() - start


def receive_settle(messages: int, payload: bytes) -> float:
    pair = Pair()
    client, server = pair.client, pair.server
    link = next(link for link in pair.server_links if link.sender)
    settled = 0
    number = 0
    start = time.perf_counter()
    while settled < messages:
        for _ in range(min(BURST, messages - number, link.sendable())):
            link.send(payload, tag=number.to_bytes(16, "big"), settled=False)
            number += 1
        for event in client.receive(server.take_output()):
            if isinstance(event, Transfer):
                event.link.session.dispose(event.delivery_id, event.delivery_id, STATE_ACCEPTED, False)
        events: list[AmqpEvent] = server.receive(client.take_output())
        for event in events:
            if isinstance(event, Disposed):
                for delivery_id, _, _ in event.deliveries:
                    event.session.answer(delivery_id, STATE_ACCEPTED)
            elif isinstance(event, Credit):
                continue
        for event in client.receive(server.take_output()):
            if isinstance(event, Outcome):
                settled += event.last - event.first + 1
    return time.perf_counter() - start


def find_sections(messages: int, payload: bytes) -> float:
    start = time.perf_counter()
    for _ in range(messages):
        locate(payload)
    return time.perf_counter() - start


CASES: dict[str, Callable[[int, bytes], float]] = {
    "decode": decode,
    "encode": encode,
    "send_accept": send_accept,
    "receive_settle": receive_settle,
    "locate": find_sections,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=1024)
    options = parser.parse_args()
    payload = payload_of(options.bytes)
    figures: dict[str, dict[str, float]] = {}
    for name, case in CASES.items():
        times = sorted(case(options.messages, payload) for _ in range(options.rounds))
        median = times[len(times) // 2]
        figures[name] = {
            "us_median": round(median / options.messages * 1e6, 3),
            "us_best": round(times[0] / options.messages * 1e6, 3),
            "per_second": round(options.messages / median),
        }
    print(
        json.dumps(
            {
                "bench": "engine",
                "python": platform.python_version(),
                "compiled": not str(connection_module.__file__).endswith(".py"),
                "messages": options.messages,
                "body_bytes": options.bytes,
                "figures": figures,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
