"""Paired namespaces for asyncio: `PairedServiceBusClient` replaces `azure.servicebus.aio.ServiceBusClient`."""

from twinbus.paired._async.client import PairedServiceBusClient
from twinbus.paired._async.receiver import PairedServiceBusReceiver
from twinbus.paired._async.sender import PairedServiceBusSender

__all__ = ["PairedServiceBusClient", "PairedServiceBusReceiver", "PairedServiceBusSender"]
