from __future__ import annotations

import pytest
from rules_house import House, new, tag

from twinbus.entities.refusals import SESSION_ID_MISSING_TEXT
from twinbus.entities.settings import QueueSettings
from twinbus.errors import (
    ArgumentError,
    EntityDisabledError,
    MessageNotFoundError,
    MessageTooLargeError,
    NotAllowedError,
    QuotaExceededError,
    ServiceError,
)
from twinbus.limits import BATCH_DELETE_MESSAGES_MAX
from twinbus.store.facts import Table


def refused(house: House, error: type[ServiceError], *messages: object) -> ServiceError:
    """Send, expect the error, and check that nothing has changed."""
    before = house.snapshot()
    with pytest.raises(error) as caught:
        house.queue.send(messages, house.now, house.facts)  # type: ignore[arg-type]
    assert house.snapshot() == before
    return caught.value


# --- sending --------------------------------------------------------------------------------------------------------


def test_a_message_is_seen_after_its_commit() -> None:
    house = House()
    house.queue.send([new("a")], house.now, house.facts)
    assert not house.queue.has_available()
    assert house.acquire() == []
    assert house.queue.counts.active == 0
    house.commit()
    assert house.queue.has_available()
    assert house.heard == ["available q"]
    assert house.names(house.acquire()) == ["a"]


def test_one_call_for_all_sends_of_a_commit() -> None:
    house = House()
    for name in "abc":
        house.queue.send([new(name)], house.now, house.facts)
    house.commit()
    assert house.heard == ["available q"]
    assert house.names(house.acquire(9)) == ["a", "b", "c"]


def test_a_commit_under_way_hides_the_next_one() -> None:
    house = House()
    house.queue.send([new("a")], house.now, house.facts)
    first, house.facts = house.facts, type(house.facts)()
    house.queue.send([new("b")], house.now, house.facts)
    house.tables.apply(first)
    for call, argument in first.then:
        call(argument)
    assert house.names(house.acquire(9)) == ["a"]
    house.commit()
    assert house.names(house.acquire(9)) == ["b"]


def test_sequence_numbers_start_at_one_and_ascend() -> None:
    house = House()
    house.send("a", "b")
    house.send("c")
    assert [message.seq for message in house.acquire(3)] == [1, 2, 3]


def test_a_ping_is_counted_and_never_stored() -> None:
    house = House(requires_session=True)
    house.queue.send([new("p", ping=True, size=10**9)], house.now, house.facts)
    facts = house.commit()
    assert facts.empty
    assert house.queue.pings == 1
    assert house.queue.counts == (0, 0, 0, 0)
    assert house.heard == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_id": "s" * 129}, ArgumentError),
        ({"partition_key": "p" * 129}, ArgumentError),
        ({"session_id": "s", "partition_key": "p"}, ArgumentError),
        ({"size": 256 * 1024 + 1}, MessageTooLargeError),
    ],
)
def test_one_past_a_limit_refuses_the_whole_batch(fields: dict[str, object], error: type[ServiceError]) -> None:
    house = House()
    assert refused(house, error, new("good"), new("bad", **fields)).text  # type: ignore[arg-type]


def test_the_longest_ids_are_taken() -> None:
    house = House()
    refused(house, ArgumentError, new("m" * 129))
    house.queue.send([new("m" * 128, session_id="s" * 128, partition_key="s" * 128)], house.now, house.facts)
    house.queue.send([new("m", partition_key="p" * 128, size=256 * 1024)], house.now, house.facts)
    house.commit()
    assert house.queue.counts.active == 2


def test_a_session_queue_needs_a_session_id() -> None:
    house = House(requires_session=True)
    error = refused(house, NotAllowedError, new("a", session_id="s"), new("b"))
    assert error.text == SESSION_ID_MISSING_TEXT
    assert error.text.startswith("The SessionId was not set on a message")


