"""The messages of an entity on their own, without a queue that decides anything."""

from __future__ import annotations

import itertools

import pytest

from twinbus.entities import records
from twinbus.entities.bodies import Bodies
from twinbus.entities.commons import Commons
from twinbus.entities.message import ACTIVE, DEFERRED, GONE, RETURNING, SCHEDULED, TAKEN, QueuedMessage
from twinbus.entities.messages import Messages, index_rows
from twinbus.entities.views import BlankViews
from twinbus.errors import MessageLockLostError
from twinbus.store.facts import Facts, Table

ENTITY = 4


def made(expires: bool = True) -> Messages:
    count = itertools.count(1)
    commons = Commons(lambda: next(count).to_bytes(16, "big"), Bodies(), BlankViews())
    return Messages(ENTITY, commons, None, expires)


def message(seq: int, state: int = ACTIVE, expires_ms: int | None = None) -> QueuedMessage:
    return QueuedMessage(seq, seq, 10, 0, expires_ms, state, 0, None, None)


def arrive(messages: Messages, *arrivals: QueuedMessage) -> Facts:
    facts = Facts()
    for each in arrivals:
        messages.take_in(each, facts)
    messages.show(list(arrivals))
    return facts


def test_bytes_count_from_the_write_and_messages_from_the_commit() -> None:
    messages = made()
    facts = Facts()
    first = message(1)
    messages.take_in(first, facts)
    assert (messages.bytes, messages.active, len(messages.available)) == (10, 0, 0)
    assert list(facts.index) == [records.key(ENTITY, 1)]
    messages.show([first])
    assert (messages.bytes, messages.active, len(messages.available)) == (10, 1, 1)


def test_each_state_has_its_place() -> None:
    messages = made()
    arrive(messages, message(1), message(2, SCHEDULED))
    assert messages.available.find(1) is not None
    assert list(messages.schedule.messages) == [2]
    assert messages.expiry.deadline_ms() is None
    arrive(messages, message(3, expires_ms=5_000))
    assert messages.expiry.deadline_ms() == 6_000


def test_where_nothing_expires_numbers_may_arrive_in_any_order() -> None:
    messages = made(expires=False)
    arrive(messages, message(5, expires_ms=1), message(3, expires_ms=1))
    assert messages.expiry.deadline_ms() is None
    assert [each.seq for each in messages.available.pick(9, 999, 0)[0]] == [3, 5]


def test_a_lock_is_good_until_its_end() -> None:
    messages = made()
    arrive(messages, message(1))
    picked, _ = messages.available.pick(1, 999, 0)
    messages.lock(picked, 100)
    token = picked[0].token
    assert token is not None
    assert messages.locked(token, 99) is picked[0]
    for used, now_ms in ((token, 100), (b"unknown", 0)):
        with pytest.raises(MessageLockLostError):
            messages.locked(used, now_ms)
    messages.unlock(picked[0])
    assert picked[0].token == RETURNING
    with pytest.raises(MessageLockLostError):
        messages.locked(token, 0)


def test_a_deferred_message_is_counted_where_it_is() -> None:
    messages = made()
    arrive(messages, message(1))
    (picked,), _ = messages.available.pick(1, 999, 0)
    messages.lock([picked], 100)
    messages.unlock(picked)
    messages.defer(picked)
    messages.defer(picked)
    assert (messages.active, messages.deferred_count, picked.state) == (0, 1, DEFERRED)
    messages.show([picked])
    assert list(messages.deferred) == [1]


def test_what_leaves_takes_its_row_its_body_and_its_bytes() -> None:
    messages = made()
    arrive(messages, message(1), message(2))
    first, second = messages.available.pick(2, 999, 0)[0]
    facts = Facts()
    messages.remove(first, facts)
    assert facts.deletes == [(Table.INDEX, records.key(ENTITY, 1)), (Table.BODIES, records.BODY_KEY.pack(1))]
    facts = Facts()
    messages.hand_over(second, facts)
    assert facts.deletes == [(Table.INDEX, records.key(ENTITY, 2))]
    assert (messages.bytes, messages.active, first.state) == (0, 0, GONE)


def test_a_taken_message_is_told_from_one_that_is_removed() -> None:
    messages = made()
    arrive(messages, message(1), message(2))
    picked, _ = messages.available.pick(2, 999, 0)
    messages.take(picked)
    assert [each.token for each in picked] == [TAKEN, TAKEN]
    messages.untake(picked[1])
    assert picked[1].token == RETURNING
    messages.remove_taken(picked[:1], Facts())
    assert (messages.taken, picked[0].state) == ({}, GONE)


@pytest.mark.parametrize("where", ["available", "locked", "taken", "scheduled", "deferred"])
def test_a_damaged_message_is_kept_from_everybody(where: str) -> None:
    messages = made()
    each = message(1, SCHEDULED if where == "scheduled" else ACTIVE)
    arrive(messages, each)
    if where in ("locked", "taken", "deferred"):
        messages.available.pick(1, 999, 0)
    if where == "locked":
        messages.lock([each], 100)
    elif where == "taken":
        messages.take([each])
    elif where == "deferred":
        messages.defer(each)
        messages.show([each])
    facts = Facts()
    assert messages.put_aside(each, facts)
    (row,) = facts.index.values()
    assert records.unpack(row).damaged
    assert (messages.active, messages.deferred_count, messages.bytes) == (0, 0, 10)
    assert messages.find_at_rest(1) is None
    assert len(messages.locks) == len(messages.taken) == 0
    assert not messages.put_aside(each, facts)


def test_rows_are_those_of_every_place_once() -> None:
    messages = made()
    arrive(messages, *(message(seq) for seq in range(1, 7)), message(7, SCHEDULED))
    locked, taken, deferred, damaged, gone = messages.available.pick(5, 999, 0)[0]
    messages.lock([locked], 100)
    messages.take([taken])
    messages.defer(deferred)
    messages.show([deferred])
    messages.lock([damaged], 100)
    messages.put_aside(damaged, Facts())
    messages.remove(gone, Facts())
    assert sorted(row[2] for row in index_rows(4, messages._all())) == [1, 2, 3, 4, 6, 7]


def test_what_is_read_back_is_where_it_was() -> None:
    messages = made()
    messages.restore_many([message(1), message(2, expires_ms=5_000)], 20)
    for each in (message(3, DEFERRED), message(4, SCHEDULED), message(5)):
        messages.restore(each, None)
    messages.restore_damaged(message(6))
    assert (messages.active, messages.deferred_count, messages.bytes) == (3, 1, 60)
    assert [each.seq for each in messages.available.pick(9, 999, 0)[0]] == [1, 2, 5]
    assert (list(messages.deferred), list(messages.schedule.messages), list(messages.damaged)) == ([3], [4], [6])
    assert messages.expiry.deadline_ms() == 6_000
