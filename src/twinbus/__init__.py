"""Twinbus keeps applications sending while their message bus is down, without losing a message."""

__version__ = "0.1.0"
