"""Feed the AMQP engine random nonsense. `python -m tests.proof fuzzing` does it guided by coverage.

    python tests/fuzz/fuzz_amqp.py --seconds 60 --seed 7

The first byte of an input picks what is fed: a server from its first byte, a server that is open with two links, a
client, the message sections or the codec. A crash prints the input; put it into a test.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from twinbus.amqp import (
    STATE_ACCEPTED,
    AmqpEvent,
    AmqpMessage,
    Attached,
    Connection,
    Credit,
    Disposed,
    Role,
    SaslInit,
    Source,
    Target,
    Transfer,
    decode,
    encode,
    locate,
    skip,
)
from twinbus.errors import DecodeError

OUTPUT_BYTES_MAX = 1 << 20


def recorded() -> bytes:
    """What a client sends to open a connection, a session and two links."""
    client = Connection(Role.CLIENT, container_id="c", hostname="h")
    client.start(sasl=("ANONYMOUS", None), pipelined=True)
    session = client.begin()
    session.attach_sender("out", target=Target("q"))
    session.attach_receiver("in", source=Source("q"))
    return client.take_output()


OPENING = recorded()


def serve(connection: Connection, event: AmqpEvent) -> list[AmqpEvent]:
    """What a broker would do."""
    if isinstance(event, SaslInit):
        return connection.sasl_outcome(True)
    if isinstance(event, Attached):
        event.link.accept(max_message_size=10_000, credit=0 if event.link.sender else 10)
    elif isinstance(event, Transfer):
        event.link.session.settle(event.delivery_id, STATE_ACCEPTED)
    elif isinstance(event, Credit):
        for _ in range(min(event.link.sendable(), 3)):
            event.link.send(b"x" * 600, tag=b"t" * 16, settled=False)
        if event.link.drain:
            event.link.drained()
    elif isinstance(event, Disposed):
        for delivery_id, _, _ in event.deliveries:
            event.session.answer(delivery_id, STATE_ACCEPTED)
    return []


def feed(connection: Connection, data: bytes) -> None:
    queue = connection.receive(data)
    while queue:
        queue.extend(serve(connection, queue.pop(0)))
    if len(connection.take_output()) > OUTPUT_BYTES_MAX + 100 * len(data):
        raise AssertionError("the output is out of proportion")


def one_input(data: bytes) -> None:
    choice, data = data[:1], data[1:]
    kind = choice[0] % 5 if choice else 0
    if kind == 0:
        feed(Connection(Role.SERVER, container_id="s", frame_bytes_max=4_096), data)
    elif kind == 1:
        server = Connection(Role.SERVER, container_id="s", frame_bytes_max=4_096)
        feed(server, OPENING)
        feed(server, data)
    elif kind == 2:
        client = Connection(Role.CLIENT, container_id="c")
        client.start(sasl=("ANONYMOUS", None), pipelined=True)
        client.begin().attach_sender("out", target=Target("q"))
        client.receive(data)
        client.take_output()
    elif kind == 3:
        try:
            locate(data)
            AmqpMessage.decode(data).encode()
        except DecodeError:
            return
    else:
        try:
            value, end = decode(data)
        except DecodeError:
            return
        assert skip(data, 0) == end
        assert encode(decode(encode(value))[0]) == encode(value)


def random_input(source: random.Random) -> bytes:
    """Half of the inputs are a real opening with some bytes changed, the others plain noise."""
    if source.random() < 0.5:
        return source.randbytes(source.randrange(200))
    data = bytearray(OPENING)
    for _ in range(source.randrange(1, 8)):
        at = source.randrange(len(data))
        if source.random() < 0.5:
            data[at] = source.randrange(256)
        elif source.random() < 0.5:
            del data[at : at + source.randrange(8)]
        else:
            data[at:at] = data[at : at + source.randrange(60)]
        if not data:
            return b""
    return bytes([source.randrange(5)]) + bytes(data)


def run_random(seconds: float, seed: int) -> int:
    """Inputs tried; the same seed tries the same inputs."""
    source = random.Random(seed)
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        data = random_input(source)
        try:
            one_input(data)
        except Exception:
            print(f"seed {seed}, input {count}: {data.hex()}", file=sys.stderr)
            raise
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{run_random(options.seconds, options.seed)} inputs, no crash")


if __name__ == "__main__":
    main()
