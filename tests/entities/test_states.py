"""The table of places and moves is complete, and real queues and topics make each of its moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from move_watch import MoveWatch, watched_moves
from rules_house import House, new, tag
from topic_house import TopicHouse, post

from twinbus.build import build
from twinbus.entities.message import QueuedMessage
from twinbus.entities.states import MEANINGS, TRANSITIONS, Move, Place, place
from twinbus.limits import FORWARD_HOPS_MAX

LEFT = {
    Place.REMOVED,
    Place.DEAD_LETTERED,
    Place.TRANSFER_DEAD_LETTERED,
    Place.FORWARDED,
    Place.RESUBMITTED,
    Place.HANDED_OUT,
    Place.SET_ASIDE,
}


@pytest.fixture
def watch() -> Iterator[MoveWatch]:
    if build() == "compiled":
        pytest.skip("Compiled code does not call the methods that the watch replaces: the pure build is watched.")
    with watched_moves() as found:
        yield found


def test_every_place_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(MEANINGS) == set(Place)
    reached = {Place.SENT, Place.SCHEDULING}
    for _ in Place:
        reached |= {target for source in reached for target in TRANSITIONS[source].values()}
    assert reached == set(Place)


def test_every_move_is_used() -> None:
    assert {move for moves in TRANSITIONS.values() for move in moves} == set(Move)


def test_only_what_has_left_its_entity_moves_no_more() -> None:
    assert {source for source, moves in TRANSITIONS.items() if not moves} == LEFT


# --- every move, made -----------------------------------------------------------------------------------------------


def locked(house: House, name: str, **fields: object) -> QueuedMessage:
    house.send(name, **fields)
    return house.one()


def deferred(house: House, name: str, **fields: object) -> QueuedMessage:
    message = locked(house, name, **fields)
    house.defer(message)
    return message


def deferred_locked(house: House, name: str, **fields: object) -> QueuedMessage:
    message = deferred(house, name, **fields)
    return house.queue.receive_deferred([message.seq], house.now, house.facts, session=None)[0]


def settled(house: House) -> None:
    """Every settlement, of deferred and of other messages."""
    queue = house.queue
    for get in (locked, deferred_locked):
        for how in ("complete", "abandon", "defer", "release", "drop"):
            getattr(queue, how)(tag(get(house, how)), house.now, house.facts)
            house.commit()
            cleared(house)
        queue.dead_letter(tag(get(house, "dead")), house.now, house.facts, "why", None)
        get(house, "lapses")
        house.step(seconds=100)
        cleared(house)
        queue.messages.put_aside(get(house, "damaged"), house.facts)
        message = get(house, "exhausted")
        queue.abandon(tag(message), house.now, house.facts)
        house.commit()
        while place(message) is not Place.REMOVED:
            queue.abandon(tag(again(house, message)), house.now, house.facts)
            house.commit()


def again(house: House, message: QueuedMessage) -> QueuedMessage:
    if place(message) is Place.DEFERRED:
        return house.queue.receive_deferred([message.seq], house.now, house.facts, session=None)[0]
    return house.one()


def cleared(house: House) -> None:
    for message in house.acquire(100):
        house.complete(message)
    for seq in list(house.queue.messages.deferred):
        (message,) = house.queue.receive_deferred([seq], house.now, house.facts, session=None)
        house.complete(message)


def expired(house: House) -> None:
    """From every place where messages expire."""
    house.send("tick", ttl_ms=1000)
    house.step(seconds=5)
    message = locked(house, "held", ttl_ms=1000)
    house.clock.step(seconds=2)
    house.queue.release(tag(message), house.now, house.facts)
    house.send("taken", ttl_ms=1000)
    taken = house.queue.take(1, house.now, house.facts)
    house.clock.step(seconds=2)
    house.queue.return_taken(taken, house.now, house.facts)
    message = deferred(house, "deferred", ttl_ms=1000)
    house.clock.step(seconds=2)
    house.queue.receive_deferred([message.seq], house.now, house.facts, session=None)
    house.commit()


def received_and_deleted(house: House) -> None:
    house.send("a", "b", "c")
    messages = house.queue.take(3, house.now, house.facts)
    house.queue.messages.put_aside(messages[0], house.facts)
    house.queue.remove_taken(messages[1:2], house.facts)
    house.queue.return_taken(messages[2:], house.now, house.facts)
    house.commit()
    assert house.queue.delete_batch(9, house.now + 1, house.now, house.facts) == 1


def scheduled(house: House) -> None:
    at_ms = house.now + 1000
    names = [new(name, scheduled_ms=at_ms) for name in ("active", "cancelled", "damaged")]
    _, cancelled, damaged = house.queue.schedule(names, house.now, house.facts)
    house.commit()
    house.queue.cancel([cancelled], house.now, house.facts)
    message = house.queue.messages.find_at_rest(damaged)
    assert message is not None
    assert place(message) is Place.SCHEDULED
    house.queue.messages.put_aside(message, house.facts)
    house.step(seconds=2)
    cleared(house)


def at_rest(house: House) -> None:
    """Unlocked messages, damaged or resubmitted."""
    house.send("damaged")
    available = house.queue.messages.find_at_rest(house.queue.numbers.last)
    assert available is not None
    house.queue.messages.put_aside(available, house.facts)
    house.queue.messages.put_aside(deferred(house, "deferred"), house.facts)
    house.queue.dead_letter(tag(locked(house, "dead")), house.now, house.facts, None, None)
    house.commit()
    house.queue.resubmit(house.dead, None, 0, house.now, house.facts)
    house.commit()
    for chosen in (house.queue.delete_chosen, house.queue.dead_letter_chosen):
        house.send("chosen")
        numbers = [house.queue.numbers.last, deferred(house, "aside").seq]
        more = () if chosen == house.queue.delete_chosen else ("why", None)
        assert chosen(numbers, house.now, house.facts, *more) == numbers
        house.commit()
    cleared(house)


def forwarded(house: House) -> None:
    """To a target, to one that rejects the message, and beyond the maximum number of hops."""
    house.create("end")
    house.create("small", max_message_bytes=1024)
    house.create("start", forward_to="end")
    house.create("refused", forward_to="small")
    for path in ("start", "refused"):
        house.namespace.queue(path).send([new("m", size=2000)], house.now, house.facts)
    house.commit()
    house.create("hop0")
    for hop in range(1, FORWARD_HOPS_MAX + 2):
        house.create(f"hop{hop}", forward_to=f"hop{hop - 1}")
    house.namespace.queue(f"hop{FORWARD_HOPS_MAX + 1}").send([new("m")], house.now, house.facts)
    house.commit()
    house.tick()
    assert house.namespace.queue("end").counts.active == 1
    assert house.namespace.queue("refused").transfer_dead_letter_count == 1
    assert house.namespace.queue("hop1").counts.dead_letter == 1


def handed_out(_: House) -> None:
    house = TopicHouse()
    house.subscribe("all")
    house.topic.schedule([post("m", scheduled_ms=house.now + 1000)], house.now, house.facts)
    house.commit()
    house.step(seconds=2)
    assert house.sub("all").counts.active == 1


SCENES: list[Callable[[House], None]] = [
    settled,
    received_and_deleted,
    scheduled,
    at_rest,
    forwarded,
    handed_out,
    expired,
]


def test_each_move_of_the_table_is_made_and_no_other(watch: MoveWatch) -> None:
    for dead_letter_on_expiry in (False, True):
        for scene in SCENES:
            scene(House(max_delivery_count=3, dead_letter_on_expiry=dead_letter_on_expiry))
    assert watch.seen == {(source, move) for source, moves in TRANSITIONS.items() for move in moves}


def test_a_move_that_the_table_does_not_have_is_told(watch: MoveWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = {move: target for move, target in TRANSITIONS[Place.LOCKED].items() if move is not Move.COMPLETE}
    monkeypatch.setitem(TRANSITIONS, Place.LOCKED, moves)
    house = House()
    house.send("a")
    message = house.one()
    with pytest.raises(AssertionError, match=r"complete moved .* the table has no such move"):
        house.queue.complete(tag(message), house.now, house.facts)
