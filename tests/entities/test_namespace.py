from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest
from rules_house import House, new, tag

from twinbus.entities.effects import EffectKind
from twinbus.entities.message import QueuedMessage
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import TopicSettings
from twinbus.errors import (
    ArgumentError,
    EntityExistsError,
    EntityNotFoundError,
    MessageLockLostError,
    QuotaExceededError,
)
from twinbus.limits import ENTITIES_MAX
from twinbus.store.facts import Facts, Table

IDLE_MS = 300_000


# --- entities -------------------------------------------------------------------------------------------------------


def test_queues_are_found_by_any_case() -> None:
    house = House()
    queue = house.create("Sales/Orders")
    assert house.namespace.queue("sales/ORDERS") is queue
    assert house.namespace.queue("Sales/Orders/$deadletterqueue") is queue.dead_letters
    assert [found.path for found in house.namespace.queues()] == ["q", "Sales/Orders"]


@pytest.mark.parametrize("path", ["x", "x/$DeadLetterQueue", "q/$DeadLetterQueue/$DeadLetterQueue", ""])
def test_what_is_not_there_is_not_found(path: str) -> None:
    with pytest.raises(EntityNotFoundError, match=r"The messaging entity .* could not be found"):
        House().namespace.queue(path)


def test_a_name_is_taken_once() -> None:
    house = House()
    facts = Facts()
    with pytest.raises(EntityExistsError):
        house.namespace.create_queue(QueueSettings(path="Q"), house.now, facts)
    assert facts.empty


@pytest.mark.parametrize("path", ["a/../b", "a/./b", "x/.", "x/..", "a/b/../../c"])
def test_no_new_name_has_a_segment_that_http_clients_resolve(path: str) -> None:
    """A client that normalises `DELETE /a/../b` deletes `b`."""
    house = House()
    facts = Facts()
    with pytest.raises(ArgumentError, match=r"'\.' or '\.\.'"):
        house.namespace.create_queue(QueueSettings(path=path), house.now, facts)
    with pytest.raises(ArgumentError, match=r"'\.' or '\.\.'"):
        house.namespace.create_topic(TopicSettings(path=path), house.now, facts)
    assert facts.empty


@pytest.mark.parametrize("path", ["a/.b", "a/b.", "a/...", "a..b", "a/..b"])
def test_dots_within_a_segment_are_fine(path: str) -> None:
    assert House().create(path).path == path


def test_an_entity_that_an_older_release_named_with_dots_is_still_served() -> None:
    """It can be used and deleted over AMQP; only new ones are refused."""
    house = House()
    house.namespace._check_new = lambda path: None  # type: ignore[method-assign]
    house.create("a/../b")
    house.crash()
    assert house.namespace.queue("a/../b").path == "a/../b"


def test_the_number_of_entities_is_bounded() -> None:
    house = House()
    for number in range(1, ENTITIES_MAX):
        house.namespace.create_queue(QueueSettings(path=f"q{number}"), house.now, Facts())
    with pytest.raises(QuotaExceededError):
        house.create("one-too-many")


def test_updates_are_kept_and_what_is_fixed_is_refused() -> None:
    house = House()
    house.clock.step(seconds=5)
    house.namespace.update_queue(QueueSettings(path="Q", max_delivery_count=3), house.now, house.facts)
    house.commit()
    house.crash()
    assert house.queue.settings.max_delivery_count == 3
    assert house.queue.updated_ms == house.now
    assert house.queue.created_ms == house.now - 5000
    before = house.snapshot()
    with pytest.raises(ArgumentError):
        house.namespace.update_queue(QueueSettings(path="q", requires_session=True), house.now, house.facts)
    with pytest.raises(EntityNotFoundError):
        house.namespace.update_queue(QueueSettings(path="x"), house.now, house.facts)
    assert house.snapshot() == before


# --- deleting -------------------------------------------------------------------------------------------------------


def fill(house: House) -> None:
    """Messages in every place."""
    house.send("a", "b", "c", "d", "e", "f", ttl_ms=10**6)
    held = house.acquire(5)
    house.defer(held[0])
    house.abandon(held[1])
    house.queue.dead_letter(tag(held[2]), house.now, house.facts, None, None)
    house.queue.schedule([new("later", scheduled_ms=house.now + 9999)], house.now, house.facts)
    house.commit()


