from __future__ import annotations

from twinbus.build import build
from twinbus.entities.bodies import Bodies
from twinbus.store.facts import Facts, Table, body_key


def test_numbers_ascend_and_are_marked_ahead_in_blocks() -> None:
    bodies = Bodies()
    facts = Facts()
    numbers = [bodies.store(b"x", facts) for _ in range(2001)]
    assert numbers == list(range(1, 2002))
    assert list(facts.rows.values()) == [(3000).to_bytes(8, "big")]
    assert list(facts.bodies) == [body_key(number) for number in numbers]


def test_numbers_go_on_above_the_mark() -> None:
    facts = Facts()
    assert Bodies(1000).store(b"", facts) == 1001
    assert facts.rows


def test_a_body_goes_with_its_last_reference() -> None:
    bodies = Bodies()
    facts = Facts()
    number = bodies.store(b"x", facts)
    bodies.share(number, 2)
    assert bodies.shared(number)
    for _ in range(2):
        bodies.release(number, facts)
        assert facts.deletes == []
    assert not bodies.shared(number)
    bodies.release(number, facts)
    assert facts.deletes == [(Table.BODIES, body_key(number))]


def test_equal_sizes_are_one_object_and_the_memory_of_them_is_bounded() -> None:
    bodies = Bodies()
    one, two = int("12345"), int("12345")
    assert one is not two
    # In the compiled build an int may not be an object of its own.
    assert bodies.size(one) is bodies.size(two) or build() == "compiled"
    for size in range(20_000, 50_000):
        assert bodies.size(size) == size
    assert len(bodies._sizes) <= 10_000
