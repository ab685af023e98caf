"""Reads and writes the descriptions of queues, topics and subscriptions. Their settings come from the settings table.

Elements are in the service's order; a setting that is not listed there comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Policy
from twinbus.broker.http.admin.authorization_xml import policies_out
from twinbus.broker.http.admin.feed import Entry, Site
from twinbus.broker.http.admin.forwarding import path_in
from twinbus.broker.http.admin.requests import FILTER_COUNTS_VERSION, MESSAGE_SIZE_VERSION
from twinbus.broker.http.admin.xml_in import values_of
from twinbus.broker.http.admin.xml_out import count_details, description, element, flag, moment
from twinbus.durations import format_ms
from twinbus.entities.queue import Queue
from twinbus.entities.setting import DURATION, FLAG, QUEUE, SUBSCRIPTION, TEXT, TOPIC, Setting
from twinbus.entities.settings import SETTINGS_OF, EntitySettings
from twinbus.entities.subscription import subscription_of
from twinbus.entities.topic import Topic

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Elements that are not settings of that kind of entity appear only if they are listed here.
_ORDER = {
    QUEUE: """
        LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
        DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations
        SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt
        SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus EnableExpress
        ForwardTo UserMetadata ForwardDeadLetteredMessagesTo MaxMessageSizeInKilobytes
    """,
    TOPIC: """
        DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
        EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules
        Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount
        CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
        EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes
    """,
    SUBSCRIPTION: """
        LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
        DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status
        ForwardTo CreatedAt UpdatedAt AccessedAt CountDetails ForwardDeadLetteredMessagesTo AutoDeleteOnIdle
        EntityAvailabilityStatus UserMetadata
    """,
}
# The API version that introduced an element.
_SINCE = {
    "MaxMessageSizeInKilobytes": MESSAGE_SIZE_VERSION,
    "SqlFilterCount": FILTER_COUNTS_VERSION,
    "CorrelationFilterCount": FILTER_COUNTS_VERSION,
}


def element_of(kind: str) -> str:
    """The element that describes an entity of that kind."""
    return f"{kind.capitalize()}Description"


def settings_in(entity_description: Element, kind: str) -> dict[str, Any]:
    """The settings in a description. Settings that can be removed (forwarding, metadata) are None if absent."""
    values = values_of(entity_description, SETTINGS_OF[kind])
    for setting in SETTINGS_OF[kind]:
        if setting.kind == TEXT and setting.default is None:
            given = values.get(setting.name)
            if given and setting.metavar == "ENTITY":
                values.setdefault("forward_scheme", "https" if given.lstrip().startswith("https:") else "sb")
                given = path_in(setting.name, given)
            values[setting.name] = given
    return values


def entry_of(entity: Queue | Topic, policies: Sequence[Policy], site: Site) -> Entry:
    kind = entity.settings.kind
    elements = {
        "IsAnonymousAccessible": element("IsAnonymousAccessible", "false"),
        "AuthorizationRules": policies_out(policies),
        "AccessedAt": element("AccessedAt", _accessed(entity)),
        **{name: element(name, text) for name, text in _numbers(entity).items()},
        "CountDetails": message_counts(entity),
    }
    own = {setting.azure: _setting(setting, entity.settings, site) for setting in SETTINGS_OF[kind]}
    order = _ORDER[kind].split()
    order += [name for name in own if name not in order]
    shown = [(elements | own)[name] for name in order if site.version >= _SINCE.get(name, "")]
    content = description(element_of(kind), *shown)
    subscription = subscription_of(entity)
    title = entity.path if subscription is None else subscription.name
    return Entry(entity.path, title, entity.created_ms, entity.updated_ms, content)


def _accessed(entity: Queue | Topic) -> str:
    """When an entity was last used. To the service, creating a subscription counts as use, a queue or topic does
    not."""
    used = subscription_of(entity) is not None or entity.accessed_ms not in (entity.created_ms, entity.updated_ms)
    # The minimum date of .NET clients.
    return moment(entity.accessed_ms) if used else "0001-01-01T00:00:00Z"


def _setting(setting: Setting, settings: EntitySettings, site: Site) -> str:
    value = getattr(settings, setting.name)
    if value is None:
        return ""
    if setting.kind == DURATION:
        shown = format_ms(value)
    elif setting.kind == FLAG:
        shown = flag(value)
    elif setting.kind == TEXT:
        shown = site.forward(settings.forward_scheme, value) if setting.metavar == "ENTITY" else value
    else:
        shown = str(value // setting.azure_unit)
    return element(setting.azure, shown)


def _numbers(entity: Queue | Topic) -> dict[str, str]:
    """What a description contains besides the settings."""
    told = {
        "SizeInBytes": str(entity.size_bytes),
        "CreatedAt": moment(entity.created_ms),
        "UpdatedAt": moment(entity.updated_ms),
        "EntityAvailabilityStatus": "Available",
        "SupportOrdering": "true",
    }
    if isinstance(entity, Topic):
        return told | {
            "SubscriptionCount": str(entity.subscription_count),
            "SqlFilterCount": str(entity.selection.sql_count),
            "CorrelationFilterCount": str(entity.selection.correlation_count),
            "EnableSubscriptionPartitioning": "false",
        }
    counts = entity.counts
    total = counts.active + counts.scheduled + counts.deferred + counts.dead_letter
    return told | {"MessageCount": str(total + entity.transfer_dead_letter_count)}


def message_counts(entity: Queue | Topic) -> str:
    """The service counts deferred messages as active: they can still be received by number."""
    if isinstance(entity, Topic):
        # A topic itself holds only scheduled messages.
        return count_details(0, 0, entity.counts.scheduled, 0, 0)
    counts, transfer_dead = entity.counts, entity.transfer_dead_letter_count
    # Nothing is ever in transit: a forwarded message has arrived once it is durable.
    return count_details(counts.active + counts.deferred, counts.dead_letter, counts.scheduled, 0, transfer_dead)
