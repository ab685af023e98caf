from __future__ import annotations

import pytest

from twinbus.auth.claims import NEVER_S, Claim, decide, decide_key
from twinbus.auth.policies import ALL_RIGHTS, Policies, Policy, Right, rights_of
from twinbus.auth.sas import sign
from twinbus.errors import UnauthorizedError
from twinbus.limits import TOKEN_BYTES_MAX

NOW_S = 1_700_000_000
ROOT = Policy("Root", ALL_RIGHTS, "root-key", "root-key-2")
SENDER = Policy("Sender", rights_of(["Send"]), "sender-key", scope="orders")
POLICIES = Policies([ROOT, SENDER])
JWT = "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.c2ln"


def token(resource: str, policy: Policy = ROOT) -> str:
    return sign(resource, policy.name, policy.primary_key, NOW_S + 3600)


def test_a_claim_covers_its_path_and_below() -> None:
    claim = decide(token("sb://contoso/Orders"), "sb://contoso:5672/orders", POLICIES, NOW_S)
    assert claim == Claim("orders", ALL_RIGHTS, NOW_S + 3600, "Root")
    assert claim.allows("Orders", Right.SEND)
    assert claim.allows("orders/$DeadLetterQueue/$management", "Listen")
    assert not claim.allows("orders2", "Send")
    assert not claim.allows("", "Manage")


def test_rights_are_the_policys() -> None:
    claim = decide(token("sb://contoso/orders", SENDER), "sb://contoso/orders", POLICIES, NOW_S)
    assert claim.allows("orders", "Send")
    assert not claim.allows("orders", "Listen")
    assert not claim.allows("orders", "Manage")


def test_a_claim_is_the_narrower_of_resource_and_audience() -> None:
    assert decide(token("sb://contoso"), "sb://contoso/orders", POLICIES, NOW_S).path == "orders"
    assert decide(token("sb://contoso/orders"), "sb://contoso", POLICIES, NOW_S).path == "orders"
    assert decide(token("h:1"), "sb://h:1", POLICIES, NOW_S).path == ""


def test_a_token_for_another_entity_is_refused() -> None:
    with pytest.raises(UnauthorizedError, match="InvalidAudience"):
        decide(token("sb://contoso/invoices"), "sb://contoso/orders", POLICIES, NOW_S)


def test_time_ends_a_claim_after_the_grace() -> None:
    claim = decide(token("sb://contoso"), "sb://contoso", POLICIES, NOW_S)
    assert not claim.expired(NOW_S + 3660)
    assert claim.expired(NOW_S + 3661)
    assert claim.expired(NOW_S + 3601, grace_s=0)


def test_a_jwt_counts_only_in_development() -> None:
    with pytest.raises(UnauthorizedError, match="only in development mode"):
        decide(JWT, "sb://contoso", POLICIES, NOW_S)
    assert decide(JWT, "sb://contoso", POLICIES, NOW_S, dev=True).allows("anything", "Manage")


def test_an_opaque_token_counts_only_in_development() -> None:
    with pytest.raises(UnauthorizedError, match="neither"):
        decide("opaque", "sb://contoso", POLICIES, NOW_S)
    claim = decide("opaque", "sb://contoso/orders", POLICIES, NOW_S, dev=True)
    assert claim == Claim("", ALL_RIGHTS, NEVER_S)
    assert not claim.expired(NOW_S + 10**9)


def test_any_key_counts_in_development() -> None:
    text = sign("sb://contoso/orders", "whoever", "whatever", 1)
    assert decide(text, "sb://contoso/orders", Policies(), NOW_S, dev=True).allows("orders", "Send")


@pytest.mark.parametrize("dev", [True, False])
@pytest.mark.parametrize("text", ["", "x" * (TOKEN_BYTES_MAX + 1)])
def test_nothing_and_too_much_are_refused_everywhere(text: str, dev: bool) -> None:
    with pytest.raises(UnauthorizedError, match="MalformedToken"):
        decide(text, "sb://contoso", POLICIES, NOW_S, dev=dev)


def test_a_plain_login_gives_the_policys_scope() -> None:
    assert decide_key("root", "root-key-2", POLICIES) == Claim("", ALL_RIGHTS, policy="Root")
    assert decide_key("Sender", "sender-key", POLICIES) == Claim("orders", frozenset({Right.SEND}), policy="Sender")
    assert decide_key("x", "y", Policies(), dev=True).allows("orders", "Manage")


@pytest.mark.parametrize(("name", "key"), [("Root", "root-key-3"), ("Root", ""), ("nobody", "root-key")])
def test_a_wrong_login_is_refused_without_a_hint(name: str, key: str) -> None:
    with pytest.raises(UnauthorizedError) as caught:
        decide_key(name, key, POLICIES)
    assert caught.value.text == "InvalidSignature: The key name or the key is wrong."
