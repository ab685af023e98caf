"""Map AMQP error conditions to our exceptions; no other file does.

Two rules. The condition decides; a management status counts only if there is no condition. An unknown condition becomes
an InternalError, which is retryable, with the condition in its text.
"""

from __future__ import annotations

from twinbus import errors
from twinbus.amqp import (
    Accepted,
    AmqpError,
    Modified,
    Received,
    Rejected,
    Released,
    State,
    TransactionalState,
)
from twinbus.errors import (
    ArgumentError,
    ConnectionForcedError,
    EntityExistsError,
    EntityNotFoundError,
    InternalError,
    LinkDetachedError,
    MessageLockLostError,
    MessageNotFoundError,
    NotAllowedError,
    OperationTimeoutError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
    SessionCannotBeLockedError,
    UnauthorizedError,
    UnsupportedError,
)

# Every service error we have a class for. If two share a condition, the first in the file wins.
_KINDS = [
    kind
    for kind in reversed(list(vars(errors).values()))
    if isinstance(kind, type) and issubclass(kind, ServiceError) and kind is not ServiceError
]

CONDITIONS: dict[str, type[ServiceError]] = {kind.condition: kind for kind in _KINDS} | {
    "com.microsoft:auth-failed": UnauthorizedError,
    "com.microsoft:argument-out-of-range": ArgumentError,
    "com.microsoft:precondition-failed": ArgumentError,
    "com.microsoft:session-not-found": MessageNotFoundError,
    "amqp:precondition-failed": ArgumentError,
    "amqp:decode-error": ArgumentError,
    "amqp:invalid-field": ArgumentError,
    "amqp:illegal-state": NotAllowedError,
    "amqp:resource-deleted": EntityNotFoundError,
    "amqp:resource-locked": SessionCannotBeLockedError,
    "amqp:link:stolen": LinkDetachedError,
    "amqp:connection:framing-error": ConnectionForcedError,
}

STATUSES: dict[int, type[ServiceError]] = {
    400: ArgumentError,
    401: UnauthorizedError,
    403: QuotaExceededError,
    404: EntityNotFoundError,
    408: OperationTimeoutError,
    409: EntityExistsError,
    410: MessageLockLostError,
    412: ArgumentError,
    500: InternalError,
    501: UnsupportedError,
    503: ServerBusyError,
}


def error_of(error: AmqpError) -> ServiceError:
    """Return the exception for an error on a link, a session, a connection or a delivery."""
    return _of_condition(error.condition, error.description)


def request_error(status: int, condition: str | None, description: str) -> ServiceError:
    """Return the exception for a failed request."""
    if condition:
        return _of_condition(condition, description)
    kind = STATUSES.get(status)
    if kind is None:
        return InternalError(f"status {status}: {description}")
    return kind(description or f"status {status}")


def lost(error: AmqpError | None, text: str) -> ServiceError:
    """Return the exception for all users of a lost connection or link."""
    return ConnectionForcedError(text) if error is None else error_of(error)


def refusal(state: State | None) -> ServiceError | None:
    """Return the exception for a message that was not accepted, or None if it was."""
    if isinstance(state, Accepted):
        return None
    if isinstance(state, Rejected):
        return (
            ArgumentError("The message was rejected without a reason.")
            if state.error is None
            else error_of(state.error)
        )
    if isinstance(state, TransactionalState):
        return refusal(state.outcome)
    if isinstance(state, Released | Modified | Received):
        return ServerBusyError("The message was given back instead of accepted.")
    return InternalError(f"The message was settled without an outcome ({state!r}).")


def settlement_failure(state: State | None) -> ServiceError | None:
    """Return the exception for a failed settlement, or None; a rejection is a failure only if it carries an error."""
    if isinstance(state, Rejected) and state.error is not None:
        return error_of(state.error)
    return None


def _of_condition(condition: str, description: str) -> ServiceError:
    kind = CONDITIONS.get(condition)
    if kind is None:
        return InternalError(f"{condition}: {description}")
    return kind(description or condition)
