"""The service's answers to callers with a valid token but without Manage: clients and their tests know the words."""

from __future__ import annotations

from twinbus.broker.http.admin.errors import AdminError
from twinbus.broker.http.admin.requests import RequestTarget, ResourceKind

_READ = "Manage,EntityRead claims required for this operation."
_ACTIONS = {"PUT": "EntityWrite", "DELETE": "EntityDelete"}

# Resources below a topic have their own operation names.
_VERBS = {"GET": "Get", "PUT": "CreateOrUpdate", "DELETE": "Delete"}
_BELOW_TOPIC = {
    ResourceKind.SUBSCRIPTION: "Subscription",
    ResourceKind.SUBSCRIPTIONS: "Subscriptions",
    ResourceKind.RULE: "Rule",
    ResourceKind.RULES: "Rules",
}


def missing_right(method: str, target: RequestTarget, authority: str) -> AdminError:
    """The error for a caller that may not manage its target."""
    thing = _BELOW_TOPIC.get(target.kind)
    if thing is not None:
        verb = (
            "Enumerate"
            if target.kind in (ResourceKind.SUBSCRIPTIONS, ResourceKind.RULES)
            else _VERBS.get(method, method[:20])
        )
        address = f"sb://{authority}/{target.path}".encode("ascii", "replace").decode()
        text = (
            f"SubCode=40100: Unauthorized : Unauthorized access for '{verb}{thing}' operation on endpoint '{address}'."
        )
        return AdminError(401, text, 40100, bare=True, reason=text)
    action = _ACTIONS.get(method)
    text = _READ if action is None else f"Authorization failed for specified action: Manage,{action}."
    return AdminError(401, text, 40100, bare=True)
