"""A small asyncio Service Bus client on our own AMQP engine, for bulk work: pipelined sends, credit-based receives."""

from twinbus.amqp.reader import ACTIVE, DEFERRED, Fields, read_enqueued_ms, read_fields, read_head
from twinbus.amqp.typed_json import from_json, to_json
from twinbus.auth.connection_string import ConnectionString
from twinbus.client.batch import batches, encode_batch
from twinbus.client.client import BusClient
from twinbus.client.credentials import credential_tokens
from twinbus.client.delivered import delivered_part
from twinbus.client.management import Management
from twinbus.client.message import Message, ReceivedMessage
from twinbus.client.outgoing import encode_message
from twinbus.client.receiver import Receiver
from twinbus.client.reconnect import Backoff, retried
from twinbus.client.sender import Sender
from twinbus.client.session_receiver import SessionReceiver
from twinbus.client.tls import tls_context
from twinbus.client.tokens import KeyTokens, SignatureTokens, Token, TokenSource

__all__ = [
    "ACTIVE",
    "DEFERRED",
    "Backoff",
    "BusClient",
    "ConnectionString",
    "Fields",
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
    "credential_tokens",
    "delivered_part",
    "encode_batch",
    "encode_message",
    "from_json",
    "read_enqueued_ms",
    "read_fields",
    "read_head",
    "retried",
    "tls_context",
    "to_json",
]
