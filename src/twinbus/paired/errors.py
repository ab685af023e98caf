"""The paired client's own errors.

azure.servicebus.exceptions.ServiceBusError      so that an application's handlers for the SDK's errors see them
├── PairingError                 no backlog queue could be found or created
├── PairFaultedError             the pair was given up; the text says why
└── MessageInBacklogError        a scheduled message sits in the backlog, where nobody can cancel it
"""

from __future__ import annotations

from azure.servicebus.exceptions import ServiceBusError


class PairingError(ServiceBusError):
    """No backlog queue could be found or created in the secondary."""

    # Whether another try may succeed without intervention.
    temporary = True


class PairFaultedError(ServiceBusError):
    """The pair was given up."""


class MessageInBacklogError(ServiceBusError):
    """The message is on its way through the backlog and cannot be addressed by its number."""
