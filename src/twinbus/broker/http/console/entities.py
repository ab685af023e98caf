"""Namespaces and entities with their numbers, for the console's first pages and their streams.

- Every list is paged, and the work for one answer is bounded.
- A key sees the names it covers, and numbers only where it has Listen; totals count only what it covers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from twinbus.auth.policies import Right
from twinbus.broker.http.console.answers import Refused
from twinbus.broker.http.console.shown import cut, text
from twinbus.broker.nodes.activity import every_entity
from twinbus.entities.filters import CorrelationFilter
from twinbus.entities.queue import Queue
from twinbus.entities.rule import Rule
from twinbus.entities.subscription import subscription_of
from twinbus.entities.topic import Topic
from twinbus.limits import CONSOLE_ENTITIES_MAX, CONSOLE_ENTITIES_PAGE, CONSOLE_FAULTS_PAGE, RULES_PAGE_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor
    from twinbus.broker.server import NamespaceEndpoint

_NUMBER_CHARS_MAX = 19


def namespaces(visitor: Visitor, endpoints: Mapping[str, NamespaceEndpoint]) -> dict[str, Any]:
    """Every namespace of the process, with numbers if the login has opened it."""
    found = []
    for host in visitor.hosts:
        endpoint = endpoints.get(host.name)
        shown: dict[str, Any] = {
            "name": host.name,
            "port": None if endpoint is None else endpoint.port,
            "here": host is visitor.here,
            "open": visitor.claim(host) is not None,
            "policy": visitor.login.policy(host),
            "account": visitor.login.account(host),
            "rights": visitor.rights(host, ""),
        }
        if visitor.may(host, "", Right.LISTEN):
            shown |= _numbers(host)
        found.append(shown)
    return {"namespaces": found}


def _numbers(host: NamespaceHost) -> dict[str, Any]:
    senders, receivers = host.link_counts()
    queues, topics = host.entities.queues(), host.entities.topics()
    active = dead = 0
    for entity in islice(every_entity(host), CONSOLE_ENTITIES_MAX):
        counts = entity.counts
        active += counts.active
        dead += counts.dead_letter
    return {
        "queues": len(queues),
        "topics": len(topics),
        "active": active,
        "dead": dead,
        "connections": host.connection_count,
        "senders": senders,
        "receivers": receivers,
        "bytes": host.store.file_bytes,
        "store": "failed" if host.commits.failed else "full" if host.store.full else "ok",
        "faults": [fault.to_json() for fault in host.faults.all()[:CONSOLE_FAULTS_PAGE]],
    }


def entities(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of queues, topics and subscriptions that match the query, in the requested order."""
    host = visitor.host(query.get("namespace", ""))
    skip = number(query, "skip", 0)
    queues, topics = host.entities.queues(), host.entities.topics()
    wanted = _Wanted(visitor, host, query)
    value = _ORDERS.get(query.get("sort", ""))
    # A list by name is read only as far as the page; a filtered or sorted one to the end.
    enough = CONSOLE_ENTITIES_MAX if value or wanted.narrow else skip + CONSOLE_ENTITIES_PAGE + 1
    walked = islice(_walk(queues, topics), CONSOLE_ENTITIES_MAX)
    found = list(islice(filter(wanted, walked), enough))
    if value is not None:
        # Entities whose numbers the key may not see come last.
        found.sort(key=lambda each: -value(each) if visitor.may(host, each.path, Right.LISTEN) else 1)
    page = found[skip : skip + CONSOLE_ENTITIES_PAGE]
    shown = {each.path for each in page if visitor.may(host, each.path, Right.LISTEN)}
    rates = {path: rate | _moved(host, path) for path, rate in host.meter.rates.recent(shown.__contains__).items()}
    return {
        "namespace": host.name,
        "rights": visitor.rights(host, ""),
        "queues": _covered(visitor, host, queues),
        "topics": _covered(visitor, host, topics),
        "skip": skip,
        "found": len(found),
        "rows": [row(visitor, host, each) | {"rate": rates.get(each.path)} for each in page],
        "more": len(found) > skip + len(page),
        "faults": faults(visitor, host, CONSOLE_FAULTS_PAGE),
    }


