"""Twinbus keeps applications sending when their message bus is down, and loses nothing doing it."""

__version__ = "0.1.0"
