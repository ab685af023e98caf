"""What the console changes: sends, creates, deletes, purges, resubmits. Each answers when it is on disk.

Rules:
- Each command needs its right on the entity: Send to send, Listen and Send to resubmit, Manage for the rest.
- Long work goes in steps of one commit each, so that nobody else waits for it; a request does a bounded part of it.
- Operations are counted as those of any client are.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Right
from twinbus.broker.http.console.entities import found_entity
from twinbus.broker.http.console.messages import MAIN, part_of
from twinbus.broker.http.rest.properties import message_of
from twinbus.broker.nodes.directory import settings_of
from twinbus.broker.nodes.rule_wire import sql_filter
from twinbus.entities.filters import SqlAction
from twinbus.entities.queue import Queue
from twinbus.entities.rule import DEFAULT_RULE, Rule
from twinbus.entities.setting import FLAG
from twinbus.entities.settings import SETTINGS, QueueSettings
from twinbus.entities.subscription import subscription_of
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ArgumentError, EncodeError, QuotaExceededError, ServerBusyError
from twinbus.ledger.words import OK, Kind
from twinbus.limits import (
    ADMIN_COMMIT_TIMEOUT_MS,
    BATCH_DELETE_MESSAGES_MAX,
    CONSOLE_COPIES_MAX,
    CONSOLE_PROPERTIES_MAX,
    CONSOLE_PURGE_MESSAGES_MAX,
)

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor

Fields = dict[str, Any]

# What a form may set, by the settings it goes to.
_QUEUE = (
    "requires_session",
    "requires_duplicate_detection",
    "dead_letter_on_expiry",
    "lock_duration_ms",
    "max_delivery_count",
    "default_ttl_ms",
    "max_megabytes",
)
_TOPIC = ("requires_duplicate_detection", "default_ttl_ms", "max_megabytes")
_SUBSCRIPTION = tuple(name for name in _QUEUE if name not in ("requires_duplicate_detection", "max_megabytes"))
_FLAGS = {setting.name for setting in SETTINGS if setting.kind == FLAG}
# What a form may set of a message, by the names of the REST data plane.
_PROPERTIES = {
    "message_id": "MessageId",
    "session_id": "SessionId",
    "subject": "Label",
    "correlation_id": "CorrelationId",
}


async def send(visitor: Visitor, fields: Fields) -> Fields:
    """Send a message, or several copies of it."""
    host = visitor.host(_text(fields, "namespace"))
    target = found_entity(visitor, host, _text(fields, "entity"))
    visitor.need(host, target.path, Right.SEND)
    if host.store.full:
        raise QuotaExceededError("The disk that holds this namespace is full: receive messages or make room.")
    copies = _whole(fields, "copies", 1, CONSOLE_COPIES_MAX)
    own = fields.get("properties", {})
    if not isinstance(own, dict) or any(isinstance(value, list | dict) or value is None for value in own.values()):
        raise ArgumentError("Properties are names with texts, numbers, true or false.")
    if len(own) > CONSOLE_PROPERTIES_MAX:
        raise ArgumentError(f"A message sent from here has at most {CONSOLE_PROPERTIES_MAX} properties.")
    system: dict[str, Any] = {title: given for name, title in _PROPERTIES.items() if (given := _text(fields, name))}
    if fields.get("time_to_live_s"):
        system["TimeToLive"] = fields["time_to_live_s"]
    if fields.get("delay_s"):
        delay_s = _whole(fields, "delay_s", 1, 365 * 86_400)
        system["ScheduledEnqueueTimeUtc"] = _time_after(host, delay_s)
    try:
        content = _text(fields, "body").encode()
        payload = message_of(content, _text(fields, "content_type") or None, system, own).encode()
    except (EncodeError, UnicodeEncodeError) as error:
        raise ArgumentError(f"The message has no AMQP form: {error}") from None
    now_ms = host.clock.now_ms()
    # Each copy is read anew, because each gets an id of its own.
    taken = [host.intake.message(payload, now_ms, target.settings.default_ttl_ms) for _ in range(copies)]
    target.send(taken, now_ms, host.commits.facts)
    host.meter.entity(target.path).add_sends(taken)
    await _durable(host)
    return {"sent": copies}


async def create(visitor: Visitor, fields: Fields) -> Fields:
    """Make a queue, a topic, a subscription or a rule."""
    host = visitor.host(_text(fields, "namespace"))
    kind, name, topic = _text(fields, "kind"), _text(fields, "name").strip(), _text(fields, "topic")
    path = name
    if kind == "queue":
        visitor.need(host, path, Right.MANAGE)
        host.create_queue(settings_of(QueueSettings, {"path": name, **_settings(fields, _QUEUE)}))
    elif kind == "topic":
        visitor.need(host, path, Right.MANAGE)
        host.create_topic(settings_of(TopicSettings, {"path": name, **_settings(fields, _TOPIC)}))
    elif kind == "subscription":
        visitor.need(host, topic, Right.MANAGE)
        settings = settings_of(SubscriptionSettings, {"topic": topic, "name": name, **_settings(fields, _SUBSCRIPTION)})
        rule = _rule(host, DEFAULT_RULE, fields) if _text(fields, "filter").strip() else None
        path = host.create_subscription(settings, rule).path
    elif kind == "rule":
        visitor.need(host, topic, Right.MANAGE)
        host.add_rule(topic, _text(fields, "subscription"), _rule(host, name, fields))
    else:
        raise ArgumentError(f"'{kind[:32]}' cannot be made here: queue, topic, subscription or rule.")
    await _managed(host)
    return {"path": path}


async def delete(visitor: Visitor, fields: Fields) -> Fields:
    """Delete an entity with everything in it, or a rule."""
    host = visitor.host(_text(fields, "namespace"))
    entity = found_entity(visitor, host, _text(fields, "entity"))
    visitor.need(host, entity.path, Right.MANAGE)
    subscription = subscription_of(entity)
    rule = _text(fields, "rule")
    if rule:
        if subscription is None:
            raise ArgumentError(f"'{entity.path}' is no subscription: only subscriptions have rules.")
        host.remove_rule(subscription.topic.path, subscription.name, rule)
    elif isinstance(entity, Topic):
        host.delete_topic(entity.path)
    elif subscription is not None:
        host.delete_subscription(subscription.topic.path, subscription.name)
    else:
        host.delete_queue(entity.path)
    await _managed(host)
    return {"deleted": rule or entity.path}


async def purge(visitor: Visitor, fields: Fields) -> Fields:
    """Delete the messages that nobody has locked and that were there when it began."""
    host, part = _queue(visitor, fields, Right.MANAGE)
    before_ms = host.clock.now_ms() + 1
    purged = 0
    while purged < CONSOLE_PURGE_MESSAGES_MAX and not part.deleted:
        deleted = part.delete_batch(BATCH_DELETE_MESSAGES_MAX, before_ms, host.clock.now_ms(), host.commits.facts)
        if not deleted:
            break
        purged += deleted
        host.meter.entity(part.path).counter(Kind.DELETE).count += deleted
        await _durable(host)
    return {"purged": purged, "more": purged >= CONSOLE_PURGE_MESSAGES_MAX}


async def resubmit(visitor: Visitor, fields: Fields) -> Fields:
    """Send dead letters back to the entity they came from: those with the given numbers, or all there are."""
    host, part = _queue(visitor, fields, Right.LISTEN, Right.SEND)
    owner = part.owner
    if owner is None:
        raise ArgumentError("Only dead letters can be resubmitted.")
    given = fields.get("numbers")
    numbers: list[int] | None = None
    if given is not None:
        if not isinstance(given, list) or len(given) > BATCH_DELETE_MESSAGES_MAX:
            raise ArgumentError(f"'numbers' is a list of at most {BATCH_DELETE_MESSAGES_MAX} sequence numbers.")
        numbers = [int(each) for each in given if isinstance(each, str) and each.isascii() and each.isdigit()]
        if len(numbers) != len(given):
            raise ArgumentError("A sequence number is written as a text of digits.")
    moved = refused = after = 0
    while moved + refused < CONSOLE_PURGE_MESSAGES_MAX and not owner.deleted:
        done = owner.resubmit(part, numbers, after, host.clock.now_ms(), host.commits.facts)
        moved, refused, after = moved + done.moved, refused + done.refused, done.last_seq
        host.meter.entity(part.path).counter(Kind.RECEIVE).count += done.moved
        host.meter.entity(owner.path).counter(Kind.SEND).count += done.moved
        await _durable(host)
        if numbers is not None or done.moved + done.refused < BATCH_DELETE_MESSAGES_MAX:
            break
    return {"resubmitted": moved, "refused": refused, "more": moved + refused >= CONSOLE_PURGE_MESSAGES_MAX}


def _queue(visitor: Visitor, fields: Fields, *rights: Right) -> tuple[NamespaceHost, Queue]:
    host = visitor.host(_text(fields, "namespace"))
    entity = found_entity(visitor, host, _text(fields, "entity"))
    visitor.need(host, entity.path, *rights)
    part = part_of(entity, _text(fields, "part") or MAIN)
    if isinstance(part, Topic):
        raise ArgumentError(f"The topic '{entity.path}' holds no messages: its subscriptions do.")
    return host, part


def _rule(host: NamespaceHost, name: str, fields: Fields) -> Rule:
    action = _text(fields, "action").strip()
    condition = sql_filter(_text(fields, "filter").strip() or "1=1")
    return Rule(name, condition, SqlAction(action) if action else None, host.clock.now_ms())


def _settings(fields: Fields, names: tuple[str, ...]) -> Fields:
    given = fields.get("settings", {})
    if not isinstance(given, dict):
        raise ArgumentError("'settings' is an object.")
    for name, value in given.items():
        if name not in names:
            raise ArgumentError(f"'{str(name)[:64]}' cannot be set here.")
        if not isinstance(value, bool | int) or isinstance(value, bool) != (name in _FLAGS):
            raise ArgumentError(f"'{name}' has a value of the wrong type.")
    return given


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a text.")
    return value


def _whole(fields: Fields, name: str, low: int, high: int) -> int:
    value = fields.get(name, low)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ArgumentError(f"'{name}' is out of range: {low} to {high}.")
    return value


def _time_after(host: NamespaceHost, seconds: int) -> str:
    return datetime.fromtimestamp(host.clock.now_ms() / 1000 + seconds, UTC).isoformat()


async def _managed(host: NamespaceHost) -> None:
    host.meter.entity("").counter(Kind.MANAGE, OK).count += 1
    await _durable(host)


async def _durable(host: NamespaceHost) -> None:
    """Wait until what was asked is on disk."""
    done: asyncio.Future[None] = host.loop.create_future()
    host.commits.facts.then.append((_resolve, done))
    host.commits.request()
    try:
        await asyncio.wait_for(done, ADMIN_COMMIT_TIMEOUT_MS / 1000)
    except TimeoutError:
        raise ServerBusyError("The disk did not answer in time; look whether the change was made.") from None


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