def test_a_full_queue_refuses_sends_and_goes_on_giving() -> None:
    house = House(max_megabytes=1, max_message_bytes=1024 * 1024)
    house.send("a", "b", size=512 * 1024)
    error = refused(house, QuotaExceededError, new("c", size=1))
    assert "Max entity size in bytes:1048576" in error.text
    with pytest.raises(QuotaExceededError):
        house.queue.schedule([new("c", scheduled_ms=house.now + 1000)], house.now, house.facts)
    message = house.one()
    house.queue.dead_letter(tag(message), house.now, house.facts, None, None)
    house.commit()
    refused(house, QuotaExceededError, new("c", size=1))
    (message,) = house.acquire(1, house.dead)
    house.dead.complete(tag(message), house.now, house.facts)
    house.send("c", size=1)
    assert house.queue.size_bytes == 512 * 1024 + 1


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        ("Active", True, True),
        ("Disabled", False, False),
        ("SendDisabled", False, True),
        ("ReceiveDisabled", True, False),
    ],
)
def test_status(status: str, sends: bool, receives: bool) -> None:
    house = House()
    house.send("a")
    held = house.one()
    house.send("b")
    house.namespace.update_queue(QueueSettings(path="q", status=status), house.now, house.facts)
    house.commit()
    queue, now, facts = house.queue, house.now, house.facts
    for allowed, command in (
        (sends, lambda: queue.send([new("c")], now, facts)),
        (sends, lambda: queue.schedule([new("d", scheduled_ms=now + 1)], now, facts)),
        (receives, lambda: queue.acquire(1, now, facts)),
        (receives, lambda: queue.take(1, now, facts)),
        (receives, lambda: queue.delete_batch(1, now, now, facts)),
    ):
        if allowed:
            command()
        else:
            with pytest.raises(EntityDisabledError):
                command()
    queue.complete(tag(held), now, facts)


def test_switching_a_queue_on_again_wakes_receivers() -> None:
    house = House(status="ReceiveDisabled")
    house.send("a")
    house.heard.clear()
    house.namespace.update_queue(QueueSettings(path="q"), house.now, house.facts)
    house.commit()
    assert house.heard == ["available q"]


def test_nobody_sends_to_a_dead_letter_queue() -> None:
    house = House()
    with pytest.raises(NotAllowedError):
        house.dead.send([new()], house.now, house.facts)


# --- receiving ------------------------------------------------------------------------------------------------------


def test_two_receivers_share_a_queue() -> None:
    house = House()
    house.send("a", "b", "c")
    assert house.names(house.acquire(2)) == ["a", "b"]
    assert house.names(house.acquire(2)) == ["c"]
    assert house.acquire(2) == []
    assert house.queue.counts.active == 3


def test_take_removes_when_the_receiver_has_the_messages() -> None:
    house = House()
    house.send("a", "b")
    taken = house.queue.take(5, house.now, house.facts)
    assert house.names(taken) == ["a", "b"]
    assert house.acquire(5) == []
    assert house.queue.counts.active == 2
    house.queue.remove_taken(taken, house.facts)
    assert house.queue.counts.active == 0
    house.crash()
    taken = house.queue.take(5, house.now, house.facts)
    assert house.names(taken) == ["a", "b"]
    house.queue.remove_taken(taken, house.facts)
    house.commit()
    house.crash()
    assert house.queue.take(5, house.now, house.facts) == []
    assert house.queue.size_bytes == 0


def test_taken_messages_come_back_to_their_place_uncounted() -> None:
    house = House()
    house.send("a", "b", "c")
    taken = house.queue.take(2, house.now, house.facts)
    # However long it takes: a taken message has no lock that could expire.
    house.step(10 * 60)
    assert house.names(house.acquire(5)) == ["c"]
    house.queue.return_taken(taken, house.now, house.facts)
    house.commit()
    returned = house.acquire(5)
    assert house.names(returned) == ["a", "b"]
    assert [message.delivery_count for message in returned] == [0, 0]


def test_a_taken_message_that_expires_leaves_when_it_comes_back() -> None:
    house = House(dead_letter_on_expiry=True)
    house.send("a", ttl_ms=1000)
    taken = house.queue.take(1, house.now, house.facts)
    house.step(5)
    assert house.queue.counts.active == 1
    house.queue.return_taken(taken, house.now, house.facts)
    house.commit()
    assert house.queue.counts.dead_letter == 1


