"""Point 24: which errors may lead to a failover, and which are the caller's own."""

from __future__ import annotations

import socket
import ssl

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus import exceptions as sdk

from twinbus.paired.classify import availability_failure, cause_of, non_transient_error, of_the_message


def plain(condition: bytes | None = None, inner: BaseException | None = None) -> sdk.ServiceBusError:
    return sdk.ServiceBusError("no", condition=condition, error=inner)


UNAVAILABLE = [
    sdk.OperationTimeoutError(),
    sdk.ServiceBusConnectionError(),
    sdk.ServiceBusCommunicationError(),
    sdk.ServiceBusServerBusyError(),
    plain(b"amqp:internal-error"),
    plain(b"amqp:connection:forced"),
    plain(b"com.microsoft:something-new"),
    plain(),
    plain(inner=socket.gaierror(-2, "Name or service not known")),
    plain(inner=ConnectionRefusedError()),
    plain(inner=ssl.SSLCertVerificationError("self-signed")),
    plain(inner=ServiceRequestError("the token service does not answer")),
    plain(inner=EOFError()),
    ConnectionResetError(),
    TimeoutError(),
    ssl.SSLError(),
]

CALLERS = [
    sdk.MessagingEntityNotFoundError(),
    sdk.MessagingEntityDisabledError(),
    sdk.ServiceBusAuthenticationError(),
    sdk.ServiceBusAuthorizationError(),
    sdk.MessageSizeExceededError(),
    sdk.ServiceBusQuotaExceededError(),
    sdk.MessagingEntityAlreadyExistsError(),
    plain(b"amqp:not-allowed"),
    plain(b"amqp:not-implemented"),
    plain(b"com.microsoft:argument-error"),
    plain(b"com.microsoft:argument-out-of-range"),
    plain(inner=ValueError("cannot be encoded")),
    plain(inner=TypeError("cannot be encoded")),
    plain(inner=ClientAuthenticationError("no such user")),
    ValueError(),
    TypeError(),
]


@pytest.mark.parametrize("error", UNAVAILABLE, ids=repr)
def test_unavailable(error: BaseException) -> None:
    assert availability_failure(error)


@pytest.mark.parametrize("error", CALLERS, ids=repr)
def test_the_callers_own(error: BaseException) -> None:
    assert not availability_failure(error)


def test_the_retryable_flag_does_not_count() -> None:
    error = sdk.ServiceBusAuthenticationError()
    assert error._retryable
    assert not availability_failure(error)


def test_the_old_documentation_read_literally() -> None:
    assert non_transient_error(sdk.MessagingEntityNotFoundError())
    assert non_transient_error(sdk.ServiceBusQuotaExceededError())
    assert not non_transient_error(sdk.ServiceBusServerBusyError())
    # A TimeoutException was no MessagingException, and counted.
    assert non_transient_error(sdk.OperationTimeoutError())
    assert non_transient_error(TimeoutError())
    assert not non_transient_error(sdk.ServiceBusConnectionError())
    assert not non_transient_error(sdk.ServiceBusCommunicationError())
    assert not non_transient_error(ValueError())


def test_what_the_message_itself_causes() -> None:
    for error in (sdk.MessageSizeExceededError(), ValueError(), TypeError()):
        assert of_the_message(error) is True
    # A certificate that is not trusted is a ValueError to Python, and not the message's fault.
    for other in (ssl.SSLCertVerificationError("self-signed"), sdk.ServiceBusConnectionError(), KeyError()):
        assert of_the_message(other) is False


def test_a_cause_is_a_condition_or_a_class() -> None:
    assert cause_of(plain(b"amqp:internal-error")) == "amqp:internal-error"
    error = plain()
    error._condition = b"amqp:bytes"  # type: ignore[attr-defined]
    assert cause_of(error) == "amqp:bytes"
    assert cause_of(plain("amqp:text")) == "amqp:text"  # type: ignore[arg-type]
    assert cause_of(ConnectionResetError("host:secret")) == "ConnectionResetError"
