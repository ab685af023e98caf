"""The backlog queues' settings, and what came of looking for them.

Rules:
- A queue that exists is used as it is, whatever its settings; nothing is ever deleted.
- One that is made gets exactly the settings below; everything else is left to the service.
- If some cannot be had, the others do; with none, there is no pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from twinbus.limits import BACKLOG_QUEUE_MEGABYTES, LOCK_DURATION_MS_DEFAULT, MAX_DELIVERY_COUNT_MAX
from twinbus.paired.errors import PairingError

# The longest duration that the service knows; its own "never".
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
    """Backlog queues there are, and those there are not."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = list(names)
        # Those of them that were made just now.
        self.made: list[str] = []
        # Queues that could not be had, with the reason.
        self.failures: dict[str, Exception] = {}

    def check(self, secondary: str) -> None:
        """Raise when there is none."""
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
        """What to say about those that could not be had."""
        some = ", ".join(f"'{name}' ({type(error).__name__})" for name, error in self.failures.items())
        return (
            f"{len(self.failures)} of {len(self.names) + len(self.failures)} backlog queues could not be found or "
            f"created in the secondary '{secondary}', and the pair goes on without them: {some}"
        )


def _is_temporary(error: Exception) -> bool:
    """Whether the secondary may answer otherwise in a moment: it is away or busy, and has refused nothing."""
    status = getattr(error, "status_code", None)
    return status is None or status in (408, 429) or status >= 500
