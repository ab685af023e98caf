"""Recognises pings, which our receivers hide. The service drops them; other brokers may deliver them."""

from __future__ import annotations

from typing import Any

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"


def is_ping(message: Any) -> bool:
    """Whether a received message is a ping."""
    content_type = message.content_type
    return content_type is not None and content_type in (PING_CONTENT_TYPE, PING_CONTENT_TYPE.encode())
