"""A queue's description, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Policy
from twinbus.broker.http.admin.authorization_xml import policies_out
from twinbus.broker.http.admin.feed import Entry, Site
from twinbus.broker.http.admin.forwarding import with_paths
from twinbus.broker.http.admin.requests import MESSAGE_SIZE_VERSION
from twinbus.broker.http.admin.xml_in import DURATION, FLAG, NUMBER, TEXT, Field, values_of
from twinbus.broker.http.admin.xml_out import accessed, count_details, description, element, flag, moment, optional
from twinbus.durations import format_ms
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

KIND = "QueueDescription"

FIELDS = (
    Field("LockDuration", "lock_duration_ms", DURATION),
    Field("MaxSizeInMegabytes", "max_megabytes", NUMBER),
    Field("RequiresDuplicateDetection", "requires_duplicate_detection", FLAG),
    Field("RequiresSession", "requires_session", FLAG),
    Field("DefaultMessageTimeToLive", "default_ttl_ms", DURATION),
    Field("DeadLetteringOnMessageExpiration", "dead_letter_on_expiry", FLAG),
    Field("DuplicateDetectionHistoryTimeWindow", "duplicate_window_ms", DURATION),
    Field("MaxDeliveryCount", "max_delivery_count", NUMBER),
    Field("EnableBatchedOperations", "enable_batched_operations", FLAG),
    Field("Status", "status", TEXT),
    Field("AutoDeleteOnIdle", "auto_delete_on_idle_ms", DURATION),
    Field("EnablePartitioning", "enable_partitioning", FLAG),
    Field("EnableExpress", "enable_express", FLAG),
    Field("ForwardTo", "forward_to", TEXT),
    Field("UserMetadata", "user_metadata", TEXT),
    Field("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to", TEXT),
    Field("MaxMessageSizeInKilobytes", "max_message_kilobytes", NUMBER),
)


def queue_values(queue_description: Element) -> dict[str, Any]:
    """The settings in a description. What an owner can take away (forwarding, metadata) is None when absent."""
    return {"user_metadata": None} | with_paths(values_of(queue_description, FIELDS))


def queue_entry(queue: Queue, policies: Sequence[Policy], site: Site) -> Entry:
    settings = queue.settings
    assert isinstance(settings, QueueSettings)
    content = description(
        KIND,
        element("LockDuration", format_ms(settings.lock_duration_ms)),
        element("MaxSizeInMegabytes", str(settings.max_megabytes)),
        element("RequiresDuplicateDetection", flag(settings.requires_duplicate_detection)),
        element("RequiresSession", flag(settings.requires_session)),
        element("DefaultMessageTimeToLive", format_ms(settings.default_ttl_ms)),
        element("DeadLetteringOnMessageExpiration", flag(settings.dead_letter_on_expiry)),
        element("DuplicateDetectionHistoryTimeWindow", format_ms(settings.duplicate_window_ms)),
        element("MaxDeliveryCount", str(settings.max_delivery_count)),
        element("EnableBatchedOperations", flag(settings.enable_batched_operations)),
        element("SizeInBytes", str(queue.size_bytes)),
        element("MessageCount", str(message_total(queue))),
        element("IsAnonymousAccessible", "false"),
        policies_out(policies),
        element("Status", settings.status),
        element("CreatedAt", moment(queue.created_ms)),
        element("UpdatedAt", moment(queue.updated_ms)),
        accessed(queue.accessed_ms, queue.created_ms, queue.updated_ms),
        element("SupportOrdering", "true"),
        message_counts(queue),
        element("AutoDeleteOnIdle", format_ms(settings.auto_delete_on_idle_ms)),
        element("EnablePartitioning", flag(settings.enable_partitioning)),
        element("EntityAvailabilityStatus", "Available"),
        element("EnableExpress", flag(settings.enable_express)),
        optional("ForwardTo", site.forward(settings.forward_to)),
        optional("UserMetadata", settings.user_metadata),
        optional("ForwardDeadLetteredMessagesTo", site.forward(settings.forward_dead_letters_to)),
        element("MaxMessageSizeInKilobytes", str(settings.max_message_bytes // 1024))
        if site.version >= MESSAGE_SIZE_VERSION
        else "",
    )
    return Entry(queue.path, queue.path, queue.created_ms, queue.updated_ms, content)


def message_total(queue: Queue) -> int:
    counts = queue.counts
    return counts.active + counts.scheduled + counts.deferred + counts.dead_letter + queue.transfer_dead_letter_count


def message_counts(queue: Queue) -> str:
    """Deferred messages are active to the service's counters: they wait for somebody who knows their number."""
    counts, transfer_dead = queue.counts, queue.transfer_dead_letter_count
    # Nothing is ever on its way: what is forwarded has arrived when it is durable.
    return count_details(counts.active + counts.deferred, counts.dead_letter, counts.scheduled, 0, transfer_dead)
