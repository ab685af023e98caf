"""Asks a namespace who it is. A Twinbus broker says so to everybody who opens a connection, whatever their rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from twinbus.client import BusClient
from twinbus.client.connection import BusConnection
from twinbus.errors import ConnectionForcedError, ServiceError
from twinbus.ledger.words import IDENTITY_PROPERTY, NAMESPACE_PROPERTY
from twinbus.paired.homes import NamespaceAnswer
from twinbus.paired.options import check_name

# Another name means other backlog queues, so one failed connection must not do it.
_TRIES: Final = 4
_PAUSE_S: Final = 0.2


async def asked(make: Callable[[], BusClient], timeout_s: float) -> NamespaceAnswer:
    """Ask a namespace, up to four times; raises ServiceError if it does not answer within `timeout_s`."""
    client = make()
    try:
        async with asyncio.timeout(timeout_s):
            for number in range(_TRIES):
                try:
                    return told_by(await client.connection())
                except ServiceError:
                    if number == _TRIES - 1:
                        raise
                await asyncio.sleep(_PAUSE_S * 2**number)
    except TimeoutError:
        pass
    finally:
        await client.close()
    raise ConnectionForcedError(f"{client.host}:{client.port} did not say who it is within {timeout_s:g} s.")


def told_by(connection: BusConnection) -> NamespaceAnswer:
    """What the peer of an open connection said about itself."""
    opened = connection.engine.remote_open
    return told_in({} if opened is None else opened.properties or {})


def told_in(properties: dict[Any, Any]) -> NamespaceAnswer:
    """What the properties of an AMQP open say about a namespace, if its peer is a Twinbus broker."""
    said = {_text(name): _text(value) for name, value in properties.items()}
    if said.get("product") != "Twinbus" or not said.get(IDENTITY_PROPERTY):
        return NamespaceAnswer()
    try:
        return NamespaceAnswer(check_name(said.get(NAMESPACE_PROPERTY, "")), said[IDENTITY_PROPERTY])
    except ValueError:
        return NamespaceAnswer(None, said[IDENTITY_PROPERTY])


def check_identity(told: NamespaceAnswer, expected: str) -> None:
    """Raise unless a namespace is the expected one: messages of one primary must not go to another at its address."""
    if told.identity != expected:
        raise ConnectionForcedError("Another namespace answers at the primary's address.")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
