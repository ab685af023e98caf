"""Errors that several packages raise or catch, and those sent over the wire.

Errors of a single package are defined there:
- `AdminError` in `broker/http/admin/errors.py` and `Refused` in `broker/http/console/answers.py` carry an HTTP status.
- `PairingError`, `PairFaultedError` and `MessageInBacklogError` in `paired/errors.py` extend the SDK's own.
- `PatternError` in `entities/filters/patterns.py`, `UnmaskedFrameError` in `broker/connections/frame_scan.py`,
  `NoLinkYet` in `paired/synchronization.py` and `MadeAnew` in `spark/source/settling.py` stay internal.

    TwinbusError
    ├── ServiceError                 the service refuses; carries an AMQP condition and a status code
    │   ├── EntityNotFoundError          amqp:not-found
    │   ├── UnauthorizedError            amqp:unauthorized-access
    │   ├── NotAllowedError              amqp:not-allowed
    │   ├── UnsupportedError             amqp:not-implemented
    │   ├── QuotaExceededError           amqp:resource-limit-exceeded
    │   ├── MessageTooLargeError         amqp:link:message-size-exceeded
    │   ├── LinkDetachedError            amqp:link:detach-forced
    │   ├── ConnectionForcedError        amqp:connection:forced
    │   ├── InternalError                amqp:internal-error
    │   ├── OperationTimeoutError        com.microsoft:timeout
    │   ├── ServerBusyError              com.microsoft:server-busy
    │   ├── MessageLockLostError         com.microsoft:message-lock-lost
    │   ├── SessionLockLostError         com.microsoft:session-lock-lost
    │   ├── SessionCannotBeLockedError   com.microsoft:session-cannot-be-locked
    │   ├── MessageNotFoundError         com.microsoft:message-not-found
    │   ├── EntityDisabledError          com.microsoft:entity-disabled
    │   ├── EntityExistsError            com.microsoft:entity-already-exists
    │   ├── TransactionUnknownError      amqp:transaction:unknown-id
    │   ├── ArgumentError                com.microsoft:argument-error
    │   └── FilterEvaluationError        amqp:internal-error; a subscription may dead-letter on it
    ├── ProtocolError                the peer broke AMQP; ends its link, session or connection
    │   ├── FramingError                 amqp:connection:framing-error
    │   ├── DecodeError                  amqp:decode-error
    │   ├── InvalidFieldError            amqp:invalid-field
    │   ├── IllegalStateError            amqp:illegal-state
    │   ├── PeerNotAllowedError          amqp:not-allowed
    │   ├── PeerLimitError               amqp:resource-limit-exceeded
    │   ├── HandleInUseError             amqp:session:handle-in-use
    │   └── UnattachedHandleError        amqp:session:unattached-handle
    ├── EncodeError                  a value has no AMQP encoding; the caller's mistake
    ├── StoreError                   the disk or the data folder failed
    │   ├── StoreLockedError             another process holds the data folder
    │   └── StoreCorruptError            a checksum does not match, or a record cannot be decoded
    │       └── DamagedBodyError             the body of one message; all others are readable
    ├── EnvelopeError                a message in a backlog queue cannot be restored; the text says why
    ├── LedgerError                  a line of a ledger is invalid; the text says why
    └── ConfigError                  a setting, flag or file is wrong; the text names it and the fix

A refusal by the service and a violation of the protocol are separate trees: the first is the answer to a caller's
request, the second ends the link, session or connection on which it happened.
"""

from __future__ import annotations

from typing import ClassVar


class TwinbusError(Exception):
    """Base class of all Twinbus errors."""


class ServiceError(TwinbusError):
    """The service refuses an operation.

    AMQP clients map `condition` to their own exceptions; `status` is the code in a management response. `retryable`
    says whether the same call may succeed later unchanged.
    """

    condition: ClassVar[str] = "amqp:internal-error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    @property
    def text(self) -> str:
        return str(self.args[0]) if self.args else self.condition


class EntityNotFoundError(ServiceError):
    condition = "amqp:not-found"
    status = 404


