"""Which sessions must go through the backlog, and until when."""

from __future__ import annotations

from random import Random

import pytest

from twinbus.paired.sessions import SEQUENCE_NUMBER_MAX, LastNumberSearch, SessionTrail


def test_a_session_is_held_until_its_queue_is_empty() -> None:
    trail = SessionTrail()
    trail.note(["s1", "s2"], "q")
    assert trail.queue_of(["s1"]) == trail.queue_of(["other", "s2"]) == "q"
    assert trail.queue_of(["other"]) is None
    trail.drained(trail.in_queue("another"), None)
    assert len(trail) == 2
    trail.drained(trail.in_queue("q"), None)
    assert len(trail) == 0


def test_or_until_only_younger_messages_are_left() -> None:
    trail = SessionTrail()
    trail.note(["old"], "q")
    trail.drained(trail.in_queue("q"), 1)
    assert trail.queue_of(["old"]) == "q"
    trail.bound(trail.in_queue("q"), 7)
    trail.note(["new"], "q")
    trail.bound(trail.in_queue("q"), 9)
    trail.drained(trail.in_queue("q"), 7)
    assert (trail.queue_of(["old"]), trail.queue_of(["new"])) == ("q", "q")
    trail.drained(trail.in_queue("q"), 8)
    assert (trail.queue_of(["old"]), trail.queue_of(["new"])) == (None, "q")
    trail.drained(trail.in_queue("q"), 10)
    assert len(trail) == 0


def test_what_is_diverted_during_a_look_is_not_covered_by_it() -> None:
    trail = SessionTrail()
    trail.note(["s"], "q")
    before = trail.in_queue("q")
    trail.note(["s"], "q")
    trail.drained(before, None)
    trail.bound(before, 5)
    trail.drained(trail.in_queue("q"), 6)
    assert trail.queue_of(["s"]) == "q"


def test_nobody_looks_too_often() -> None:
    trail = SessionTrail()
    assert trail.may_look("q", 0, 1_000)
    assert not trail.may_look("q", 999, 1_000)
    assert trail.may_look("other", 999, 1_000)
    assert trail.may_look("q", 1_000, 1_000)
    assert not trail.may_look("q", 1_999, 1_000)
    assert trail.may_look("q", 2_000, 1_000)


def searched(numbers: list[int]) -> tuple[int, int]:
    """The last number as the search finds it, and how many requests it took."""
    search = LastNumberSearch(numbers[0])
    count = 0
    while (question := search.question) is not None:
        assert search.last < question <= SEQUENCE_NUMBER_MAX
        search.answer(next((number for number in numbers if number >= question), None))
        count += 1
    return search.last, count


@pytest.mark.parametrize("seed", range(20))
def test_the_last_number_is_found_by_few_questions(seed: int) -> None:
    rng = Random(seed)
    numbers = sorted(rng.sample(range(1, 10 ** rng.randint(2, 9)), rng.randint(1, 60)))
    last, count = searched(numbers)
    assert last == numbers[-1]
    assert count <= 2 * (numbers[-1] - numbers[0] + 2).bit_length() + 1


def test_the_search_ends_at_the_greatest_number() -> None:
    assert searched([SEQUENCE_NUMBER_MAX]) == (SEQUENCE_NUMBER_MAX, 0)
    assert searched([1, SEQUENCE_NUMBER_MAX])[0] == SEQUENCE_NUMBER_MAX
    assert searched([1, SEQUENCE_NUMBER_MAX])[1] <= 128
    assert searched([1, SEQUENCE_NUMBER_MAX - 1, SEQUENCE_NUMBER_MAX])[0] == SEQUENCE_NUMBER_MAX
    assert searched([5]) == (5, 1)
