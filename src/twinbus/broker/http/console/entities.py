"""Namespaces and entities with their numbers: what the console's first pages show, and its streams repeat.

Rules:
- Every list is a page; what is looked at for one answer is bounded, too.
- Names are shown to a key that covers them; numbers only where it has Listen.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Right
from twinbus.broker.http.console.answers import Refused
from twinbus.broker.http.console.shown import cut, text
from twinbus.broker.nodes.activity import every_entity
from twinbus.entities.queue import Queue
from twinbus.entities.rule import Rule
from twinbus.entities.subscription import subscription_of
from twinbus.entities.topic import Topic
from twinbus.limits import CONSOLE_ENTITIES_MAX, CONSOLE_ENTITIES_PAGE, RULES_PAGE_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor
    from twinbus.broker.server import NamespaceEndpoint

_NUMBER_CHARS_MAX = 19


def namespaces(visitor: Visitor, endpoints: Mapping[str, NamespaceEndpoint]) -> dict[str, Any]:
    """Every namespace of the process, with its numbers where it is open."""
    found = []
    for host in visitor.hosts:
        endpoint = endpoints.get(host.name)
        shown: dict[str, Any] = {
            "name": host.name,
            "port": None if endpoint is None else endpoint.port,
            "here": host is visitor.here,
            "open": visitor.claim(host) is not None,
            "policy": visitor.login.policy(host),
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
        "faults": [fault.to_json() for fault in host.faults.all()[:CONSOLE_ENTITIES_PAGE]],
    }


def entities(visitor: Visitor, query: Mapping[str, str]) -> dict[str, Any]:
    """A page of queues, topics and subscriptions whose path holds the wanted text."""
    host = visitor.host(query.get("namespace", ""))
    search = query.get("search", "").lower()[:300]
    skip = number(query, "skip", 0)
    queues, topics = host.entities.queues(), host.entities.topics()
    rows: list[dict[str, Any]] = []
    met = 0
    more = False
    for looked, entity in enumerate(every_entity(host)):
        if looked >= CONSOLE_ENTITIES_MAX or len(rows) > CONSOLE_ENTITIES_PAGE:
            more = True
            break
        if search in entity.path.lower() and visitor.rights(host, entity.path):
            met += 1
            if met > skip:
                rows.append(row(visitor, host, entity))
    return {
        "namespace": host.name,
        "rights": visitor.rights(host, ""),
        "queues": len(queues),
        "topics": len(topics),
        "skip": skip,
        "rows": rows[:CONSOLE_ENTITIES_PAGE],
        "more": more or len(rows) > CONSOLE_ENTITIES_PAGE,
        "faults": [fault.to_json() for fault in host.faults.all()[:CONSOLE_ENTITIES_PAGE]],
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
    }
    subscription = subscription_of(found)
    if subscription is not None:
        rules = subscription.rules
        shown["rules"] = [_rule(rule) for rule in rules[:RULES_PAGE_MAX]]
        shown["rules_total"] = len(rules)
    return shown


def found_entity(visitor: Visitor, host: NamespaceHost, path: str) -> Queue | Topic:
    """An entity that the visitor's key covers; no word about others."""
    if not path:
        raise Refused(400, "Say which entity.")
    if not visitor.rights(host, path):
        visitor.need(host, path, Right.LISTEN)
    found = host.entities.entity(path)
    return found if isinstance(found, Topic) or found.owner is None else found.owner


def row(visitor: Visitor, host: NamespaceHost, entity: Queue | Topic) -> dict[str, Any]:
    """What the list shows of an entity."""
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
        "forward_to": settings.forward_to,
        "rights": visitor.rights(host, entity.path),
    }
    if not visitor.may(host, entity.path, Right.LISTEN):
        return shown
    counts = entity.counts
    shown |= {
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
    """A whole number of the query."""
    given = query.get(name, "")
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and len(given) <= _NUMBER_CHARS_MAX):
        raise Refused(400, f"'{name}' must be a whole number from 0 on.")
    return int(given)


def _rule(rule: Rule) -> dict[str, Any]:
    stored = rule.to_json()
    fields = dict(stored["filter"])
    kind = fields.pop("type")
    if kind == "sql":
        condition = fields["expression"]
    elif kind == "correlation":
        own = fields.pop("properties")
        pairs = [*fields.items(), *((f"property {name}", value) for name, value in own.items())]
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
