"""Policies over AMQP: listed, created, rotated and deleted through the namespace's own `$management` node.

The caller has Manage on the namespace (see `EntityManagement`). Answers contain keys only if `show_keys` is set; a
change is answered once it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import RIGHTS_IN_ORDER, Policy, Right, rights_of
from twinbus.broker.nodes.requests import Request
from twinbus.broker.security.keyring import WHICH, Which
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.errors import ArgumentError, NotAllowedError

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

Body = dict[str, Any]

# The service's order.


def list_policies(host: NamespaceHost, request: Request) -> Body:
    """All policies, those of one `entity` ('' for the namespace's own), or those with one `name`."""
    if request.arguments.get("entity") is not None:
        found = host.policies.scoped(_scope(host, request))
    else:
        found = sorted(host.policies, key=lambda policy: (policy.scope, policy.name.lower()))
    wanted = _text(request, "name", needed=False).lower()
    return {
        "policies": [
            describe(policy, _show_keys(request)) for policy in found if not wanted or policy.name.lower() == wanted
        ]
    }


def set_policy(host: NamespaceHost, request: Request) -> Body:
    """Create a policy, or change its `rights` and the given keys; with `new`, fail if it exists."""
    policy = host.keyring.set(
        _scope(host, request),
        _text(request, "name"),
        _rights(request),
        host.clock.now_ms(),
        primary_key=_text(request, "primary_key", needed=False),
        secondary_key=_text(request, "secondary_key", needed=False),
        new=request.arguments.get("new") is True,
    )
    return {"policy": describe(policy, _show_keys(request))}


def rotate_key(host: NamespaceHost, request: Request) -> Body:
    """Generate a new primary or secondary key, or swap the two, as `which` says."""
    which, now_ms = _which(request), host.clock.now_ms()
    policy = host.keyring.rotate(_scope(host, request), _text(request, "name"), which, now_ms)
    return {"policy": describe(policy, _show_keys(request))}


def delete_policy(host: NamespaceHost, request: Request) -> Body:
    host.keyring.delete(_scope(host, request), _text(request, "name"))
    return {}


def describe(policy: Policy, show_keys: bool) -> dict[str, Any]:
    """A policy as a map; `entity` is empty for the namespace's own."""
    shown: dict[str, Any] = {
        "name": policy.name,
        "entity": policy.scope,
        "rights": [str(right) for right in RIGHTS_IN_ORDER if right in policy.rights],
        "created_ms": policy.created_ms,
        "modified_ms": policy.modified_ms,
    }
    if show_keys:
        shown |= {"primary_key": policy.primary_key, "secondary_key": policy.secondary_key}
    return shown


def _show_keys(request: Request) -> bool:
    return request.arguments.get("show_keys") is True


def _scope(host: NamespaceHost, request: Request) -> str:
    """The path of the given entity, in its own spelling; '' for the namespace."""
    path = _text(request, "entity", needed=False) or ""
    if not path:
        return ""
    entity = host.entities.entity(path)
    if isinstance(entity, Topic) or (
        isinstance(entity, Queue) and entity.subscription is None and entity.dead_letters is not None
    ):
        return entity.path
    raise NotAllowedError("Policies are for the namespace, a queue or a topic.")


def _text(request: Request, field: str, *, needed: bool = True) -> str:
    value = request.arguments.get(field)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or (needed and not value):
        raise ArgumentError(f"The request needs '{field}', a text.")
    return str(value)


def _rights(request: Request) -> frozenset[Right]:
    value = request.arguments.get("rights")
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ArgumentError("The request needs 'rights', a list of Send, Listen and Manage.")
    return rights_of(str(each) for each in value)


def _which(request: Request) -> Which:
    value = request.arguments.get("which")
    for which in WHICH:
        if value == which:
            return which
    raise ArgumentError("The request needs 'which': primary, secondary or swap.")
