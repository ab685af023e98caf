"""Lock tokens: as many as are asked for, all different, over the end of a handful."""

from __future__ import annotations

from twinbus.broker.lock_tokens import LockTokenSource


def test_every_token_has_16_bytes_and_comes_once() -> None:
    tokens = LockTokenSource()
    drawn = [tokens() for _ in range(1_000)]
    assert {len(token) for token in drawn} == {16}
    assert len(set(drawn)) == 1_000
