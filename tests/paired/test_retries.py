"""Retries inside one send attempt: how long each waits, and how much of the caller's timeout is left."""

from __future__ import annotations

import math
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus import exceptions as sdk
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.limits import PAIRED_TIMEOUT_S_MAX
from twinbus.paired.options import PairingOptions
from twinbus.paired.retries import Retries, pause_lengths_ms, size_of


def retries(interval: float = 60, try_timeout: float = 10, **settings: float) -> Retries:
    return Retries(PairingOptions(failover_interval=interval, try_timeout=try_timeout), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "timeout", "total", "attempt"),
    [
        (60, None, 120, 10),
        (0, None, 60, 10),
        (60, 5, 5, 5),
        (60, 30, 30, 10),
        # A timeout slightly longer than the interval leaves some time for the backlog.
        (60, 70, 70, 5),
        (60, 60.5, 60.5, 2),
        (0, 5, 5, 2.5),
        (0, 0.5, 0.5, 0.5),
    ],
)
def test_times(interval: float, timeout: float | None, total: float, attempt: float) -> None:
    made = retries(interval)
    assert (made.total_s(timeout), made.attempt_s(timeout)) == (total, attempt)


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_no_time_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        retries().total_s(timeout)


def test_an_endless_timeout_is_a_year() -> None:
    made = retries()
    assert made.total_s(math.inf) == made.total_s(1e12) == PAIRED_TIMEOUT_S_MAX
    assert made.attempt_s(math.inf) == 10


def test_the_sdks_pauses() -> None:
    busy = sdk.ServiceBusServerBusyError()
    assert [retries().pause_s(busy, tries) for tries in (1, 2, 3, 4)] == [1.6, 3.2, 6.4, None]
    assert retries(retry_total=0).pause_s(busy, 1) is None
    assert retries(retry_mode="fixed").pause_s(busy, 2) == 0.8  # type: ignore[arg-type]
    assert retries(retry_backoff_max=2).pause_s(busy, 2) is None


def test_a_link_that_broke_is_tried_again_at_once() -> None:
    assert retries().pause_s(sdk.ServiceBusConnectionError(), 1) == 0
    assert retries().pause_s(sdk.ServiceBusConnectionError(), 2) == 3.2


def test_the_callers_own_error_is_not_tried_again() -> None:
    assert retries().pause_s(sdk.MessagingEntityNotFoundError(), 1) is None


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="'sometimes'"):
        retries(retry_mode="sometimes")  # type: ignore[arg-type]


def test_sizes_for_the_ledger() -> None:
    batch = ServiceBusMessageBatch()
    batch.add_message(ServiceBusMessage("abc"))
    assert size_of(ServiceBusMessage("abc")) == (1, 3)
    assert size_of([ServiceBusMessage(b"abc"), AmqpAnnotatedMessage(data_body=[b"a", b"bc"])]) == (2, 6)
    assert size_of(batch) == (1, batch.size_in_bytes)
    assert size_of(AmqpAnnotatedMessage(value_body={"a": 1})) == (1, 0)


@pytest.mark.parametrize(
    ("options", "lengths_ms"),
    [
        ({}, (500, 60_000)),
        ({"retry_total": 1}, (500, 60_000)),
        ({"retry_backoff_factor": 0.8}, (1_600, 60_000)),
        ({"retry_backoff_factor": 0.8, "retry_mode": "Fixed"}, (800, 800)),
        ({"retry_mode": "fixed"}, (500, 500)),
        ({"retry_backoff_max": 10}, (500, 10_000)),
        ({"retry_backoff_factor": 100, "retry_backoff_max": 3}, (3_000, 3_000)),
        ({"retry_backoff_factor": 0, "retry_backoff_max": 0}, (100, 100)),
    ],
)
def test_the_pauses_of_a_syphon(options: dict[str, Any], lengths_ms: tuple[int, int]) -> None:
    assert pause_lengths_ms(**options) == lengths_ms
