"""Watches real queues and topics: every message that changes its place must do so by a move in the table.

Commands are wrapped. After each one the place of every message is compared with its place before, and the change must
be a move that this command may make. Nested commands are checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from twinbus.entities.arrivals import Arrivals
from twinbus.entities.dead_letter import DEAD_LETTER_REASON, EXHAUSTED_REASON, EXPIRED_REASON
from twinbus.entities.entity_ids import DEAD_LETTER_PART, IDS_PER_ENTITY, TRANSFER_PART
from twinbus.entities.forwarding import HOPS_REASON
from twinbus.entities.message import GONE, SCHEDULED, QueuedMessage
from twinbus.entities.messages import Messages
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.session import MessageSession
from twinbus.entities.states import TRANSITIONS, Move, Place, place
from twinbus.entities.topic import Topic

EXPIRES = {Move.EXPIRE, Move.EXPIRE_DEAD_LETTER}
RETURNS = {*EXPIRES, Move.EXHAUST}

# The moves that each command may make.
COMMANDS: dict[type, dict[str, set[Move]]] = {
    Queue: {
        "cancel": {Move.CANCEL},
        "acquire": {Move.ACQUIRE, *EXPIRES},
        "take": {Move.TAKE, *EXPIRES},
        "remove_taken": {Move.WRITTEN},
        "return_taken": {Move.DROP, *EXPIRES},
        "receive_deferred": {Move.RECEIVE_DEFERRED, *EXPIRES},
        "delete_batch": {Move.DELETE},
        "delete_chosen": {Move.DELETE},
        "dead_letter_chosen": {Move.DEAD_LETTER},
        "complete": {Move.COMPLETE},
        "abandon": {Move.ABANDON, *RETURNS},
        "defer": {Move.DEFER},
        "dead_letter": {Move.DEAD_LETTER},
        "release": {Move.RELEASE, *EXPIRES},
        "drop": {Move.DROP, *RETURNS},
        "release_session": {Move.LAPSE, *RETURNS},
        "resubmit": {Move.RESUBMIT},
        "tick": {Move.LAPSE, *RETURNS, Move.ACTIVATE, Move.FORWARD, Move.REFUSE, Move.HOPS},
    },
    Topic: {"cancel": {Move.CANCEL}, "tick": {Move.HAND_OUT}},
    MessageSession: {"acquire": {Move.ACQUIRE, *EXPIRES}, "take": {Move.TAKE, *EXPIRES}},
    Messages: {"show": {Move.COMMIT}, "put_aside": {Move.DAMAGE}},
}

REASONS = {
    EXPIRED_REASON: Move.EXPIRE_DEAD_LETTER,
    EXHAUSTED_REASON: Move.EXHAUST,
    HOPS_REASON: Move.HOPS,
}


class MoveWatch:
    """The places of all messages, and the moves seen so far."""

    def __init__(self) -> None:
        # All places and moves seen.
        self.seen: set[tuple[Place, Move]] = set()
        # Messages that have not left, by id(); kept alive so that no id is reused.
        self._known: dict[int, QueuedMessage] = {}
        # Where each of them was after the last command.
        self._places: dict[int, Place] = {}
        # Those that wait to become visible for the first time, or again as active.
        self._unseen: set[int] = set()
        # Where those went that have left.
        self._left: dict[int, Place] = {}
        # Why one was dead-lettered.
        self._reasons: dict[int, Move] = {}
        # The message that last left together with its body, and the id block of its entity.
        self._handed: tuple[QueuedMessage, int] | None = None
        # The running commands, outermost first.
        self._stack: list[tuple[type, str]] = []

    def forget_all(self) -> None:
        """After a restart every message is a new object."""
        self._known.clear()
        self._places.clear()
        self._unseen.clear()

    def meet(self, message: QueuedMessage) -> None:
        if id(message) not in self._known:
            self._known[id(message)] = message
            self._places[id(message)] = self._place(message)

    def wait(self, message: QueuedMessage) -> None:
        """It becomes visible with a commit; without a token it is new, or was scheduled until now."""
        if message.token is None:
            self._unseen.add(id(message))
        self.meet(message)

    def shown(self, messages: list[QueuedMessage]) -> None:
        self._unseen.difference_update(map(id, messages))

    def leave(self, message: QueuedMessage, where: Place) -> None:
        self._left[id(message)] = where

    def hand_over(self, message: QueuedMessage, entity_id: int) -> None:
        commands = {name for _, name in self._stack}
        if "resubmit" in commands:
            where = Place.RESUBMITTED
        else:
            where = Place.HANDED_OUT if self._stack[-1][0] is Topic else Place.FORWARDED
        self.leave(message, where)
        self._handed = message, entity_id // IDS_PER_ENTITY

    def take_in(self, entity_id: int, message: QueuedMessage) -> None:
        """One of an entity's own dead-letter queues accepts what the entity has just handed over."""
        where = {
            DEAD_LETTER_PART: Place.DEAD_LETTERED,
            TRANSFER_PART: Place.TRANSFER_DEAD_LETTERED,
        }.get(entity_id % IDS_PER_ENTITY)
        if where is not None and self._handed is not None and self._handed[1] == entity_id // IDS_PER_ENTITY:
            source = self._handed[0]
            self.leave(source, where)
            reason = (message.changes or {}).get(DEAD_LETTER_REASON)
            if isinstance(reason, str) and reason in REASONS:
                self._reasons[id(source)] = REASONS[reason]
        self._handed = None

    def _place(self, message: QueuedMessage) -> Place:
        if message.state == GONE:
            return self._left[id(message)]
        if id(message) in self._unseen:
            return Place.SCHEDULING if message.state == SCHEDULED else Place.SENT
        return place(message)

    def command(self, kind: type, name: str, allowed: set[Move], call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def watched(*arguments: Any, **named: Any) -> Any:
            self._stack.append((kind, name))
            try:
                return call(*arguments, **named)
            finally:
                self.check(name, allowed)
                self._stack.pop()

        return watched

    def check(self, name: str, allowed: set[Move]) -> None:
        for key, message in list(self._known.items()):
            before, after = self._places[key], self._place(message)
            if before is after:
                continue
            moves = [move for move in allowed if TRANSITIONS[before].get(move) is after]
            if self._reasons.get(key) in moves:
                moves = [self._reasons[key]]
            assert moves, f"{name} moved {message} from {before} to {after}, and the table has no such move"
            assert len(moves) == 1, f"{name} moved {message} from {before} to {after}, by one of {moves}"
            self.seen.add((before, moves[0]))
            self._places[key] = after
            if not TRANSITIONS[after]:
                del self._known[key]


@contextmanager
def watched_moves() -> Iterator[MoveWatch]:
    """Watch everything that happens inside the block."""
    watch = MoveWatch()
    sound: list[tuple[type, str, Any]] = []

    def replace(kind: type, name: str, made: Callable[[Any], Any]) -> None:
        call = getattr(kind, name)
        sound.append((kind, name, kind.__dict__[name]))
        setattr(kind, name, made(call))

    def noted(note: Callable[..., None], *, first: bool = True) -> Callable[[Any], Any]:
        def made(call: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(call)
            def outer(*arguments: Any) -> Any:
                if first:
                    note(*arguments)
                result = call(*arguments)
                if not first:
                    note(*arguments)
                return result

            return outer

        return made

    def set_aside(messages: Messages, message: QueuedMessage, *_: Any) -> None:
        if message.seq in messages.damaged:
            watch.leave(message, Place.SET_ASIDE)

    replace(Arrivals, "add", noted(lambda _, message, facts: watch.wait(message)))
    replace(Messages, "show", noted(lambda _, messages: watch.shown(messages)))
    replace(Messages, "remove", noted(lambda _, message, facts: watch.leave(message, Place.REMOVED)))
    replace(Messages, "hand_over", noted(lambda this, message, facts: watch.hand_over(message, this._entity_id)))
    replace(Messages, "put_aside", noted(set_aside, first=False))
    replace(Messages, "restore", noted(lambda _, message, session: watch.meet(message), first=False))
    replace(Messages, "restore_many", noted(lambda _, messages, size: [watch.meet(each) for each in messages]))
    replace(Queue, "take_in", noted(lambda this, message, *_: watch.take_in(this.entity_id, message)))
    for kind, names in COMMANDS.items():
        for name, allowed in names.items():
            replace(kind, name, lambda call, k=kind, n=name, a=allowed: watch.command(k, n, a, call))  # type: ignore[misc]
    restore = Namespace.__dict__["restore"]
    sound.append((Namespace, "restore", restore))

    def restored(cls: type[Namespace], *arguments: Any, **named: Any) -> Namespace:
        watch.forget_all()
        found: Namespace = restore.__func__(cls, *arguments, **named)
        return found

    Namespace.restore = classmethod(restored)  # type: ignore[assignment]
    try:
        yield watch
    finally:
        for kind, name, call in reversed(sound):
            setattr(kind, name, call)
