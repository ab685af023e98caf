"""What is going on in a namespace, for its administrator: connections, depths, rates, backups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from twinbus.broker.backup import get_backup, start_backup
from twinbus.broker.metering.rates import FLOWS
from twinbus.broker.nodes.requests import Request
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.errors import ArgumentError
from twinbus.limits import CONNECTIONS_PAGE, OVERVIEW_ENTITIES_LOOKED, OVERVIEW_ENTITIES_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

Activity = dict[str, Any]


def connections_page(host: NamespaceHost, after: int) -> Activity:
    """Connections with numbers above `after`; `more` says whether there is another page."""
    found = [each for each in host.connections() if each.number > after]
    page = [each.describe() for each in found[:CONNECTIONS_PAGE]]
    return {"connections": page, "total": host.connection_count, "more": len(found) > CONNECTIONS_PAGE}


def list_connections(host: NamespaceHost, request: Request) -> Activity:
    page = connections_page(host, _whole(request, "after"))
    for each in page["connections"]:
        each["own"] = each["number"] == request.connection_number
    return page


def close_connection(host: NamespaceHost, request: Request) -> Activity:
    number = _whole(request, "number")
    if number == request.connection_number:
        raise ArgumentError(f"Connection {number} is the one that asks: it closes by itself.")
    host.close_connection(number)
    return {"closed": number}


def overview(host: NamespaceHost, request: Request) -> Activity:
    """The namespace's totals, and its busiest entities."""
    senders, receivers = host.link_counts()
    rates = host.meter.rates.recent()
    rows = [_row(entity, rates) for entity in islice(every_entity(host), OVERVIEW_ENTITIES_LOOKED)]
    rows.sort(key=_business, reverse=True)
    return {
        "namespace": host.name,
        "connections": host.connection_count,
        "senders": senders,
        "receivers": receivers,
        "store_bytes": host.store.file_bytes,
        "rates": {flow: round(sum(each[flow] for each in rates.values()), 1) for flow in FLOWS},
        "entities": rows[:OVERVIEW_ENTITIES_MAX],
        "entities_total": len(rows),
    }


def every_entity(host: NamespaceHost) -> Iterator[Queue | Topic]:
    """All queues, topics and subscription queues."""
    yield from host.entities.queues()
    for topic in host.entities.topics():
        yield topic
        yield from (subscription.queue for subscription in topic.subscriptions)


def _row(entity: Queue | Topic, rates: dict[str, dict[str, float]]) -> Activity:
    counts = entity.counts
    kind = "topic" if isinstance(entity, Topic) else "queue" if entity.subscription is None else "subscription"
    return {
        "kind": kind,
        "path": entity.path,
        "status": entity.settings.status,
        "active_messages": counts.active,
        "scheduled_messages": counts.scheduled,
        "deferred_messages": counts.deferred,
        "dead_letter_messages": counts.dead_letter,
        "size_bytes": entity.size_bytes,
        **(rates.get(entity.path) or dict.fromkeys(FLOWS, 0.0)),
    }


def _business(row: Activity) -> tuple[float, int]:
    return sum(row[flow] for flow in FLOWS), row["active_messages"]


def _whole(request: Request, name: str) -> int:
    value = request.arguments.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(f"The request's '{name}' is not a number.")
    return int(value)


ACTIVITY_QUESTIONS: dict[str, Callable[[NamespaceHost, Request], Activity]] = {
    "list-connections": list_connections,
    "close-connection": close_connection,
    "overview": overview,
    "start-backup": start_backup,
    "get-backup": get_backup,
}
