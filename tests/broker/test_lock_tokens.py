"""Lock tokens: as many as needed, all different, across the end of a draw."""

from __future__ import annotations

from twinbus.broker.lock_tokens import LockTokenSource


def test_every_token_has_16_bytes_and_comes_once() -> None:
    tokens = LockTokenSource()
    drawn = [tokens() for _ in range(1_000)]
    assert {len(token) for token in drawn} == {16}
    assert len(set(drawn)) == 1_000
