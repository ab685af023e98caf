"""AMQP's type system: bytes to values and back; `types` says which Python type stands for which AMQP type."""

from twinbus.amqp.decoding import decode, decode_all, skip
from twinbus.amqp.encoding import encode, encode_into

__all__ = ["decode", "decode_all", "encode", "encode_into", "skip"]