def sweep(house: House, limit: int = 3) -> int:
    steps = 0
    while house.namespace.sweep_pending:
        house.namespace.sweep(house.facts, limit)
        assert len(house.facts.deletes) <= 2 * limit
        house.commit()
        steps += 1
    return steps


def left(house: House) -> dict[str, int]:
    tables = (Table.BODIES, Table.INDEX, Table.SESSIONS, Table.DUPLICATES, Table.ENTITIES)
    return {table.name: len(house.tables.rows[table]) for table in tables if house.tables.rows[table]}


def test_a_deleted_queue_is_gone_at_once_and_its_rows_in_steps() -> None:
    house = House(requires_duplicate_detection=True)
    fill(house)
    held = house.one()
    house.namespace.delete_queue("Q", house.now, house.facts)
    assert len(house.facts.deletes) <= 3
    with pytest.raises(EntityNotFoundError):
        house.namespace.queue("q")
    for command in (
        lambda: house.queue.send([new()], house.now, house.facts),
        lambda: house.queue.acquire(1, house.now, house.facts),
        lambda: house.dead.take(1, house.now, house.facts),
    ):
        with pytest.raises(EntityNotFoundError):
            command()
    with pytest.raises(MessageLockLostError):
        house.queue.complete(tag(held), house.now, house.facts)
    assert house.queue.deleted
    house.heard.clear()
    house.commit()
    assert house.heard == ["deleted q"]
    assert house.namespace.next_deadline() is None
    assert sweep(house) > 3
    assert left(house) == {}


@pytest.mark.parametrize("fields", [{}, {"ttl_ms": 60_000}, {"scheduled_ms": 2**45}, {"session_id": "s"}], ids=str)
def test_a_step_of_the_sweep_frees_its_own_messages_only(fields: dict[str, object], only_new_objects: None) -> None:
    """To free a million messages in the last step would hold up everybody."""
    house = House(requires_session="session_id" in fields)
    house.send(*map(str, range(300)), **fields)
    assert messages_in_memory() == 300
    house.namespace.delete_queue("q", house.now, house.facts)
    house.commit()
    counts = [300]
    while house.namespace.sweep_pending:
        house.namespace.sweep(house.facts, 10)
        house.commit()
        counts.append(messages_in_memory())
    assert max(before - after for before, after in pairwise(counts)) <= 30
    assert counts[-1] == 0


