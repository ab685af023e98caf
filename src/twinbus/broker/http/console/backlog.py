"""The backlog queues of a namespace: depth, age, destinations. Destinations come from a sample of the first
messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Right
from twinbus.broker.http.console.entities import faults, row
from twinbus.broker.http.console.shown import cut
from twinbus.broker.messages.browsing import browse
from twinbus.errors import FilterEvaluationError
from twinbus.ledger.words import BACKLOG_MARK
from twinbus.limits import CONSOLE_BACKLOG_QUEUES_MAX, CONSOLE_BACKLOG_SAMPLE, ENTITY_PATH_CHARS_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor
    from twinbus.entities.queue import Queue

# The property of a diverted message that names its destination.
_DESTINATION = "x-ms-path"


def backlog(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """The backlog queues, grouped by their primary."""
    host = visitor.host(query.get("namespace", ""))
    found = [
        queue
        for queue in host.entities.queues()
        if BACKLOG_MARK in queue.path.lower() and visitor.may(host, queue.path, Right.LISTEN)
    ]
    found.sort(key=_order)
    shown = found[:CONSOLE_BACKLOG_QUEUES_MAX]
    return {
        "namespace": host.name,
        "queues": [_queue(visitor, host, queue) for queue in shown],
        "total": len(found),
        "active": sum(queue.counts.active for queue in found),
        "dead": sum(queue.counts.dead_letter for queue in found),
        "faults": faults(visitor, host, CONSOLE_BACKLOG_QUEUES_MAX),
    }


def _queue(visitor: Visitor, host: NamespaceHost, queue: Queue) -> dict[str, Any]:
    primary, index = _parts(queue.path)
    destinations: Counter[str] = Counter()
    oldest_ms: int | None = None
    sampled = 0
    if queue.counts.active:
        with host.store.snapshot():
            for message in browse(host, queue, 0, CONSOLE_BACKLOG_SAMPLE):
                oldest_ms = message.enqueued_ms if oldest_ms is None else min(oldest_ms, message.enqueued_ms)
                sampled += 1
                try:
                    path = host.views.of_stored(message).properties.folded.get(_DESTINATION)
                except FilterEvaluationError:
                    path = None
                destinations["no destination" if path is None else cut(str(path), ENTITY_PATH_CHARS_MAX)] += 1
    return {
        **row(visitor, host, queue),
        "primary": primary,
        "index": index,
        "oldest_ms": oldest_ms,
        "sampled": sampled,
        "destinations": destinations.most_common(),
    }


def _parts(path: str) -> tuple[str, str]:
    at = path.lower().index(BACKLOG_MARK)
    return path[:at], path[at + len(BACKLOG_MARK) :]


def _order(queue: Queue) -> tuple[str, int, str]:
    primary, index = _parts(queue.path)
    # Sort numerically, with anything that is not a number last.
    place = int(index) if index.isascii() and index.isdigit() and len(index) < 10 else 10**10
    return primary.lower(), place, index
