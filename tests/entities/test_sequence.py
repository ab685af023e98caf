from __future__ import annotations

from twinbus.entities.records import ENTITY_KEY, META_SEQUENCE, NUMBER
from twinbus.entities.sequence import SequenceNumbers
from twinbus.limits import SEQUENCE_BLOCK
from twinbus.store.facts import Facts, Table

MARK = (Table.META, META_SEQUENCE + ENTITY_KEY.pack(8))


def test_the_mark_is_written_ahead_once_a_block() -> None:
    numbers = SequenceNumbers(8)
    marks = []
    for seq in range(1, 2 * SEQUENCE_BLOCK + 2):
        facts = Facts()
        assert numbers.next(facts) == seq
        marks += [(seq, NUMBER.unpack(value)[0]) for key, value in facts.rows.items() if key == MARK]
    assert marks == [
        (1, SEQUENCE_BLOCK),
        (SEQUENCE_BLOCK + 1, 2 * SEQUENCE_BLOCK),
        (2 * SEQUENCE_BLOCK + 1, 3 * SEQUENCE_BLOCK),
    ]


def test_a_restart_goes_on_above_the_mark_and_above_every_number_in_use() -> None:
    numbers = SequenceNumbers(8)
    numbers.reserve(1000)
    numbers.reserve(7)
    facts = Facts()
    assert numbers.next(facts) == 1001
    assert NUMBER.unpack(facts.rows[MARK])[0] == 1000 + SEQUENCE_BLOCK


def test_closing_takes_the_mark_away() -> None:
    facts = Facts()
    SequenceNumbers(8).close(facts)
    assert facts.deletes == [MARK]
