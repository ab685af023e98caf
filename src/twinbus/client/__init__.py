"""A small asyncio Service Bus client on our own engine, for bulk work: pipelined sends, credit-based receives."""

from twinbus.client.batch import batches, encode_batch
from twinbus.client.client import BusClient
from twinbus.client.management import Management
from twinbus.client.message import Message, ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender
from twinbus.client.session_receiver import SessionReceiver
from twinbus.client.tokens import KeyTokens, SignatureTokens, Token, TokenSource

__all__ = [
    "BusClient",
    "KeyTokens",
    "Management",
    "Message",
    "ReceivedMessage",
    "Receiver",
    "Sender",
    "SessionReceiver",
    "SignatureTokens",
    "Token",
    "TokenSource",
    "batches",
    "encode_batch",
]
