"""One damaged body: its message is set aside, kept and reported, and all others are delivered to every receiver."""

from __future__ import annotations

import dataclasses
import logging
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.http.console.window import Window
from tests.broker.links.test_browser import browsed
from tests.broker.links.test_browser import browser as browsing_link
from tests.broker.peer import Peer, body_of, decoded, text
from tests.broker.test_recreating import Node
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Accepted
from twinbus.amqp.types import Int, Symbol, Timestamp, UInt
from twinbus.cli.check import body_of as number_of
from twinbus.clock import SteppedClock
from twinbus.entities.audit import audit
from twinbus.entities.queue import Queue
from twinbus.store import check
from twinbus.store.environment import open_environment
from twinbus.store.facts import Table
from twinbus.testing import Broker

Harm = Callable[[bytes], bytes | None]


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def broker(tmp_path: Path, clock: SteppedClock) -> Iterator[Broker]:
    with Broker(data=tmp_path / "data", clock=clock) as broker:
        broker.create_queue("q")
        yield broker


def flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


def cut(value: bytes) -> bytes:
    return value[:3]


def lost(value: bytes) -> None:
    return None


def harm(broker: Broker, numbers: set[int], how: Harm = flipped) -> None:
    """Damage bodies, counted from 1 in order of arrival, while the broker is stopped."""
    broker.stop()
    env, tables = open_environment(broker.data / "contoso", map_bytes=64 * 1024 * 1024)
    with env.begin(write=True) as txn:
        rows = list(txn.cursor(tables.handles[Table.BODIES]).iternext())
        for number in numbers:
            key, value = rows[number - 1]
            harmed = how(value)
            if harmed is None:
                txn.delete(key, db=tables.handles[Table.BODIES])
            else:
                txn.put(key, harmed, db=tables.handles[Table.BODIES])
    env.close()
    broker.start()


def fill(broker: Broker, count: int, path: str = "q", **fields: Any) -> list[str]:
    names = [f"message {number}" for number in range(1, count + 1)]
    with Peer(broker) as peer:
        sender = peer.sender(path)
        for name in names:
            assert isinstance(peer.send(sender, text(name, **fields)), Accepted)
    return names


def without(names: list[str], numbers: set[int]) -> list[str]:
    return [name for number, name in enumerate(names, 1) if number not in numbers]


def queue(broker: Broker, look: Callable[[Queue], Any], path: str = "q") -> Any:
    return broker.call(lambda server: look(server.hosts["contoso"].entities.queue(path)))


def rows(broker: Broker, table: Table) -> int:
    return broker.call(lambda server: len(list(server.hosts["contoso"].store.scan(table))))


def assert_kept(broker: Broker, count: int, path: str = "q") -> None:
    """Only the damaged messages are still there, even after a restart."""
    for _ in range(2):
        assert queue(broker, lambda found: found.counts.active, path) == 0
        assert queue(broker, lambda found: found.damaged_count, path) == count
        assert rows(broker, Table.INDEX) == count
        broker.restart()


