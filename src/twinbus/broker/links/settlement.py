"""Maps a client's outcome to a command of the entity, and to the outcome echoed back.

| outcome from the client             | the entity's command | echo |
|---|---|---|
| accepted                            | complete             | accepted |
| modified                            | abandon              | modified |
| modified with undeliverable-here    | defer                | modified |
| rejected                            | dead-letter          | rejected, without an error |
| released                            | release              | released |

In a transaction the echo is the same, inside the transactional state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinbus.amqp.codec import encode
from twinbus.amqp.states import (
    STATE_REJECTED_NO_ERROR,
    Accepted,
    Modified,
    Rejected,
    Released,
    State,
    TransactionalState,
    encode_state,
    state_transactional,
)
from twinbus.broker.messages.changes import SYSTEM
from twinbus.entities.changes import check_size, counted_bytes
from twinbus.entities.dead_letter import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from twinbus.entities.queue import Queue
from twinbus.errors import ArgumentError, NotAllowedError, QuotaExceededError
from twinbus.ledger.words import Kind
from twinbus.limits import DEAD_LETTER_TEXT_CHARS_MAX, SETTLEMENTS_BYTES_MAX
from twinbus.store.facts import Facts

_NO_OUTCOME_TEXT = "A settlement needs an outcome: accepted, rejected, released or modified."


def settle(queue: Queue, token: bytes, state: State | None, now_ms: int, facts: Facts) -> bytes:
    """Apply the outcome to the message locked by `token`; return the state to echo once the facts are durable."""
    _check_room(queue, held_bytes(state))
    settle_checked(queue, token, state, now_ms, facts)
    return echo(state)


def echo(state: State | None) -> bytes:
    """The state to answer with. A client takes a rejection with an error for a failure, so the error is left out."""
    if isinstance(state, Rejected):
        return STATE_REJECTED_NO_ERROR
    if isinstance(state, TransactionalState):
        return state_transactional(state.txn_id, echo(state.outcome))
    if state is None:
        raise ArgumentError(_NO_OUTCOME_TEXT)
    return encode_state(state)


def settle_checked(queue: Queue, token: bytes, state: State | None, now_ms: int, facts: Facts) -> None:
    """Apply an outcome that there is room for."""
    if isinstance(state, Accepted):
        queue.complete(token, now_ms, facts)
    elif isinstance(state, Released):
        queue.release(token, now_ms, facts)
    elif isinstance(state, Modified):
        changed = changes(state.annotations)
        if state.undeliverable_here:
            queue.defer(token, now_ms, facts, changed)
        else:
            queue.abandon(token, now_ms, facts, changed)
    elif isinstance(state, Rejected):
        reason, description, changed = _last_words(state)
        queue.dead_letter(token, now_ms, facts, reason, description, changed)
    else:
        raise ArgumentError(_NO_OUTCOME_TEXT)


def settle_all(settlements: Mapping[bytes, tuple[Queue, State | None]], now_ms: int, facts: Facts) -> None:
    """Settle all tokens, or raise before anything changes. For requests and transactions that name several."""
    check_all(settlements, now_ms)
    for token, (queue, state) in settlements.items():
        settle_checked(queue, token, state, now_ms, facts)


def check_all(settlements: Mapping[bytes, tuple[Queue, State | None]], now_ms: int) -> None:
    """Raise what `settle_all` would raise, without changing anything."""
    needed: dict[Queue, int] = {}
    sizes: dict[int, int] = {}
    for token, (queue, state) in settlements.items():
        check(queue, token, state, now_ms)
        # Thousands of messages may share one state.
        if id(state) not in sizes:
            sizes[id(state)] = held_bytes(state)
        needed[queue] = needed.get(queue, 0) + sizes[id(state)]
    if sum(needed.values()) > SETTLEMENTS_BYTES_MAX:
        raise QuotaExceededError(
            f"The properties to modify take more than {SETTLEMENTS_BYTES_MAX} bytes in all: settle fewer at a time."
        )
    for queue, count in needed.items():
        _check_room(queue, count)


def check(queue: Queue, token: bytes, state: State | None, now_ms: int) -> None:
    """Raise what `settle` would raise, without changing anything."""
    if isinstance(state, Modified):
        queue.check_lock(token, now_ms, changes(state.annotations))
    elif isinstance(state, Rejected):
        queue.check_lock(token, now_ms, _last_words(state)[2])
        if queue.dead_letters is None:
            raise NotAllowedError("A message in a dead-letter queue cannot be dead-lettered again.")
    elif isinstance(state, Accepted | Released):
        queue.check_lock(token, now_ms)
    else:
        raise ArgumentError(_NO_OUTCOME_TEXT)


def held_bytes(state: State | None) -> int:
    """The memory that an outcome takes as long as the message exists."""
    if isinstance(state, Modified):
        return counted_bytes(changes(state.annotations))
    if not isinstance(state, Rejected):
        return 0
    reason, description, changed = _last_words(state)
    return counted_bytes(
        {**(changed or {}), DEAD_LETTER_REASON: reason or "", DEAD_LETTER_DESCRIPTION: description or ""}
    )


def _check_room(queue: Queue, count: int) -> None:
    if count and not queue.messages.changes.room(count):
        raise QuotaExceededError(
            f"The properties changed on messages of '{queue.path}', or of all entities, take all bytes they may. "
            "Settle without properties or with a shorter text, or receive messages that have some."
        )


def _last_words(state: Rejected) -> tuple[str | None, str | None, dict[str, str | bytes] | None]:
    """Reason, description and changed properties of a dead-lettering."""
    info = dict(state.error.info or {}) if state.error is not None else {}
    reason = dead_letter_text(info.pop(DEAD_LETTER_REASON, None), DEAD_LETTER_REASON)
    description = dead_letter_text(info.pop(DEAD_LETTER_DESCRIPTION, None), DEAD_LETTER_DESCRIPTION)
    return reason, description, changes(info)


def kind_of(state: State | None) -> Kind:
    """The ledger's name for a settlement with that outcome."""
    if isinstance(state, TransactionalState):
        state = state.outcome
    if isinstance(state, Accepted):
        return Kind.COMPLETE
    if isinstance(state, Released):
        return Kind.RELEASE
    if isinstance(state, Modified):
        return Kind.DEFER if state.undeliverable_here else Kind.ABANDON
    return Kind.DEAD_LETTER if isinstance(state, Rejected) else Kind.SETTLE


def changes(properties: dict[Any, Any] | None) -> dict[str, str | bytes] | None:
    """Properties to modify, encoded as the entities store them, because types matter."""
    if not properties:
        return None
    found: dict[str, str | bytes] = {str(key): encode(value) for key, value in properties.items()}
    if any(name.startswith(SYSTEM) for name in found):
        raise ArgumentError("The name of a property to modify cannot start with a NUL character.")
    check_size(found)
    return found


def dead_letter_text(value: Any, name: str) -> str | None:
    """A dead-letter reason or description; an empty one becomes None."""
    if value is None or value == "":
        return None
    text = str(value)
    if len(text) > DEAD_LETTER_TEXT_CHARS_MAX:
        raise ArgumentError(f"{name} has {len(text)} characters; it may have {DEAD_LETTER_TEXT_CHARS_MAX}.")
    return text
