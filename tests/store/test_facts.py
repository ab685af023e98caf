from __future__ import annotations

import pytest

from twinbus.store.facts import GONE_ROW, Facts, Table, body_key, body_number, index_key, index_numbers


def test_keys_sort_as_numbers_do_and_read_back() -> None:
    numbers = [0, 1, 255, 256, 2**32, 2**64 - 1]
    assert sorted(map(body_key, numbers)) == [body_key(number) for number in numbers]
    assert [body_number(body_key(number)) for number in numbers] == numbers
    assert index_key(1, 2**64 - 1) < index_key(2, 0)
    assert index_numbers(index_key(7, 9)) == (7, 9)
    assert len(body_key(1)) == 8
    assert len(index_key(1, 1)) == 12


def test_table_numbers_are_part_of_the_format() -> None:
    assert [(table.name, int(table)) for table in Table] == [
        ("BODIES", 0),
        ("INDEX", 1),
        ("ENTITIES", 2),
        ("SESSIONS", 3),
        ("DUPLICATES", 4),
        ("META", 5),
    ]


@pytest.mark.parametrize("kind", ["bodies", "index", "rows"])
def test_empty_until_something_is_to_be_written(kind: str) -> None:
    facts = Facts()
    facts.then.append((print, None))
    assert facts.empty
    getattr(facts, kind)[b"key"] = b"value"
    assert not facts.empty


@pytest.mark.parametrize("table", list(Table))
def test_a_delete_is_to_be_written(table: Table) -> None:
    facts = Facts()
    facts.delete(table, b"key")
    assert not facts.empty


def test_what_facts_do_to_a_row_of_the_index() -> None:
    facts = Facts()
    facts.index[b"new"] = b"1"
    facts.delete(Table.INDEX, b"old")
    facts.delete(Table.BODIES, b"body")
    assert [facts.index_row(key) for key in (b"new", b"old", b"body", b"other")] == [b"1", GONE_ROW, None, None]
    facts.delete(Table.INDEX, b"new")
    facts.index[b"old"] = b"2"
    assert [facts.index_row(key) for key in (b"new", b"old")] == [GONE_ROW, b"2"]