@pytest.mark.parametrize("how", [flipped, cut, lost])
@pytest.mark.parametrize("numbers", [{1}, {7}, {20}, {1, 2, 3, 20}, set(range(1, 20))])
@pytest.mark.parametrize("settled", [False, True])
def test_all_others_are_received(
    broker: Broker, how: Harm, numbers: set[int], settled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    names = fill(broker, 20)
    harm(broker, numbers, how)
    with caplog.at_level(logging.ERROR), Peer(broker) as peer:
        link = peer.receiver("q", credit=100, settled=settled)
        got = []
        for _ in range(20 - len(numbers)):
            delivery = peer.receive(link)
            got.append(body_of(delivery))
            if not settled:
                assert isinstance(peer.settle(delivery), Accepted)
        assert got == without(names, numbers)
        broker.call(lambda server: None)  # drains
    for number in numbers:
        assert f"message {number} of q" in caplog.text
    assert_kept(broker, len(numbers))


def test_more_than_one_burst_of_damaged_messages_holds_nobody_up(broker: Broker) -> None:
    names = fill(broker, 600)
    numbers = set(range(1, 599))
    harm(broker, numbers)
    with Peer(broker) as peer:
        link = peer.receiver("q", credit=2)
        assert [body_of(peer.receive(link)) for _ in range(2)] == without(names, numbers)


def test_a_drain_gives_what_is_whole(broker: Broker) -> None:
    names = fill(broker, 5)
    harm(broker, {1, 2})
    with Peer(broker) as peer:
        link = peer.receiver("q")
        link.flow(10, drain=True)
        peer.flush()
        assert [body_of(peer.receive(link)) for _ in range(3)] == without(names, {1, 2})


@pytest.mark.parametrize("numbers", [{1}, {3}, {1, 2, 3, 4}, {5}])
def test_peek_shows_all_others(broker: Broker, numbers: set[int]) -> None:
    names = fill(broker, 5)
    harm(broker, numbers)
    for size in (1, 2, 10):
        with Peer(broker) as peer:
            node = Node(peer, "q")
            shown, first = [], 0
            while True:
                status, body = node.call("peek-message", from_sequence_number=first, message_count=Int(size))
                if status == 204:
                    break
                found = [AmqpMessage.decode(each["message"]) for each in body["messages"]]
                shown += [b"".join(each.data or []).decode() for each in found]
                first = int((found[-1].message_annotations or {})[Symbol("x-opt-sequence-number")]) + 1
            assert shown == without(names, numbers)
    assert queue(broker, lambda found: found.damaged_count) == len(numbers)


@pytest.mark.parametrize("numbers", [{1}, {3}, {1, 2, 3, 4}, {5}])
def test_a_browser_shows_all_others(broker: Broker, numbers: set[int]) -> None:
    names = fill(broker, 5)
    harm(broker, numbers)
    for _ in range(2):
        with Peer(broker) as peer:
            assert browsed(peer, browsing_link(peer, "q")) == without(names, numbers)
    assert queue(broker, lambda found: found.damaged_count) == len(numbers)


@pytest.mark.parametrize("lock", [False, True])
def test_deferred_messages(broker: Broker, lock: bool) -> None:
    names = fill(broker, 3)
    with Peer(broker) as peer:
        link = peer.receiver("q", credit=3)
        tokens = [uuid.UUID(bytes_le=peer.receive(link).tag) for _ in range(3)]
        node = Node(peer, "q")
        assert node.call("update-disposition", disposition_status="defered", lock_tokens=tokens)[0] == 200
    harm(broker, {2})
    with Peer(broker) as peer:
        node = Node(peer, "q")
        ask = {"receiver_settle_mode": UInt(int(lock))}
        status, body = node.call("receive-by-sequence-number", sequence_numbers=[1, 2, 3], **ask)
        assert status == 200
        found = [AmqpMessage.decode(each["message"]) for each in body["messages"]]
        assert [b"".join(each.data or []).decode() for each in found] == without(names, {2})
        assert node.call("receive-by-sequence-number", sequence_numbers=[2], **ask)[0] == 404
    assert queue(broker, lambda found: found.damaged_count) == 1
    assert rows(broker, Table.INDEX) == (3 if lock else 1)


def test_a_session_goes_on_behind_a_damaged_message(broker: Broker) -> None:
    broker.create_queue("grouped", requires_session=True)
    names = fill(broker, 5, "grouped", group_id="one")
    harm(broker, {1, 3})
    for settled in (False, True):
        with Peer(broker) as peer:
            link = peer.receiver("grouped", credit=10, settled=settled, session_filter="one")
            assert [body_of(peer.receive(link)) for _ in range(3)] == without(names, {1, 3})
            if settled:
                broker.call(lambda server: None)  # drains
    assert_kept(broker, 2, "grouped")


def answered(broker: Broker, method: str, path: str) -> tuple[int, bytes]:
    endpoint = broker.endpoint()
    request = urllib.request.Request(f"http://{endpoint.host}:{endpoint.port}/{path}", method=method)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_http_receives_all_others(broker: Broker, method: str) -> None:
    names = fill(broker, 4)
    harm(broker, {1, 2, 4})
    assert answered(broker, method, "q/messages/head?timeout=5") == (200 if method == "DELETE" else 201, b"message 3")
    assert names[2] == "message 3"
    assert answered(broker, method, "q/messages/head?timeout=0")[0] == 204
    assert queue(broker, lambda found: found.damaged_count) == 3


def test_dead_letters(broker: Broker) -> None:
    names = fill(broker, 3)
    with Peer(broker) as peer:
        link = peer.receiver("q", credit=3)
        tokens = [uuid.UUID(bytes_le=peer.receive(link).tag) for _ in range(3)]
        node = Node(peer, "q")
        assert node.call("update-disposition", disposition_status="suspended", lock_tokens=tokens)[0] == 200
    harm(broker, {1})
    with Peer(broker) as peer:
        link = peer.receiver("q/$DeadLetterQueue", credit=5)
        assert [body_of(peer.receive(link)) for _ in range(2)] == without(names, {1})
    assert queue(broker, lambda found: found.damaged_count) == 1


@pytest.mark.parametrize("settings", [{}, {"requires_duplicate_detection": True}])
def test_a_damaged_message_is_not_lost_by_forwarding(broker: Broker, settings: dict[str, Any]) -> None:
    names = fill(broker, 3)
    broker.create_queue("to", **settings)
    harm(broker, {2})

    def forward(server: Any) -> None:
        host = server.hosts["contoso"]
        host.update_queue(dataclasses.replace(host.entities.queue("q").settings, forward_to="to"))
        host.timers.run()

    broker.call(forward)
    with Peer(broker) as peer:
        link = peer.receiver("to", credit=5)
        assert [body_of(peer.receive(link)) for _ in range(2)] == without(names, {2})
    at_target = queue(broker, lambda found: found.damaged_count, "to")
    assert at_target + queue(broker, lambda found: found.transfer_dead_letter_count) == 1


def test_a_damaged_message_is_not_lost_by_a_topic(broker: Broker, clock: SteppedClock) -> None:
    broker.create_topic("t")
    broker.create_subscription("t", "red", filter="color = 'red'")
    later = Timestamp(clock.now_ms() + 60_000)
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): later}
    names = fill(broker, 3, "t", message_annotations=annotations, application_properties={"color": "red"})
    harm(broker, {2})
    clock.step(seconds=61)
    broker.call(lambda server: server.step())
    with Peer(broker) as peer:
        link = peer.receiver("t/Subscriptions/red", credit=5)
        assert [body_of(peer.receive(link)) for _ in range(2)] == without(names, {2})
    for _ in range(2):
        assert broker.call(lambda server: server.hosts["contoso"].entities.topic("t").damaged_count) == 1
        broker.restart()


