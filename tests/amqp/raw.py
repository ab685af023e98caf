"""Hand-written frames for a server engine that is already open."""

from __future__ import annotations

from typing import Any

from twinbus.amqp import AmqpEvent, Connection, Role, Source, Target, UByte, UInt, ULong
from twinbus.amqp.frames import ATTACH, BEGIN, DETACH, DISPOSITION, FLOW, HEADER_AMQP, TRANSFER, frame, open_frame
from twinbus.amqp.states import composite
from twinbus.amqp.types import Described

__all__ = ["attach", "begin", "detach", "disposition", "flow", "opened", "put", "transfer"]


def opened(*, frame_bytes_max: int = 65_536, **options: Any) -> Connection:
    """Return a server that has received header and open from a client."""
    engine = Connection(Role.SERVER, container_id="server", require_sasl=False, **options)
    events = engine.receive(HEADER_AMQP + open_frame("client", "h", frame_bytes_max, 65_535, 0, None))
    assert len(events) == 1
    engine.take_output()
    return engine


def put(engine: Connection, data: bytes) -> list[AmqpEvent]:
    return engine.receive(data)


def begin(channel: int, window: int = 65_536) -> bytes:
    fields = [None, UInt(0), UInt(window), UInt(65_536)]
    return frame(channel, composite(BEGIN, fields))


def attach(channel: int, name: Any, handle: Any, *, receiver: bool, source: Any = "q", target: Any = "q") -> bytes:
    fields = [
        name,
        UInt(handle) if type(handle) is int else handle,
        receiver,
        UByte(0),
        UByte(0),
        terminus(0x28, source),
        terminus(0x29, target),
        None,
        None,
        None if receiver else UInt(0),
        ULong(0),
    ]
    return frame(channel, composite(ATTACH, fields))


def terminus(code: int, value: Any) -> Any:
    if isinstance(value, str):
        fields = Source(value).fields if code == 0x28 else Target(value).fields
        return Described(ULong(code), fields)
    return value


def detach(channel: int, handle: int) -> bytes:
    return frame(channel, composite(DETACH, [UInt(handle), True, None]))


def flow(
    channel: int,
    next_incoming_id: int | None,
    window: int,
    *,
    handle: int | None = None,
    delivery_count: int | None = None,
    credit: int | None = None,
    drain: bool = False,
    echo: bool = False,
    properties: Any = None,
) -> bytes:
    fields = [
        None if next_incoming_id is None else UInt(next_incoming_id),
        UInt(window),
        UInt(0),
        UInt(65_536),
        None if handle is None else UInt(handle),
        None if delivery_count is None else UInt(delivery_count),
        None if credit is None else UInt(credit),
        None,
        drain,
        echo,
        properties,
    ]
    return frame(channel, composite(FLOW, fields))


def transfer(channel: int, fields: list[Any], payload: bytes = b"") -> bytes:
    return frame(channel, composite(TRANSFER, fields) + payload)


def disposition(channel: int, fields: list[Any]) -> bytes:
    return frame(channel, composite(DISPOSITION, fields))
