"""Parsing the target of a request."""

from __future__ import annotations

import pytest

from twinbus.broker.http.admin.feed import Page
from twinbus.broker.http.admin.requests import VERSIONS, ResourceKind, authority_of, page_of, target_of, version_of
from twinbus.errors import ArgumentError


@pytest.mark.parametrize(
    ("path", "kind", "names"),
    [
        ("/", ResourceKind.ENTITY, ("", "", "")),
        ("/q", ResourceKind.ENTITY, ("q", "", "")),
        ("/q/", ResourceKind.ENTITY, ("q", "", "")),
        ("/a%2Fb", ResourceKind.ENTITY, ("a/b", "", "")),
        ("/a/b", ResourceKind.ENTITY, ("a/b", "", "")),
        ("/$Resources/queues", ResourceKind.QUEUES, ("", "", "")),
        ("/%24Resources/Queues/", ResourceKind.QUEUES, ("", "", "")),
        ("/$resources/topics", ResourceKind.TOPICS, ("", "", "")),
        ("/$namespaceinfo", ResourceKind.NAMESPACE, ("", "", "")),
        ("/$NamespaceInfo", ResourceKind.NAMESPACE, ("", "", "")),
        ("/t/subscriptions", ResourceKind.SUBSCRIPTIONS, ("t", "", "")),
        ("/t/Subscriptions/", ResourceKind.SUBSCRIPTIONS, ("t", "", "")),
        ("/a%2Fb/subscriptions/s", ResourceKind.SUBSCRIPTION, ("a/b", "s", "")),
        ("/a/b/Subscriptions/s", ResourceKind.SUBSCRIPTION, ("a/b", "s", "")),
        ("/t/subscriptions/subscriptions", ResourceKind.SUBSCRIPTION, ("t", "subscriptions", "")),
        ("/t/subscriptions/rules", ResourceKind.SUBSCRIPTION, ("t", "rules", "")),
        ("/t/subscriptions/s/rules", ResourceKind.RULES, ("t", "s", "")),
        ("/t/subscriptions/rules/rules", ResourceKind.RULES, ("t", "rules", "")),
        ("/t/Subscriptions/s/Rules/%24Default", ResourceKind.RULE, ("t", "s", "$Default")),
        ("/t/subscriptions/s/rules/rules", ResourceKind.RULE, ("t", "s", "rules")),
        ("/t/subscriptions/s/other", ResourceKind.ENTITY, ("t/subscriptions/s/other", "", "")),
        ("/subscriptions/x", ResourceKind.ENTITY, ("subscriptions/x", "", "")),
    ],
)
def test_paths(path: str, kind: ResourceKind, names: tuple[str, str, str]) -> None:
    target = target_of(path)
    assert (target.kind, (target.entity, target.subscription, target.rule)) == (kind, names)


def test_versions() -> None:
    for version in VERSIONS:
        assert version_of({"api-version": version}) == version
    assert version_of({}) == "2017-04"
    for nonsense in ("2017-4", "latest", "2017-04-01", "9999-99"):
        with pytest.raises(ArgumentError, match="2024-05"):
            version_of({"api-version": nonsense})


def test_pages() -> None:
    assert page_of({}) == Page(0, 100)
    assert page_of({"$skip": "100", "$top": "7"}) == Page(100, 7)
    assert page_of({"$top": "5000"}) == Page(0, 100)
    for query in ({"$skip": "-1"}, {"$top": "x"}, {"$top": "1.5"}, {"$skip": "9" * 30}, {"$top": "٣"}):
        with pytest.raises(ArgumentError, match="whole number"):
            page_of(query)


def test_authority_is_the_clients_own_unless_it_is_no_host() -> None:
    assert authority_of({"host": "localhost:5300"}, "contoso") == "localhost:5300"
    assert authority_of({"host": "[::1]:5300"}, "contoso") == "[::1]:5300"
    assert authority_of({}, "contoso") == "contoso"
    assert authority_of({"host": 'x"><script>'}, "contoso") == "contoso"
