"""A running namespace's settings, page by page, for `twinbus export`.

Items come in the order in which they can be created again: queues, then each topic with its subscriptions and their
rules. They are flat, so a page is bounded however much belongs to one topic. Items contain no keys; the policy requests
return those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from twinbus.broker.nodes.policy_requests import describe
from twinbus.broker.nodes.requests import Request
from twinbus.errors import ArgumentError
from twinbus.limits import EXPORT_PAGE_ITEMS

if TYPE_CHECKING:
    from twinbus.auth.policies import Policy
    from twinbus.broker.host import NamespaceHost
    from twinbus.entities.rule import Rule
    from twinbus.entities.subscription import Subscription
    from twinbus.entities.topic_settings import Settings

Item = dict[str, Any]


def export_page(host: NamespaceHost, request: Request) -> dict[str, Any]:
    """One page starting at `skip`; `more` says whether there is another."""
    skip = request.arguments.get("skip", 0)
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise ArgumentError("The request's 'skip' is not a number of items.")
    page = [item() for item in islice(_items(host), skip, skip + EXPORT_PAGE_ITEMS + 1)]
    return {
        "namespace": {"name": host.name, "sku": host.sku, "jwt": host.jwt is not None},
        "items": page[:EXPORT_PAGE_ITEMS],
        "more": len(page) > EXPORT_PAGE_ITEMS,
    }


def _items(host: NamespaceHost) -> Iterator[Callable[[], Item]]:
    """All items in order, each built only when called, so earlier pages are cheap to skip."""
    for policy in host.policies.scoped(""):
        yield partial(_policy, policy)
    temporary = host.entities.temporary
    for queue in host.entities.queues():
        if queue.path.lower() in temporary:
            continue
        yield partial(_entity, "queue", queue.settings)
        yield from _policies(host, queue.path)
    for topic in host.entities.topics():
        if topic.path.lower() in temporary:
            continue
        yield partial(_entity, "topic", topic.settings)
        yield from _policies(host, topic.path)
        for subscription in topic.subscriptions:
            # Clients make theirs again.
            if subscription.settings.affinity is not None:
                continue
            yield partial(_entity, "subscription", subscription.settings)
            for rule in subscription.rules:
                yield partial(_rule, subscription, rule)


def _entity(kind: str, settings: Settings) -> Item:
    return {"kind": kind, **settings.to_json()}


def _rule(subscription: Subscription, rule: Rule) -> Item:
    return {"kind": "rule", "topic": subscription.topic.path, "subscription": subscription.name, **rule.to_json()}


def _policy(policy: Policy) -> Item:
    return {"kind": "policy", **describe(policy, show_keys=False)}


def _policies(host: NamespaceHost, path: str) -> Iterator[Callable[[], Item]]:
    for policy in host.policies.scoped(path):
        yield partial(_scoped_policy, policy, path)


def _scoped_policy(policy: Policy, path: str) -> Item:
    # The path as its owner spelled it, not normalised.
    return {**_policy(policy), "entity": path}
