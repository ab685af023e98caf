"""The handshake of both roles: protocol headers and SASL.

Two rules. A wrong protocol header is answered with the right one, then the connection is over. The owner decides the
SASL exchange in its own time; what the client sends meanwhile is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twinbus.amqp import frames
from twinbus.amqp.events import AmqpEvent, SaslInit
from twinbus.amqp.states import AmqpError
from twinbus.amqp.types import Array, Symbol
from twinbus.errors import IllegalStateError, InvalidFieldError

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection

# What the next bytes have to be.
HEADER: Final = 0  # a protocol header
SASL: Final = 1  # a SASL frame
DECIDING: Final = 2  # nothing until the owner has decided the SASL exchange
FRAMES: Final = 3  # AMQP frames
OVER: Final = 4  # nothing: the connection is over

SASL_OK: Final = 0
SASL_REFUSED: Final = 1


def on_header(connection: Connection, header: bytes, events: list[AmqpEvent]) -> None:
    server = not connection.client
    sasl_next = not connection.sasl_done
    if header == frames.HEADER_AMQP and not (sasl_next and (connection.client or connection.require_sasl)):
        if server:
            connection.put(frames.HEADER_AMQP)
        connection.phase = FRAMES
    elif header == frames.HEADER_SASL and sasl_next and (connection.client or connection.sasl_mechanisms):
        if server:
            connection.put(frames.HEADER_SASL)
            connection.put(frames.sasl_mechanisms_frame(connection.sasl_mechanisms))
        connection.phase = SASL
    else:
        if server:
            # AMQP answers a wrong header with the one that is supported.
            connection.put(frames.HEADER_SASL if connection.require_sasl and sasl_next else frames.HEADER_AMQP)
        connection.finish(AmqpError("amqp:connection:framing-error", "the protocol header is not supported"), events)


def on_sasl_frame(connection: Connection, data: bytes, start: int, end: int, events: list[AmqpEvent]) -> None:
    code, offset = frames.descriptor(data, start, end)
    fields, _ = frames.fields_of(data, offset, end)
    if connection.client:
        on_sasl_answer(connection, code, fields, events)
        return
    if code != frames.SASL_INIT:
        raise IllegalStateError("a SASL init was expected")
    mechanism = frames.text_field(fields, 0, "sasl-init.mechanism") or ""
    response = fields[1] if len(fields) > 1 else None
    if response is not None and not isinstance(response, bytes):
        raise InvalidFieldError("sasl-init.initial-response is not binary")
    connection.phase = DECIDING
    if mechanism not in connection.sasl_mechanisms:
        events.extend(connection.sasl_outcome(False))
        return
    events.append(SaslInit(mechanism, response or b"", frames.text_field(fields, 2, "sasl-init.hostname")))


def on_sasl_answer(connection: Connection, code: int, fields: list[Any], events: list[AmqpEvent]) -> None:
    sasl = connection.sasl
    if sasl is None:
        raise IllegalStateError("a SASL frame was not expected")
    if code == frames.SASL_MECHANISMS:
        offered = fields[0] if fields else None
        names = list(offered) if isinstance(offered, Array) else [offered]
        if Symbol(sasl[0]) not in names:
            reason = f"the server offers no SASL mechanism {sasl[0]}, only {', '.join(map(str, names))}"
            connection.finish(AmqpError("amqp:unauthorized-access", reason), events)
        elif not connection.pipelined:
            connection.put(frames.sasl_init_frame(sasl[0], sasl[1], connection.hostname))
    elif code == frames.SASL_OUTCOME:
        if frames.uint_field(fields, 0, "sasl-outcome.code", SASL_REFUSED) != SASL_OK:
            connection.finish(AmqpError("amqp:unauthorized-access", "the server refused the SASL exchange"), events)
            return
        connection.sasl_done = True
        connection.phase = HEADER
        if not connection.pipelined:
            connection.put(frames.HEADER_AMQP)
            connection.write_open()
    else:
        raise IllegalStateError("the SASL mechanism asks for more than one step")
