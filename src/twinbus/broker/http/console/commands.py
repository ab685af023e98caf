"""The console's commands that send messages and create, update or delete entities. Each answers once it is on disk.

- Each command needs its right on the entity: Send to send, Manage for the rest.
- Operations are counted like those of any other client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Right
from twinbus.broker import sending
from twinbus.broker.durability import until_durable
from twinbus.broker.http.console.chosen import FULL_TEXT
from twinbus.broker.http.console.edited import properties_of, time_after
from twinbus.broker.http.console.entities import found_entity
from twinbus.broker.http.console.fields import Fields, text, whole
from twinbus.broker.http.rest.properties import message_of
from twinbus.broker.nodes.directory import settings_of
from twinbus.broker.nodes.rule_wire import sql_filter
from twinbus.entities.filters import SqlAction
from twinbus.entities.rule import DEFAULT_RULE, Rule
from twinbus.entities.setting import FLAG, TEXT
from twinbus.entities.settings import SETTINGS, SETTINGS_OF, QueueSettings
from twinbus.entities.subscription import subscription_of
from twinbus.entities.topic import Topic
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ArgumentError, EncodeError, NotAllowedError, QuotaExceededError
from twinbus.ledger.words import OK, Kind
from twinbus.limits import CONSOLE_COPIES_MAX, CONSOLE_DELAY_S_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.visitor import Visitor
    from twinbus.broker.server import NamespaceEndpoint

# Settings that a form may set, by kind of entity.
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
_TYPES = {setting.name: {FLAG: bool, TEXT: str}.get(setting.kind, int) for setting in SETTINGS}
# Message properties that a form may set, with their names in the REST API.
_PROPERTIES = {
    "message_id": "MessageId",
    "session_id": "SessionId",
    "subject": "Label",
    "correlation_id": "CorrelationId",
}


async def send(visitor: Visitor, fields: Fields) -> Fields:
    """Send a message, or several copies of it."""
    host = visitor.host(text(fields, "namespace"))
    target = found_entity(visitor, host, text(fields, "entity"), Right.SEND)
    if host.store.full:
        raise QuotaExceededError(FULL_TEXT)
    copies = whole(fields, "copies", 1, CONSOLE_COPIES_MAX)
    own = properties_of(fields)
    system: dict[str, Any] = {title: given for name, title in _PROPERTIES.items() if (given := text(fields, name))}
    if fields.get("time_to_live_s"):
        system["TimeToLive"] = fields["time_to_live_s"]
    if fields.get("delay_s"):
        system["ScheduledEnqueueTimeUtc"] = time_after(host, whole(fields, "delay_s", 1, CONSOLE_DELAY_S_MAX))
    try:
        content = text(fields, "body").encode()
        payload = message_of(content, text(fields, "content_type") or None, system, own).encode()
    except (EncodeError, UnicodeEncodeError) as error:
        raise ArgumentError(f"The message has no AMQP form: {error}") from None
    now_ms = host.clock.now_ms()
    # Parse it again for each copy, because each gets its own id.
    taken = [host.intake.message(payload, now_ms, target.settings.default_ttl_ms) for _ in range(copies)]
    await sending.send(host, target, taken)
    host.meter.entity(target.path).add_sends(taken)
    await until_durable(host)
    return {"sent": copies}


async def create(visitor: Visitor, fields: Fields) -> Fields:
    """Create a queue, a topic, a subscription or a rule."""
    host = visitor.host(text(fields, "namespace"))
    kind, name, topic = text(fields, "kind"), text(fields, "name").strip(), text(fields, "topic")
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
        rule = _rule(host, DEFAULT_RULE, fields) if text(fields, "filter").strip() else None
        path = host.create_subscription(settings, rule).path
    elif kind == "rule":
        visitor.need(host, topic, Right.MANAGE)
        host.add_rule(topic, text(fields, "subscription"), _rule(host, name, fields))
    else:
        raise ArgumentError(f"'{kind[:32]}' cannot be made here: queue, topic, subscription or rule.")
    await _managed(host)
    return {"path": path}


async def delete(visitor: Visitor, fields: Fields) -> Fields:
    """Delete an entity with all its messages, or a rule."""
    host = visitor.host(text(fields, "namespace"))
    entity = found_entity(visitor, host, text(fields, "entity"), Right.MANAGE)
    subscription = subscription_of(entity)
    rule = text(fields, "rule")
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


async def update(visitor: Visitor, fields: Fields) -> Fields:
    """Change some settings of an entity, including its status; the others stay."""
    host = visitor.host(text(fields, "namespace"))
    entity = found_entity(visitor, host, text(fields, "entity"), Right.MANAGE)
    before = entity.settings
    changes = _settings(fields, tuple(each.name for each in SETTINGS_OF[before.kind] if not each.fixed))
    for name in ("forward_to", "forward_dead_letters_to"):
        target = changes.get(name)
        if target and target.lower() != (getattr(before, name) or "").lower():
            visitor.need(host, target, Right.SEND)
    after: Any = settings_of(type(before), {**before.to_json(), **changes})  # type: ignore[type-var]
    getattr(host, f"update_{before.kind}")(after)
    await _managed(host)
    return {"path": entity.path}


def connection_string(visitor: Visitor, fields: Fields, endpoints: Mapping[str, NamespaceEndpoint]) -> Fields:
    """The connection string with the key used to log in, never another; in development mode, of the first policy."""
    host = visitor.host(text(fields, "namespace"))
    if visitor.login.account(host) is not None and not host.dev:
        raise NotAllowedError("An account has no connection string: it belongs to a key. Log in with a key to see it.")
    known, endpoint = visitor.login.known(host), endpoints.get(host.name)
    if known is None or endpoint is None:
        raise NotAllowedError("There is no key for this namespace.")
    policy, key = known
    told = {"SharedAccessKeyName": policy.name, "SharedAccessKey": key}
    if policy.scope:
        told["EntityPath"] = policy.scope
    # Address and transport are those of the connection string that the broker printed.
    shown = [part for part in endpoint.connection_string.split(";") if part and not part.startswith("SharedAccess")]
    shown[1:1] = [f"{name}={value}" for name, value in told.items()]
    return {"policy": policy.name, "connection_string": ";".join(shown)}


def _rule(host: NamespaceHost, name: str, fields: Fields) -> Rule:
    action = text(fields, "action").strip()
    condition = sql_filter(text(fields, "filter").strip() or "1=1")
    return Rule(name, condition, SqlAction(action) if action else None, host.clock.now_ms())


def _settings(fields: Fields, names: tuple[str, ...]) -> Fields:
    given = fields.get("settings", {})
    if not isinstance(given, dict):
        raise ArgumentError("'settings' is an object.")
    for name, value in given.items():
        if name not in names:
            raise ArgumentError(f"'{str(name)[:64]}' cannot be set here.")
        if type(value) is not _TYPES[name]:
            raise ArgumentError(f"'{name}' has a value of the wrong type.")
    # A form sends an empty string to remove a text.
    return {name: None if value == "" else value for name, value in given.items()}


async def _managed(host: NamespaceHost) -> None:
    host.meter.entity("").counter(Kind.MANAGE, OK).count += 1
    await until_durable(host)