@pytest.mark.parametrize("written", [False, True])
def test_a_queue_deleted_while_messages_are_taken_leaves_no_rows(written: bool) -> None:
    house = House()
    house.send("a", "b")
    queue = house.queue
    taken = queue.take(1, house.now, house.facts)
    house.namespace.delete_queue(queue.path, house.now, house.facts)
    if written:
        queue.remove_taken(taken, house.facts)
    else:
        queue.return_taken(taken, house.now, house.facts)
    house.commit()
    while house.namespace.sweep_pending:
        house.namespace.sweep(house.facts, 10)
        house.commit()
    assert house.tables.rows[Table.INDEX] == {}
    assert house.tables.rows[Table.BODIES] == {}


def test_a_returned_message_comes_before_later_ones() -> None:
    house = House()
    house.send("a", "b", "c", "d")
    first, second, _ = house.acquire(3)
    house.abandon(second)
    house.abandon(first)
    assert house.names(house.acquire(9)) == ["a", "b", "d"]


def test_deferred_messages_are_received_by_number_only() -> None:
    house = House()
    house.send("a", "b")
    first, second = house.acquire(2)
    numbers = [first.seq, second.seq]
    house.queue.defer(tag(first), house.now, house.facts)
    with pytest.raises(MessageNotFoundError):
        house.queue.receive_deferred(numbers[:1], house.now, house.facts, session=None)
    house.commit()
    house.defer(second)
    assert house.acquire(9) == []
    assert house.queue.counts == (0, 0, 2, 0)
    before = house.snapshot()
    with pytest.raises(MessageNotFoundError):
        house.queue.receive_deferred([*numbers, 77], house.now, house.facts, session=None)
    assert house.snapshot() == before
    got = house.queue.receive_deferred([*numbers, numbers[0]], house.now, house.facts, session=None)
    assert house.names(got) == ["a", "b"]
    with pytest.raises(MessageNotFoundError):
        house.queue.receive_deferred(numbers, house.now, house.facts, session=None)
    house.abandon(got[0])
    house.complete(got[1])
    assert house.queue.counts == (0, 0, 1, 0)
    assert house.acquire(9) == []
    house.crash()
    (again,) = house.queue.receive_deferred(numbers[:1], house.now, house.facts, session=None)
    assert again.delivery_count == 2
    house.complete(again)
    assert house.queue.counts == (0, 0, 0, 0)


def test_the_lock_of_a_deferred_message_lapses_back_to_deferred() -> None:
    house = House()
    house.send("a")
    message = house.one()
    house.defer(message)
    house.queue.receive_deferred([message.seq], house.now, house.facts, session=None)
    house.step(60)
    assert house.queue.counts == (0, 0, 1, 0)
    (again,) = house.queue.receive_deferred([message.seq], house.now, house.facts, session=None)
    assert again.delivery_count == 2


def test_batch_delete_takes_the_oldest_that_are_free() -> None:
    house = House()
    house.send("a", "b", "c")
    held = house.one()
    cut = house.now + 1
    house.step(1)
    house.send("d")
    assert house.queue.delete_batch(1, cut, house.now, house.facts) == 1
    assert house.queue.delete_batch(500, cut, house.now, house.facts) == 1
    assert house.queue.delete_batch(500, cut, house.now, house.facts) == 0
    house.complete(held)
    assert house.names(house.acquire(9)) == ["d"]
    assert house.queue.size_bytes == 100


@pytest.mark.parametrize("count", [0, -1, BATCH_DELETE_MESSAGES_MAX + 1])
def test_batch_delete_is_bounded(count: int) -> None:
    house = House()
    with pytest.raises(ArgumentError):
        house.queue.delete_batch(count, house.now, house.now, house.facts)


def test_representations_show_where_and_how_many() -> None:
    house = House()
    house.send("a")
    assert "q" in repr(house.queue)
    assert "active=1" in repr(house.queue)
    assert repr(house.one()) == "<Message 1 state=0 count=0 locked=True>"
