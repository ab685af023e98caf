"""The account of the demonstration: it agrees with a plain count, and a message that is missing is never overlooked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.demo.account import Balance, MessageAccount

IDS = st.lists(st.integers(0, 20).map(str), max_size=40)


@settings(deadline=None)
@given(sent=IDS, first=IDS, second=IDS)
def test_each_place_is_counted_for_itself(sent: list[str], first: list[str], second: list[str]) -> None:
    account = MessageAccount({"topic": ("a", "b")})
    for each in sent:
        account.sent("topic", each)
    for place, received in (("a", first), ("b", second)):
        for each in received:
            account.received(place, each)
    for place, received in (("a", first), ("b", second)):
        counted = Counter(received)
        assert account.balance(place) == Balance(
            sent=len(set(sent)),
            received=len(counted),
            repeated=sum(n - 1 for n in counted.values()),
            lost=sum(1 for each in set(sent) if not counted[each]),
            unexpected=sum(1 for each in counted if each not in sent),
        )
    assert account.lost == sum(each.lost for each in account.balances().values())
    assert (account.share in (None, 1.0)) == (account.lost == 0)


def test_nothing_sent_is_nothing_lost() -> None:
    account = MessageAccount({"queue": ("queue",)})
    assert (account.lost, account.share) == (0, None), "a share of nothing is no share"


def test_one_missing_shows() -> None:
    account = MessageAccount({"queue": ("queue",)})
    for each in ("1", "2", "3", "4"):
        account.sent("queue", each)
    for each in ("1", "2", "4", "4"):
        account.received("queue", each)
    assert account.balance("queue") == Balance(sent=4, received=3, repeated=1, lost=1, unexpected=0)
    assert account.share == 0.75
