"""Describes a connection to administrators: the client, its age and its links."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import islice
from typing import TYPE_CHECKING, Any

from twinbus.amqp.connection import RemoteOpen
from twinbus.amqp.link import Link
from twinbus.amqp.terminus import Coordinator
from twinbus.amqp.types import Symbol
from twinbus.broker.links.addresses import parse
from twinbus.limits import CONNECTION_LINKS_SHOWN, HOST_NAME_CHARS_MAX
from twinbus.websocket import WebSocketTransport

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection

_TEXT_CHARS_MAX = 200
# The properties of a client that the description shows.
_CLIENT = (Symbol("user-agent"), Symbol("product"), Symbol("version"))


def describe_connection(
    connection: BrokerConnection, transport: asyncio.Transport | None, links: Collection[Link]
) -> dict[str, Any]:
    opened = connection.engine.remote_open
    shown = [_link(each) for each in islice(sorted(links, key=_name), CONNECTION_LINKS_SHOWN)]
    return {
        "number": connection.number,
        "address": _address(transport),
        "opened_ms": connection.opened_ms,
        "transport": _kind(transport),
        "container": (opened.container_id if opened is not None else "")[:_TEXT_CHARS_MAX],
        "client": _client({} if opened is None else opened.properties or {}),
        "senders": sum(1 for each in links if not each.sender and _entity(each)),
        "receivers": sum(1 for each in links if each.sender and _entity(each)),
        "links": shown,
        "links_total": len(links),
    }


def trim_open(opened: RemoteOpen) -> None:
    """Drop what the description does not show, because it adds up over thousands of clients."""
    opened.container_id = opened.container_id[:_TEXT_CHARS_MAX]
    opened.hostname = None if opened.hostname is None else opened.hostname[:HOST_NAME_CHARS_MAX]
    told = opened.properties or {}
    opened.properties = {name: str(told[name])[:_TEXT_CHARS_MAX] for name in _CLIENT if name in told}


def _address(transport: asyncio.Transport | None) -> str:
    peer = transport.get_extra_info("peername") if transport is not None else None
    if not peer:
        return ""
    return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"


def _kind(transport: asyncio.Transport | None) -> str:
    """The protocol: `amqp`, `amqps`, `ws` or `wss`."""
    plain = "ws" if isinstance(transport, WebSocketTransport) else "amqp"
    return plain + ("s" if transport is not None and transport.get_extra_info("ssl_object") is not None else "")


def _client(properties: dict[Any, Any]) -> str:
    """What the client calls itself: SDKs send a user agent, others a product and a version."""
    agent = properties.get(Symbol("user-agent")) or " ".join(
        str(properties[name]) for name in (Symbol("product"), Symbol("version")) if name in properties
    )
    return str(agent)[:_TEXT_CHARS_MAX]


def _link(link: Link) -> dict[str, Any]:
    return {
        "name": link.name[:_TEXT_CHARS_MAX],
        "role": "receiver" if link.sender else "sender",
        "address": _address_of(link)[:_TEXT_CHARS_MAX],
        "credit": link.credit,
        "unsettled": link.unsettled_count,
    }


def _address_of(link: Link) -> str:
    if isinstance(link.target, Coordinator):
        return "$coordinator"
    terminus = link.source if link.sender else link.target
    return str(terminus.address or "") if terminus is not None else ""


def _entity(link: Link) -> bool:
    """Whether the link carries an entity's messages, not requests."""
    address = _address_of(link)
    if not address or address == "$coordinator":
        return False
    parsed = parse(address)
    return not (parsed.cbs or parsed.management)


def _name(link: Link) -> str:
    return link.name
