"""Whose fault an error is: the primary's, which may lead to a failover, or the caller's own, which never does.

Rules:
- The exception's type decides, never the SDK's `retryable` flag: that is true for authentication errors as well.
- The SDK makes an authentication error of every refused token, or a connection error where a custom endpoint is used.
  There the status of the answer decides: for an entity that does not exist it is 404.
- The SDK has no types for internal errors and for bad arguments; both are plain `ServiceBusError`. There the AMQP
  condition decides, or the type of what was wrapped.
- A policy is a function from an exception to a bool; `availability_failure` is the one used unless another is given.
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

# Time-outs, links and connections, DNS and TLS (all of them OSError), and busy beyond the SDK's own retries.
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

# Conditions of plain errors that say that the call itself is wrong.
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

# What the old SDK called transient. A TimeoutException was none of its messaging errors, and led to a failover.
_TRANSIENT: Final = (
    ServiceBusConnectionError,
    ServiceBusCommunicationError,
    ServiceBusServerBusyError,
)


# Answers to a token that may be another in a moment; so may all from 500 on.
_TEMPORARY: Final = frozenset({408, 429})


def availability_failure(error: BaseException) -> bool:
    """Whether the entity is unavailable, as far as this error tells."""
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
    # What fails in the making of a message, or in a credential, is the caller's; an AMQP failure without a condition
    # is the peer's.
    return not isinstance(inner, ValueError | TypeError | LookupError | ArithmeticError | AzureError)


def non_transient_error(error: BaseException) -> bool:
    """The literal reading of the old documentation: every messaging error that is not transient, and time-outs."""
    return isinstance(error, TimeoutError | ServiceBusError) and not isinstance(error, _TRANSIENT)


def exact(error: Exception) -> Exception:
    """The error itself, or for a token refused for good one whose type and text say why."""
    refusal = refused_token(error)
    if refusal is None or _is_temporary(refusal[0]):
        return error
    status, text = refusal
    if status == 404:
        return MessagingEntityNotFoundError(message=text, condition="amqp:not-found", status_code=status, error=error)
    condition = "amqp:unauthorized-access"
    return ServiceBusAuthenticationError(message=text, condition=condition, status_code=status, error=error)


def of_the_message(error: BaseException) -> bool:
    """Whether the message itself is at fault, so that no other queue would take it either."""
    if isinstance(error, OSError):
        # A certificate that is not trusted is a ValueError to Python.
        return False
    return isinstance(error, MessageSizeExceededError | ValueError | TypeError)


def cause_of(error: BaseException) -> str:
    """The condition, or the class's name: what a ledger may hold, because neither can hold a secret."""
    return condition_of(error) or type(error).__name__


def _is_temporary(status: int) -> bool:
    return status >= 500 or status in _TEMPORARY
