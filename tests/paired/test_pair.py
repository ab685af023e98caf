"""What all senders of a client share, without any connection: numbers, faults, watchers, the end."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.clock import SteppedClock
from twinbus.paired import PairFaultedError
from twinbus.paired.aio import PairedServiceBusClient
from twinbus.paired.sdk_internals import is_shut
from twinbus.paired.syphon.closing import Side

TEXT = "Endpoint=sb://{}.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"


@pytest.fixture
async def client() -> Any:
    """A client whose search does not start."""
    made = PairedServiceBusClient.from_connection_strings(TEXT.format("contoso"), TEXT.format("fabrikam"))
    made._pair.pairing.start = lambda: None  # type: ignore[method-assign]
    yield made
    await made.close()


async def test_numbers_of_scheduled_messages_in_the_backlog_are_negative_and_unique(client: Any) -> None:
    assert client._pair.hidden_numbers(2) == [-1, -2]
    assert client._pair.hidden_numbers(1) == [-3]
    assert client._pair.hidden_numbers(0) == []


async def test_an_entity_has_one_state_whatever_its_spelling(client: Any) -> None:
    pair = client._pair
    first = pair.entity("Orders")
    assert pair.entity("orders") is first
    assert first.path == "Orders"
    assert pair.entity("news") is not first
    assert pair.entities == [first, pair.entity("news")]


async def test_a_new_pair_is_usable_and_unused(client: Any) -> None:
    pair = client._pair
    assert (pair.closed, pair.forked, pair.used, pair.fault) == (False, False, False, None)
    assert pair.live() is pair
    assert pair.start() is pair
    assert pair.used


async def test_only_receivers_leave_retries_to_the_sdk(client: Any) -> None:
    pair = client._pair
    assert [each._config.retry_total for each in (pair.primary, pair.secondary, pair.receiving)] == [0, 0, 3]


async def test_a_client_that_was_closed_has_nothing_to_end(client: Any) -> None:
    assert client._forgotten.alive
    await client.close()
    assert not client._forgotten.alive


async def test_sessions_are_listed_as_the_sdk_lists_them(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*names: str, **options: Any) -> tuple[Any, ...]:
        return (*names, options)

    for name in ("list_queue_sessions", "list_subscription_sessions"):
        monkeypatch.setattr(client._pair.receiving, name, listed)
    assert client.list_queue_sessions("orders", timeout=1) == ("orders", {"timeout": 1})
    assert client.list_subscription_sessions("news", "all") == ("news", "all", {})


async def test_the_first_reason_stays(client: Any) -> None:
    pair = client._pair
    receiver = client.get_queue_receiver("orders")
    pair.entity("orders")
    pair._give_up("gone")
    pair._give_up("later")
    assert pair.fault == "gone"
    assert pair.entity("orders").fault == "gone"
    assert receiver._fault == "later"
    for make in (client.get_queue_sender, client.get_topic_sender, client.get_queue_receiver):
        with pytest.raises(PairFaultedError, match="gone"):
            make("orders")


async def test_a_fault_is_told_to_everybody(client: Any) -> None:
    receiver = client.get_queue_receiver("orders")
    entity = client._pair.entity("orders")
    await client.fault("given up")
    assert (entity.fault, entity.closed, receiver._fault) == ("given up", True, "given up")
    with pytest.raises(PairFaultedError, match="given up"):
        client.get_queue_sender("orders")
    assert not client._forgotten.alive, "nobody has to end it any more"


async def test_a_client_that_is_closed_hands_out_nothing(client: Any) -> None:
    receiver = client.get_queue_receiver("orders")
    await client.close()
    with pytest.raises(ValueError, match="was closed"):
        client.get_queue_sender("orders")
    assert receiver._fault is None
    assert not client._forgotten.alive


@pytest.mark.parametrize("side", list(Side))
async def test_one_namespace_may_end_alone(client: Any, side: Side) -> None:
    pair = client._pair
    closed: list[str] = []
    for name in ("primary", "secondary", "receiving"):

        async def close(name: str = name) -> None:
            closed.append(name)

        getattr(pair, name).close = close
    await client.close_namespace(str(side), None if side is Side.PRIMARY else "its key was withdrawn")
    if side is Side.PRIMARY:
        assert pair.fault == "The primary of the pair was closed."
        assert sorted(closed) == ["primary", "receiving"]
    else:
        assert pair.fault is None
        assert closed == ["secondary"]
        with pytest.raises(PairFaultedError, match="withdrawn"):
            pair.pairing.usable(1, hold=True)


async def test_the_end_waits_for_background_work(client: Any) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("work")

    async def closing() -> None:
        await asyncio.sleep(0.01)
        ended.append("closing")

    client._pair.tasks.spawn(work)
    await client._pair.tasks.leave(closing)
    await asyncio.sleep(0)
    await client.close()
    assert sorted(ended) == ["closing", "work"]


async def test_all_clients_are_closed(client: Any) -> None:
    closed: list[str] = []
    for name in ("primary", "secondary", "receiving"):

        async def close(name: str = name) -> None:
            closed.append(name)

        getattr(client._pair, name).close = close
    telling = threading.Event()
    client._pair._end_telling = telling.set
    await client.close()
    assert sorted(closed) == ["primary", "receiving", "secondary"]
    assert telling.is_set()


async def test_a_pair_that_nobody_uses_ends_by_itself(client: Any) -> None:
    pair = client._pair
    entity = pair.entity("orders")
    telling = threading.Event()
    pair._end_telling = telling.set
    pair.abandon()
    assert telling.wait(20)
    assert (pair.closed, entity.closed, pair.pairing._ended) == (True, True, True)


async def test_a_childs_copy_ends_nothing(client: Any) -> None:
    pair = client._pair
    pair.entity("orders")
    receiver = client.get_queue_receiver("orders")
    client._forked()
    assert (pair.forked, pair.fault) == (False, None), "it had never connected"
    pair.start()
    client._forked()
    assert pair.forked
    assert "forked" in pair.fault
    entity = pair.entity("orders")
    assert (entity.direct, entity.closed, entity.fault) == (False, True, pair.fault)
    assert receiver._fault == pair.fault
    await receiver.close()
    assert not is_shut(receiver), "its parent's"
    pair._end_telling = lambda: pytest.fail("its parent's")
    pair.abandon()
    assert not pair.closed
    pair.forked, pair._end_telling = False, lambda: None
    receiver._forked = False
    await receiver.close()
    assert is_shut(receiver)


@pytest.mark.parametrize("what", ["back", "failed over", "closed", "another failed over"])
async def test_diverters_rest_when_all_entities_are_back(client: Any, what: str) -> None:
    pair = client._pair
    rested: list[str] = []

    class Diverter:
        def __init__(self, path: str) -> None:
            self.path = path

        async def rest(self) -> None:
            rested.append(self.path)

    diverters = [Diverter("orders"), Diverter("news")]
    pair.diverters.update(diverters)

    async def watch(entity: Any) -> None:
        pass

    pair._watcher = SimpleNamespace(watch=watch)
    entity = SimpleNamespace(path="orders", failed_over=what == "failed over", closed=what == "closed")
    other = SimpleNamespace(path="news", failed_over=what == "another failed over", closed=False)
    pair._entities = {"orders": entity, "news": other}
    await pair._watch_until_well(entity)
    pair._entities = {}
    assert sorted(rested) == (["news", "orders"] if what == "back" else []), "they share links to the backlog"


async def test_entering_starts_the_search(client: Any) -> None:
    starts: list[int] = []
    client._pair.pairing.start = lambda: starts.append(1)
    async with client as same:
        assert same is client
        assert starts == [1]
    with pytest.raises(ValueError, match="was closed"):
        await client.__aenter__()


async def test_what_a_client_says_of_itself(client: Any) -> None:
    assert client.fully_qualified_namespace == "contoso.servicebus.windows.net"
    assert client.options is client._pair.options
    assert client.backlog_queues == []
    assert client.missing_backlog_queues == {}
    assert client.entity_states == {}
    sender = client.get_queue_sender("orders", client_identifier="mine")
    assert (sender.entity_name, sender.client_identifier) == ("orders", "mine")
    assert client.get_topic_sender("news").entity_name == "news"
    assert {path: str(state) for path, state in client.entity_states.items()} == {
        "orders": "healthy",
        "news": "healthy",
    }
    await sender.close()
    assert sender not in client._senders
    assert len(client._senders) == 1
    receiver = client.get_subscription_receiver("news", "all")
    assert receiver.entity_path == "news/Subscriptions/all"
    assert receiver in client._pair.receivers


class _Backlog:
    """A receiver of a backlog queue with these sequence numbers, and its connections."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.asked: list[tuple[int, int, float]] = []
        self.closed = 0
        self._create_handler = None

    async def __aenter__(self) -> Any:
        return self

    async def peek_messages(self, count: int, *, sequence_number: int, timeout: float) -> list[Any]:
        self.asked.append((count, sequence_number, timeout))
        found = [number for number in self.numbers if number >= sequence_number][:count]
        return [SimpleNamespace(sequence_number=number) for number in found]

    async def close(self) -> None:
        self.closed += 1


