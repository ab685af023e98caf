"""Two engines connected in memory, and frames decoded for inspection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinbus.amqp import (
    AmqpEvent,
    Attached,
    Connection,
    Link,
    Role,
    SaslInit,
    Session,
    Source,
    Target,
)
from twinbus.amqp.frames import HEADER_AMQP, HEADER_SASL, descriptor, fields_of

NAMES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
    0x40: "mechanisms",
    0x41: "init",
    0x44: "outcome",
}


class Frame:
    """One decoded frame."""

    def __init__(self, data: bytes) -> None:
        self.raw = data
        self.kind = data[5]
        self.channel = int.from_bytes(data[6:8], "big")
        if len(data) == 8:
            self.name, self.fields, self.payload = "empty", [], b""
            return
        code, start = descriptor(data, 8, len(data))
        self.name = NAMES.get(code, hex(code))
        self.fields, end = fields_of(data, start, len(data))
        self.payload = data[end:]

    def __repr__(self) -> str:
        return f"{self.name}{self.fields}"


def frames_in(data: bytes) -> list[Frame]:
    """Return every frame in some output, without protocol headers."""
    result = []
    while data:
        if data[:8] in (HEADER_AMQP, HEADER_SASL):
            data = data[8:]
            continue
        size = int.from_bytes(data[:4], "big")
        result.append(Frame(data[:size]))
        data = data[size:]
    return result


class Pair:
    """A client and a server. By default the server accepts SASL and every link."""

    def __init__(
        self,
        *,
        sasl: tuple[str, bytes | None] | None = ("ANONYMOUS", None),
        pipelined: bool = False,
        client: dict[str, Any] | None = None,
        server: dict[str, Any] | None = None,
        accept: Callable[[Link], None] | None = None,
        chunk: int | None = None,
    ) -> None:
        self.client = Connection(Role.CLIENT, container_id="client", hostname="localhost", **(client or {}))
        self.server = Connection(Role.SERVER, container_id="server", **(server or {}))
        self.accept = accept or accept_all
        self.chunk = chunk
        self.on_server: Callable[[AmqpEvent], None] | None = None
        self.on_client: Callable[[AmqpEvent], None] | None = None
        self.server_events: list[AmqpEvent] = []
        self.client_events: list[AmqpEvent] = []
        self.to_server: list[Frame] = []
        self.to_client: list[Frame] = []
        self.client_bytes = bytearray()
        self.server_bytes = bytearray()
        self.client.start(sasl=sasl, pipelined=pipelined)

    def pieces(self, data: bytes) -> list[bytes]:
        if self.chunk is None:
            return [data]
        return [data[at : at + self.chunk] for at in range(0, len(data), self.chunk)]

    def step(self) -> bool:
        """Exchange once in each direction; return whether anything was sent."""
        self.client.pump()
        out = self.client.take_output()
        self.to_server += frames_in(out)
        self.client_bytes += out
        for piece in self.pieces(out):
            queue = self.server.receive(piece)
            while queue:
                event = queue.pop(0)
                self.server_events.append(event)
                if isinstance(event, SaslInit):
                    queue.extend(self.server.sasl_outcome(True))
                elif isinstance(event, Attached):
                    self.accept(event.link)
                if self.on_server:
                    self.on_server(event)
        self.server.pump()
        back = self.server.take_output()
        self.to_client += frames_in(back)
        self.server_bytes += back
        for piece in self.pieces(back):
            for event in self.client.receive(piece):
                self.client_events.append(event)
                if self.on_client:
                    self.on_client(event)
        return bool(out or back)

    def run(self) -> Pair:
        for _ in range(1_000):
            if not self.step():
                return self
        raise AssertionError("the two engines never come to rest")

    def forget(self) -> None:
        for seen in (self.server_events, self.client_events, self.to_server, self.to_client):
            seen.clear()

    def session(self) -> Session:
        session = self.client.begin()
        self.run()
        return session

    def sender(self, name: str = "out", **options: Any) -> Link:
        link = self.client.begin().attach_sender(name, target=Target("q"), **options)
        self.run()
        return link

    def receiver(self, name: str = "in", **options: Any) -> Link:
        link = self.client.begin().attach_receiver(name, source=Source("q"), **options)
        self.run()
        return link

    def server_link(self, name: str) -> Link:
        return next(
            event.link for event in self.server_events if isinstance(event, Attached) and event.link.name == name
        )


def accept_all(link: Link) -> None:
    link.accept(max_message_size=262_144, credit=0 if link.sender else 1_000)


def of(events: list[AmqpEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def named(frames: list[Frame], name: str) -> list[Frame]:
    return [frame for frame in frames if frame.name == name]
