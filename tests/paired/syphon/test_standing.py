"""The state of a pair, from what is in its secondary: every state, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.paired.homes import NamespaceAnswer, Relation, home_of
from twinbus.paired.options import NamespaceAddress
from twinbus.paired.syphon.queue_look import QueueLook
from twinbus.paired.syphon.standing import PairStanding, PairState, total

HERE = NamespaceAddress.parse("localhost:5672")
OWN, OTHER, NONE, UNKNOWN = Relation.OWN, Relation.OTHER, Relation.NONE, Relation.UNKNOWN


def look(relation: Relation, active: int | None = 0, receivers: int | None = None, dead: int | None = 0) -> QueueLook:
    return QueueLook("q", "p", 0, active, dead, receivers=receivers, relation=relation)


def standing(looks: list[QueueLook] | None, outage: str = "") -> PairStanding:
    return PairStanding(home_of(HERE, told=NamespaceAnswer("contoso", "a")), outage, looks)


@pytest.mark.parametrize(
    ("looks", "outage", "state", "diverted", "dead"),
    [
        (None, "", "UNREACHABLE", None, None),
        ([], "", "HOME", 0, 0),
        ([look(OWN), look(OTHER), look(NONE), look(UNKNOWN)], "", "HOME", 0, None),
        ([look(OWN, 5, 1), look(OWN, 2, 1)], "", "WAITING", 7, 0),
        ([look(OWN, 5, None)], "", "WAITING", 5, 0),
        ([look(OWN, 5, 0)], "", "NO_SYPHON", 5, 0),
        ([look(OWN, 5, 0)], "away", "WAITING", 5, 0),
        ([look(OWN, 5, 1), look(NONE, 2, 0)], "", "HOMELESS", 5, 0),
        ([look(NONE, 2, None)], "away", "HOMELESS", 0, 0),
        # Somebody receives from it: a syphon of the last version.
        ([look(NONE, 2, 1)], "", "WAITING", 0, 0),
        # Another pair's backlog is its own affair, unless nobody cares for it.
        ([look(OTHER, 3, 1)], "", "HOME", 0, 0),
        ([look(OTHER, 3, None)], "", "HOME", 0, 0),
        ([look(OTHER, 3, 0)], "", "HOMELESS", 0, 0),
        # Whose it is, the primary will say when it is back.
        ([look(UNKNOWN, 3, 0)], "away", "WAITING", None, None),
        ([look(OWN, None, 1)], "", "WAITING", None, 0),
        ([look(OWN, 0, None, 4)], "", "DEAD_LETTERS", 0, 4),
        ([look(OWN, 0, None, None)], "", "DEAD_LETTERS", 0, None),
        ([look(OWN, 1, 1, 4)], "", "WAITING", 1, 4),
    ],
)
def test_states(looks: Any, outage: str, state: str, diverted: int | None, dead: int | None) -> None:
    found = standing(looks, outage)
    assert (found.state, found.diverted, found.dead_letters) == (PairState[state], diverted, dead)


def test_exit_codes_stay_what_they_are() -> None:
    assert {state.name: state.value for state in PairState} == {
        "HOME": 0,
        "WAITING": 3,
        "HOMELESS": 4,
        "UNREACHABLE": 5,
        "NO_SYPHON": 6,
        "DEAD_LETTERS": 7,
    }


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    assert (total([]), total([1, 2]), total([1, None])) == (0, 3, None)


def test_what_a_queue_holds() -> None:
    assert (look(OWN).empty, look(OWN, 1).empty, look(OWN, None).empty) == (True, False, False)
    assert (look(OWN, dead=1).empty, look(OWN, dead=None).empty) == (False, False)
    scheduled = QueueLook("q", "p", 0, 1, 0, 2)
    assert (scheduled.waiting, scheduled.waits) == (3, True)