def _covered(visitor: Visitor, host: NamespaceHost, entities: Sequence[Queue | Topic]) -> int:
    """How many of the entities the visitor's key covers."""
    if visitor.rights(host, ""):
        return len(entities)
    return sum(1 for each in entities if visitor.rights(host, each.path))


def faults(visitor: Visitor, host: NamespaceHost, count: int) -> list[dict[str, Any]]:
    """The first faults that affect what the visitor's key covers: those of its entities, and of the namespace."""
    found = (each for each in host.faults.all() if each.entity is None or visitor.rights(host, each.entity))
    return [each.to_json() for each in islice(found, count)]


class _Wanted:
    """The filter of an entity list."""

    def __init__(self, visitor: Visitor, host: NamespaceHost, query: Mapping[str, str]) -> None:
        self._visitor = visitor
        self._host = host
        self._search = query.get("search", "").lower()[:300]
        self._kind = query.get("kind", "")
        # Only subscriptions of this topic; empty for any.
        self._topic = query.get("topic", "").lower()
        # Only entities with dead letters.
        self._dead = query.get("only", "") == "dead"
        self.narrow = bool(self._search or self._kind or self._topic or self._dead)

    def __call__(self, entity: Queue | Topic) -> bool:
        if self.narrow and not self._fits(entity):
            return False
        return bool(self._visitor.rights(self._host, entity.path))

    def _fits(self, entity: Queue | Topic) -> bool:
        if self._search not in entity.path.lower() or (self._kind and self._kind != kind_of(entity)):
            return False
        subscription = None if isinstance(entity, Topic) else entity.subscription
        if self._topic and (subscription is None or subscription.topic.path.lower() != self._topic):
            return False
        return not self._dead or bool(_dead(entity) and self._visitor.may(self._host, entity.path, Right.LISTEN))


def _dead(entity: Queue | Topic) -> int:
    return 0 if isinstance(entity, Topic) else entity.counts.dead_letter + entity.transfer_dead_letter_count


# Numbers to sort by, highest first; the default is by name.
_ORDERS: Final[dict[str, Callable[[Queue | Topic], int]]] = {
    "active": lambda entity: entity.counts.active,
    "scheduled": lambda entity: entity.counts.scheduled,
    "deferred": lambda entity: entity.counts.deferred,
    "dead": _dead,
    "bytes": lambda entity: entity.size_bytes,
}


