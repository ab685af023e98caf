"""Routes the engine's events to the owners of their links.

Transfers and dispositions are nearly all events of a busy connection, so they are dispatched here by type: the compiled
build then needs no table look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twinbus.amqp.events import AmqpEvent, Disposed, Transfer
from twinbus.broker.slices import Work
from twinbus.limits import SLICE_EVENTS


def _never() -> bool:
    return False


def route(
    events: list[AmqpEvent], others: Mapping[type[AmqpEvent], Callable[[Any], None]], over: Callable[[], bool] = _never
) -> tuple[int, Work | None]:
    """Pass transfers and dispositions to their links' owners, and every other event to the handler for its type.

    Stops after an event that starts long work, which is returned, and when `over` says so; returns how many events
    are done."""
    count = 0
    total = len(events)
    for event in events:
        count += 1
        if isinstance(event, Transfer):
            owner = event.link.context
            if owner is not None:
                work: Work | None = owner.on_transfer(event)
                if work is not None:
                    return count, work
        elif isinstance(event, Disposed):
            state = event.state
            settled = event.settled
            for delivery_id, link, tag in event.deliveries:
                owner = link.context
                if owner is not None:
                    owner.on_disposed(delivery_id, tag, state, settled)
        else:
            others[type(event)](event)
        if count % SLICE_EVENTS == 0 and count < total and over():
            break
    return count, None
