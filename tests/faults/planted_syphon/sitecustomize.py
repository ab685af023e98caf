"""A planted fault, loaded by a syphon that starts with this folder in its path: it completes some without sending them.

The outages must go red on it; a test that cannot fail proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twinbus.paired.syphon.bus_port import BusDestination
from twinbus.paired.syphon.port import Outcomes, Parcel

FORGOTTEN_EACH = 10

_send = BusDestination.send
_count = 0


async def forgetful(self: BusDestination, parcels: Sequence[Parcel], on_accepted: Callable[[int], None]) -> Outcomes:
    global _count
    outcomes: Outcomes = []
    for index, parcel in enumerate(parcels):
        _count += 1
        if _count % FORGOTTEN_EACH:
            outcomes += await _send(self, [parcel], lambda _, index=index: on_accepted(index))  # type: ignore[misc]
        else:
            on_accepted(index)
            outcomes.append(None)
    return outcomes


BusDestination.send = forgetful  # type: ignore[method-assign]
