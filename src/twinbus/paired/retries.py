"""Timeouts and retries of a send.

- A send has the caller's timeout, or one that outlasts the interval. One attempt gets a part of it, small enough that a
  caller whose timeout outlasts the interval has time left for the backlog.
- Within one attempt the SDK's own retries are made, by its settings. A broken link is first retried at once: the
  service closes idle links, and that is not a failure.
- The syphon never gives up: of the SDK's settings, only the lengths of the pauses apply to it.
"""

from __future__ import annotations

from math import isnan
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusServerBusyError

from twinbus.limits import (
    HOLD_PAUSE_S_MIN,
    JITTER,
    PAIRED_TIMEOUT_S_MAX,
    SYPHON_PAUSE_MS_MAX,
    SYPHON_PAUSE_MS_MIN,
    TRY_TIMEOUT_S_MIN,
)
from twinbus.paired.classify import availability_failure
from twinbus.paired.options import PairingOptions
from twinbus.paired.sdk_internals import data_body

# The syphon never gives up, so it must not be without any pause.
_PAUSE_MS_MIN = round(HOLD_PAUSE_S_MIN * 1000)


class Retries:
    """Timeouts and retries from the options of the pair and of the SDK."""

    def __init__(
        self,
        options: PairingOptions,
        *,
        retry_total: int = 3,
        retry_backoff_factor: float = 0.8,
        retry_backoff_max: float = 120,
        retry_mode: str = "exponential",
    ) -> None:
        self._options = options
        # Retries within one attempt.
        self._total = retry_total
        # The first pause in seconds, before doubling.
        self._factor = retry_backoff_factor
        self._most = retry_backoff_max
        # "exponential" or "fixed".
        self._mode = _plain(retry_mode)
        if self._mode not in ("exponential", "fixed"):
            raise ValueError(f"retry_mode is {retry_mode!r}: it must be 'exponential' or 'fixed'.")

    def total_s(self, timeout: float | None) -> float:
        """The time for a whole call."""
        if timeout is None:
            return self._options.send_timeout
        # NaN is no timeout, either.
        if timeout <= 0 or isnan(timeout):
            raise ValueError("The timeout must be greater than 0.")
        return min(timeout, PAIRED_TIMEOUT_S_MAX)

    def attempt_s(self, timeout: float | None) -> float:
        """The time for one attempt."""
        total_s = self.total_s(timeout)
        try_s = self._options.try_timeout
        spare_s = total_s - self._options.failover_interval
        if spare_s <= 0:
            return min(try_s, total_s)
        return min(try_s, total_s, max(spare_s / 2, TRY_TIMEOUT_S_MIN))

    def pause_s(self, error: BaseException, tries: int) -> float | None:
        """How long to wait after this many failed tries; None if the attempt is over."""
        if tries > self._total or not availability_failure(error):
            return None
        if tries == 1 and not isinstance(error, ServiceBusServerBusyError | OperationTimeoutError | TimeoutError):
            return 0.0
        pause_s = self._factor if self._mode == "fixed" else self._factor * 2**tries
        return None if pause_s > self._most else pause_s


def spread(pause_s: float, rng: Random) -> float:
    """A pause with jitter: those that failed together must not try again together."""
    return pause_s * (1 - JITTER * rng.random())


def pause_lengths_ms(
    *,
    retry_backoff_factor: float | None = None,
    retry_backoff_max: float | None = None,
    retry_mode: str = "exponential",
    **others: Any,
) -> tuple[int, int]:
    """The syphon's first and longest pause; an option that the application has not set changes nothing."""
    fixed = _plain(retry_mode) == "fixed"
    first_ms, longest_ms = SYPHON_PAUSE_MS_MIN, SYPHON_PAUSE_MS_MAX
    if retry_backoff_factor is not None:
        # The SDK doubles before its first pause already.
        first_ms = max(round(retry_backoff_factor * (1000 if fixed else 2000)), _PAUSE_MS_MIN)
    if retry_backoff_max is not None:
        longest_ms = max(round(retry_backoff_max * 1000), _PAUSE_MS_MIN)
    first_ms = min(first_ms, longest_ms)
    return first_ms, first_ms if fixed else longest_ms


def _plain(retry_mode: Any) -> str:
    """The mode as lower-case text; the SDK also accepts an enumeration."""
    return str(getattr(retry_mode, "value", retry_mode)).lower()


def size_of(message: Any) -> tuple[int, int]:
    """The number of messages, and the size of their bodies as far as known without encoding."""
    if isinstance(message, ServiceBusMessageBatch):
        return len(message), message.size_in_bytes
    if isinstance(message, list):
        sizes = [size_of(each) for each in message]
        return len(sizes), sum(size for _, size in sizes)
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    return 1, sum(len(part) for part in data_body(raw) or () if isinstance(part, bytes | str))