def test_a_message_set_aside_is_named_by_metrics_and_check(broker: Broker) -> None:
    fill(broker, 3)
    harm(broker, {2})
    with Peer(broker) as peer:
        link = peer.receiver("q", credit=5)
        for _ in range(2):
            decoded(peer.receive(link))
    status, page = answered(broker, "GET", "metrics")
    assert status == 200
    assert 'entity="q",state="damaged"} 1' in page.decode()
    broker.stop()
    report = check.verify(broker.data / "contoso", number_of, None, audit)
    assert check.left_out(report) == [
        "body 2 does not match its checksum",
        "message 2 of q has the damaged body 2",
    ]
    broker.start()


def test_the_console_names_what_is_damaged(broker: Broker) -> None:
    fill(broker, 3)
    harm(broker, {2})
    window = Window(broker)
    window.greet()
    for _ in range(2):
        shown = window.get("messages", entity="q").json["rows"]
        assert [(row["seq"], row.get("damaged", False)) for row in shown] == [("1", False), ("2", True), ("3", False)]
        refused = window.get("message", entity="q", seq=2)
        assert refused.status == 409
        assert "damaged" in refused.json["error"]
        assert window.get("entity", entity="q").json["damaged"] == 1
        broker.restart()
        window = Window(broker)
        window.greet()


def test_a_deleted_queue_takes_its_damaged_messages_along(broker: Broker) -> None:
    fill(broker, 3)
    harm(broker, {2})
    with Peer(broker) as peer:
        Node(peer, "q").call("peek-message", from_sequence_number=0, message_count=Int(5))
    assert queue(broker, lambda found: found.damaged_count) == 1
    broker.delete_queue("q")
    assert rows(broker, Table.INDEX) == 0
    assert rows(broker, Table.BODIES) == 0
