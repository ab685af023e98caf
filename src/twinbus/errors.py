"""The errors that more than one package raises or catches, and those that go onto the wire.

An error of one package only is defined there:
- `AdminError` in `broker/http/admin/errors.py` and `Refused` in `broker/http/console/answers.py` carry an HTTP status.
- `PairingError`, `PairFaultedError` and `MessageInBacklogError` in `paired/errors.py` extend the SDK's own.
- `PatternError` in `entities/filters/patterns.py` and `MadeAnew` in `spark/source/settling.py` stay inside theirs.

    TwinbusError
    ├── ServiceError                 the service says no; carries an AMQP condition and a status code
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
    │   ├── UnattachedHandleError        amqp:session:unattached-handle
    │   └── WindowViolationError         amqp:session:window-violation
    ├── EncodeError                  a value has no AMQP form; the caller's mistake
    ├── StoreError                   the disk or the data folder says no
    │   ├── StoreLockedError             another process holds the data folder
    │   └── StoreCorruptError            a checksum does not match, or a record cannot be decoded
    │       └── DamagedBodyError             the body of one message; all others can be read
    ├── EnvelopeError                a message of a backlog queue cannot be restored; the text says why
    ├── LedgerError                  a line of a ledger is invalid; the text says why
    └── ConfigError                  a setting, flag or file is wrong; the text names it and the fix

"The service says no" and "the peer broke the rules" are two trees: the first is answered to the caller who
asked, the second ends the conversation that broke.
"""

from __future__ import annotations

from typing import ClassVar


class TwinbusError(Exception):
    """The root: catch it to catch everything that is ours."""


class ServiceError(TwinbusError):
    """The service refuses an operation.

    `condition` is what an AMQP client maps to its exception, `status` the code in a management answer,
    `retryable` whether the same call can succeed later without the caller changing it.
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
    condition = "amqp:unauthorized-access"
    status = 401


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
    """A rule that is well written failed on a message: a division by zero, an overflow, a type that has no such
    operator. Nobody on the wire is told: the subscription drops the message or dead-letters it."""


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


class WindowViolationError(ProtocolError):
    condition = "amqp:session:window-violation"


class EncodeError(TwinbusError, ValueError):
    """A value has no AMQP form, or does not fit the one its type asks for."""


class StoreError(TwinbusError):
    """The disk or the data folder says no."""


class StoreLockedError(StoreError):
    """Another process holds the data folder."""


class StoreCorruptError(StoreError):
    """A checksum does not match, or a record cannot be decoded."""


class DamagedBodyError(StoreCorruptError):
    """The body of one message is missing, cut short or changed; all others can be read."""


class EnvelopeError(TwinbusError):
    """A message of a backlog queue has no destination, or its original form cannot be decoded."""


class LedgerError(TwinbusError):
    """A line of a ledger is not a record, or not one that this version reads."""


class ConfigError(TwinbusError):
    """A setting, a flag or a file is wrong."""
