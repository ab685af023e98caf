"""Whose a backlog queue is: every combination of what is known about a primary and what a queue remembers."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.paired.homes import Home, HomeMark, NameSource, NamespaceAnswer, Relation, home_of, prefix_of
from twinbus.paired.options import NamespaceAddress

HERE = NamespaceAddress.parse("localhost:5672")
FAR = NamespaceAddress.parse("contoso.servicebus.windows.net")
BUS = NamespaceAddress.parse("bus.example.org:5672")
A, B = "a" * 32, "b" * 32
OWN, OTHER, NONE, UNKNOWN = Relation.OWN, Relation.OTHER, Relation.NONE, Relation.UNKNOWN


def queue(name: str) -> str:
    return f"{name}/x-servicebus-transfer/3"


def told(name: str | None = "contoso", identity: str | None = A) -> NamespaceAnswer:
    return NamespaceAnswer(name, identity)


MARK_A, MARK_B = str(HomeMark(identity=A)), str(HomeMark(identity=B))
GUESS = str(HomeMark(guess="localhost:5672"))

CONFIRMED = home_of(HERE, told=told())
REMEMBERED = home_of(HERE, remembered=told())
GUESSED = home_of(HERE)
# It answers, but is no Twinbus broker that says who it is.
NAMELESS = home_of(HERE, told=NamespaceAnswer())
OLD = home_of(HERE, told=told(identity=None))
GIVEN = home_of(HERE, given="contoso")
GIVEN_CONFIRMED = home_of(HERE, given="contoso", told=told("other"))
AZURE = home_of(FAR, told=NamespaceAnswer())
NAMED_HOST = home_of(BUS)
NAMED_HOST_CONFIRMED = home_of(BUS, told=told("other"))


@pytest.mark.parametrize(
    ("home", "name", "source", "identity", "answered", "mark"),
    [
        (CONFIRMED, "contoso", NameSource.TOLD, A, True, MARK_A),
        (REMEMBERED, "contoso", NameSource.REMEMBERED, A, False, MARK_A),
        (GUESSED, "localhost-5672", NameSource.GUESS, None, False, GUESS),
        (NAMELESS, "localhost-5672", NameSource.GUESS, None, True, GUESS),
        (OLD, "contoso", NameSource.TOLD, None, True, None),
        (GIVEN, "contoso", NameSource.GIVEN, None, False, None),
        (GIVEN_CONFIRMED, "contoso", NameSource.GIVEN, A, True, MARK_A),
        (AZURE, "contoso", NameSource.HOST, None, True, str(HomeMark(host=FAR.host))),
        (home_of(FAR), "contoso", NameSource.HOST, None, True, str(HomeMark(host=FAR.host))),
        (NAMED_HOST, "bus", NameSource.HOST, None, False, str(HomeMark(host="bus.example.org:5672"))),
        (NAMED_HOST_CONFIRMED, "bus", NameSource.HOST, A, True, str(HomeMark(A, "bus.example.org:5672"))),
        # A name learned earlier is better than a guess, whoever answers now.
        (
            home_of(HERE, told=NamespaceAnswer(), remembered=told()),
            "contoso",
            NameSource.REMEMBERED,
            None,
            True,
            None,
        ),
        # What it says now counts, not what it said before.
        (home_of(HERE, told=told("new", B), remembered=told()), "new", NameSource.TOLD, B, True, MARK_B),
    ],
)
def test_what_is_known(
    home: Home, name: str, source: NameSource, identity: str | None, answered: bool, mark: str | None
) -> None:
    assert (home.name, home.source, home.identity, home.answered, home.mark) == (
        name,
        source,
        identity,
        answered,
        mark,
    )


@pytest.mark.parametrize(
    ("home", "name", "metadata", "relation", "may_fill"),
    [
        # Confirmed: what has its identity is its own under every name, what has another's never.
        (CONFIRMED, "contoso", MARK_A, OWN, True),
        (CONFIRMED, "localhost-5672", MARK_A, OWN, True),
        (CONFIRMED, "contoso", MARK_B, OTHER, False),
        (CONFIRMED, "contoso", None, OWN, True),
        (CONFIRMED, "CONTOSO", "", OWN, True),
        (CONFIRMED, "contoso", "our own text", OWN, True),
        (CONFIRMED, "contoso", "x-twinbus-home=", OWN, True),
        (CONFIRMED, "contoso", GUESS, NONE, False),
        (CONFIRMED, "localhost-5672", GUESS, NONE, False),
        (CONFIRMED, "localhost-5672", None, NONE, True),
        (CONFIRMED, "fabrikam", None, OTHER, True),
        (CONFIRMED, "contoso", str(HomeMark(host="contoso.example.org")), OTHER, False),
        # As it said earlier.
        (REMEMBERED, "contoso", MARK_A, OWN, True),
        (REMEMBERED, "contoso", MARK_B, OTHER, False),
        (REMEMBERED, "fabrikam", None, UNKNOWN, True),
        # A guess owns nothing, and fills only what is a guess.
        (GUESSED, "localhost-5672", GUESS, NONE, True),
        (GUESSED, "localhost-5672", None, NONE, True),
        (GUESSED, "localhost-5672", MARK_A, UNKNOWN, False),
        (GUESSED, "contoso", MARK_A, UNKNOWN, False),
        (GUESSED, "contoso", None, UNKNOWN, True),
        (NAMELESS, "localhost-5672", GUESS, NONE, True),
        (NAMELESS, "contoso", MARK_A, OTHER, False),
        # A broker of the last version has a name, but no identity.
        (OLD, "contoso", None, OWN, True),
        (OLD, "contoso", MARK_A, OTHER, False),
        (OLD, "localhost-5672", GUESS, NONE, False),
        # The operator's word counts where nothing else is known; an identity counts more.
        (GIVEN, "contoso", None, OWN, True),
        (GIVEN, "contoso", MARK_A, UNKNOWN, True),
        (GIVEN_CONFIRMED, "contoso", MARK_B, OTHER, False),
        (GIVEN_CONFIRMED, "contoso", MARK_A, OWN, True),
        (home_of(HERE, given="localhost-5672", told=told()), "localhost-5672", GUESS, OWN, True),
        (home_of(HERE, given="localhost-5672", told=told()), "localhost-5672", None, OWN, True),
        # A host name that means one machine everywhere.
        (AZURE, "contoso", str(HomeMark(host=FAR.host)), OWN, True),
        (AZURE, "other", str(HomeMark(host=FAR.host)), OWN, True),
        (AZURE, "contoso", str(HomeMark(host="contoso.servicebus.chinacloudapi.cn")), OTHER, False),
        (AZURE, "contoso", None, OWN, True),
        (AZURE, "contoso", MARK_A, OTHER, False),
        (NAMED_HOST, "bus", str(HomeMark(A, "bus.example.org:5672")), OWN, True),
        (NAMED_HOST, "bus", str(HomeMark(host="bus.example.org")), UNKNOWN, False),
        (NAMED_HOST_CONFIRMED, "bus", str(HomeMark(host="bus.example.org:5672")), OWN, True),
        (NAMED_HOST_CONFIRMED, "other", str(HomeMark(host="bus.example.org:5672")), OTHER, False),
        (NAMED_HOST_CONFIRMED, "bus", str(HomeMark(B, "bus.example.org:5672")), OTHER, False),
    ],
)
def test_whose_a_queue_is(home: Home, name: str, metadata: str | None, relation: Relation, may_fill: bool) -> None:
    assert home.relation(queue(name), metadata) is relation
    assert home.may_fill(queue(name), metadata) is may_fill


def test_names() -> None:
    assert CONFIRMED.names(1) == ["contoso/x-servicebus-transfer/0"]
    assert CONFIRMED.other_names(1) == ["contoso-aaaaaaaa/x-servicebus-transfer/0"]
    assert GUESSED.other_names(1) == ["localhost-5672-unconfirmed/x-servicebus-transfer/0"]
    assert CONFIRMED.guessed_names(1) == ["localhost-5672/x-servicebus-transfer/0"]
    assert (prefix_of(queue("Contoso")), prefix_of("orders"), prefix_of("a/x-servicebus-transfer/b")) == (
        "contoso",
        "",
        "",
    )
    with pytest.raises(ValueError, match="primary_name"):
        home_of(HERE, given="a/b")


@pytest.mark.parametrize("mark", [HomeMark(A), HomeMark(A, "h:1"), HomeMark(host="h"), HomeMark(guess="[::1]:5672")])
def test_a_mark_is_read_as_it_was_written(mark: HomeMark) -> None:
    assert HomeMark.parse(str(mark)) == mark


@pytest.mark.parametrize("text", [None, "", "x", "x-twinbus-home=", "x-twinbus-home=id:", "x-twinbus-home=no:1;;"])
def test_what_is_no_mark(text: Any) -> None:
    assert HomeMark.parse(text) is None


@pytest.mark.parametrize(
    ("text", "azure", "lasting"),
    [
        ("contoso.servicebus.windows.net", True, "contoso.servicebus.windows.net"),
        ("Contoso.ServiceBus.Windows.NET.:5671", True, "contoso.servicebus.windows.net"),
        ("bus.example.org", False, "bus.example.org"),
        ("bus.example.org:5672", False, "bus.example.org:5672"),
        ("localhost:5672", False, None),
        ("127.0.0.1", False, None),
        ("[::1]:5672", False, None),
        ("bus", False, None),
        ("host.docker.internal:5672", False, None),
        ("bus.local", False, None),
        ("servicebus.windows.net", False, "servicebus.windows.net"),
    ],
)
def test_which_host_names_identify_a_namespace(text: str, azure: bool, lasting: str | None) -> None:
    address = NamespaceAddress.parse(text)
    assert (address.azure, address.lasting_host) == (azure, lasting)
