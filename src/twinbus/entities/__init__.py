"""The rules: what queues, topics and subscriptions do with a message. Pure: (state, command, now) -> facts."""

from __future__ import annotations

from .effects import Effect, EffectKind
from .holding import Counts
from .message import Message, NewMessage, Relayed
from .namespace import Namespace
from .queue import Queue
from .rule import Rule
from .session import Session
from .settings import QueueSettings
from .subscription import Subscription
from .topic import Topic
from .topic_settings import SubscriptionSettings, TopicSettings

__all__ = [
    "Counts",
    "Effect",
    "EffectKind",
    "Message",
    "Namespace",
    "NewMessage",
    "Queue",
    "QueueSettings",
    "Relayed",
    "Rule",
    "Session",
    "Subscription",
    "SubscriptionSettings",
    "Topic",
    "TopicSettings",
]
