from __future__ import annotations

import pytest

from twinbus.entities.bodies import Bodies
from twinbus.entities.commons import Commons
from twinbus.entities.messages import Messages
from twinbus.entities.quota import Quota
from twinbus.entities.views import BlankViews
from twinbus.errors import QuotaExceededError


def messages(size: int) -> Messages:
    made = Messages(4, Commons(bytes, Bodies(), BlankViews()), None, True)
    made.bytes = size
    return made


def test_everything_that_is_counted_fills_it() -> None:
    own, dead = messages(60), messages(30)
    quota = Quota("Queue: 'q'", 100, [own])
    quota.check(40)
    quota.count(dead)
    assert quota.used_bytes == 90
    quota.check(10)
    with pytest.raises(
        QuotaExceededError, match=r"for Queue: 'q'. Size of entity in bytes:101, Max entity size in bytes:100"
    ):
        quota.check(11)
    dead.bytes = 0
    quota.check(11)


def test_a_changed_limit_counts_at_once() -> None:
    quota = Quota("Queue: 'q'", 100, [messages(60)])
    quota.limit_bytes = 70
    with pytest.raises(QuotaExceededError):
        quota.check(11)
