"""A running namespace's settings, page by page: what `twinbus export` writes to a configuration file.

Items come in an order in which they can be made again: queues, then each topic, its subscriptions, their rules. They
are flat, so that a page is bounded whatever hangs on one topic. No keys are in them: policies are asked for those.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from twinbus.broker.nodes.policy_requests import describe
from twinbus.broker.nodes.requests import Request
from twinbus.errors import ArgumentError
from twinbus.limits import EXPORT_PAGE_ITEMS

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

Item = dict[str, Any]


def export_page(host: NamespaceHost, request: Request) -> dict[str, Any]:
    """One page from `skip` on; `more` says whether there is another behind it."""
    skip = request.arguments.get("skip", 0)
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise ArgumentError("The request's 'skip' is not a number of items.")
    page = list(islice(_items(host), skip, skip + EXPORT_PAGE_ITEMS + 1))
    return {
        "namespace": {"name": host.name, "sku": host.sku, "jwt": host.jwt is not None},
        "items": page[:EXPORT_PAGE_ITEMS],
        "more": len(page) > EXPORT_PAGE_ITEMS,
    }


def _items(host: NamespaceHost) -> Iterator[Item]:
    for policy in host.policies.scoped(""):
        yield {"kind": "policy", **describe(policy, show_keys=False)}
    for queue in host.entities.queues():
        yield {"kind": "queue", **queue.settings.to_json()}
        yield from _policies(host, queue.path)
    for topic in host.entities.topics():
        yield {"kind": "topic", **topic.settings.to_json()}
        yield from _policies(host, topic.path)
        for subscription in topic.subscriptions:
            yield {"kind": "subscription", **subscription.settings.to_json()}
            for rule in subscription.rules:
                yield {"kind": "rule", "topic": topic.path, "subscription": subscription.name, **rule.to_json()}


def _policies(host: NamespaceHost, path: str) -> Iterator[Item]:
    for policy in host.policies.scoped(path):
        # The path as its owner wrote it, not as rights compare it.
        yield {"kind": "policy", **describe(policy, show_keys=False), "entity": path}
