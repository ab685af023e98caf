"""Authorization rules in the descriptions of queues and topics: policies, in the service's format.

Keys that a client omits are generated here. No error text contains a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twinbus.auth.policies import RIGHTS_IN_ORDER, Policy, rights_of
from twinbus.broker.http.admin.xml_in import child_of, child_text, type_of
from twinbus.broker.http.admin.xml_out import SERVICE, element
from twinbus.broker.security.keys import new_key
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_TYPE = "SharedAccessAuthorizationRule"


def policies_in(
    description: Element, scope: str, before: Sequence[Policy], now_ms: int, random: Callable[[int], bytes]
) -> list[Policy] | None:
    """The policies in a description; None if it mentions none."""
    rules = child_of(description, "AuthorizationRules")
    if rules is None:
        return None
    known = {policy.name.lower(): policy for policy in before}
    return [_policy(rule, scope, known, now_ms, random) for rule in rules.findall(f"{{{SERVICE}}}AuthorizationRule")]


def _policy(rule: Element, scope: str, known: dict[str, Policy], now_ms: int, random: Callable[[int], bytes]) -> Policy:
    if type_of(rule) not in ("", _TYPE):
        raise ArgumentError(f"An authorization rule is a {type_of(rule)[:60]!r}; only {_TYPE} is known.")
    name = child_text(rule, "KeyName")
    if name is None:
        raise ArgumentError("An authorization rule has no KeyName.")
    rights = child_of(rule, "Rights")
    names = [] if rights is None else [right.text or "" for right in rights.findall(f"{{{SERVICE}}}AccessRights")]
    old = known.get(name.lower())
    primary = child_text(rule, "PrimaryKey") or (old.primary_key if old is not None else new_key(random))
    secondary = child_text(rule, "SecondaryKey") or (old.secondary_key if old is not None else new_key(random))
    created_ms = old.created_ms if old is not None else now_ms
    new = Policy(name, rights_of(names), primary, secondary, scope, created_ms, now_ms)
    return old if old is not None and new == old else new


def policies_out(policies: Sequence[Policy]) -> str:
    return f"<AuthorizationRules>{''.join(map(_rule, policies))}</AuthorizationRules>"


def _rule(policy: Policy) -> str:
    rights = "".join(element("AccessRights", right) for right in RIGHTS_IN_ORDER if right in policy.rights)
    return "".join(
        (
            f'<AuthorizationRule i:type="{_TYPE}">',
            "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>",
            f"<Rights>{rights}</Rights>",
            element("KeyName", policy.name),
            element("PrimaryKey", policy.primary_key),
            element("SecondaryKey", policy.secondary_key),
            "</AuthorizationRule>",
        )
    )
