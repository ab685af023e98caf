"""A topic in its simplest form: a list of copies, and every rule is evaluated for every message.

A copy is (entity, message, changes). A crash loses what is open; what was committed is a deep copy.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from topic_house import rule

from twinbus.entities.filters import CorrelationFilter, FalseFilter, TrueFilter
from twinbus.entities.rule import Rule

DEAD = "/$DeadLetterQueue"

# Filter, its model, action, and what the action changes. None as an answer means that the filter fails.
RULES: list[tuple[Any, Callable[[dict[str, Any]], bool | None], str | None, str | None]] = [
    (TrueFilter(), lambda _: True, None, None),
    (FalseFilter(), lambda _: False, None, None),
    ("color = 'red'", lambda has: has["color"] == "red", None, None),
    ("n > 0 AND color <> 'red'", lambda has: has["n"] > 0 and has["color"] != "red", None, None),
    ("4 / n > 1", lambda has: None if has["n"] == 0 else 4 // has["n"] > 1, None, None),
    (CorrelationFilter(properties={"color": "blue"}), lambda has: has["color"] == "blue", None, None),
    (
        CorrelationFilter(properties={"n": 1, "color": "red"}),
        lambda has: (has["n"], has["color"]) == (1, "red"),
        None,
        None,
    ),
    (TrueFilter(), lambda _: True, "SET mark = 'all'", "all"),
    ("n = 1", lambda has: has["n"] == 1, "SET mark = 'one'", "one"),
    (CorrelationFilter(properties={"color": "red"}), lambda has: has["color"] == "red", "SET mark = 'red'", "red"),
]


def made(name: str, kind: int) -> Rule:
    filter, _, action, _ = RULES[kind]
    return rule(name, filter, action)


@dataclasses.dataclass
class Copy:
    """A message in an entity."""

    entity: str
    message: str
    mark: str | None
    hops: int = 0
    # Whether receivers and forwarding see it: the facts that brought it are committed.
    visible: bool = False
    # Scheduled in the topic for this time.
    at_ms: int | None = None


@dataclasses.dataclass
class State:
    """The whole state."""

    copies: list[Copy] = dataclasses.field(default_factory=list)
    # Rules by subscription: name and kind.
    rules: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)


class Model:
    """The naive topic, its subscriptions, and their forwarding targets."""

    def __init__(self) -> None:
        self.state = State()
        self.durable = State()
        # The properties of every message ever sent.
        self.has: dict[str, dict[str, Any]] = {}
        # The forwarding target of each entity.
        self.forwards: dict[str, str] = {}

    def commit(self) -> None:
        for each in self.state.copies:
            each.visible = True
        self.durable = copy.deepcopy(self.state)

    def crash(self) -> None:
        self.state = copy.deepcopy(self.durable)

    def publish(self, message: str, mark: str | None, hops: int) -> None:
        """Give a message to every subscription that selects it."""
        has = self.has[message]
        for name, rules in self.state.rules.items():
            answers = [(RULES[kind][1](has), RULES[kind][3]) for kind in rules.values()]
            marks = [new for answer, new in answers if answer and new is not None]
            plain = any(answer for answer, new in answers if new is None)
            found = [*([mark] if plain else []), *marks]
            self.state.copies += [Copy(name, message, each, hops) for each in found]
            if not found and any(answer is None for answer, _ in answers):
                self.state.copies.append(Copy(name + DEAD, message, mark, hops))

    def tick(self, now_ms: int) -> bool:
        """One round of what is due; returns whether anything was."""
        due = [each for each in self.state.copies if each.visible and each.at_ms is not None and each.at_ms <= now_ms]
        for each in due:
            self.state.copies.remove(each)
            self.publish(each.message, None, 0)
        going = [
            each for each in self.state.copies if each.visible and each.at_ms is None and each.entity in self.forwards
        ]
        for each in going:
            self.state.copies.remove(each)
            target = self.forwards[each.entity]
            if each.hops == 4:
                self.state.copies.append(Copy(each.entity + DEAD, each.message, each.mark, 4))
            elif target == "t":
                self.publish(each.message, each.mark, each.hops + 1)
            else:
                self.state.copies.append(Copy(target, each.message, each.mark, each.hops + 1))
        return bool(due or going)

    def visible(self, entity: str) -> list[Copy]:
        return [each for each in self.state.copies if each.entity == entity and each.visible and each.at_ms is None]
