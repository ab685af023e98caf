"""A batch accepted in steps has the same result as a send, in one commit, whatever happens between its steps."""

from __future__ import annotations

import copy

import pytest
from rules_house import House, new

from twinbus.entities.large_send import LargeSend
from twinbus.entities.message import NewMessage
from twinbus.errors import EntityNotFoundError, QuotaExceededError
from twinbus.store.facts import Table

NAMES = [f"m{number}" for number in range(130)]


def batch(house: House) -> list[NewMessage]:
    later = house.now + 5_000
    made = [new(name, session_id=f"s{number % 7}", ttl_ms=60_000) for number, name in enumerate(NAMES)]
    return [*made, new("later", session_id="s1", scheduled_ms=later), new("ping", session_id="s1", ping=True)]


def house(**settings: object) -> House:
    return House(requires_duplicate_detection=True, duplicate_window_ms=60_000, **settings)


def send(made: House, messages: list[NewMessage]) -> None:
    work = LargeSend(made.queue, messages, made.now)
    for _ in work.steps(made.facts):
        made.commit()
    work.finish(made.facts)
    made.commit()


def seen(made: House) -> object:
    messages = made.queue.messages
    parts = [messages.available]
    if made.queue.sessions is not None:
        parts = [made.queue.sessions.by_id[key].available for key in sorted(made.queue.sessions.by_id)]
    rows = [[(each.seq, each.expires_ms, each.size) for each in part.browse(0, 2**63)] for part in parts]
    return rows, made.queue.counts, made.queue.size_bytes, made.queue.pings, made.tables.rows[Table.INDEX]


@pytest.mark.parametrize("sessions", [False, True])
def test_it_leaves_what_a_send_leaves(sessions: bool) -> None:
    plain, stepped = house(requires_session=sessions), house(requires_session=sessions)
    plain.queue.send(batch(plain), plain.now, plain.facts)
    plain.commit()
    send(stepped, batch(stepped))
    for _ in range(2):
        assert seen(stepped) == seen(plain)
        assert stepped.tables.rows[Table.BODIES] == plain.tables.rows[Table.BODIES]
        assert stepped.tables.rows[Table.DUPLICATES] == plain.tables.rows[Table.DUPLICATES]
        stepped.crash()
        plain.crash()


def test_a_crash_before_the_end_leaves_nothing_and_takes_no_number_twice() -> None:
    made = house()
    work = LargeSend(made.queue, batch(made), made.now)
    for _ in work.steps(made.facts):
        made.commit()
    made.send("other")
    disk = copy.deepcopy(made.tables.rows)
    work.finish(made.facts)
    made.commit()
    assert made.queue.counts.active == len(NAMES) + 1
    made.tables.rows = disk
    made.crash()
    assert made.names(made.acquire(9)) == ["other"]
    made.send(*NAMES)
    assert made.queue.counts.active == len(NAMES) + 1


def test_what_others_send_meanwhile_is_no_duplicate_of_it_and_no_loss() -> None:
    made = house()
    made.send("m3")
    work = LargeSend(made.queue, [*batch(made), new("m5")], made.now)
    steps = work.steps(made.facts)
    next(steps)
    made.send("m7", "m8")
    for _ in steps:
        made.commit()
    made.send("m9")
    work.finish(made.facts)
    made.commit()
    assert sorted(made.names(made.acquire(999))) == sorted(NAMES)
    assert len(made.tables.rows[Table.BODIES]) == len(NAMES) + 1
    sizes = made.queue.size_bytes
    made.crash()
    assert made.queue.size_bytes == sizes


def test_it_is_refused_as_a_whole() -> None:
    made = House(max_megabytes=1)
    with pytest.raises(QuotaExceededError):
        LargeSend(made.queue, [new(name, size=10_000) for name in NAMES], made.now)
    assert made.queue.size_bytes == 0


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_queue_deleted_in_the_middle_leaves_nothing(at: int) -> None:
    made = house(requires_session=True)
    work = LargeSend(made.queue, batch(made), made.now)
    for number, _ in enumerate(work.steps(made.facts)):
        if number == at:
            made.namespace.delete_queue("q", made.now, made.facts)
        made.commit()
    with pytest.raises(EntityNotFoundError):
        work.finish(made.facts)
    made.commit()
    while made.namespace.sweep(made.facts):
        made.commit()
    made.commit()
    assert made.tables.rows[Table.INDEX] == made.tables.rows[Table.BODIES] == made.tables.rows[Table.DUPLICATES] == {}
