"""Scheduling and cancelling messages: the same for queues and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from twinbus.errors import MessageNotFoundError
from twinbus.store.facts import Facts

from .message import NewMessage

if TYPE_CHECKING:
    from .queue import Queue
    from .topic import Topic


# Accepts one checked message under its reserved number (0 if none), and returns the number.
Accept = Callable[[NewMessage, int, Facts, int], int]


def schedule_messages(
    entity: Queue | Topic,
    accept: Accept,
    messages: Sequence[NewMessage],
    now_ms: int,
    facts: Facts,
    reserved: Sequence[int],
) -> list[int]:
    """Accept messages and return their sequence numbers; a duplicate gets that of the first message."""
    entity.check_send(messages)
    entity.accessed_ms = now_ms
    return place(entity, accept, messages, now_ms, facts, reserved)


def place(
    entity: Queue | Topic,
    accept: Accept,
    messages: Sequence[NewMessage],
    now_ms: int,
    facts: Facts,
    reserved: Sequence[int] = (),
) -> list[int]:
    """The same for messages that are already checked."""
    duplicates = entity.duplicates
    numbers: list[int] = []
    for at, new in enumerate(messages):
        if new.ping:
            entity.pings += 1
            numbers.append(entity.numbers.next(facts))
            continue
        seq = None if duplicates is None else duplicates.find(new.message_id, now_ms)
        if seq is None:
            seq = accept(new, now_ms, facts, reserved[at] if reserved else 0)
            if duplicates is not None:
                duplicates.add(new.message_id, seq, now_ms, facts)
        numbers.append(seq)
    return numbers


def check_cancel(entity: Queue | Topic, sequence_numbers: Iterable[int]) -> None:
    """Raise what `cancel_scheduled` would raise."""
    scheduled = entity.messages.schedule
    for seq in sequence_numbers:
        if seq not in scheduled.messages:
            raise MessageNotFoundError(f"No scheduled message has the sequence number {seq}.")


def cancel_scheduled(entity: Queue | Topic, sequence_numbers: Sequence[int], now_ms: int, facts: Facts) -> None:
    """Remove scheduled messages: all of them or none."""
    check_cancel(entity, sequence_numbers)
    scheduled = entity.messages.schedule
    entity.accessed_ms = now_ms
    for seq in dict.fromkeys(sequence_numbers):
        message = scheduled.remove(seq)
        if message.session is not None:
            message.session.drop_aside(seq)
        entity.messages.remove(message, facts)
