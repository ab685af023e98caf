"""Errors raised in several places, with the service's own texts."""

from __future__ import annotations

from typing import Final

from twinbus.errors import ArgumentError, EntityDisabledError, EntityNotFoundError, MessageTooLargeError

NO_SESSIONS_TEXT: Final = (
    "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
    "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
)
SESSION_NEEDED_TEXT: Final = (
    "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
)
SESSION_ID_MISSING_TEXT: Final = (
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session support "
    "enabled can only receive messages that have the SessionId set to a valid value."
)


def not_found(path: str) -> EntityNotFoundError:
    return EntityNotFoundError(
        f"The messaging entity '{path}' could not be found. To know more visit https://aka.ms/sbResourceMgrExceptions."
    )


def disabled(path: str) -> EntityDisabledError:
    return EntityDisabledError(f"Messaging entity '{path}' is currently disabled.")


def too_large(size: int, limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"The received message (size:{size} bytes) exceeds the limit ({limit} bytes) currently allowed."
    )


def too_long(what: str, value: str, limit: int) -> ArgumentError:
    return ArgumentError(f"The {what} has {len(value)} characters, the limit is {limit}.")
