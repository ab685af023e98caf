"""Paired namespaces on top of the official SDK: while the primary is down, sends go to the secondary.

`PairedServiceBusClient` replaces `azure.servicebus.ServiceBusClient`; its asyncio twin is in `.aio`.
"""

from twinbus.ledger.words import Event
from twinbus.paired._sync.client import PairedServiceBusClient
from twinbus.paired._sync.receiver import PairedServiceBusReceiver
from twinbus.paired._sync.sender import PairedServiceBusSender
from twinbus.paired.classify import availability_failure, non_transient_error
from twinbus.paired.errors import MessageInBacklogError, PairFaultedError, PairingError
from twinbus.paired.events import PairedEvent
from twinbus.paired.options import PairingOptions
from twinbus.paired.state import EntityState

__all__ = [
    "EntityState",
    "Event",
    "MessageInBacklogError",
    "PairFaultedError",
    "PairedEvent",
    "PairedServiceBusClient",
    "PairedServiceBusReceiver",
    "PairedServiceBusSender",
    "PairingError",
    "PairingOptions",
    "availability_failure",
    "non_transient_error",
]