def entity(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """One entity with its settings and rules."""
    host = visitor.host(query.get("namespace", ""))
    found = found_entity(visitor, host, query.get("entity", ""))
    shown = row(visitor, host, found)
    if not visitor.may(host, found.path, Right.LISTEN):
        return shown
    shown |= {
        "settings": found.settings.to_json(),
        "created_ms": found.created_ms,
        "updated_ms": found.updated_ms,
        "accessed_ms": found.accessed_ms,
        "quota_bytes": found.settings.quota_bytes,
        "rate": host.meter.rates.recent(lambda path: path == found.path).get(found.path),
        "history": _history(host, found),
    }
    subscription = subscription_of(found)
    if subscription is not None:
        rules = subscription.rules
        shown["rules"] = [_rule(rule) for rule in rules[:RULES_PAGE_MAX]]
        shown["rules_total"] = len(rules)
    return shown


def _moved(host: NamespaceHost, path: str) -> dict[str, Any]:
    """Messages in and out per second over the last minute, for the sparkline."""
    told = host.meter.rates.history(path)
    return {
        "history": [round(sent + received, 1) for sent, received in zip(told["sent"], told["received"], strict=True)]
    }


def _history(host: NamespaceHost, entity: Queue | Topic) -> dict[str, list[float]] | None:
    """Messages per second over the last minute; None if none moved, so that a quiet entity's view does not change."""
    told = host.meter.rates.history(entity.path)
    moved: dict[str, list[float]] = {name: told[name] for name in ("sent", "received")}
    return moved if any(map(any, moved.values())) else None


def found_entity(visitor: Visitor, host: NamespaceHost, path: str, *rights: Right) -> Queue | Topic:
    """An entity on which the visitor's key has these rights, or any right if none is named; reveals nothing about
    others, not even whether they exist."""
    if not path:
        raise Refused(400, "Say which entity.")
    if not visitor.rights(host, path):
        visitor.need(host, path, Right.LISTEN)
    visitor.need(host, path, *rights)
    found = host.entities.entity(path)
    owner = found if isinstance(found, Topic) or found.owner is None else found.owner
    visitor.need(host, owner.path, *rights)
    return owner


def row(visitor: Visitor, host: NamespaceHost, entity: Queue | Topic) -> dict[str, Any]:
    """An entity's row in a list."""
    settings = entity.settings
    subscription = subscription_of(entity)
    shown: dict[str, Any] = {
        "kind": kind_of(entity),
        "path": entity.path,
        "name": entity.path if subscription is None else subscription.name,
        "topic": None if subscription is None else subscription.topic.path,
        "status": settings.status,
        "sessions": settings.requires_session,
        "duplicates": settings.requires_duplicate_detection,
        "rights": visitor.rights(host, entity.path),
    }
    if not visitor.may(host, entity.path, Right.LISTEN):
        return shown
    counts = entity.counts
    shown |= {
        # The name of another entity, so not for everybody who may send.
        "forward_to": settings.forward_to,
        "active": counts.active,
        "scheduled": counts.scheduled,
        "deferred": counts.deferred,
        "dead": counts.dead_letter,
        "transfer_dead": 0 if isinstance(entity, Topic) else entity.transfer_dead_letter_count,
        "damaged": entity.damaged_count,
        "bytes": entity.size_bytes,
    }
    if isinstance(entity, Topic):
        shown["subscriptions"] = entity.subscription_count
    return shown


def kind_of(entity: Queue | Topic) -> str:
    if isinstance(entity, Topic):
        return "topic"
    return "queue" if entity.subscription is None else "subscription"


def number(query: Mapping[str, str], name: str, default: int) -> int:
    """A whole number in the query."""
    given = query.get(name, "")
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= _NUMBER_CHARS_MAX):
        raise Refused(400, f"'{name}' must be a whole number from 0 on.")
    return int(given)


def _name(entity: Queue | Topic) -> str:
    return entity.path.lower()


def _walk(queues: list[Queue], topics: list[Topic]) -> Iterator[Queue | Topic]:
    """All entities by name, each topic followed by its subscriptions."""
    merged: Iterator[Queue | Topic] = heapq.merge(queues, topics, key=_name)
    for entity in merged:
        yield entity
        if isinstance(entity, Topic):
            yield from (subscription.queue for subscription in entity.subscriptions)


def _rule(rule: Rule) -> dict[str, Any]:
    stored = rule.to_json()
    fields = dict(stored["filter"])
    kind = fields.pop("type")
    if kind in ("sql", "selector"):
        condition = fields["expression"]
    elif kind == "correlation":
        del fields["properties"]
        assert isinstance(rule.filter, CorrelationFilter)
        pairs = [*fields.items(), *((f"property {name}", value) for name, value in rule.filter.properties.items())]
        condition = cut(", ".join(f"{name} = {text(value)}" for name, value in pairs))
    else:
        condition = "every message" if kind == "true" else "no message"
    action = stored["action"]
    return {
        "name": rule.name,
        "kind": kind,
        "condition": condition,
        "action": None if action is None else action["expression"],
    }
