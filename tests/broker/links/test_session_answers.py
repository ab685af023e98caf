"""A session answers consecutive deliveries of one commit together, whichever links they came on."""

from __future__ import annotations

from tests.amqp.raw import begin, opened, put
from tests.broker.peer import Peer, text
from twinbus.amqp.events import Begun, Disposed
from twinbus.amqp.session import Session
from twinbus.amqp.states import STATE_ACCEPTED
from twinbus.broker.links.session_answers import SessionAnswers
from twinbus.store.facts import Facts
from twinbus.testing import Broker


class Told:
    """A connection that records the calls."""

    def __init__(self) -> None:
        self.flushes = 0
        self.crowded: set[object] = set()

    def flush_soon(self) -> None:
        self.flushes += 1


def session() -> Session:
    (event,) = put(opened(), begin(0))
    assert isinstance(event, Begun)
    return event.session


def durable(facts: Facts) -> int:
    """Run the calls that wait for the facts; returns their number."""
    for call, argument in facts.then:
        call(argument)
    return len(facts.then)


def test_consecutive_sends_of_a_commit_are_one_answer() -> None:
    told, of = Told(), session()
    answers = SessionAnswers(told, of)  # type: ignore[arg-type]
    facts = Facts()
    for delivery_id in (5, 6, 7):
        answers.accept(delivery_id, facts)
    assert answers.sent is not None
    assert answers.sent.facts is facts
    assert durable(facts) == 1
    assert (of.in_first, of.in_last, of.in_state) == (5, 7, STATE_ACCEPTED)
    assert answers.sent.facts is None


def test_a_gap_a_repetition_and_other_facts_begin_another() -> None:
    answers = SessionAnswers(Told(), session())  # type: ignore[arg-type]
    facts, later = Facts(), Facts()
    for delivery_id in (5, 7, 7):
        answers.accept(delivery_id, facts)
    answers.accept(8, later)
    answers.complete(9, later)
    answers.complete(10, later)
    assert (durable(facts), durable(later)) == (3, 2)


def test_sends_on_many_links_of_a_session_are_answered_in_order() -> None:
    names = [f"many{number}" for number in range(4)]
    with Broker(queues=names) as broker, Peer(broker) as peer:
        links = [peer.sender(name) for name in names]
        for number in range(40):
            links[number % 4].send(text(str(number)).encode(), tag=b"%d" % number, settled=False)
        peer.flush()
        done: list[int] = []
        while len(done) < 40:
            event = peer.wait(Disposed)
            assert event.settled
            done += [delivery_id for delivery_id, _, _ in event.deliveries]
        assert done == list(range(40))
