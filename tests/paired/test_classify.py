"""Which errors may lead to a failover, and which are the caller's own."""

from __future__ import annotations

import logging
import socket
import ssl

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus import exceptions as sdk
from azure.servicebus._pyamqp.error import TokenAuthFailure
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from twinbus.paired.classify import availability_failure, cause_of, exact, non_transient_error, of_the_message


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


def refused_token(status: int | None, address: str | None = None) -> sdk.ServiceBusError:
    """What the SDK raises for a put-token with this answer; with a custom endpoint it is a connection error."""
    failure = TokenAuthFailure(status, b"Not today.")
    return PyamqpTransport.create_servicebus_exception(
        logging.getLogger(__name__), failure, custom_endpoint_address=address
    )


def by_both_endpoints(status: int | None) -> list[sdk.ServiceBusError]:
    errors = [refused_token(status), refused_token(status, "gateway:443")]
    assert [type(error) for error in errors] == [sdk.ServiceBusAuthenticationError, sdk.ServiceBusConnectionError]
    return errors


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_refused_token_is_the_callers(status: int) -> None:
    for error in by_both_endpoints(status):
        assert not availability_failure(error)
        assert not availability_failure(exact(error))


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_token_that_cannot_be_taken_now_makes_the_primary_unavailable(status: int) -> None:
    for error in by_both_endpoints(status):
        assert availability_failure(error)
        assert exact(error) is error


def test_a_token_without_an_answer_is_told_by_its_type() -> None:
    assert not availability_failure(refused_token(None))
    assert availability_failure(refused_token(None, "gateway:443"))


def test_a_host_that_no_websocket_can_find_is_unavailable() -> None:
    """The SDK raises an authentication error."""
    client = ServiceBusClient(
        "contoso.invalid",
        AzureNamedKeyCredential("name", "key"),
        transport_type=TransportType.AmqpOverWebsocket,
        retry_total=0,
    )
    with client, pytest.raises(sdk.ServiceBusAuthenticationError) as raised, client.get_queue_sender("orders"):
        pass
    assert availability_failure(raised.value)
    assert exact(raised.value) is raised.value


def test_a_refused_token_gets_the_type_of_its_reason() -> None:
    for error in by_both_endpoints(404):
        found = exact(error)
        assert isinstance(found, sdk.MessagingEntityNotFoundError)
        assert "Not today." in str(found)
        assert cause_of(found) == "amqp:not-found"
        assert found.inner_exception is error
    for error in by_both_endpoints(401):
        found = exact(error)
        assert isinstance(found, sdk.ServiceBusAuthenticationError)
        assert cause_of(found) == "amqp:unauthorized-access"
        assert found.inner_exception is error
    for other in (sdk.ServiceBusConnectionError(), sdk.ServiceBusAuthenticationError(), ConnectionResetError()):
        assert exact(other) is other


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
    # A TimeoutException was not a MessagingException, and yet counted.
    assert non_transient_error(sdk.OperationTimeoutError())
    assert non_transient_error(TimeoutError())
    assert not non_transient_error(sdk.ServiceBusConnectionError())
    assert not non_transient_error(sdk.ServiceBusCommunicationError())
    assert not non_transient_error(ValueError())


def test_what_the_message_itself_causes() -> None:
    for error in (sdk.MessageSizeExceededError(), ValueError(), TypeError()):
        assert of_the_message(error) is True
    # Python raises a ValueError for an untrusted certificate; it is not the message's fault.
    for other in (ssl.SSLCertVerificationError("self-signed"), sdk.ServiceBusConnectionError(), KeyError()):
        assert of_the_message(other) is False


def test_a_cause_is_a_condition_or_a_class() -> None:
    assert cause_of(plain(b"amqp:internal-error")) == "amqp:internal-error"
    error = plain()
    error._condition = b"amqp:bytes"  # type: ignore[attr-defined]
    assert cause_of(error) == "amqp:bytes"
    assert cause_of(plain("amqp:text")) == "amqp:text"  # type: ignore[arg-type]
    assert cause_of(ConnectionResetError("host:secret")) == "ConnectionResetError"
