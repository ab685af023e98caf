from __future__ import annotations

from rules_house import House, new, tag

from twinbus.entities.states import TRANSITIONS, Move, Place, place


def test_every_place_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(Place)
    reached = {Place.SENT, Place.SCHEDULED}
    for _ in Place:
        reached |= {target for source in reached for target in TRANSITIONS[source].values()}
    assert reached == set(Place)


def test_every_move_is_used() -> None:
    assert {move for moves in TRANSITIONS.values() for move in moves} == set(Move)


def test_only_removal_is_final() -> None:
    assert [source for source, moves in TRANSITIONS.items() if not moves] == [Place.REMOVED]


def test_a_message_goes_through_the_table() -> None:
    house = House()
    house.send("a")
    message = house.one()

    def step(source: Place, move: Move) -> None:
        assert place(message) is TRANSITIONS[source][move]

    step(Place.AVAILABLE, Move.ACQUIRE)
    house.queue.abandon(tag(message), house.now, house.facts)
    step(Place.LOCKED, Move.ABANDON)
    house.commit()
    step(Place.RETURNING, Move.COMMIT)
    house.acquire()
    house.queue.defer(tag(message), house.now, house.facts)
    step(Place.LOCKED, Move.DEFER)
    house.commit()
    step(Place.DEFERRED_RETURNING, Move.COMMIT)
    house.queue.receive_deferred([message.seq], house.now, house.facts, session=None)
    step(Place.DEFERRED, Move.RECEIVE_DEFERRED)
    house.queue.release(tag(message), house.now, house.facts)
    step(Place.DEFERRED_LOCKED, Move.RELEASE)
    house.commit()
    house.queue.receive_deferred([message.seq], house.now, house.facts, session=None)
    house.queue.complete(tag(message), house.now, house.facts)
    step(Place.DEFERRED_LOCKED, Move.COMPLETE)


def test_a_scheduled_message_is_in_its_place() -> None:
    house = House()
    house.queue.schedule([new("a", scheduled_ms=house.now + 1000)], house.now, house.facts)
    house.commit()
    (message,) = house.queue.messages.schedule.messages.values()
    assert place(message) is Place.SCHEDULED
