"""The rules: what a queue does with a message. Pure: (state, command, now) -> facts."""

from __future__ import annotations

from .effects import Effect, EffectKind
from .holding import Counts
from .message import Message, NewMessage
from .namespace import Namespace
from .queue import Queue
from .session import Session
from .settings import QueueSettings

__all__ = ["Counts", "Effect", "EffectKind", "Message", "Namespace", "NewMessage", "Queue", "QueueSettings", "Session"]
