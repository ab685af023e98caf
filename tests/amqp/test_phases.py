"""Sessions and links follow their tables, frame by frame, on both sides of a connection."""

from __future__ import annotations

import random
from typing import Any

import pytest

from twinbus.amqp import AmqpError, Attached, Connection, Link, Session, Source, Target
from twinbus.amqp import phases as ph

from .pair import Pair

SEEDS = range(40)


class Recording(dict[str, int]):
    """A row of a table that records which of its events occurred."""

    def __init__(self, row: dict[str, int], phase: int, seen: set[tuple[int, str]]) -> None:
        super().__init__(row)
        self._phase = phase
        self._seen = seen

    def __getitem__(self, event: str) -> int:
        found = super().__getitem__(event)
        self._seen.add((self._phase, event))
        return found


class Seen:
    """The transitions seen in both tables."""

    def __init__(self) -> None:
        self.links: set[tuple[int, str]] = set()
        self.sessions: set[tuple[int, str]] = set()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    for table, cells in ((ph.LINK_TRANSITIONS, found.links), (ph.SESSION_TRANSITIONS, found.sessions)):
        for phase, row in list(table.items()):
            monkeypatch.setitem(table, phase, Recording(row, phase, cells))
    return found


def cells(table: dict[int, dict[str, int]]) -> set[tuple[int, str]]:
    return {(phase, event) for phase, row in table.items() for event in row}


class Lane:
    """Two engines; each call delivers one direction."""

    def __init__(self) -> None:
        # Links that the peer attached and the server has not answered.
        self.asked: list[Link] = []
        self.pair = Pair(accept=self.asked.append)
        self.pair.run()
        self.client, self.server = self.pair.client, self.pair.server

    def there(self) -> None:
        """Deliver the client's output to the server."""
        self.client.pump()
        for event in self.server.receive(self.client.take_output()):
            if isinstance(event, Attached):
                self.asked.append(event.link)

    def back(self) -> None:
        """Deliver the server's output to the client."""
        self.server.pump()
        self.client.receive(self.server.take_output())

    def session(self) -> tuple[Session, Session]:
        ours = self.client.begin()
        self.there()
        self.back()
        return ours, self.server.channels[ours.channel]

    def link(self, session: Session, name: str) -> tuple[Link, Link]:
        """Attach a link that the server has not answered yet; return both sides of it."""
        ours = session.attach_sender(name, target=Target("q"))
        self.there()
        return ours, self.asked.pop()


def test_a_link_is_attached_by_an_attach_of_each_side(seen: Seen) -> None:
    lane = Lane()
    ours, theirs = lane.link(lane.session()[0], "a")
    assert (ours.phase, theirs.phase) == (ph.ATTACHING, ph.ATTACHING)
    theirs.accept()
    assert (ours.phase, theirs.phase) == (ph.ATTACHING, ph.ATTACHED)
    lane.back()
    assert (ours.phase, theirs.phase) == (ph.ATTACHED, ph.ATTACHED)
    ours.detach()
    assert (ours.phase, theirs.phase) == (ph.DETACHING, ph.ATTACHED)
    lane.there()
    assert (ours.phase, theirs.phase) == (ph.DETACHING, ph.GONE)
    lane.back()
    assert (ours.phase, theirs.phase) == (ph.GONE, ph.GONE)
    assert seen.links == {
        (ph.ATTACHING, ph.ATTACH),
        (ph.ATTACHED, ph.DETACH_SENT),
        (ph.ATTACHED, ph.DETACH_RECEIVED),
        (ph.DETACHING, ph.DETACH_RECEIVED),
    }


def test_a_refused_link_is_never_attached(seen: Seen) -> None:
    lane = Lane()
    ours, theirs = lane.link(lane.session()[0], "a")
    theirs.refuse(AmqpError("amqp:not-found"))
    assert theirs.phase == ph.DETACHING
    lane.back()
    assert ours.phase == ph.GONE
    lane.there()
    assert theirs.phase == ph.GONE
    assert (ph.ATTACHING, ph.ATTACH) not in seen.links


def test_a_session_ends_by_an_end_of_each_side_and_takes_its_links_along() -> None:
    lane = Lane()
    ours = lane.client.begin()
    assert ours.phase == ph.BEGINNING
    lane.there()
    theirs = lane.server.channels[ours.channel]
    assert theirs.phase == ph.BEGUN
    lane.back()
    assert ours.phase == ph.BEGUN
    link, _ = lane.link(ours, "a")
    ours.end()
    assert (ours.phase, link.phase, theirs.phase) == (ph.ENDING, ph.GONE, ph.BEGUN)
    lane.there()
    assert (ours.phase, theirs.phase) == (ph.ENDING, ph.ENDED)
    lane.back()
    assert (ours.phase, theirs.phase) == (ph.ENDED, ph.ENDED)


def test_a_session_that_we_end_before_its_begin_is_answered_stays_ended() -> None:
    lane = Lane()
    ours = lane.client.begin()
    ours.end()
    lane.there()
    assert ours.phase == ph.ENDING
    lane.back()
    assert ours.phase == ph.ENDED


def step(lane: Lane, chance: random.Random, sessions: list[Session], links: list[Link]) -> None:
    """Do one random thing that an owner or the wire does."""
    what = chance.choice(["begin", "attach", "attach", "answer", "answer", "detach", "end", "there", "back", "back"])
    if what == "begin" and len(sessions) < 6:
        sessions.append(lane.client.begin())
    elif what == "attach" and sessions:
        session = chance.choice(sessions)
        if session in lane.client.own_channels.values() and not session.ended:
            links.append(session.attach_receiver(f"link {len(links)}", source=Source("q")))
    elif what == "answer" and lane.asked:
        asked = lane.asked.pop(chance.randrange(len(lane.asked)))
        if chance.random() < 0.7:
            asked.accept()
        else:
            asked.refuse(AmqpError("amqp:not-found"))
        links.append(asked)
    elif what == "detach" and links:
        chance.choice(links).detach()
    elif what == "end" and sessions and chance.random() < 0.5:
        end = chance.choice([*sessions, *lane.server.channels.values()])
        end.end()
    elif what == "there":
        lane.there()
    elif what == "back":
        lane.back()


def test_both_engines_make_each_move_of_the_tables_and_no_other(seen: Seen) -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        lane = Lane()
        sessions: list[Session] = []
        links: list[Link] = []
        for _ in range(120):
            step(lane, chance, sessions, links)
        closing: Connection = chance.choice([lane.client, lane.server])
        closing.close()
        for _ in range(3):
            lane.there()
            lane.back()
        everything: list[Any] = [*links, *sessions]
        assert {each.phase for each in everything} <= {ph.GONE, ph.ENDED}, seed
    assert seen.links == cells(ph.LINK_TRANSITIONS)
    assert seen.sessions == cells(ph.SESSION_TRANSITIONS)


def test_what_the_table_does_not_have_raises() -> None:
    with pytest.raises(KeyError):
        ph.after(ph.LINK_TRANSITIONS, ph.GONE, ph.ATTACH)


@pytest.mark.parametrize(
    ("table", "named"),
    [(ph.LINK_TRANSITIONS, ph.LINK_PHASES), (ph.SESSION_TRANSITIONS, ph.SESSION_PHASES)],
)
def test_every_phase_has_a_name_and_a_row(table: dict[int, dict[str, int]], named: dict[int, tuple[str, str]]) -> None:
    assert list(table) == list(named) == [0, 1, 2, 3]
    assert {target for row in table.values() for target in row.values()} == {1, 2, 3}
