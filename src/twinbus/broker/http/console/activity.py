"""Connections and rates of a namespace in the console.

Connections need Manage on the namespace, rates need Listen on the entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Right
from twinbus.broker.http.console.entities import found_entity, number
from twinbus.broker.nodes.activity import connections_page
from twinbus.errors import ArgumentError
from twinbus.limits import REFUSALS_SHOWN

if TYPE_CHECKING:
    from twinbus.broker.http.console.visitor import Visitor


def connections(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of AMQP connections, oldest first, with numbers above `after`; and the clients refused last."""
    host = visitor.host(query.get("namespace", ""))
    visitor.need(host, "", Right.MANAGE)
    # Newest first: after a deployment with a wrong key, that is the one to see.
    refused = [asdict(each) for each in reversed(host.refusals.latest)][:REFUSALS_SHOWN]
    return {"namespace": host.name, "refused": refused, **connections_page(host, number(query, "after", 0))}


def rates(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """Messages per second: of one entity with its last minute, or of all that moved any."""
    host = visitor.host(query.get("namespace", ""))
    path = query.get("entity", "")
    if path:
        path = found_entity(visitor, host, path, Right.LISTEN).path
        recent = host.meter.rates.recent(lambda each: each == path)
        return {"namespace": host.name, "rates": recent, "history": host.meter.rates.history(path)}
    recent = host.meter.rates.recent(lambda each: visitor.may(host, each, Right.LISTEN))
    return {"namespace": host.name, "rates": recent}


async def close_connection(visitor: Visitor, fields: dict[str, Any]) -> dict[str, Any]:
    """Close one connection by number; its client may reconnect."""
    name = fields.get("namespace", "")
    wanted = fields.get("number")
    if not isinstance(name, str) or isinstance(wanted, bool) or not isinstance(wanted, int):
        raise ArgumentError("Give the 'number' of the connection.")
    host = visitor.host(name)
    visitor.need(host, "", Right.MANAGE)
    host.close_connection(wanted)
    return {"closed": wanted}
