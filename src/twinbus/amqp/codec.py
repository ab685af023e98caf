"""AMQP's type system: encode values to bytes and decode them again. `types` maps AMQP types to Python types."""

from twinbus.amqp.decoding import decode, decode_all, skip
from twinbus.amqp.encoding import encode, encode_into

__all__ = ["decode", "decode_all", "encode", "encode_into", "skip"]
