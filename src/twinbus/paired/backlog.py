"""The settings of backlog queues, and the result of looking for them.

- An existing queue is used as it is, whatever its settings; nothing is ever deleted.
- A new queue gets exactly the settings below; everything else is left to the service.
- If some cannot be found or created, the others are used; without any, there is no pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from twinbus.limits import BACKLOG_QUEUE_MEGABYTES, LOCK_DURATION_MS_DEFAULT, MAX_DELIVERY_COUNT_MAX
from twinbus.paired.errors import PairingError

# The service's longest duration, which means "never".
_NEVER: Final = "P10675199DT2H48M5.4775807S"

SETTINGS: Final[Mapping[str, Any]] = {
    "max_size_in_megabytes": BACKLOG_QUEUE_MEGABYTES,
    "max_delivery_count": MAX_DELIVERY_COUNT_MAX,
    "default_message_time_to_live": _NEVER,
    "auto_delete_on_idle": _NEVER,
    "lock_duration": timedelta(milliseconds=LOCK_DURATION_MS_DEFAULT),
    "dead_lettering_on_message_expiration": True,
    "enable_batched_operations": True,
}


class Found:
    """Backlog queues that exist, and those that could not be had."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = list(names)
        # Queues of this primary's name that hold the backlog of another one.
        self.taken: list[str] = []
        # Those that were created just now.
        self.made: list[str] = []
        # Queues that could not be found or created, with the reason.
        self.failures: dict[str, Exception] = {}

    def check(self, secondary: str) -> None:
        """Raise if there is none."""
        if not self.names:
            name, error = next(iter(self.failures.items()))
            failure = PairingError(
                f"No backlog queue could be found or created in the secondary '{secondary}': "
                f"'{name}' failed with {type(error).__name__}: {error}",
                error=error,
            )
            failure.temporary = all(map(_is_temporary, self.failures.values()))
            raise failure

    def report(self, secondary: str) -> str:
        """A warning about the queues that could not be had."""
        some = ", ".join(f"'{name}' ({type(error).__name__})" for name, error in self.failures.items())
        return (
            f"{len(self.failures)} of {len(self.names) + len(self.failures)} backlog queues could not be found or "
            f"created in the secondary '{secondary}', and the pair goes on without them: {some}"
        )


def _is_temporary(error: Exception) -> bool:
    """Whether another try may succeed: the secondary is unreachable or busy, but has not refused anything."""
    status = getattr(error, "status_code", None)
    return status is None or status in (408, 429) or status >= 500
