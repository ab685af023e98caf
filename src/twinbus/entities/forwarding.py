"""Auto-forwarding: an entity with a target hands its messages on, a bounded number a tick.

A message leaves its entity and arrives at the target in the facts of one commit; its body does not move. After four
hops it is dead-lettered. What the target cannot take goes to the entity's own transfer dead-letter queue, with the
reason: it is lost to nobody, and those behind it are not held up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinbus.errors import (
    EntityDisabledError,
    EntityNotFoundError,
    FilterEvaluationError,
    MessageTooLargeError,
    NotAllowedError,
    QuotaExceededError,
    ServiceError,
)
from twinbus.limits import FORWARD_COPIES_MAX, FORWARD_HOPS_MAX
from twinbus.store.facts import Facts, Table

from .accepting import Accepting
from .holding import not_found_text
from .message import ACTIVE, Message, Relayed
from .records import KEY

if TYPE_CHECKING:
    from .queue import Queue
    from .views import StoredView

_INDEX: Final = Table.INDEX

HOPS_REASON: Final = "MaxTransferHopCountExceeded"
HOPS_DESCRIPTION: Final = (
    "The maximum number of allowed hops when forwarding between queues exceeded. "
    f"This value is set to {FORWARD_HOPS_MAX}."
)
SESSION_REASON: Final = "Session ID is null."
SESSION_DESCRIPTION: Final = "Session enabled entity doesn't allow a message whose session identifier is null."

# Why a target did not take a message, in the names of the current clients.
_REASONS: Final[tuple[tuple[type[ServiceError], str], ...]] = (
    (EntityNotFoundError, "MessagingEntityNotFound"),
    (EntityDisabledError, "MessagingEntityDisabled"),
    (QuotaExceededError, "QuotaExceeded"),
    (MessageTooLargeError, "MessageSizeExceeded"),
    (NotAllowedError, SESSION_REASON),
    (FilterEvaluationError, "MessageUnreadable"),
)


class Forwarding(Accepting):
    """Handing messages on, and taking those that are handed on."""

    __slots__ = ()

    def open_transfer(self) -> Queue:
        """The transfer dead-letter queue."""
        raise AssertionError("only queues have one")

    def relay(self, message: Relayed, view: StoredView, now_ms: int, facts: Facts) -> int:
        """Take a message from another entity, as if it were sent now."""
        self.accessed_ms = now_ms
        duplicates = self._duplicates
        message_id = ""
        if duplicates is not None:
            message_id = str(view.system("MessageId") or "")
            if duplicates.find(message_id, now_ms) is not None:
                self._bodies.release(message.body, facts)
                return 1
        message.expires_ms = earlier(message.expires_ms, self._expires_ms(None, now_ms))
        message.seq = self._next_seq(facts)
        if self._sessions is not None:
            message.session = self._sessions.open(self._self(), str(view.system("SessionId")))
            message.session.members += 1
        if duplicates is not None:
            duplicates.add(message_id, message.seq, now_ms, facts)
        self._take_in(message, facts)
        return 1

    def _forward_due(self, now_ms: int, facts: Facts) -> int:
        """Forward what is available; return how many messages went."""
        path = self._forward_path
        if path is None or not self._receivable:
            return 0
        forwarded = 0
        copies = 0
        while copies < FORWARD_COPIES_MAX:
            picked = self._pick(self._available, 1, now_ms, facts)
            if not picked:
                break
            copies += self._forward(picked[0], path, now_ms, facts)
            forwarded += 1
        return forwarded

    def _forward(self, message: Message, path: str, now_ms: int, facts: Facts) -> int:
        origin_seq, hops, source = message.seq, 1, None
        if isinstance(message, Relayed):
            origin_seq, hops, source = message.origin_seq, message.hops + 1, message.dead_letter_source
        if hops > FORWARD_HOPS_MAX:
            if self.dead_letters is not None:
                self._dead_letter(message, HOPS_REASON, HOPS_DESCRIPTION, facts)
            else:
                self._set_aside(message, HOPS_REASON, HOPS_DESCRIPTION, facts)
            return 1
        expires_ms = message.expires_ms
        if self.owner is not None:
            # Its time may be over long since: that is why it was dead-lettered.
            source, expires_ms = self.owner.path, None
        carried = Relayed(
            0,
            message.body,
            message.size,
            now_ms,
            expires_ms,
            ACTIVE,
            0,
            None,
            message.changes,
            origin_seq,
            hops,
            source,
        )
        view = self._commons.views.of_stored(message)
        target = self._commons.targets.get(path.lower())
        try:
            if target is None:
                raise EntityNotFoundError(not_found_text(path))
            target.check_relay(carried, view)
        except ServiceError as error:
            self._set_aside(message, _reason(error), error.text, facts)
            return 1
        self._leave(message)
        facts.delete(_INDEX, KEY.pack(self.entity_id, message.seq))
        return max(target.relay(carried, view, now_ms, facts), 1)

    def _set_aside(self, message: Message, reason: str, description: str, facts: Facts) -> None:
        """It could not be forwarded: it waits in the transfer dead-letter queue."""
        owner = self._self() if self.owner is None else self.owner
        self._move(message, owner.open_transfer(), reason, description, facts)


def earlier(first_ms: int | None, second_ms: int | None) -> int | None:
    """The earlier of two times of which None is never."""
    if first_ms is None or second_ms is None:
        return second_ms if first_ms is None else first_ms
    return min(first_ms, second_ms)


def _reason(error: ServiceError) -> str:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return type(error).__name__.removesuffix("Error")
