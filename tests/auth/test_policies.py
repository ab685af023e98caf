from __future__ import annotations

import pytest

from twinbus.auth.policies import ALL_RIGHTS, Policies, Policy, Right, rights_of
from twinbus.errors import ArgumentError, EntityExistsError
from twinbus.limits import POLICIES_PER_SCOPE_MAX, POLICY_KEY_CHARS_MAX, POLICY_NAME_CHARS_MAX


def policy(name: str = "p", rights: str = "Send", scope: str = "", key: str = "k") -> Policy:
    return Policy(name, rights_of(rights.split()), key, scope=scope)


def test_manage_implies_the_others() -> None:
    assert policy(rights="manage").rights == ALL_RIGHTS
    assert policy(rights="Send Listen").rights == {Right.SEND, Right.LISTEN}
    assert Policy("p", frozenset({Right.MANAGE}), "k").rights == ALL_RIGHTS


def test_rights_compare_as_plain_strings() -> None:
    assert "Send" in policy(rights="Send").rights


def test_a_repr_hides_the_keys() -> None:
    shown = repr(Policy("p", ALL_RIGHTS, "first-secret", "second-secret"))
    assert "first-secret" not in shown
    assert "second-secret" not in shown
    assert "'p'" in shown


@pytest.mark.parametrize("name", ["", "x" * (POLICY_NAME_CHARS_MAX + 1), "a\nb"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="policy name"):
        policy(name)


def test_keys_are_bounded_and_present() -> None:
    assert policy(key="k" * POLICY_KEY_CHARS_MAX)
    with pytest.raises(ArgumentError, match="longer than"):
        policy(key="k" * (POLICY_KEY_CHARS_MAX + 1))
    with pytest.raises(ArgumentError, match="no primary key"):
        policy(key="")


def test_unknown_or_missing_rights_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'Read' is not known"):
        rights_of(["Read"])
    with pytest.raises(ArgumentError, match="no right"):
        Policy("p", frozenset(), "k")


def test_lookup_is_by_name_and_covering_scope() -> None:
    root, orders = policy("Root"), policy("root", scope="/Orders/", key="other")
    policies = Policies([root, orders])
    assert policies.find("ROOT", "orders/$management") == [root, orders]
    assert policies.find("root", "invoices") == [root]
    assert policies.find("nobody", "orders") == []
    assert policies.named("root") == [root, orders]
    assert list(policies) == [root, orders]
    policies.remove_scope("orders")
    assert policies.find("root", "orders") == [root]
    assert len(policies) == 1


def test_a_name_is_unique_on_its_scope() -> None:
    policies = Policies([policy("a")])
    with pytest.raises(EntityExistsError, match="on the namespace"):
        policies.add(policy("A"))
    policies.add(policy("a", scope="orders"))
    with pytest.raises(EntityExistsError, match="on 'orders'"):
        policies.add(policy("a", scope="Orders"))


def test_a_scope_has_at_most_twelve() -> None:
    policies = Policies(policy(f"p{n}") for n in range(POLICIES_PER_SCOPE_MAX))
    with pytest.raises(ArgumentError, match="12 policies"):
        policies.add(policy("one-more"))
    policies.add(policy("elsewhere", scope="orders"))
    policies.remove_scope("")
    policies.add(policy("again"))


def test_the_policies_of_a_scope_are_replaced_whole_or_not_at_all() -> None:
    policies = Policies([Policy("root", ALL_RIGHTS, "k"), Policy("a", ALL_RIGHTS, "k", scope="Q")])
    assert [policy.name for policy in policies.scoped("q")] == ["a"]
    for wrong in (
        [Policy(f"p{number}", ALL_RIGHTS, "k", scope="q") for number in range(13)],
        [Policy("b", ALL_RIGHTS, "k", scope="q"), Policy("B", ALL_RIGHTS, "k", scope="q")],
        [Policy("b", ALL_RIGHTS, "k", scope="other")],
    ):
        with pytest.raises(ArgumentError):
            policies.replace_scope("q", wrong)
        assert [policy.name for policy in policies.scoped("q")] == ["a"]
    policies.replace_scope("q", [Policy("b", ALL_RIGHTS, "k", scope="q")])
    assert [policy.name for policy in policies.find("b", "q/x")] == ["b"]
    assert policies.find("a", "q") == []
    policies.remove_scope("q")
    assert (len(policies), policies.named("b")) == (1, [])


def test_finding_takes_no_longer_for_a_path_nobody_can_have() -> None:
    policies = Policies([Policy("root", ALL_RIGHTS, "k"), Policy("a", ALL_RIGHTS, "k", scope="x")])
    path = "/".join("x" * 30_000)
    assert [policy.name for policy in policies.find("a", path)] == ["a"]
    assert [policy.name for policy in policies.find("root", path)] == ["root"]