@pytest.fixture
def only_new_objects() -> Iterator[None]:
    """Let the collector walk what the test makes, not the hundred thousand objects that the whole run has loaded."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def messages_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, QueuedMessage) for each in gc.get_objects())


def test_deleting_a_session_queue_takes_states_along() -> None:
    house = House(requires_session=True)
    house.send("a", "b", session_id="s")
    session = house.accept("s")
    session.acquire(1, house.now, house.facts)
    house.queue.set_session_state("s", b"x", house.now, house.facts)
    house.commit()
    house.namespace.delete_queue("q", house.now, house.facts)
    house.commit()
    with pytest.raises(EntityNotFoundError):
        session.acquire(1, house.now, house.facts)
    house.queue.release_session(session, house.now, house.facts)
    sweep(house)
    assert left(house) == {}


def test_messages_on_their_way_when_the_queue_is_deleted_are_swept() -> None:
    house = House()
    house.send("a", "b")
    first, second = house.acquire(2)
    house.queue.send([new("c")], house.now, house.facts)
    house.queue.abandon(tag(first), house.now, house.facts)
    house.queue.dead_letter(tag(second), house.now, house.facts, None, None)
    house.namespace.delete_queue("q", house.now, house.facts)
    house.commit()
    sweep(house)
    assert left(house) == {}


def test_a_restart_goes_on_sweeping() -> None:
    house = House(requires_duplicate_detection=True, requires_session=True)
    house.create("other")
    house.send("a", "b", "c", session_id="s")
    house.accept("s")
    house.queue.set_session_state("s", b"x", house.now, house.facts)
    house.commit()
    house.namespace.delete_queue("q", house.now, house.facts)
    house.commit()
    house.namespace.sweep(house.facts, 1)
    house.commit()
    new_queue = house.create("q")
    assert new_queue.entity_id == 12
    house.crash()
    sweep(house)
    assert left(house) == {"ENTITIES": 2}
    assert house.queue.counts == (0, 0, 0, 0)


def test_entity_ids_are_never_used_again() -> None:
    house = House()
    house.namespace.delete_queue("q", house.now, house.facts)
    again = house.create("q")
    assert again.entity_id == 8
    house.namespace.delete_queue("q", house.now, house.facts)
    house.create("x")
    house.namespace.delete_queue("x", house.now, house.facts)
    assert house.create("q").entity_id == 16


def test_sequence_numbers_are_not_used_again_after_a_restart() -> None:
    house = House()
    house.send("a")
    house.complete(house.one())
    house.crash()
    house.send("b")
    message = house.one()
    assert message.seq == 1001
    assert message.body_number == 1001
    house.crash()
    house.send("c")
    assert [again.seq for again in house.acquire(2)] == [1001, 2001]


# --- idle -----------------------------------------------------------------------------------------------------------


def test_an_idle_queue_is_deleted() -> None:
    house = House(auto_delete_on_idle_ms=IDLE_MS)
    house.create("other")
    house.step(200)
    house.send("a")
    house.step(200)
    assert len(house.namespace.queues()) == 2
    house.clock.step(seconds=100)
    (effect,) = house.namespace.tick(house.now, house.facts)
    assert effect.kind is EffectKind.IDLE_DELETED
    house.commit()
    assert [queue.path for queue in house.namespace.queues()] == ["other"]
    assert "deleted q" in house.heard


@pytest.mark.parametrize("how", ["links", "dead links", "touch", "receive", "dead receive", "scheduled", "update"])
def test_what_keeps_a_queue_in_use(how: str) -> None:
    house = House(auto_delete_on_idle_ms=IDLE_MS)
    if how == "scheduled":
        house.send("a", scheduled_ms=house.now + 10**9)
    if how == "links":
        house.queue.links = 1
    if how == "dead links":
        house.dead.links = 1
    for _ in range(10):
        house.step(200)
        if how == "touch":
            house.queue.touch(house.now)
        elif how == "receive":
            house.acquire()
        elif how == "dead receive":
            house.acquire(1, house.dead)
        elif how == "update":
            settings = QueueSettings(path="q", auto_delete_on_idle_ms=IDLE_MS)
            house.namespace.update_queue(settings, house.now, house.facts)
    assert house.namespace.queue("q") is house.queue
    if how != "scheduled":
        house.queue.links = house.dead.links = 0
        house.step(600)
        assert house.namespace.queues() == []


def test_a_restart_begins_the_idle_time_anew() -> None:
    house = House(auto_delete_on_idle_ms=IDLE_MS)
    house.clock.step(seconds=10_000)
    house.crash()
    house.step(299)
    assert len(house.namespace.queues()) == 1
    house.step(1)
    assert house.namespace.queues() == []


# --- time -----------------------------------------------------------------------------------------------------------


def test_the_next_deadline_is_the_earliest_of_all() -> None:
    house = House()
    other = house.create("other", lock_duration_ms=5000)
    assert house.namespace.next_deadline() is None
    house.send("a")
    house.one()
    assert house.namespace.next_deadline() == house.now + 60_000
    other.send([new("b")], house.now, house.facts)
    house.commit()
    house.acquire(1, other)
    assert house.namespace.next_deadline() == house.now + 5_000
    house.step(5)
    assert other.has_available()
    assert house.namespace.next_deadline() == house.now + 55_000


def test_many_quiet_ticks_leave_no_alarms_behind() -> None:
    house = House()
    house.send("forever", ttl_ms=10**9)
    for _ in range(500):
        house.send("a")
        for message in house.acquire(2):
            house.queue.release(tag(message), house.now, house.facts)
        house.commit()
        house.step(60)
    assert len(house.namespace._commons.alarms._heap) <= 64


def test_one_tick_is_bounded() -> None:
    house = House()
    for number in range(3):
        house.create(f"q{number}").send([new(f"m{n}") for n in range(450)], house.now, house.facts)
    house.commit()
    for queue in house.namespace.queues():
        queue.acquire(450, house.now, house.facts)
    house.clock.step(seconds=60)
    effects = house.namespace.tick(house.now, house.facts)
    assert [effect.count for effect in effects] == [450, 450]
    assert [effect.count for effect in house.namespace.tick(house.now, house.facts)] == [450]
    assert house.namespace.tick(house.now, house.facts) == []