async def test_a_look_tells_how_far_a_backlog_queue_has_drained(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connections = SimpleNamespace(cut=lambda: cuts.append(1), transports=[])
    cuts: list[int] = []
    monkeypatch.setattr("twinbus.paired._async.pair.Connections", lambda receiver: connections)
    pair = client._pair
    clock = SteppedClock()
    pair.clock = clock
    entity = pair.entity("orders")
    queue = _Backlog([3, 8])
    pair.secondary.get_queue_receiver = lambda name: queue
    entity.trail.note({"s"}, "q0")
    entity.refresh()
    assert await pair.look(entity, "q0", 4)
    assert queue.asked[0] == (1, 1, 4)
    assert entity.trail.in_queue("q0")["s"].last_number == 8, "all that was there when it looked"
    assert not await pair.look(entity, "q0", 4), "too early"
    clock.step(seconds=1)
    queue.numbers = [8]
    asked = len(queue.asked)
    assert await pair.look(entity, "q0", 100)
    assert queue.asked[asked:] == [(1, 1, 10)], "one question, within the time of a try"
    assert entity.trail.queue_of({"s"}) == "q0"
    clock.step(seconds=1)
    queue.numbers = [9]
    assert await pair.look(entity, "q0", 4)
    assert entity.trail.queue_of({"s"}) is None
    assert entity.direct
    clock.step(seconds=1)
    queue.numbers = None  # type: ignore[assignment]
    entity.trail.note({"s"}, "q0")
    assert not await pair.look(entity, "q0", 4), "no answer"
    assert cuts == [1]
    await asyncio.sleep(0.01)
    assert queue.closed == 4
