"""A subscription's description, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.broker.http.admin.feed import Entry, Site
from twinbus.broker.http.admin.forwarding import with_paths
from twinbus.broker.http.admin.queue_xml import message_counts, message_total
from twinbus.broker.http.admin.xml_in import DURATION, FLAG, NUMBER, TEXT, Field, values_of
from twinbus.broker.http.admin.xml_out import accessed, description, element, flag, moment, optional
from twinbus.durations import format_ms
from twinbus.entities.subscription import Subscription

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

KIND = "SubscriptionDescription"

FIELDS = (
    Field("LockDuration", "lock_duration_ms", DURATION),
    Field("RequiresSession", "requires_session", FLAG),
    Field("DefaultMessageTimeToLive", "default_ttl_ms", DURATION),
    Field("DeadLetteringOnMessageExpiration", "dead_letter_on_expiry", FLAG),
    Field("DeadLetteringOnFilterEvaluationExceptions", "dead_letter_on_filter_error", FLAG),
    Field("MaxDeliveryCount", "max_delivery_count", NUMBER),
    Field("EnableBatchedOperations", "enable_batched_operations", FLAG),
    Field("Status", "status", TEXT),
    Field("ForwardTo", "forward_to", TEXT),
    Field("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to", TEXT),
    Field("AutoDeleteOnIdle", "auto_delete_on_idle_ms", DURATION),
    Field("UserMetadata", "user_metadata", TEXT),
)


def subscription_values(subscription_description: Element) -> dict[str, Any]:
    """The settings in a description. What an owner can take away (forwarding, metadata) is None when absent."""
    return {"user_metadata": None} | with_paths(values_of(subscription_description, FIELDS))


def subscription_entry(subscription: Subscription, site: Site) -> Entry:
    settings = subscription.settings
    content = description(
        KIND,
        element("LockDuration", format_ms(settings.lock_duration_ms)),
        element("RequiresSession", flag(settings.requires_session)),
        element("DefaultMessageTimeToLive", format_ms(settings.default_ttl_ms)),
        element("DeadLetteringOnMessageExpiration", flag(settings.dead_letter_on_expiry)),
        element("DeadLetteringOnFilterEvaluationExceptions", flag(settings.dead_letter_on_filter_error)),
        element("MessageCount", str(message_total(subscription))),
        element("MaxDeliveryCount", str(settings.max_delivery_count)),
        element("EnableBatchedOperations", flag(settings.enable_batched_operations)),
        element("Status", settings.status),
        optional("ForwardTo", site.forward(settings.forward_to)),
        element("CreatedAt", moment(subscription.created_ms)),
        element("UpdatedAt", moment(subscription.updated_ms)),
        accessed(subscription.accessed_ms, subscription.created_ms, subscription.updated_ms),
        message_counts(subscription),
        optional("ForwardDeadLetteredMessagesTo", site.forward(settings.forward_dead_letters_to)),
        element("AutoDeleteOnIdle", format_ms(settings.auto_delete_on_idle_ms)),
        element("EntityAvailabilityStatus", "Available"),
        optional("UserMetadata", settings.user_metadata),
    )
    return Entry(subscription.path, subscription.name, subscription.created_ms, subscription.updated_ms, content)
