"""Every condition of the service becomes its own exception."""

from __future__ import annotations

import pytest

from twinbus import errors
from twinbus.amqp import ACCEPTED, RELEASED, AmqpError, Modified, Rejected, TransactionalState
from twinbus.client.conditions import CONDITIONS, error_of, lost, refusal, request_error, settlement_failure
from twinbus.errors import (
    ArgumentError,
    ConnectionForcedError,
    EntityNotFoundError,
    InternalError,
    MessageLockLostError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
    UnauthorizedError,
)

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ServiceError) and kind is not ServiceError
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_service_error_comes_back_as_itself(kind: type[ServiceError]) -> None:
    error = error_of(AmqpError(kind.condition, "text"))
    first = next(one for one in KINDS if one.condition == kind.condition)
    assert type(error) is first
    assert error.text == "text"


def test_every_condition_has_a_description_of_its_own() -> None:
    for condition, kind in CONDITIONS.items():
        assert error_of(AmqpError(condition)).text == condition
        assert issubclass(kind, ServiceError)


def test_unknown_conditions_are_retryable_and_named() -> None:
    error = error_of(AmqpError("vendor:odd", "something"))
    assert type(error) is InternalError
    assert error.retryable
    assert "vendor:odd" in error.text


@pytest.mark.parametrize(
    ("status", "condition", "kind"),
    [
        (404, "com.microsoft:message-not-found", errors.MessageNotFoundError),
        (410, "com.microsoft:session-lock-lost", errors.SessionLockLostError),
        (410, None, MessageLockLostError),
        (401, None, UnauthorizedError),
        (404, None, EntityNotFoundError),
        (418, None, InternalError),
    ],
)
def test_requests_fail_by_condition_then_by_status(
    status: int, condition: str | None, kind: type[ServiceError]
) -> None:
    assert type(request_error(status, condition, "text")) is kind


def test_outcomes_of_sends() -> None:
    assert refusal(ACCEPTED) is None
    assert refusal(TransactionalState(b"t", ACCEPTED)) is None
    assert type(refusal(RELEASED)) is ServerBusyError
    assert type(refusal(Modified(None, None, None))) is ServerBusyError
    assert type(refusal(Rejected(None))) is ArgumentError
    assert type(refusal(Rejected(AmqpError("amqp:resource-limit-exceeded")))) is QuotaExceededError
    assert type(refusal(None)) is InternalError


def test_a_settlement_fails_only_with_an_error() -> None:
    assert settlement_failure(Rejected(None)) is None
    assert settlement_failure(ACCEPTED) is None
    error = settlement_failure(Rejected(AmqpError("com.microsoft:message-lock-lost", "gone")))
    assert type(error) is MessageLockLostError


def test_a_loss_without_a_reason_is_a_forced_close() -> None:
    assert type(lost(None, "gone")) is ConnectionForcedError
    assert type(lost(AmqpError("amqp:not-found"), "gone")) is EntityNotFoundError
