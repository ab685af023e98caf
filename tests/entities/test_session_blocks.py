"""Lists of sessions that start anywhere: the same as a walk over all of them, for less work."""

from __future__ import annotations

import random

import pytest
from rules_house import House, tag
from test_rules_cost import steps

from twinbus.entities.session import MessageSession
from twinbus.entities.session_blocks import BLOCK
from twinbus.errors import ServiceError


def walked(house: House, updated_after_ms: int | None) -> list[str]:
    """The list as the service defines it, from every session."""
    assert house.queue.sessions is not None
    found = house.queue.sessions.by_id.values()
    if updated_after_ms is not None:
        return [session.id for session in found if session.updated_ms > updated_after_ms]
    return [
        session.id
        for session in found
        if session.state is not None or len(session.available) or session.held or session.returning
    ]


def agrees(house: House, chance: random.Random) -> bool:
    """Whether a page from anywhere is that part of the walk."""
    for after_ms in (None, house.now - chance.randrange(5_000)):
        whole = walked(house, after_ms)
        skip, top = chance.randrange(len(whole) + 2), chance.randrange(1, 40)
        if house.queue.list_sessions(after_ms, skip, top) != whole[skip : skip + top]:
            return False
        assert house.queue.list_sessions(after_ms, 0, len(whole) + 1) == whole
    return True


@pytest.mark.parametrize("seed", range(12))
def test_any_commands_give_the_list_of_a_walk(seed: int) -> None:
    chance = random.Random(seed)
    house = House(requires_session=True, lock_duration_ms=5_000)
    held: dict[str, MessageSession] = {}
    # Enough for several blocks, which then shrink and join.
    for number in range(3 * BLOCK):
        house.send("m", session_id=f"s{number}")
    for number in range(300):
        # A few sessions see most of the commands.
        name = f"s{chance.randrange(12 if number % 2 else 3 * BLOCK)}"
        session = held.get(name)
        try:
            match chance.randrange(9):
                case 0:
                    house.send("m", session_id=f"s{number}", scheduled_ms=house.now + chance.randrange(4_000))
                case 1:
                    held[name] = house.accept(name)
                case 2 if held:
                    name, session = chance.choice(list(held.items()))
                    for message in session.acquire(2, house.now, house.facts):
                        settle = chance.choice([house.queue.complete, house.queue.abandon, house.queue.defer])
                        settle(tag(message), house.now, house.facts)
                case 3 if held:
                    session = held.pop(chance.choice(list(held)))
                    house.queue.release_session(session, house.now, house.facts)
                case 4 if held:
                    name = chance.choice(list(held))
                    state = chance.choice([None, b"state"])
                    house.queue.set_session_state(name, state, house.now, house.facts)
                case 5 if held:
                    session = chance.choice(list(held.values()))
                    taken = session.take(1, house.now, house.facts)
                    if taken and chance.random() < 0.5:
                        house.queue.remove_taken(taken, house.facts)
                    elif taken:
                        house.queue.return_taken(taken, house.now, house.facts)
                case 6 if house.queue.messages.deferred:
                    message = chance.choice(list(house.queue.messages.deferred.values()))
                    assert message.session is not None
                    name = message.session.id
                    held[name] = message.session if message.session.locked else house.accept(name)
                    house.queue.receive_deferred([message.seq], house.now, house.facts, session=message.session)
                case 7:
                    house.step(ms=chance.randrange(400))
                case 8:
                    house.queue.delete_batch(100, house.now + 1, house.now, house.facts)
        except ServiceError:
            held.pop(name, None)
        assert agrees(house, chance)
        house.commit()
        assert agrees(house, chance)
    house.crash()
    assert agrees(house, chance)


def test_the_last_page_of_many_sessions_is_as_cheap_as_the_first() -> None:
    house = House(requires_session=True)
    count = 20 * BLOCK
    for number in range(count):
        house.send("m", session_id=str(number))
    assert house.queue.list_sessions(None, count - 10, 100) == [str(number) for number in range(count - 10, count)]
    # One message changes one block.
    house.send("m", session_id="7")
    for after_ms in (None, 0):
        house.queue.list_sessions(after_ms, 0, 1)
        assert steps(lambda after=after_ms: house.queue.list_sessions(after, count - 10, 100)) < 20 * BLOCK


def test_counting_all_sessions_takes_steps() -> None:
    house = House(requires_session=True)
    for number in range(20 * BLOCK):
        house.send("m", session_id=str(number))
    assert house.queue.sessions is not None
    blocks = house.queue.sessions.blocks
    assert len(list(blocks.counted(None))) == 5
    assert list(blocks.counted(None)) == []
    assert len(list(blocks.counted(0))) == 5


def test_blocks_that_shrink_join() -> None:
    house = House(requires_session=True)
    for number in range(8 * BLOCK):
        house.send("m", session_id=str(number))
    session_count = 0
    for number in range(8 * BLOCK):
        if number % 100:
            session = house.accept(str(number))
            (message,) = session.acquire(1, house.now, house.facts)
            house.complete(message)
            house.queue.release_session(session, house.now, house.facts)
            house.commit()
        else:
            session_count += 1
    assert house.queue.sessions is not None
    assert len(house.queue.sessions.by_id) == session_count
    assert len(house.queue.sessions.blocks) <= 2
    assert house.queue.list_sessions(None, 0, 100) == [str(number) for number in range(0, 8 * BLOCK, 100)]
