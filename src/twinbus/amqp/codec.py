"""AMQP's type system: encode values to bytes and decode them again. `types` maps AMQP types to Python types."""

from twinbus.amqp.decoding import count_values, decode, decode_all, skip
from twinbus.amqp.encoding import encode, encode_into

__all__ = ["count_values", "decode", "decode_all", "encode", "encode_into", "skip"]
