from __future__ import annotations

import pytest

from twinbus.auth.claims import Claim
from twinbus.auth.policies import Right
from twinbus.broker.connections.claims import ConnectionClaims
from twinbus.clock import SteppedClock
from twinbus.entities.account import Account
from twinbus.errors import QuotaExceededError, UnauthorizedError
from twinbus.limits import LINK_OBJECT_BYTES

NOW_S = 1_700_000_000
SEND = Claim("q", frozenset({Right.SEND}), NOW_S + 100)


class Host:
    """What claims need of a namespace."""

    dev = False
    name = "contoso"
    clock = SteppedClock(NOW_S * 1000)


def made(bytes_max: int = 100_000) -> tuple[ConnectionClaims, Account]:
    account = Account(bytes_max)
    return ConnectionClaims(Host(), account), account  # type: ignore[arg-type]


def test_a_claim_is_good_until_it_has_run_out() -> None:
    claims, account = made()
    claims.add("a", SEND)
    claims.require("q", Right.SEND)
    claims.require_some("q/$management")
    with pytest.raises(UnauthorizedError):
        claims.require("q", Right.LISTEN)
    wait_s = claims.wait_s()
    assert wait_s is not None
    Host.clock.step(seconds=wait_s + 1)
    claims.drop_expired()
    assert (len(claims), account.held_bytes, claims.wait_s()) == (0, 0, None)


def test_claims_count_in_the_account_once_for_each_audience() -> None:
    claims, account = made(2 * LINK_OBJECT_BYTES + 100)
    claims.add("", SEND)
    claims.add("a", SEND)
    claims.add("a", SEND)
    assert 2 * LINK_OBJECT_BYTES <= account.held_bytes < 2 * LINK_OBJECT_BYTES + 10
    with pytest.raises(QuotaExceededError):
        claims.add("b", SEND)
    claims.close()
    assert account.held_bytes == 0