class UnauthorizedError(ServiceError):
    """`reason` is one word for logs and metrics, `policy` the name of an existing
    policy that the client claims to be; neither is in the text."""

    condition = "amqp:unauthorized-access"
    status = 401

    def __init__(self, text: str = "Unauthorized access.", reason: str = "MissingRight", policy: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.policy = policy


def bad_token(reason: str, text: str, policy: str = "") -> UnauthorizedError:
    """The error for a token that is not accepted; its text starts with the reason, as the service's does."""
    return UnauthorizedError(f"{reason}: {text}", reason, policy)


class NotAllowedError(ServiceError):
    condition = "amqp:not-allowed"
    status = 400


class UnsupportedError(ServiceError):
    condition = "amqp:not-implemented"
    status = 501


class QuotaExceededError(ServiceError):
    condition = "amqp:resource-limit-exceeded"
    status = 403


class MessageTooLargeError(ServiceError):
    condition = "amqp:link:message-size-exceeded"
    status = 403


class LinkDetachedError(ServiceError):
    condition = "amqp:link:detach-forced"
    status = 503
    retryable = True


class ConnectionForcedError(ServiceError):
    condition = "amqp:connection:forced"
    status = 503
    retryable = True


class InternalError(ServiceError):
    condition = "amqp:internal-error"
    status = 500
    retryable = True


class OperationTimeoutError(ServiceError):
    condition = "com.microsoft:timeout"
    status = 408
    retryable = True


class ServerBusyError(ServiceError):
    condition = "com.microsoft:server-busy"
    status = 503
    retryable = True


class MessageLockLostError(ServiceError):
    condition = "com.microsoft:message-lock-lost"
    status = 410

    TEXT = (
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
    )

    def __init__(self, text: str = TEXT) -> None:
        super().__init__(text)


class SessionLockLostError(ServiceError):
    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionCannotBeLockedError(ServiceError):
    condition = "com.microsoft:session-cannot-be-locked"
    status = 410


class MessageNotFoundError(ServiceError):
    condition = "com.microsoft:message-not-found"
    status = 404


class EntityDisabledError(ServiceError):
    condition = "com.microsoft:entity-disabled"
    status = 400


class EntityExistsError(ServiceError):
    condition = "com.microsoft:entity-already-exists"
    status = 409


class TransactionUnknownError(ServiceError):
    condition = "amqp:transaction:unknown-id"
    status = 400


class ArgumentError(ServiceError):
    condition = "com.microsoft:argument-error"
    status = 400


class FilterEvaluationError(ServiceError):
    """A valid rule failed on a message: a division by zero, an overflow, an operator that the type does not have. It is
    never sent over the wire: the subscription drops or dead-letters the message."""


class ProtocolError(TwinbusError):
    """The peer broke AMQP."""

    condition: ClassVar[str] = "amqp:internal-error"


class FramingError(ProtocolError):
    condition = "amqp:connection:framing-error"


class DecodeError(ProtocolError):
    condition = "amqp:decode-error"


class InvalidFieldError(ProtocolError):
    condition = "amqp:invalid-field"


class IllegalStateError(ProtocolError):
    condition = "amqp:illegal-state"


class PeerNotAllowedError(ProtocolError):
    condition = "amqp:not-allowed"


class PeerLimitError(ProtocolError):
    condition = "amqp:resource-limit-exceeded"


class HandleInUseError(ProtocolError):
    condition = "amqp:session:handle-in-use"


class UnattachedHandleError(ProtocolError):
    condition = "amqp:session:unattached-handle"


class EncodeError(TwinbusError, ValueError):
    """A value has no AMQP encoding, or does not fit the one its type requires."""


class StoreError(TwinbusError):
    """The disk or the data folder failed."""


class StoreLockedError(StoreError):
    """Another process holds the data folder."""


class StoreCorruptError(StoreError):
    """A checksum does not match, or a record cannot be decoded."""


class DamagedBodyError(StoreCorruptError):
    """The body of one message is missing, truncated or changed; all others are readable."""


class EnvelopeError(TwinbusError):
    """A message in a backlog queue has no destination, or its original form cannot be decoded."""


class LedgerError(TwinbusError):
    """A line of a ledger is not a record, or not one that this version understands."""


class ConfigError(TwinbusError):
    """A setting, a flag or a file is wrong."""
