"""Injected faults: each mode does what it says, to whom it says, and ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from typer.testing import CliRunner

from tests.broker.peer import Peer, body_of, text
from twinbus.amqp.events import Detached, Disposed, Transfer
from twinbus.amqp.states import Accepted, Rejected
from twinbus.broker.faults import Fault
from twinbus.cli.main import app
from twinbus.errors import NotAllowedError
from twinbus.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(queues=["q", "other"], allow_faults=True) as broker:
        yield broker


def active(broker: Broker, path: str = "q") -> int:
    return broker.call(lambda server: server.hosts["contoso"].entities.queue(path).counts.active)


def test_faults_are_off_unless_allowed() -> None:
    with Broker(queues=["q"]) as broker:
        with pytest.raises(NotAllowedError, match="--allow-faults"):
            broker.call(lambda server: server.hosts["contoso"].faults.set(Fault("down")))
        with pytest.raises(NotAllowedError, match="allow_faults=True"), broker.fault("down"):
            pass


def test_namespace_down_cuts_everybody_and_comes_back(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        with broker.fault("down"):
            assert peer.quiet(Transfer, 0.3)
            assert peer.lost
            with pytest.raises(AssertionError, match="lost=True"):
                Peer(broker)
        assert link is not None
    with Peer(broker) as peer:
        assert isinstance(peer.send(peer.sender("q"), text()), Accepted)


def test_silent_namespace_answers_nothing(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        with broker.fault("silent"):
            link.send(text().encode(), tag=b"1", settled=False)
            assert peer.quiet(Disposed)
            assert not peer.lost
        assert active(broker) == 0


def test_lossy_namespace_stores_and_loses_its_answers(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        with broker.fault("lossy"):
            link.send(text().encode(), tag=b"1", settled=False)
            assert peer.quiet(Disposed)
            while active(broker) == 0:
                time.sleep(0.01)
            assert peer.quiet(Disposed)


def test_slow_namespace_answers_late_and_in_order(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        with broker.fault("slow", delay_ms=150):
            started = time.monotonic()
            assert isinstance(peer.send(link, text("a")), Accepted)
            assert isinstance(peer.send(link, text("b")), Accepted)
            assert time.monotonic() - started >= 0.3


def test_what_is_sent_after_slow_comes_after_what_was_delayed(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        with broker.fault("slow", delay_ms=500):
            link.send(text("a").encode(), tag=b"1", settled=True)
            peer.flush()
            time.sleep(0.2)
        assert isinstance(peer.send(link, text("b")), Accepted)
        assert active(broker) == 2


def test_refusing_namespace_refuses_attaches(broker: Broker) -> None:
    with Peer(broker) as peer, broker.fault("refusing", refusal="server-busy"):
        assert peer.refusal(lambda: peer.sender("q")).condition == "com.microsoft:server-busy"


def test_entity_down_leaves_the_others_alone(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        other = peer.sender("other")
        with broker.fault("down", "q"):
            detached = peer.wait(Detached, lambda event: event.link is link)
            assert detached.error is not None
            assert detached.error.condition == "amqp:internal-error"
            assert peer.refusal(lambda: peer.sender("q")).condition == "amqp:internal-error"
            assert isinstance(peer.send(other, text()), Accepted)
        assert isinstance(peer.send(peer.sender("q"), text()), Accepted)


@pytest.mark.parametrize("attached", ["before", "after"])
def test_refusing_entity(broker: Broker, attached: str) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q") if attached == "before" else None
        with broker.fault("refusing", "q", refusal="internal-error"):
            outcome = peer.send(link or peer.sender("q"), text())
            assert isinstance(outcome, Rejected)
            assert outcome.error is not None
            assert outcome.error.condition == "amqp:internal-error"
        assert isinstance(peer.send(link or peer.sender("q"), text()), Accepted)


def test_silent_entity_gives_nothing_until_it_ends(broker: Broker) -> None:
    with Peer(broker) as peer:
        assert isinstance(peer.send(peer.sender("q"), text("kept")), Accepted)
        with broker.fault("silent", "q"):
            link = peer.sender("q")
            receiver = peer.receiver("q", 1)
            link.send(text("swallowed").encode(), tag=b"1", settled=False)
            assert peer.quiet(Transfer)
        assert body_of(peer.receive(receiver)) == "kept"
        assert active(broker) == 1


def test_lossy_and_slow_entity(broker: Broker) -> None:
    with Peer(broker) as peer:
        link = peer.sender("q")
        with broker.fault("lossy", "q"):
            link.send(text("stored").encode(), tag=b"1", settled=False)
            assert peer.quiet(Disposed)
        assert active(broker) == 1
        with broker.fault("slow", "q", delay_ms=150):
            started = time.monotonic()
            assert isinstance(peer.send(link, text()), Accepted)
            assert time.monotonic() - started >= 0.15


def http(broker: Broker, method: str, body: str = "", query: str = "") -> tuple[int, str]:
    endpoint = broker.endpoint()
    connection = HTTPConnection(endpoint.host, endpoint.port, timeout=10)
    try:
        connection.request(method, "/$faults" + query, body=body or None)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("mode", ["slow", "silent", "down"])
def test_an_entity_deleted_during_its_fault_comes_back_without(broker: Broker, mode: str) -> None:
    broker.create_queue("gone")
    with Peer(broker) as peer:
        peer.sender("gone")
        with broker.fault(mode, "gone"):
            broker.delete_queue("gone")
        broker.create_queue("gone")
        assert isinstance(peer.send(peer.sender("gone"), text()), Accepted)


def test_by_http(broker: Broker) -> None:
    assert http(broker, "GET") == (200, '{"allowed": true, "faults": []}')
    assert http(broker, "PUT", '{"mode": "silent", "entity": "q"}')[0] == 200
    assert '"entity": "q"' in http(broker, "GET")[1]
    assert http(broker, "DELETE", query="?entity=q") == (200, '{"allowed": true, "faults": []}')
    for bad in ("rubbish", "[]", "{}", '{"mode": "eaten"}', '{"mode": "slow", "delay_ms": -1}', '{"mode": 5}'):
        assert http(broker, "PUT", bad)[0] == 400, bad
    assert "Did you mean 'delay_ms'" in http(broker, "PUT", '{"mode": "slow", "delay": 1}')[1]
    assert http(broker, "PUT", '{"mode": "down", "entity": "missing"}')[0] == 404
    assert http(broker, "POST")[0] == 405


def test_by_command_line_also_when_the_namespace_is_down(broker: Broker) -> None:
    run = CliRunner()
    where = ["--connection-string", broker.connection_string()]
    assert run.invoke(app, ["fault", "set", "down", *where]).exit_code == 0
    shown = run.invoke(app, ["fault", "list", "--json", *where])
    assert '"mode": "down"' in shown.stdout
    assert run.invoke(app, ["fault", "clear", *where]).stdout == "No faults.\n"
    with Peer(broker) as peer:
        peer.sender("q")
