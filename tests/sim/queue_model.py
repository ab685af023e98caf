"""A queue in its simplest form: one list of messages, and every question is answered by looking at all of them.

The real queue is compared with it after random commands, commits and crashes. When facts are closed, a deep copy
records what they will make durable; a crash returns to the last copy whose commit finished, without locks.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import NamedTuple

MAIN = "main"
DEAD = "dead"
ACTIVE = "active"
DEFERRED = "deferred"
SCHEDULED = "scheduled"


@dataclasses.dataclass
class Held:
    """An existing message."""

    name: str
    order: int
    size: int
    session: str | None
    state: str
    enqueued_ms: int
    expires_ms: int | None
    # The number of the facts that make it visible; None if it is visible.
    waits_for: int | None
    # It waits for the first time, so it is not counted yet.
    fresh: bool = True
    queue: str = MAIN
    count: int = 0
    changes: dict[str, str] = dataclasses.field(default_factory=dict)
    seq: int | None = None
    token: bytes | None = None
    until_ms: int = 0


class Sighting(NamedTuple):
    """When a message id was seen."""

    # The time on disk.
    date_ms: int
    # When its window began, on a clock that is never set.
    began_ms: int


@dataclasses.dataclass
class Durable:
    """What survives a crash."""

    messages: list[Held]
    seen: dict[str, Sighting]
    states: dict[str, bytes]


class Model:
    """The naive queue."""

    def __init__(
        self, *, lock_ms: int, ttl_ms: int | None, dead_letter_on_expiry: bool, max_count: int, window_ms: int | None
    ) -> None:
        self.lock_ms = lock_ms
        self.ttl_ms = ttl_ms
        self.dead_letter_on_expiry = dead_letter_on_expiry
        self.max_count = max_count
        self.window_ms = window_ms
        # All existing messages, in no order.
        self.messages: list[Held] = []
        # Message ids that were seen.
        self.seen: dict[str, Sighting] = {}
        # How far the clock was set so far.
        self.stepped_ms = 0
        # Session states.
        self.states: dict[str, bytes] = {}
        # Held sessions and the end of their locks.
        self.sessions: dict[str, int] = {}
        # Sessions whose lock expired, and the facts after which their holder is told.
        self.leaving: dict[str, int] = {}
        # Released sessions, and the facts after which that is announced.
        self.released: dict[str, int] = {}
        # The number of the open facts.
        self.group = 0
        # Orders handed out, which sequence numbers must follow.
        self.last_order = 0
        # What each group of closed facts would leave behind.
        self.closed: dict[int, Durable] = {}
        self.durable = self.copy()

    # --- commits ----------------------------------------------------------------------------------------------------

    def copy(self) -> Durable:
        copied = Durable(copy.deepcopy(self.messages), dict(self.seen), dict(self.states))
        for message in copied.messages:
            message.waits_for = None
            message.fresh = False
            message.token = None
        return copied

    def close_facts(self) -> int:
        group = self.group
        self.closed[group] = self.copy()
        self.group += 1
        return group

    def committed(self, group: int) -> None:
        self.durable = self.closed.pop(group)
        for message in self.messages:
            if message.waits_for == group:
                message.waits_for = None
                message.fresh = False
        self.leaving = {session: waits for session, waits in self.leaving.items() if waits != group}
        self.released = {session: waits for session, waits in self.released.items() if waits != group}

    def clock_set(self, step_ms: int) -> None:
        """Intervals move with the clock, dates do not."""
        for message in self.messages:
            message.until_ms += step_ms
        for session in self.sessions:
            self.sessions[session] += step_ms
        self.stepped_ms += step_ms

    def known(self, message_id: str, seen: dict[str, Sighting], now_ms: int) -> bool:
        """Whether the id was seen within the window."""
        if self.window_ms is None or message_id not in seen:
            return False
        return seen[message_id].began_ms + self.window_ms > now_ms - self.stepped_ms

    def crash(self, survived: list[int], on_disk: set[str], now_ms: int) -> None:
        """Return to the durable state; expired ids that are still `on_disk` are restored."""
        for group in survived:
            self.durable = self.closed[group]
        self.closed = {}
        self.messages = copy.deepcopy(self.durable.messages)
        assert all(each in on_disk for each in self.durable.seen if self.known(each, self.durable.seen, now_ms))
        self.seen = {
            each: Sighting(date_ms, min(date_ms, now_ms) - self.stepped_ms)
            for each, (date_ms, _) in self.durable.seen.items()
            if each in on_disk
        }
        self.states = dict(self.durable.states)
        self.sessions = {}
        self.leaving = {}
        self.released = {}
        self.group += 1

    # --- commands ---------------------------------------------------------------------------------------------------

    def send(
        self, name: str, message_id: str, session: str | None, ttl_ms: int | None, at_ms: int | None, now_ms: int
    ) -> Held | None:
        if self.window_ms is not None:
            if self.known(message_id, self.seen, now_ms):
                return None
            self.seen[message_id] = Sighting(now_ms, now_ms - self.stepped_ms)
        later = at_ms is not None and at_ms > now_ms
        enqueued_ms = at_ms if at_ms is not None and later else now_ms
        lives = [ttl for ttl in (ttl_ms, self.ttl_ms) if ttl is not None]
        expires_ms = enqueued_ms + min(lives) if lives else None
        state = SCHEDULED if later else ACTIVE
        message = Held(name, self.next_order(), 100, session, state, enqueued_ms, expires_ms, self.group)
        self.messages.append(message)
        return message

    def available(self, queue: str, session: str | None = None) -> list[Held]:
        found = [
            message
            for message in self.messages
            if message.queue == queue
            and message.state == ACTIVE
            and message.waits_for is None
            and message.token is None
            and (queue == DEAD or message.session == session)
        ]
        return sorted(found, key=lambda message: message.order)

    def pick(self, queue: str, session: str | None, count: int, now_ms: int) -> list[Held]:
        """The next messages; expired ones before the last of them leave."""
        if session is not None and self.returning(session):
            return []
        picked: list[Held] = []
        for message in self.available(queue, session):
            if len(picked) == count:
                break
            if queue == MAIN and message.expires_ms is not None and message.expires_ms <= now_ms:
                self.expire(message)
            else:
                picked.append(message)
        return picked

    def returning(self, session: str) -> bool:
        return any(
            message.session == session and message.queue == MAIN and message.waits_for is not None and not message.fresh
            for message in self.messages
        )

    def give_back(self, message: Held, counts: bool, now_ms: int) -> None:
        message.token = None
        if counts and message.queue == MAIN:
            message.count += 1
            if message.count >= self.max_count:
                description = f"Message could not be consumed after {message.count} delivery attempts."
                self.dead_letter(message, "MaxDeliveryCountExceeded", description)
                return
        expired = message.expires_ms is not None and message.expires_ms <= now_ms
        if expired and message.queue == MAIN and message.state == ACTIVE:
            self.expire(message)
        else:
            message.waits_for = self.group

    def expire(self, message: Held) -> None:
        if self.dead_letter_on_expiry:
            self.dead_letter(message, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self.messages.remove(message)

    def dead_letter(self, message: Held, reason: str, description: str) -> None:
        message.queue = DEAD
        message.state = ACTIVE
        message.token = None
        message.fresh = True
        message.waits_for = self.group
        message.changes |= {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}

    def live(self, message: Held, now_ms: int) -> bool:
        """Whether its lock is valid."""
        if message.session is not None and message.queue == MAIN:
            return self.sessions.get(message.session, 0) > now_ms
        return message.until_ms > now_ms

    def free_session(self, session: str, now_ms: int) -> None:
        del self.sessions[session]
        for message in [held for held in self.locked(MAIN) if held.session == session]:
            self.give_back(message, True, now_ms)

    def tick(self, now_ms: int) -> None:
        for session, until_ms in list(self.sessions.items()):
            if until_ms <= now_ms:
                self.free_session(session, now_ms)
                self.leaving[session] = self.group
        for message in list(self.messages):
            if message.token and (message.session is None or message.queue == DEAD) and message.until_ms <= now_ms:
                self.give_back(message, True, now_ms)
        for message in list(self.messages):
            shown = message.waits_for is None and message.token is None and message.queue == MAIN
            over = message.expires_ms is not None and message.expires_ms // 1000 < now_ms // 1000
            if message.state == ACTIVE and shown and over:
                self.expire(message)
        due = [
            message
            for message in self.messages
            if message.state == SCHEDULED and message.waits_for is None and message.enqueued_ms <= now_ms
        ]
        for message in sorted(due, key=lambda message: (message.enqueued_ms, message.order)):
            message.state = ACTIVE
            if message.expires_ms is not None:
                message.expires_ms += now_ms - message.enqueued_ms
            message.enqueued_ms = now_ms
            message.order = self.next_order()
            message.seq = None
            message.fresh = True
            message.waits_for = self.group

    def next_order(self) -> int:
        self.last_order += 1
        return self.last_order

    # --- questions --------------------------------------------------------------------------------------------------

    def count(self, queue: str, state: str) -> int:
        """The number of counted messages: those that wait for their first commit do not count."""
        return sum(
            message.queue == queue and message.state == state and not (message.waits_for is not None and message.fresh)
            for message in self.messages
        )

    def locked(self, queue: str | None = None) -> list[Held]:
        return [message for message in self.messages if message.token and queue in (None, message.queue)]

    def deadlines_ms(self) -> list[int]:
        """All deadlines."""
        found = list(self.sessions.values())
        for message in self.messages:
            if message.token and (message.session is None or message.queue == DEAD):
                found.append(message.until_ms)
            elif message.waits_for is None and message.queue == MAIN and not message.token:
                if message.state == ACTIVE and message.expires_ms is not None:
                    found.append((message.expires_ms // 1000 + 1) * 1000)
                elif message.state == SCHEDULED:
                    found.append(message.enqueued_ms)
        return found
