"""Classifies errors: those of the primary may lead to a failover, those of the caller never do.

- The exception's type decides, never the SDK's `retryable` flag, which is also true for authentication errors.
- The SDK raises an authentication error for every refused token (a connection error if a custom endpoint is used).
  There the status of the answer decides: it is 404 if the entity does not exist.
- The SDK has no types for internal errors and bad arguments; both are plain `ServiceBusError`. There the AMQP condition
  decides, or the type of the wrapped error.
- A policy is a function from an exception to a bool; the default is `availability_failure`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from twinbus.paired.sdk_internals import condition_of, failed_to_connect, refused_token

Policy = Callable[[BaseException], bool]

# Timeouts, links and connections, DNS and TLS (all of them OSError), and busy beyond the SDK's retries.
_UNAVAILABLE: Final = (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusCommunicationError,
    ServiceBusServerBusyError,
    ServiceRequestError,
    ServiceResponseError,
    OSError,
    EOFError,
)

# Conditions of plain errors that mean that the call itself is wrong.
_CALLERS: Final = frozenset(
    {
        "amqp:not-allowed",
        "amqp:not-implemented",
        "amqp:not-found",
        "amqp:unauthorized-access",
        "amqp:precondition-failed",
        "amqp:invalid-field",
        "amqp:decode-error",
        "amqp:illegal-state",
        "amqp:resource-deleted",
        "amqp:resource-locked",
        "amqp:frame-size-too-small",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "com.microsoft:precondition-failed",
        "com.microsoft:entity-disabled",
        "com.microsoft:auth-failed",
    }
)

# What the old SDK called transient. Its TimeoutException was not a messaging error and led to a failover.
_TRANSIENT: Final = (
    ServiceBusConnectionError,
    ServiceBusCommunicationError,
    ServiceBusServerBusyError,
)


# Statuses of a refused token that may change; so may all from 500 on.
_TEMPORARY: Final = frozenset({408, 429})


def availability_failure(error: BaseException) -> bool:
    """Whether this error means that the entity is unavailable."""
    refusal = refused_token(error)
    if refusal is not None:
        return _is_temporary(refusal[0])
    if isinstance(error, _UNAVAILABLE) or failed_to_connect(error):
        return True
    if type(error) is not ServiceBusError:
        return False
    condition = condition_of(error)
    if condition is not None:
        return condition not in _CALLERS
    inner = error.inner_exception
    if inner is None or isinstance(inner, _UNAVAILABLE):
        return True
    # An error while creating a message or in a credential is the caller's; an AMQP failure without a condition is the
    # peer's.
    return not isinstance(inner, ValueError | TypeError | LookupError | ArithmeticError | AzureError)


def non_transient_error(error: BaseException) -> bool:
    """The old documentation taken literally: every messaging error that is not transient, and timeouts."""
    return isinstance(error, TimeoutError | ServiceBusError) and not isinstance(error, _TRANSIENT)


def exact(error: Exception) -> Exception:
    """The error itself; for a permanently refused token, one whose type and text say why."""
    refusal = refused_token(error)
    if refusal is None or _is_temporary(refusal[0]):
        return error
    status, text = refusal
    if status == 404:
        return MessagingEntityNotFoundError(message=text, condition="amqp:not-found", status_code=status, error=error)
    condition = "amqp:unauthorized-access"
    return ServiceBusAuthenticationError(message=text, condition=condition, status_code=status, error=error)


def of_the_message(error: BaseException) -> bool:
    """Whether the message itself is at fault, so that no other queue would accept it either."""
    if isinstance(error, OSError):
        # In Python an untrusted certificate is a ValueError.
        return False
    return isinstance(error, MessageSizeExceededError | ValueError | TypeError)


def cause_of(error: BaseException) -> str:
    """The condition or the class name: safe for a ledger, because neither can contain a secret."""
    return condition_of(error) or type(error).__name__


def _is_temporary(status: int) -> bool:
    return status >= 500 or status in _TEMPORARY
